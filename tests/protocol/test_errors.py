"""Errors carry their data over the wire, and say what to do."""

import asyncio
import concurrent.futures
import copy
import inspect
import pickle
import traceback
from typing import Any

import pytest

from raddle.protocol import errors
from raddle.protocol.core.collisions import CollisionRecord
from raddle.protocol.errors import (
    WIRE_ERRORS,
    CancelledError,
    DataLost,
    KilledWorker,
    LostDependency,
    RaddleError,
    RemoteError,
    RunSpecCollisionError,
    WireError,
    from_wire,
    to_wire,
)

RECORD = CollisionRecord(
    key=("x", 0),
    group="x",
    kind="spec",
    old_token="60dfef54",
    new_token="6d2d7e33?",
    old_dependencies=(),
    new_dependencies=("a", "b"),
    old_status="memory",
    owners=("Client-1",),
    submitter="Client-2",
    policy="raise",
    action="rejected",
)
KILLED: dict[str, Any] = {
    "key": ("x", 0),
    "worker": "alice",
    "host": "node7",
    "pid": 4711,
    "exitcode": -9,
    "tasks": ("x", "y"),
    "deaths": 4,
    "allowed": 3,
}
SAMPLES: list[WireError] = [
    RunSpecCollisionError([RECORD], 3),
    KilledWorker(**KILLED),
    LostDependency("x", ("a", ("b", 1))),
    DataLost(key="x", why="worker alice died"),
    errors.InvalidGraph(why="a cycle: a -> b -> a"),
]
CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, RaddleError)
]


def same(one: Any, other: Any) -> bool:
    return (
        type(one) is type(other)
        and str(one) == str(other)
        and vars(one) == vars(other)
        and all(getattr(one, f) == getattr(other, f) for f in one.fields)
    )


def test_every_wire_error_is_in_the_table_and_in_the_samples() -> None:
    concrete = {cls for cls in CLASSES if issubclass(cls, WireError)} - {WireError}
    assert set(WIRE_ERRORS.values()) == concrete
    assert {type(sample) for sample in SAMPLES} == concrete


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_a_wire_error_crosses_by_name(error: WireError) -> None:
    name, values = to_wire(error)
    # msgpack makes a plain tuple of a NamedTuple.
    plain = tuple(_plain(v) for v in values)
    assert same(from_wire((name, plain)), error)


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, tuple | list) else value


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("by", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_a_wire_error_is_picklable(error: WireError, by: Any) -> None:
    assert same(by(error), error)


@pytest.mark.parametrize(
    "pair",
    [
        ("OfANewerVersion", (1, "why")),
        ("DataLost", ("too few",)),
        ("DataLost", ("x", "why", "too many")),
        ("RunSpecCollisionError", ((("not", "a", "record"),), 1)),
        ("RunSpecCollisionError", (5, 1)),
        ("LostDependency", ("x", None)),
    ],
)
def test_what_cannot_be_rebuilt_stays_readable(pair: Any) -> None:
    error = from_wire(pair)
    assert type(error) is RemoteError
    assert error.type_name == pair[0]
    for value in pair[1]:
        assert repr(value) in str(error)


def test_fields_are_given_by_order_or_name() -> None:
    assert same(DataLost("x", "why"), DataLost("x", why="why"))


@pytest.mark.parametrize(
    ("cls", "values", "named"),
    [
        (DataLost, (), {}),
        (DataLost, ("x",), {}),
        (DataLost, ("x", "why", 1), {}),
        (DataLost, ("x", "why"), {"other": 1}),
        (DataLost, ("x", "why"), {"key": "x"}),
        (RunSpecCollisionError, (), {}),
        (RunSpecCollisionError, ((), 1, 2), {}),
    ],
)
def test_wrong_fields_are_a_type_error(cls: Any, values: Any, named: Any) -> None:
    with pytest.raises(TypeError, match=r"takes \("):
        cls(*values, **named)


def test_messages_name_the_culprit_and_the_remedy() -> None:
    text = str(SAMPLES[0])
    assert "('x', 0) and 2 more" in text
    assert "policy warn for scheduler, client and call" in text
    text = str(KilledWorker(**KILLED))
    assert "'alice' on host node7, pid 4711, exit code -9" in text
    assert "exit code" not in str(KilledWorker(**KILLED | {"exitcode": None}))
    assert "scatter it again" in str(DataLost("x", "gone"))
    assert "'a', ('b', 1)" in str(SAMPLES[2])


def test_a_record_says_what_differs() -> None:
    assert str(RECORD) == (
        "key ('x', 0): spec differs, token 60dfef54 -> 6d2d7e33?, dependencies "
        "{} -> {'a', 'b'}, was memory, owned by Client-1"
    )


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_says_whose_fault_it_is(cls: type[RaddleError]) -> None:
    assert cls.fault in ("user", "peer", "cluster", "bug")
    assert cls.__doc__


def test_errors_are_caught_by_their_standard_names() -> None:
    assert issubclass(errors.TimeoutError, TimeoutError)
    assert issubclass(errors.TimeoutError, asyncio.TimeoutError)
    assert issubclass(errors.CommClosedError, OSError)
    assert issubclass(CancelledError, concurrent.futures.CancelledError)
    # A coroutine that awaits a cancelled future is not cancelled itself.
    assert not issubclass(CancelledError, asyncio.CancelledError)


def test_cancelled_says_who_and_why() -> None:
    error = CancelledError("x", "Client-1", "not wanted")
    assert str(error) == "future 'x' was cancelled by Client-1: not wanted"
    assert str(CancelledError("x")) == "future 'x' was cancelled"
    again = pickle.loads(pickle.dumps(error))
    assert (again.key, again.who, again.why) == ("x", "Client-1", "not wanted")


def test_a_remote_error_shows_the_remote_traceback_once() -> None:
    error = RemoteError("m.Odd", "went wrong", "  File 'far.py', line 1\n")
    for shown in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        text = "".join(traceback.format_exception(shown))
        assert "m.Odd: went wrong" in text
        assert text.count("far.py") == 1
    assert not hasattr(RemoteError("m.Odd", "went wrong"), "__notes__")
