"""The public function, the registry, the settings, and memory."""

import importlib
import sys
import threading
import tracemalloc
import types
from collections.abc import Callable, Iterator
from typing import Any

import dask
import numpy as np
import pytest

from raddle.protocol.errors import ConfigError, RaddleError
from raddle.protocol.tokenize import Walker
from raddle.tokenize import (
    Buffer,
    Chunks,
    Opaque,
    Token,
    TokenizationError,
    normalize_token,
    tokenize,
)


class Thing:
    def __init__(self, content: Any = None) -> None:
        self.content = content


class SubThing(Thing):
    pass


class Unreducible:
    def __reduce__(self) -> str:
        raise TypeError


@pytest.fixture
def register() -> Iterator[Callable[..., None]]:
    done = []

    def register(cls: type, func: Callable[[Any], object]) -> None:
        normalize_token.register(cls, func)
        done.append(cls)

    yield register
    for cls in done:
        normalize_token.unregister(cls)


def test_all_ways_to_pass_nothing_or_one_thing_differ() -> None:
    tokens = [
        tokenize(),
        tokenize(()),
        tokenize(None),
        tokenize(None, None),
        tokenize((None, None)),
        tokenize([None, None]),
        tokenize(a=1),
        tokenize({"a": 1}),
        tokenize("a", 1),
        tokenize(("a", 1)),
        tokenize(1, a=1),
        tokenize(1, {"a": 1}),
        tokenize(b=1),
        tokenize(a=1, b=1),
    ]
    assert len(set(tokens)) == len(tokens)
    assert tokenize(a=1, b=2) == tokenize(b=2, a=1)
    assert tokenize(1) == tokenize(1)


PINNED: dict[str, Callable[[], Token]] = {
    "fed97a6e8c31b972a1348e32f717a471": lambda: tokenize(
        None, True, 1, -1000, 2.5, 1j, "text", b"bytes"
    ),
    "df12b7be3230c14bd4990f10e239d672": lambda: tokenize(
        [1, ("a", {"b": {2, 3}})], keyword=frozenset("ab")
    ),
    "8c4e4b8d5d149f836bb99532d167f1f2": lambda: tokenize(
        list(range(50)), ["x"] * 50, "long" * 20_000
    ),
    "3ce5962772470f8458ca02e0d195e95e": lambda: tokenize(
        np.arange(6).reshape(2, 3).T, np.float32(1.5)
    ),
}


@pytest.mark.parametrize("text", PINNED)
def test_plain_data_has_the_same_token_for_ever(text: str) -> None:
    """Pinned. Whoever must change one must give ENCODING a new number."""
    assert PINNED[text]() == text


def test_a_token_is_text() -> None:
    token = tokenize(1)
    assert isinstance(token, str)
    assert isinstance(token, Token)
    assert len(token) == 32
    assert set(token) <= set("0123456789abcdef")
    assert token == Token(str(token))
    assert {token: 1}[str(token)] == 1  # type: ignore[index]
    assert token.digest.digest.hex() == token


def test_the_error_is_ours_and_a_runtime_error() -> None:
    with pytest.raises(TokenizationError) as caught:
        tokenize(Unreducible(), ensure_deterministic=True)
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, RaddleError)
    assert caught.value.type_name.endswith("test_tokenize_public.Unreducible")


def test_configuration_of_strictness() -> None:
    thing = Unreducible()
    with dask.config.set({"tokenize.ensure-deterministic": True}):
        with pytest.raises(TokenizationError):
            tokenize(thing)
        assert not tokenize(thing, ensure_deterministic=False).deterministic
        with dask.config.set({"raddle.tokenize.ensure-deterministic": False}):
            assert not tokenize(thing).deterministic
    with (
        dask.config.set({"raddle.tokenize.ensure_deterministic": True}),
        pytest.raises(TokenizationError),
    ):
        tokenize(thing)
    with (
        dask.config.set({"raddle.tokenize.ensure-deterministic": "maybe"}),
        pytest.raises(ConfigError, match="ensure-deterministic"),
    ):
        tokenize(1)
    assert not tokenize(thing).deterministic


def test_configuration_of_hash_and_code() -> None:
    big, small = b"a" * 100_000, b"a"
    before = tokenize(big), tokenize(small)
    with dask.config.set({"raddle.tokenize.bulk-hash": "blake2b"}):
        assert tokenize(big) != before[0]
        assert tokenize(small) == before[1]
    with dask.config.set({"raddle.tokenize.function-code": "none"}):
        without = tokenize(types.new_class)
    assert tokenize(types.new_class) != without
    with (
        dask.config.set({"raddle.tokenize.bulk-hash": "md5"}),
        pytest.raises(ConfigError, match="md5"),
    ):
        tokenize(1)


class Nests:
    def __init__(self, **options: Any) -> None:
        self.options = options
        self.inner = Unreducible()

    def __dask_tokenize__(self) -> object:
        return tokenize(self.inner, **self.options)


def test_nested_calls_inherit_strictness() -> None:
    with pytest.raises(TokenizationError) as caught:
        tokenize([Nests()], ensure_deterministic=True)
    assert caught.value.path == "args[0]"  # raised by the nested call
    with dask.config.set({"tokenize.ensure-deterministic": True}):
        assert not tokenize([Nests()], ensure_deterministic=False).deterministic
    with pytest.raises(TokenizationError) as caught:
        tokenize([Nests(ensure_deterministic=False)], ensure_deterministic=True)
    assert caught.value.path == "args[0][0].__dask_tokenize__()"
    with pytest.raises(TokenizationError):
        tokenize([Nests(ensure_deterministic=True)])
    assert not tokenize(Unreducible()).deterministic  # and nothing is left behind


# --- precedence --------------------------------------------------------------


class Hooked:
    def __dask_tokenize__(self) -> object:
        return "hook"


class HookedList(list[int]):
    def __dask_tokenize__(self) -> object:
        return "hook"


class Forwards:
    """Has every attribute, so also a hook, if one asks the instance."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__dask_tokenize__":
            raise AttributeError(name)
        return lambda: name


class Disabled(Hooked):
    __dask_tokenize__ = None  # type: ignore[assignment]

    def __init__(self, value: int) -> None:
        self.value = value


def test_hooks() -> None:
    assert tokenize(HookedList([1])) == tokenize(HookedList([2]))
    assert tokenize(Hooked()) != tokenize(HookedList())
    assert tokenize(Hooked()) != tokenize("hook")
    assert tokenize(Hooked) != tokenize(Hooked())
    assert tokenize(Forwards()) == tokenize(Forwards())
    assert tokenize(Disabled(1)) != tokenize(Disabled(2))

    class OnInstance:
        pass

    thing: Any = OnInstance()
    before = tokenize(thing)
    thing.__dask_tokenize__ = lambda: "hook"
    assert tokenize(thing) != before  # an attribute like any other

    class Static:
        @staticmethod
        def __dask_tokenize__() -> object:
            return "hook"

    assert tokenize(Static()).deterministic


def test_a_handler_precedes_a_hook_and_follows_the_mro(
    register: Callable[..., None],
) -> None:
    before = tokenize(Hooked())
    register(Hooked, lambda _: "handler")
    assert tokenize(Hooked()) != before
    plain, sub = tokenize(Thing(1)), tokenize(SubThing(1))
    register(Thing, lambda thing: ("t", thing.content))
    assert tokenize(Thing(1)) != plain
    assert tokenize(SubThing(1)) != sub
    assert tokenize(SubThing(1)) != tokenize(Thing(1))
    assert tokenize(SubThing(1)) == tokenize(SubThing(1))
    inherited = tokenize(SubThing(1))
    register(SubThing, lambda _: "s")
    assert tokenize(SubThing(1)) == tokenize(SubThing(2)) != inherited


def test_a_handler_for_a_builtin_container(register: Callable[..., None]) -> None:
    before, leaf = tokenize([1, 2]), tokenize(1)
    register(list, lambda items: sorted(items) and tuple(sorted(items)))
    assert tokenize([1, 2]) == tokenize([2, 1]) != before
    register(int, lambda _: "every int")
    assert tokenize(1) == leaf  # leaves cannot be overridden


def test_a_metaclass_may_be_registered(register: Callable[..., None]) -> None:
    class Meta(type):
        pass

    class Made(metaclass=Meta):
        pass

    register(Meta, lambda cls: cls.__name__)
    assert tokenize(Made) == tokenize(Meta("Made", (), {"other": 1}))


def test_registering_decorates_and_takes_several_types() -> None:
    @normalize_token.register((Thing, Hooked))  # type: ignore[untyped-decorator]
    def handler(_: object) -> object:
        return "both"

    try:
        assert tokenize(Thing(1)) == tokenize(Thing(2))
        assert handler(1) == "both"
    finally:
        normalize_token.unregister(Thing)
        normalize_token.unregister(Hooked)
    assert tokenize(Thing(1)) != tokenize(Thing(2))
    with pytest.raises(KeyError):
        normalize_token.unregister(Thing)


def test_opaque(register: Callable[..., None]) -> None:
    register(Thing, lambda thing: Opaque("thing", thing.content))
    register(SubThing, lambda thing: Opaque("thing", thing.content))
    assert tokenize(Thing(1)) == tokenize(SubThing(1))
    assert tokenize(Thing(1)) != tokenize(SubThing(2))
    assert tokenize(Thing(1)) != tokenize(1)


@pytest.mark.parametrize("size", [10, 100_000])
def test_buffers_and_chunks(register: Callable[..., None], size: int) -> None:
    data = np.arange(size, dtype="u1")
    register(Thing, lambda thing: thing.content)

    def whole(data: Any) -> Token:
        return tokenize([Thing([1, Buffer(data)])])

    def pieces(*chunks: Any) -> Token:
        return tokenize([Thing(["deep", nested(1500), Chunks(iter(chunks))])])

    assert whole(data) == whole(data.tobytes()) == whole(data.data)
    assert whole(data[::2]) == whole(data[::2].copy())
    assert whole(data) != whole(data[::-1])
    assert pieces(data) == pieces(data[:3], data[3:]) == pieces(data.tobytes())
    assert pieces(data) != pieces(data[:-1])
    assert whole(data) != tokenize([Thing([1, data])])


def nested(depth: int) -> object:
    made: list[object] = []
    for _ in range(depth):
        made = [made]
    return made


# --- lazy registration -------------------------------------------------------


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that is loaded, with one class."""
    made: Any = types.ModuleType("raddle_lazy_library.sub")
    exec("class C:\n    def __init__(self, x): self.x = x\n", made.__dict__)
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_lazy_registration(library: Any) -> None:
    calls = []

    @normalize_token.register_lazy("raddle_lazy_library")  # type: ignore[untyped-decorator]
    def _() -> None:
        calls.append(1)
        normalize_token.register(library.C, lambda _: "lazy")

    try:
        assert tokenize(1, [2], Thing()).deterministic
        assert calls == []

        class Derived(library.C):  # type: ignore[misc]
            pass

        assert tokenize(Derived(1)) == tokenize(Derived(2))
        assert tokenize(library.C(1)) == tokenize(library.C(2))
        assert calls == [1]
    finally:
        normalize_token.unregister(library.C)


def test_a_lazy_registration_that_cannot_import(library: Any) -> None:
    calls = []

    def fails() -> None:
        calls.append(1)
        message = "no such part"
        raise ImportError(message)

    normalize_token.register_lazy("raddle_lazy_library", fails)
    with pytest.warns(RuntimeWarning, match="no such part"):
        first = tokenize(library.C(1))
    assert first == tokenize(library.C(1)) != tokenize(library.C(2))
    assert calls == [1]


def test_no_thread_sees_a_class_before_its_lazy_registration(library: Any) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        assert go_on.wait(30)
        normalize_token.register(library.C, lambda _: "lazy")

    normalize_token.register_lazy("raddle_lazy_library", slow)
    tokens: list[Token] = []
    threads = [
        threading.Thread(target=lambda n=n: tokens.append(tokenize(library.C(n))))
        for n in range(3)
    ]
    try:
        threads[0].start()
        assert entered.wait(30)
        for thread in threads[1:]:
            thread.start()
        go_on.set()
        for thread in threads:
            thread.join(30)
        assert len(tokens) == 3
        assert len(set(tokens)) == 1
    finally:
        normalize_token.unregister(library.C)


def test_plans_do_not_keep_classes_alive() -> None:
    import gc
    import weakref

    def make() -> weakref.ref[type]:
        class Local:
            def method(self) -> type:
                return Local

        tokenize(Local())
        return weakref.ref(Local)

    gone = make()
    gc.collect()
    assert gone() is None


# --- memory ------------------------------------------------------------------


def peak_of(value: object) -> int:
    tokenize(value)
    tracemalloc.start()
    try:
        tokenize(value)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_big_buffers_are_hashed_in_place() -> None:
    data = bytes(20_000_000)
    array = np.frombuffer(data).reshape(1000, -1)
    assert peak_of(data) < 100_000
    assert peak_of(array) < 100_000
    assert peak_of(array[::2, ::2]) < 2_000_000
    assert peak_of(np.broadcast_to(array[0], (1000, array.shape[1]))) < 2_000_000


def test_the_facade_offers_all() -> None:
    facade = importlib.import_module("raddle.tokenize")
    for name in facade.__all__:
        assert getattr(facade, name).__doc__
    assert Walker.__doc__
