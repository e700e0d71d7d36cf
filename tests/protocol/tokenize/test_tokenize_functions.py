"""Functions and classes: what makes them the same, and what does not."""

import abc
import dataclasses
import enum
import functools
import importlib
import pickle
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from raddle.protocol.errors import ConfigError
from raddle.protocol.tokenize import Walker, encoding_id
from raddle.tokenize import tokenize


def run(source: str, **names: object) -> dict[str, Any]:
    """The namespace of a program whose functions nobody can import."""
    space: dict[str, Any] = {"__name__": "__main__", **names}
    exec(textwrap.dedent(source), space)
    return space


def function(source: str, **names: object) -> Callable[..., object]:
    made: Callable[..., object] = run(source, **names)["f"]
    return made


BODY = """
def f(x, y=1, *, z=2):
    'documented'
    return x + y + z
"""

SAME = {
    "another line": "\n\n\n" + BODY,
    "another docstring": BODY.replace("documented", "documented differently"),
    "annotated": BODY.replace("x,", "x: int,").replace("):", ") -> int:"),
    "another column": "if True:\n" + textwrap.indent(BODY, "        "),
    "another global": "other = 1\n" + BODY,
    "nested": "def g():\n"
    + textwrap.indent(BODY, "    ")
    + "\n    return f\nf = g()\n",
}

DIFFERENT = {
    "name": BODY.replace("def f", "def g") + "f = g\n",
    "body": BODY.replace("x + y + z", "x + z + y"),
    "argument": BODY.replace("x", "w"),
    "default": BODY.replace("y=1", "y=2"),
    "keyword default": BODY.replace("z=2", "z=3"),
    "default's type": BODY.replace("y=1", "y=True"),
    "keyword only": BODY.replace("*, z", "z"),
    "positional only": BODY.replace("x,", "x, /,"),
    "attribute": BODY + "f.attribute = 1\n",
    "generator": BODY.replace("return", "yield"),
    "constant": BODY.replace("+ z", "+ z + 0"),
    "constant's type": BODY.replace("+ z", "+ z + 0.0"),
    "constant's sign": BODY.replace("+ z", "+ z + -0.0"),
    "caught error": BODY.replace(
        "    return x + y + z",
        "    try:\n        return x\n    except KeyError:\n        return y",
    ),
}


@pytest.mark.parametrize("how", SAME)
def test_same_function(how: str) -> None:
    assert tokenize(function(SAME[how])) == tokenize(function(BODY))


def test_different_functions() -> None:
    tokens = {how: tokenize(function(source)) for how, source in DIFFERENT.items()}
    tokens["itself"] = tokenize(function(BODY))
    assert len(set(tokens.values())) == len(tokens)
    assert all(token.deterministic for token in tokens.values())


GLOBALS = "def f():\n    return used.attribute(lambda: inner, [deep for _ in inner])\n"


@pytest.mark.parametrize("name", ["used", "inner", "deep"])
def test_globals_count_if_loaded(name: str) -> None:
    values = {"used": 1, "inner": 2, "deep": 3}
    token = tokenize(function(GLOBALS, **values))
    assert token == tokenize(function(GLOBALS, **values, unused=1, attribute=2))
    assert token != tokenize(function(GLOBALS, **{**values, name: 4}))
    del values[name]
    assert token != tokenize(function(GLOBALS, **values))


def test_globals_are_read_anew() -> None:
    space = run("n = 1\ndef f():\n    return n\n")
    before = tokenize(space["f"])
    space["n"] = 2
    assert tokenize(space["f"]) != before


def test_closures() -> None:
    source = """
    def outer(value):
        def f():
            return value
        return f
    """
    outer = run(source)["outer"]
    assert tokenize(outer(1)) == tokenize(outer(1))
    assert len({tokenize(outer(v)) for v in (1, 2, [1], None)}) == 4


def test_an_empty_cell() -> None:
    source = """
    def outer(bound):
        if bound:
            value = None
        def f():
            return value
        return f
    """
    outer = run(source)["outer"]
    assert tokenize(outer(bound=False)) == tokenize(outer(bound=False))
    assert tokenize(outer(bound=False)) != tokenize(outer(bound=True))


MUTUAL = """
def even(n):
    return n == 0 or odd(n - 1)
def odd(n):
    return n != 0 and even(n - {})
"""


def test_mutual_recursion_through_globals() -> None:
    first, second = run(MUTUAL.format(1)), run(MUTUAL.format(1))
    assert tokenize(first["even"]) == tokenize(second["even"])
    assert tokenize(first["even"]) != tokenize(first["odd"])
    assert tokenize(first["even"]) != tokenize(run(MUTUAL.format(2))["even"])
    assert tokenize([first["odd"], first["even"]]) == tokenize(
        [second["odd"], second["even"]]
    )


CLASS = """
import abc, enum, dataclasses, functools
class Base:
    limit = 1
    def method(self):
        return C.limit + len(self.parts())
class C(Base):
    __slots__ = ("a", "b")
    kind = frozenset(["x", "y", "z"])
    def __init__(self, a):
        super().__init__()
        self.a = a
    def parts(self):
        return [self.a]
    @property
    def size(self):
        return 1
    @classmethod
    def make(cls):
        return cls(1)
    @staticmethod
    def helper():
        return 2
"""
CACHED = """    @functools.cached_property
    def cached(self):
        return 3
"""  # cloudpickle cannot ship that before Python 3.12


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("limit = 1", "limit = 2"),
        ("class C", "class D(Base): pass\nclass C"),
        ('"y"', '"w"'),
        ("return [self.a]", "return [self.a, 1]"),
        ("return 1", "return 5"),
        ("return 2", "return 5"),
        ("return 3", "return 5"),
        ('("a", "b")', '("a", "c")'),
        ("C(Base)", "C(Base, metaclass=abc.ABCMeta)"),
        ("limit = 1", "limit = 1\n    other = 1"),
        ("def method", "def another"),
    ],
)
def test_classes_of_main(old: str, new: str) -> None:
    source = CLASS + CACHED
    cls = run(source)["C"]
    assert tokenize(cls) == tokenize(run(source)["C"])
    assert tokenize(cls(1)) == tokenize(run(source)["C"](1))
    assert tokenize(cls, cls(1)).deterministic
    assert old in source
    changed = run(source.replace(old, new))["C"]
    same = "class D" in new
    assert (tokenize(cls) == tokenize(changed)) is same
    assert (tokenize(cls(1)) == tokenize(changed(1))) is same
    assert (tokenize(cls(1).parts) == tokenize(changed(1).parts)) is same


def test_using_a_class_does_not_change_it() -> None:
    cls = run("import abc\n" + CLASS.replace("C(Base)", "C(Base, abc.ABC)"))["C"]
    before = tokenize(cls), tokenize(cls(1))
    pickle.loads(cloudpickle.dumps(cls(1)))
    assert isinstance(cls(1), cls)
    assert not isinstance(1, cls)
    cls(1).size  # noqa: B018
    hash(cls(1))
    assert (tokenize(cls), tokenize(cls(1))) == before


SHIPPED = {
    "class": CLASS + "value = C",
    "instance": CLASS + "value = C(1)",
    "method": CLASS + "value = C(1).method",
    "enum": "import enum\nclass E(enum.Enum):\n    A = 1\n    B = 'b'\n"
    "    def double(self):\n        return [self, E.A]\nvalue = E",
    "member": "import enum\nclass E(enum.Enum):\n    A = 1\nvalue = E.A",
    "flag": "import enum\nclass E(enum.IntFlag):\n    A = 1\n    B = 2\nvalue = E(3)",
    "dataclass": "import dataclasses\n@dataclasses.dataclass(order=True)\nclass D:\n"
    "    x: int\n    y: list = dataclasses.field(default_factory=list)\nvalue = D(1)",
    "frozen": "import dataclasses\n@dataclasses.dataclass(frozen=True, slots=True)\n"
    "class D:\n    x: int\n    y: 'D | None' = None\nvalue = D(1, D(2))",
    "namedtuple": "import collections\nvalue = collections.namedtuple('N', 'a b')(1, 2)",
    "typed": "import typing\nclass N(typing.NamedTuple):\n    a: int\n    b: str = 'x'\n"
    "value = N(1)",
    "generic": "import typing\nT = typing.TypeVar('T')\nclass G(typing.Generic[T]):\n"
    "    def get(self) -> T: ...\nvalue = G[int]",
    "protocol": "import typing\nclass P(typing.Protocol):\n    x: int\nvalue = P",
    "lambda": "value = lambda x: x + 1",
    "sets": "value = lambda x: x in {'a', 'b', 'c', 'd'}",
    "recursive": "def fact(n):\n    return n * fact(n - 1) if n else 1\nvalue = fact",
    "mutual": MUTUAL.format(1) + "value = even",
    "partial": "import functools\ndef g(x, y): return x + y\n"
    "value = functools.partial(g, 1)",
    "decorated": "import functools\ndef d(f):\n    @functools.wraps(f)\n"
    "    def w(*a): return f(*a)\n    return w\n@d\ndef g(x): return x\nvalue = g",
    "cached": "import functools\n@functools.lru_cache\ndef g(x): return x\nvalue = g",
    "exception": "class E(ValueError):\n    code = 3\nvalue = E('a', 1)",
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipping_does_not_change_the_token(name: str) -> None:
    value = run(SHIPPED[name])["value"]
    token = tokenize(value, ensure_deterministic=True)
    assert token == tokenize(run(SHIPPED[name])["value"])
    if name == "cached":
        return  # pickle takes a cached function by its name only
    again = pickle.loads(cloudpickle.dumps(value))
    assert tokenize(again) == token
    assert tokenize(pickle.loads(cloudpickle.dumps(again))) == token


def test_enum_classes_count_by_members() -> None:
    def make(**members: object) -> Any:
        return enum.Enum("E", members, module="__main__")

    assert tokenize(make(A=1, B=2)) == tokenize(make(A=1, B=2))
    assert len({tokenize(make(**m)) for m in ({"A": 1}, {"A": 2}, {"B": 1})}) == 3
    assert tokenize(make(A=1, B=2)) != tokenize(make(B=2, A=1))
    assert tokenize(make(A=1)["A"]) != tokenize(make(A=1, B=2)["A"])


@pytest.fixture
def module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], types.ModuleType]]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(source: str) -> types.ModuleType:
        (tmp_path / "raddle_token_module.py").write_text(source)
        importlib.invalidate_caches()
        loaded = sys.modules.get("raddle_token_module")
        if loaded is not None:
            return importlib.reload(loaded)
        return importlib.import_module("raddle_token_module")

    yield write
    sys.modules.pop("raddle_token_module", None)


def test_a_reloaded_function_is_another(
    module: Callable[[str], types.ModuleType],
) -> None:
    sources = [
        "def f(x):\n    return x + 1\n",
        "def f(x):\n    return x + 2\n",
        "def f(x, y=1):\n    return x + 1\n",
        "def f(x, y=2):\n    return x + 1\n",
        "def f(x, *, y=2):\n    return x + 1\n",
    ]
    tokens = {tokenize(module(source).f) for source in sources}
    assert len(tokens) == len(sources)
    assert tokenize(module(sources[0]).f) in tokens


def test_a_module_function_counts_by_name_and_code(
    module: Callable[[str], types.ModuleType],
) -> None:
    source = "import threading\nlock = threading.Lock()\nnothing = object()\n"
    first = module(source + "def f(x=nothing):\n    return lock\n")
    token = tokenize(first.f)
    assert token.deterministic
    second = module("#\n#\n" + source + "def f(x=nothing):\n    return lock\n")
    assert tokenize(second.f) == token
    assert not tokenize(first.f.__closure__, threading.Lock()).deterministic


def test_a_decorated_module_function_shows_edits(
    module: Callable[[str], types.ModuleType],
) -> None:
    source = """
import functools
def d(f):
    @functools.wraps(f)
    def w(*a):
        return f(*a)
    return w
@d
def f(x):
    return x + 1
"""
    before = tokenize(module(source).f)
    assert tokenize(module(source.replace("+ 1", "+ 2")).f) != before


def test_function_code_none_ignores_the_build(
    module: Callable[[str], types.ModuleType],
) -> None:
    def digest(source: str) -> object:
        return Walker(function_code="none").value(module(source).f)

    assert digest("def f(x):\n    return 1\n") == digest("def f(x):\n    return 2\n")
    assert Walker().value(len) == Walker(function_code="none").value(len)


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(ConfigError, match="own, none"):
        Walker(function_code="some")
    with pytest.raises(ConfigError, match="xxh3-128, blake2b"):
        Walker(bulk_hash="md5")
    with pytest.raises(ConfigError):
        encoding_id(bulk_hash="md5")
    ids = {
        encoding_id(code, bulk)
        for code in ("own", "none")
        for bulk in ("xxh3-128", "blake2b")
    }
    assert len(ids) == 4
    assert all(0 < i < 2**32 for i in ids)


def test_a_class_in_a_function_is_known_by_its_body() -> None:
    def make(value: int) -> type:
        class Local:
            x = value

        return Local

    assert tokenize(make(1)) == tokenize(make(1))
    assert tokenize(make(1)()) == tokenize(make(1)())
    assert tokenize(make(1)()) != tokenize(make(2)())


def test_bound_methods_count_their_object() -> None:
    @dataclasses.dataclass
    class D(abc.ABC):
        x: int

        def get(self) -> int:
            return self.x

    assert tokenize(D(1).get) == tokenize(D(1).get)
    assert tokenize(D(1).get) != tokenize(D(2).get)
    assert tokenize([1].append) != tokenize([2].append)


def test_wrappers() -> None:
    def g(x: Any, y: Any = 1) -> Any:
        return x + y

    made = [
        functools.partial(g, 1),
        functools.partial(g, y=1),
        functools.partial(g),
        functools.lru_cache(g),
        functools.lru_cache(maxsize=1)(g),
        functools.cached_property(g),
        functools.partialmethod(g, 1),
        g,
    ]
    assert len({tokenize(m) for m in made}) == len(made)
    marked = functools.partial(g, 1)
    marked.note = 1  # type: ignore[attr-defined]
    assert tokenize(marked) != tokenize(made[0])
    cached = functools.lru_cache(g)
    cached(1, 2)
    assert tokenize(cached) == tokenize(made[3])
