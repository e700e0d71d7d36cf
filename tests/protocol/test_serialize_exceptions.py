"""Exceptions arrive with traceback, chain and notes, or at least with their words."""

import asyncio
import copyreg
import inspect
import json
import pickle
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest

from raddle.protocol.errors import (
    DataLost,
    InvalidGraph,
    RemoteError,
    SerializationError,
    to_wire,
)
from raddle.protocol.serialize import dump_exception, load_exception


def caught(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError


def travel(error: BaseException) -> BaseException:
    name, frames = dump_exception(error)
    assert name == ""
    return load_exception((name, tuple(bytes(f) for f in frames)))


def names(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def fail() -> None:
    msg = "on purpose"
    raise ValueError(msg)


def fail_with_cause() -> None:
    try:
        fail()
    except ValueError as error:
        error.add_note("first note")
        raise KeyError("outer") from error


def fail_in_handler() -> None:
    try:
        fail()
    except ValueError:
        dict[str, int]()["missing"]


def test_type_arguments_and_traceback_arrive() -> None:
    error = travel(caught(fail))
    assert type(error) is ValueError
    assert error.args == ("on purpose",)
    assert names(error) == ["caught", "fail"]


def test_the_traceback_prints_alike() -> None:
    error = caught(fail_with_cause)
    plain = "".join(traceback.format_exception(error))
    # Columns within a line do not travel, hence no carets.
    expected = [line for line in plain.splitlines() if set(line.strip()) != {"^"}]
    printed = "".join(traceback.format_exception(travel(error)))
    assert printed.splitlines() == expected


def test_cause_context_and_notes_arrive() -> None:
    error = travel(caught(fail_with_cause))
    assert type(error.__cause__) is ValueError
    assert error.__suppress_context__
    assert error.__context__ is error.__cause__
    assert error.__cause__.__notes__ == ["first note"]
    assert names(error.__cause__) == ["fail_with_cause", "fail"]
    error = travel(caught(fail_in_handler))
    assert type(error.__context__) is ValueError
    assert not error.__suppress_context__
    assert error.__cause__ is None


def test_an_exception_never_raised_has_no_traceback() -> None:
    error = travel(ValueError(1))
    assert error.__traceback__ is None
    assert error.args == (1,)


def test_dumping_leaves_the_exception_and_the_process_alone() -> None:
    before = dict(copyreg.dispatch_table)
    error = caught(fail)
    tb = error.__traceback__
    dump_exception(error)
    assert error.__traceback__ is tb
    assert copyreg.dispatch_table == before


def test_an_exception_can_travel_on() -> None:
    error = travel(travel(caught(fail_with_cause)))
    assert names(error) == ["caught", "fail_with_cause"]
    assert type(error.__cause__) is ValueError


# Classes that plain pickle gets wrong.


class OwnInit(Exception):
    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"code {code} because of {reason}")
        self.code = code
        self.reason = reason


class NoSuper(Exception):
    def __init__(self, one: int, two: int) -> None:
        self.total = one + two


class Slotted(Exception):
    __slots__ = ("where",)

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where


class OwnNew(Exception):
    def __new__(cls, *, needed: int) -> Self:
        del needed
        return super().__new__(cls)

    def __init__(self, *, needed: int) -> None:
        super().__init__("made")
        self.needed = needed


class OwnReduce(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("reduced")
        self.pair = (a, b)

    def __reduce__(self) -> Any:
        return type(self), self.pair


class Missing(FileNotFoundError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "No such thing", path)
        self.path = path


class Mixed(ValueError, RuntimeError):
    def __init__(self, *, x: int) -> None:
        super().__init__("mixed")
        self.x = x


class WithData(Exception):
    pass


def json_error() -> BaseException:
    return caught(lambda: json.loads("{"))


def unicode_error() -> BaseException:
    return caught(b"\xff".decode)


def os_error() -> BaseException:
    return caught(lambda: Path("/no/such/file").read_text())


def import_error() -> BaseException:
    return caught(lambda: __import__("no_such_module_at_all"))


@pytest.mark.parametrize(
    "error",
    [
        OwnInit(5, reason="rain"),
        NoSuper(1, 2),
        Slotted("here"),
        OwnNew(needed=4),
        OwnReduce(1, 2),
        Missing("/a/b"),
        Mixed(x=3),
        json_error(),
        unicode_error(),
        os_error(),
        import_error(),
        OSError(5, "io"),
        OSError("only text"),
        KeyError("k"),
        StopIteration(3),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError("why"),
        SyntaxError("bad", ("f.py", 1, 2, "text")),
        DataLost("x", "gone"),
        SerializationError("odd"),
        TimeoutError("late"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_awkward_exceptions_arrive_whole(error: BaseException) -> None:
    loaded = travel(error)
    assert type(loaded) is type(error)
    assert str(loaded) == str(error)
    assert loaded.args == error.args
    assert vars(loaded) == vars(error)
    for name, _ in inspect.getmembers(type(error), inspect.ismemberdescriptor):
        if name not in ("__cause__", "__context__", "__traceback__"):
            assert getattr(loaded, name) == getattr(error, name)


def test_exception_groups_keep_their_members_whole() -> None:
    members = [caught(fail), caught(fail_in_handler)]
    error = caught(lambda: _raise(BaseExceptionGroup("both", members)))
    loaded = travel(error)
    assert isinstance(loaded, ExceptionGroup)
    assert [type(e) for e in loaded.exceptions] == [ValueError, KeyError]
    assert names(loaded.exceptions[1]) == ["caught", "fail_in_handler"]
    assert type(loaded.exceptions[1].__context__) is ValueError


def _raise(error: BaseException) -> None:
    raise error


def test_a_circle_of_causes_arrives() -> None:
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    loaded = travel(one)
    assert type(loaded.__cause__) is KeyError
    assert loaded.__cause__.__cause__ is loaded


def test_an_attribute_that_is_also_the_cause_is_one_object() -> None:
    error = WithData()
    error.__cause__ = vars(error)["original"] = caught(fail)
    loaded = travel(error)
    assert vars(loaded)["original"] is loaded.__cause__


def test_long_buffers_are_not_copied() -> None:
    array = np.zeros(1_000_000, "u1")
    error = WithData(array)
    _, frames = dump_exception(error)
    assert len(frames) == 2
    assert np.shares_memory(np.asarray(frames[1]), array)
    loaded = load_exception(("", frames))
    assert loaded.args[0].nbytes == 1_000_000


def test_classes_defined_in_a_function_travel_by_value() -> None:
    class Local(Exception):
        def __init__(self, *, code: int) -> None:
            super().__init__("local")
            self.code = code

    loaded = travel(Local(code=7))
    assert type(loaded).__name__ == "Local"
    assert vars(loaded)["code"] == 7


# Chains and stacks too long for pickle or for people.


def recurse(n: int) -> None:
    if n == 0:
        fail()
    recurse(n - 1)


def test_long_stacks_lose_their_middle() -> None:
    error = travel(caught(lambda: recurse(600)))
    shown = names(error)
    assert len(shown) == 200
    assert shown[:3] == ["caught", "<lambda>", "recurse"]
    assert shown[-1] == "fail"


def test_a_recursion_error_arrives() -> None:
    error = travel(caught(lambda: recurse(-1)))
    assert type(error) is RecursionError


def test_long_chains_lose_their_links() -> None:
    error = caught(fail)
    for i in range(5000):
        outer = ValueError(i)
        outer.__context__ = error
        error = outer
    loaded = travel(error)
    assert type(loaded) is ValueError
    assert loaded.args == (4999,)
    assert loaded.__context__ is None
    assert loaded.__notes__ == ["(what caused it could not be sent along)"]


# Exceptions that cannot travel as themselves.


class Unpicklable(Exception):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lock = threading.Lock()


class Unloadable(Exception):
    def __reduce__(self) -> Any:
        return _explode, ("boom",)


def _explode(why: str) -> None:
    raise ZeroDivisionError(why)


class Mute(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


class MuteUnpicklable(Mute):
    def __reduce__(self) -> Any:
        raise ZeroDivisionError


class NotAnException(Exception):
    def __reduce__(self) -> Any:
        return str, ("text",)


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_an_unpicklable_exception_becomes_its_words() -> None:
    error = travel(caught(lambda: _raise(Unpicklable("cannot travel"))))
    assert type(error) is RemoteError
    assert error.type_name.endswith("test_serialize_exceptions.Unpicklable")
    assert error.text == "cannot travel"
    assert "Unpicklable: cannot travel" in str(error)
    assert "in _raise" in error.traceback_text
    assert shown(error).count("Remote traceback") == 1
    assert names(error)[-1] == "_raise"


def test_only_the_unpicklable_part_of_a_chain_is_replaced() -> None:
    error = ValueError("fine")
    error.__cause__ = Unpicklable("not fine")
    error.__cause__.__cause__ = caught(fail)
    loaded = travel(error)
    assert type(loaded) is ValueError
    assert type(loaded.__cause__) is RemoteError
    assert loaded.__cause__.text == "not fine"
    assert type(loaded.__cause__.__cause__) is ValueError
    assert names(loaded.__cause__.__cause__) == ["caught", "fail"]


def test_an_unpicklable_exception_keeps_its_cause() -> None:
    error = Unpicklable("outer")
    error.__cause__ = caught(fail)
    loaded = travel(error)
    assert type(loaded) is RemoteError
    assert type(loaded.__cause__) is ValueError


def test_an_unloadable_exception_becomes_its_words() -> None:
    error = Unloadable("words")
    error.__cause__ = caught(fail)
    loaded = travel(error)
    assert type(loaded) is RemoteError
    assert loaded.text == "words"
    assert "ValueError: on purpose" in loaded.traceback_text
    text = shown(loaded)
    assert "cannot unpickle an exception of type" in text
    assert "ZeroDivisionError: boom" in text


@pytest.mark.parametrize("cls", [Mute, MuteUnpicklable, NotAnException])
def test_ill_behaved_exceptions_do_not_raise(cls: type[Exception]) -> None:
    loaded = travel(caught(lambda: _raise(cls())))
    assert type(loaded) in (cls, RemoteError)
    assert "_raise" in names(loaded) or "_raise" in shown(loaded)


def test_messages_of_any_length_are_bounded() -> None:
    error = Unpicklable("x" * 1_000_000 + "end")
    _, frames = dump_exception(error)
    assert sum(map(len, frames)) < 400_000
    loaded = load_exception(("", frames))
    assert isinstance(loaded, RemoteError)
    assert loaded.text.endswith("end")


@pytest.mark.parametrize(
    "pair",
    [
        ("", ()),
        ("", (b"garbage",)),
        ("", (pickle.dumps(3),)),
        ("", (pickle.dumps(("T", "text", "", b"garbage")),)),
        ("", (pickle.dumps(("T", "text", "", pickle.dumps(3))),)),
        ("", None),
        ("Unknown", (1, 2)),
        ("DataLost", (1,)),
        ("DataLost", None),
        None,
        (),
    ],
)
def test_whatever_arrives_is_some_exception(pair: Any) -> None:
    assert type(load_exception(pair)) is RemoteError


def test_the_words_are_read_without_unpickling_the_exception() -> None:
    loaded = load_exception(
        ("", (pickle.dumps(("m.T", "text", "the traceback", b"garbage")),))
    )
    assert isinstance(loaded, RemoteError)
    assert (loaded.type_name, loaded.text) == ("m.T", "text")
    assert "the traceback" in shown(loaded)


def test_wire_pairs_are_understood() -> None:
    error = load_exception(to_wire(InvalidGraph(why="a cycle")))
    assert type(error) is InvalidGraph
    assert error.why == "a cycle"


# Between processes.

SCRIPT = """
    import sys
    from raddle.protocol.serialize import dump_exception

    class Mine(Exception):
        def __init__(self, *, code):
            super().__init__("mine")
            self.code = code

    def work():
        raise Mine(code=5)

    try:
        work()
    except Mine as error:
        _, frames = dump_exception(error)
        sys.stdout.buffer.write(frames[0])
"""

READER = """
    import sys
    from raddle.protocol.serialize import load_exception
    raise load_exception(("", (sys.stdin.buffer.read(),)))
"""


@pytest.mark.process
def test_a_script_dies_of_a_remote_exception_readably(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    data = subprocess.run(
        [sys.executable, script], capture_output=True, check=True, timeout=50
    ).stdout
    code = textwrap.dedent(READER)
    done = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, check=False
    )
    assert done.returncode == 1
    lines = done.stderr.decode().splitlines()
    assert f'  File "{script}", line 11, in work' in lines
    assert "    raise Mine(code=5)" in lines
    assert lines[-1].endswith("Mine: mine")


def test_tracebacks_without_a_file_arrive() -> None:
    def run() -> None:
        exec("def f(): 1/0\nf()", {})

    error = travel(caught(run))
    assert names(error)[-1] == "f"
    assert isinstance(error.__traceback__, TracebackType)
