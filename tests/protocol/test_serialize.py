"""Values travel whole, their long buffers uncopied, and failures are explained."""

import datetime as dt
import decimal
import importlib
import pickle
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle.protocol.errors import SerializationError
from raddle.protocol.serialize import (
    INBAND_MAX,
    copy_frames,
    dumps,
    loads,
    nbytes_of,
)

LONG = INBAND_MAX + 1

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.datetimes(),
    st.complex_numbers(allow_nan=False),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(st.text(), inner),
        st.frozensets(st.integers()),
    ),
    max_leaves=20,
)


@given(values)
def test_any_value_comes_back(value: Any) -> None:
    frames = dumps(value)
    assert type(frames[0]) is bytes
    assert loads(frames) == value
    assert loads(tuple(memoryview(f) for f in frames)) == value


def test_small_values_are_one_plain_pickle() -> None:
    value = ((5,), {"k": [decimal.Decimal(1), dt.date(2026, 1, 1)]})
    assert dumps(value) == (pickle.dumps(value, 5),)


def test_identity_inside_a_value_is_kept() -> None:
    shared = [1]
    one, other = loads(dumps((shared, shared)))
    assert one is other


# Buffers.


def test_a_long_array_is_not_copied() -> None:
    array = np.zeros(200_000_000 // 8)
    tracemalloc.start()
    try:
        frames = dumps({"a": array})
        loaded = loads(frames)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    assert np.shares_memory(np.asarray(frames[1]).view(np.float64), array)
    assert np.shares_memory(loaded["a"], array)
    assert nbytes_of(frames) == pytest.approx(array.nbytes, abs=1000)


def test_frames_keep_their_array_alive() -> None:
    frames = dumps(np.full(LONG, 7, "u1"))
    np.full(LONG, 8, "u1")  # would reuse freed memory
    assert bytes(frames[1][:3]) == b"\7\7\7"


@pytest.mark.parametrize("order", ["C", "F"])
def test_contiguous_arrays_travel_out_of_band(order: Any) -> None:
    array = np.asarray(np.random.default_rng(0).random((100, 200)), order=order)
    frames = dumps(array)
    assert len(frames) == 2
    assert type(frames[1]) is memoryview
    assert frames[1].contiguous
    assert frames[1].format == "B"
    loaded = loads(frames)
    assert loaded.flags[f"{order}_CONTIGUOUS"]
    np.testing.assert_array_equal(loaded, array)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(100_000)[::2],
        np.ones((300, 300))[:, 1:],
        np.broadcast_to(np.arange(10), (10_000, 10)),
        np.array([], "f8"),
        np.array(3.5),
        np.array([None, "x", 1], object),
        np.zeros(20_000, [("a", "i4"), ("b", "f8")]),
        np.arange(50_000).astype("M8[s]"),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_other_arrays_come_back_too(array: np.ndarray[Any, Any]) -> None:
    frames = dumps((array, 1))
    assert all(type(f) is memoryview and f.contiguous for f in frames[1:])
    loaded, _ = loads(frames)
    assert loaded.dtype == array.dtype
    np.testing.assert_array_equal(loaded, array)


@pytest.mark.parametrize("size", [8, INBAND_MAX, LONG])
def test_arrays_are_writable_where_the_received_memory_is(size: int) -> None:
    frames = dumps(np.zeros(size, "u1"))
    assert len(frames) == (2 if size > INBAND_MAX else 1)
    received = (bytes(frames[0]), *(memoryview(bytearray(f)) for f in frames[1:]))
    loaded = loads(received)
    loaded[0] = 1
    assert loaded[0] == 1
    if size > INBAND_MAX:
        frozen = (frames[0], *(f.toreadonly() for f in frames[1:]))
        assert not loads(frozen).flags.writeable


@pytest.mark.parametrize("size", [8, LONG])
def test_a_read_only_array_stays_read_only(size: int) -> None:
    array = np.zeros(size, "u1")
    array.flags.writeable = False
    frames = dumps(array)
    received = (frames[0], *(bytearray(f) for f in frames[1:]))
    assert not loads(received).flags.writeable


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_long_bytes_are_not_copied(kind: type) -> None:
    value = kind(10_000_000)
    tracemalloc.start()
    try:
        frames = dumps(value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    loaded = loads(frames)
    assert type(loaded) is kind
    assert loaded == value


def test_a_subclass_of_bytes_stays_one() -> None:
    loaded = loads(dumps(Name(b"x" * LONG)))
    assert type(loaded) is Name


class Name(bytes):
    __slots__ = ()


def test_memoryviews_arrive_as_bytes() -> None:
    assert loads(dumps(memoryview(b"abc"))) == b"abc"


@pytest.mark.parametrize("dtype", ["object", "str", "category", "Int64"])
def test_dataframes_come_back(dtype: Any) -> None:
    column = pd.Series([1, 2, 3] * 20_000)
    frame = pd.DataFrame({"a": column.astype(dtype), "b": np.arange(60_000.0)})
    frames = dumps(frame)
    assert len(frames) > 1
    pd.testing.assert_frame_equal(loads(frames), frame)


@pytest.mark.parametrize("size", [LONG, 10_000_000])
def test_copies_share_no_memory_with_the_value(size: int) -> None:
    array = np.zeros(size, "u1")
    frames = dumps({"a": array})
    copied = copy_frames(frames)
    array[:] = 9
    loaded = loads(copied)["a"]
    assert loaded.sum() == 0
    assert loaded.flags.writeable
    assert nbytes_of(copied) == nbytes_of(frames)


def test_copies_of_a_lone_pickle_are_the_pickle() -> None:
    frames = dumps("small")
    assert copy_frames(frames) is frames
    received = (memoryview(bytearray(frames[0])),)
    assert copy_frames(received) == frames


def test_copies_share_what_cannot_change() -> None:
    value = bytes(10_000_000)
    tracemalloc.start()
    try:
        copied = copy_frames(dumps(value))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert loads(copied) == value
    assert type(copy_frames((b"", memoryview(bytes(100))[:50]))[1].obj) is bytearray


def test_copies_of_a_changing_bytearray_are_separate() -> None:
    value = bytearray(LONG)
    copied = copy_frames(dumps(value))
    value[:] = b"x" * LONG
    assert loads(copied) == bytes(LONG)


# cloudpickle, where pickle would fail or say what means nothing elsewhere.


def test_lambdas_and_closures_travel_by_value() -> None:
    offset = 3
    function = loads(dumps(lambda x: x + offset))
    assert function(1) == 4


def test_the_name_of_main_in_data_does_no_harm() -> None:
    value = {"text": "__main__", "array": np.arange(LONG)}
    frames = dumps(value)
    assert len(frames) == 2
    assert loads(frames)["text"] == "__main__"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package that this process can import and others cannot."""
    package = tmp_path / "known_only_here"
    package.mkdir()
    (package / "__init__.py").write_text("from .part import Thing, twice\n")
    (package / "part.py").write_text(
        "def twice(x):\n    return 2 * x\n\n\nclass Thing:\n    value = 21\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("known_only_here")
    for name in [n for n in sys.modules if n.startswith("known_only_here")]:
        del sys.modules[name]


def run(code: str, data: bytes, cwd: Path) -> str:
    """What a new interpreter prints when it runs ``code`` over ``data``."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=data,
        capture_output=True,
        check=False,
        cwd=cwd,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


LOAD = """
import sys
from raddle.protocol.serialize import loads
try:
    function, thing = loads((sys.stdin.buffer.read(),))
except Exception as error:
    print(error)
else:
    print(function(thing.value), type(thing).__module__)
"""


@pytest.mark.process
def test_only_registered_modules_travel_by_value(module: Any, tmp_path: Path) -> None:
    value = (module.twice, module.Thing())
    (data,) = dumps(value)
    elsewhere = tmp_path / "empty"
    elsewhere.mkdir()
    error = run(LOAD, data, elsewhere)
    assert "No module named 'known_only_here'" in error
    assert "register_pickle_by_value" in error
    cloudpickle.register_pickle_by_value(module)
    try:
        (data,) = dumps(value)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert run(LOAD, data, elsewhere) == "42 known_only_here.part"
    assert dumps(value) == (pickle.dumps(value, 5),)


MAIN = """
import json, sys
from raddle.protocol.serialize import dumps, dumps_function

factor = 2

def scale(x):
    return x * factor

class Thing:
    value = 21

if __name__ == "__main__":
    first, _ = dumps_function(scale)
    factor = 4
    second, frames = dumps_function(scale)
    assert first != second, "the global that it uses has changed"
    reference, (name,) = dumps_function(json.dumps)
    assert len(name) < 60
    (data,) = dumps((scale, Thing()))
    assert frames[0] != data
    sys.stdout.buffer.write(data)
"""


@pytest.mark.process
def test_what_a_script_defines_travels_by_value(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(MAIN)
    data = subprocess.run(
        [sys.executable, script], capture_output=True, check=True, timeout=50
    ).stdout
    assert run(LOAD, data, tmp_path) == "84 __main__"


BACK = """
import sys
from raddle.protocol.serialize import dumps, loads
sys.stdout.buffer.write(dumps(loads((sys.stdin.buffer.read(),)))[0])
"""

THERE_AND_BACK = f"""
import subprocess, sys
from raddle.protocol.serialize import dumps, loads

class Thing:
    pass

sent = dumps(Thing())[0]
code = {BACK!r}
back = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True)
assert type(loads((back.stdout,))) is Thing, back
print("the same class")
"""


@pytest.mark.process
def test_a_class_of_a_script_is_the_same_when_it_returns(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(THERE_AND_BACK)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, check=True, timeout=50
    )
    assert done.stdout.decode().strip() == "the same class"


# Failures.


class Holder:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Sour:
    def __reduce__(self) -> Any:
        msg = "no way"
        raise ZeroDivisionError(msg)


class Curdled:
    """Pickles, but does not unpickle."""

    def __reduce__(self) -> Any:
        return _curdle, ()


def _curdle() -> None:
    msg = "turned"
    raise ZeroDivisionError(msg)


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (LOCK, ["of type _thread.lock", "cannot pickle '_thread.lock'"]),
        ([1, [2, LOCK]], ["of type list", "at [1][1]: _thread.lock"]),
        (((), {"k": Holder(lock=LOCK)}), ["at [1]['k'].lock: _thread.lock"]),
        ([lambda: LOCK], ["at [0].<global>.LOCK: _thread.lock"]),
        (Sour(), ["test_serialize.Sour", "ZeroDivisionError: no way"]),
        ((i for i in range(3)), ["of type generator"]),
    ],
)
def test_the_error_names_type_and_place(value: Any, words: list[str]) -> None:
    with pytest.raises(SerializationError) as caught:
        dumps(value, "the arguments of task 'x'")
    for word in ["cannot pickle the arguments of task 'x'", *words]:
        assert word in str(caught.value)
    assert caught.value.__cause__ is not None


def test_a_lock_in_a_closure_is_named() -> None:
    lock = threading.Lock()

    def task() -> Any:
        return lock

    with pytest.raises(SerializationError, match=r"\.<closure>\.lock: _thread\.lock"):
        dumps(task)


def test_a_value_that_is_too_deep_is_an_error() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(SerializationError, match="recursion"):
        dumps(value)


def test_a_buffer_that_is_not_contiguous_is_an_error() -> None:
    view = memoryview(bytearray(10))[::2]
    with pytest.raises(SerializationError):
        dumps([pickle.PickleBuffer(view)])


def test_errors_of_unpickling_keep_their_cause() -> None:
    with pytest.raises(SerializationError, match=r"result of 'x'.*turned") as caught:
        loads(dumps(Curdled()), "the result of 'x'")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("frames", [(), (b"",), (b"garbage",), (b"\x80\x05.", b"x")])
def test_garbage_is_an_error_of_serialization(frames: Any) -> None:
    with pytest.raises(SerializationError):
        loads(frames)


def test_a_missing_buffer_is_an_error_of_serialization() -> None:
    frames = dumps(np.zeros(LONG))
    with pytest.raises(SerializationError):
        loads(frames[:1])
