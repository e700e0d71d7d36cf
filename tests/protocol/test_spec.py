"""Unpickling a payload is what puts a task's inputs into its arguments."""

import pickle
import threading
from typing import Any, NamedTuple

import cloudpickle
import pytest

from raddle.protocol.errors import SerializationError
from raddle.protocol.serialize import dumps, loads
from raddle.protocol.spec import Call, Ref, bound, evaluate


def load(payload: Any, *inputs: Any) -> Any:
    with bound(inputs):
        return loads(dumps(payload))


def test_references_load_as_the_inputs() -> None:
    first, second = object(), object()
    payload = ((Ref("x", 1), [Ref("y", 0)]), {"k": {"deep": (Ref("x", 1),)}})
    args, kwargs = load(payload, first, second)
    assert args[0] is second
    assert args[1][0] is first
    assert kwargs["k"]["deep"][0] is second


def test_a_reference_costs_a_few_bytes() -> None:
    one, two = (
        len(pickle.dumps([Ref("a long name", i)] * n, 5)) for i, n in ((0, 1), (1, 2))
    )
    assert one < 30
    assert two - one < 6


def test_cloudpickle_writes_the_same_references() -> None:
    data = cloudpickle.dumps((lambda x: x, Ref("x", 0)))
    assert b"input_value" not in data
    with bound(["value"]):
        assert pickle.loads(data)[1] == "value"


def test_bindings_nest_and_end() -> None:
    payload = dumps(Ref("x", 0))
    with bound(["outer"]):
        with bound(["inner"]):
            assert loads(payload) == "inner"
        assert loads(payload) == "outer"
    with pytest.raises(SerializationError, match="input 0"):
        loads(payload)


def test_bindings_end_with_an_error() -> None:
    payload = dumps(Ref("x", 0))
    with pytest.raises(KeyError), bound(["value"]):
        raise KeyError
    with pytest.raises(SerializationError):
        loads(payload)


def test_a_reference_beyond_the_inputs_is_an_error() -> None:
    with bound(["only"]), pytest.raises(SerializationError, match="input 1"):
        loads(dumps(Ref("x", 1)))


def test_bindings_belong_to_their_thread() -> None:
    payload = dumps(Ref("x", 0))
    loaded: dict[str, str] = {}
    both = threading.Barrier(2)

    def task(value: str) -> None:
        with bound([value]):
            both.wait(10)
            loaded[value] = loads(payload)
            both.wait(10)

    threads = [threading.Thread(target=task, args=(v,)) for v in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loaded == {"a": "a", "b": "b"}


class Pair(NamedTuple):
    left: Any
    right: Any


def plus(x: int, y: int = 0) -> int:
    return x + y


def test_nested_calls_are_made_innermost_first() -> None:
    call = Call(plus, (Call(plus, (1,), {"y": 2}),), {"y": Ref("x", 0)})
    args = load(([call, (call,)], {call.func: {"k": call}}), 10)
    assert evaluate(args) == ([13, (13,)], {plus: {"k": 13}})


def test_calls_in_sets_and_keys_are_made() -> None:
    call = Call(plus, (1, 2), {})
    assert evaluate({call: {call}}) == {3: {3}}


@pytest.mark.parametrize("value", [Pair(1, [2]), "text", frozenset({1}), range(3)])
def test_other_values_stay_what_they_are(value: Any) -> None:
    assert evaluate(value) is value


def test_an_error_of_a_nested_call_is_the_error() -> None:
    with pytest.raises(ZeroDivisionError):
        evaluate([Call(divmod, (1, 0), {})])
