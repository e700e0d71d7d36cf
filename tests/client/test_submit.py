"""submit and map on a real cluster: names, options, values."""

from __future__ import annotations

import functools
import math
from operator import add, methodcaller, truediv
from typing import Any

import dask
import numpy as np
import pytest

from raddle.client.client import Client
from raddle.client.submit import name_of
from raddle.protocol.errors import CancelledError, ConfigError, SerializationError


class Callable:
    """An object that is called as a function."""

    def __call__(self) -> int:
        return 1


class Unloadable:
    """Can be pickled and not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return math.sqrt, (-1,)


class Odd(Exception):
    """An exception whose constructor takes something else than its text."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fail() -> None:
    raise Odd(1, 2)


@pytest.mark.parametrize(
    ("func", "name"),
    [
        (abs, "abs"),
        (lambda: 1, "lambda"),
        (functools.partial(add, 1), "add"),
        (functools.partial(functools.partial(add, 1), 2), "add"),
        (methodcaller("upper"), "upper"),
        ("x".upper, "upper"),
        (Callable(), "Callable"),
        (int, "int"),
    ],
)
def test_names(func: Any, name: str) -> None:
    assert name_of(func) == name


def test_equal_calls_share_a_name_and_others_do_not(c: Client) -> None:
    a, b = c.submit(add, 1, 2), c.submit(add, 1, 2)
    others = [c.submit(add, 2, 1), c.submit(add, 1, 2.0), c.submit(truediv, 1, 2)]
    assert a.key == b.key
    assert a == b
    assert a is not b
    assert len({a.key, *(o.key for o in others)}) == 4
    assert c.gather([a, b]) == [3, 3]


def test_impure_calls_have_unique_names(c: Client) -> None:
    futures = [c.submit(abs, 1, pure=False) for _ in range(3)]
    futures += c.map(abs, [1, 1], pure=False)
    assert len({f.key for f in futures}) == 5
    assert c.gather(futures) == [1] * 5


def test_keys_by_hand(c: Client) -> None:
    assert c.submit(abs, -1, key="mine").key == "mine"
    key: Any = ("mine", np.int64(1))
    assert c.submit(abs, -2, key=key).key == ("mine", 1)
    with pytest.raises(TypeError, match="cannot be a key"):
        c.submit(abs, -1, key=["x"])  # type: ignore[arg-type]


def test_a_task_on_a_future_of_its_own_key(c: Client) -> None:
    x = c.submit(abs, -3, key="same")
    y = c.submit(add, x, 1, key="same")
    with pytest.warns(UserWarning, match="collision"):
        assert y.result() == 3


def test_arguments_by_keyword_and_nested_futures(c: Client) -> None:
    x = c.submit(abs, -4)
    assert c.submit(sorted, [x, 2], key=None).result() == [2, 4]
    assert c.submit(dict, a=x, b={"c": [x]}).result() == {"a": 4, "b": {"c": [4]}}
    assert c.submit(sum, [x, x], start=x).result() == 12


def test_futures_that_only_the_arguments_hold(c: Client) -> None:
    def one() -> Any:
        return c.submit(abs, -1, pure=False)

    assert c.submit(abs, one()).result() == 1
    assert c.submit(sum, [one(), one()]).result() == 2
    assert c.submit(sorted, [1, 2], reverse=one()).result() == [2, 1]
    assert c.gather(c.map(abs, (one() for _ in range(3)))) == [1, 1, 1]
    assert c.get({"x": (abs, one())}, "x") == 1


def test_map(c: Client) -> None:
    assert c.gather(c.map(add, range(3), [10, 20, 30, 40])) == [10, 21, 32]
    assert c.map(abs, []) == []
    assert c.gather(c.map(abs, (i for i in (-1, 2)))) == [1, 2]
    named = c.map(abs, [1, 2], key="k")
    assert all(f.key.startswith("k-") for f in named)
    assert [f.key for f in c.map(abs, [1, 2], key=["k1", "k2"])] == ["k1", "k2"]


def test_map_of_equal_calls_is_one_task(c: Client) -> None:
    a, b, d = c.map(abs, [-1, -1, -2])
    assert a.key == b.key != d.key
    assert c.gather([a, b, d]) == [1, 1, 2]


def test_map_in_batches(c: Client) -> None:
    futures = c.map(abs, range(10), batch_size=3)
    assert len(c.session.table.calls) == 4
    assert c.gather(futures) == list(range(10))


def test_map_with_futures_and_keywords(c: Client) -> None:
    x = c.submit(abs, -4)
    assert c.gather(c.map(add, [x, 1], [x, x])) == [8, 5]
    assert c.gather(c.map(sum, [[1], [2]], start=x)) == [5, 6]


def test_a_big_keyword_of_a_map_is_sent_once(c: Client) -> None:
    big = np.arange(100_000.0)
    futures = c.map(pick, range(4), array=big, other=big)
    assert c.gather(futures) == [0.0, 2.0, 4.0, 6.0]
    graphs = c.session.table.calls
    assert len(graphs) == 1
    assert c.scheduler_info()["tasks"] == 5  # the array is one of them


def pick(index: int, array: Any, other: Any) -> float:
    return float(array[index] + other[index])


@pytest.mark.parametrize(
    ("keys", "says"), [(["a"], "1 keys were given for 2"), (["a", "a"], "'a'")]
)
def test_wrong_keys_of_a_map(c: Client, keys: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        c.map(abs, [1, 2], key=keys)


def test_wrong_options(c: Client) -> None:
    with pytest.raises(TypeError, match="must be a function, not int"):
        c.submit(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a function"):
        c.map(None, [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="allow_other_workers"):
        c.submit(abs, 1, allow_other_workers=True)
    with pytest.raises(ConfigError, match="collision_policy must be one of"):
        c.submit(abs, 1, collision_policy="ignore")
    with pytest.raises(ConfigError, match="actors are not supported"):
        c.submit(Callable, actor=True)
    with pytest.raises(ConfigError, match="retries"):
        c.submit(abs, 1, retries=-1)


def test_restriction_to_a_worker(c: Client) -> None:
    address = sorted(c.nthreads())[1]
    futures = c.map(abs, range(5), workers=[address], pure=False)
    c.gather(futures)
    assert {a for where in c.who_has(futures).values() for a in where} == {address}


def test_annotations_around_a_submission_count(c: Client) -> None:
    address = sorted(c.nthreads())[1]
    with dask.annotate(workers=[address]):
        future = c.submit(abs, -7, pure=False)
    future.result()
    assert c.who_has([future]) == {future.key: [address]}


def test_errors_carry_the_remote_traceback(c: Client) -> None:
    with pytest.raises(Odd, match="1 and 2") as caught:
        c.submit(fail, pure=False).result()
    assert caught.traceback[-1].name == "fail"
    future = c.submit(truediv, 1, 0)
    assert isinstance(future.exception(), ZeroDivisionError)
    assert future.traceback() is not None
    assert future.status == "error"
    dependent = c.submit(abs, future)
    with pytest.raises(ZeroDivisionError) as caught_too:
        dependent.result()
    assert future.key in str(caught_too.value.__notes__)


def test_a_result_that_cannot_be_loaded(c: Client) -> None:
    future = c.submit(Unloadable, pure=False)
    with pytest.raises(SerializationError, match=future.key):
        future.result()
    assert c.submit(abs, -1).result() == 1


def test_a_cancel_reaches_what_depends_on_it(c: Client) -> None:
    never = c.submit(abs, -1, pure=False, resources={"nowhere": 1.0})
    between = c.submit(abs, never)
    last = c.submit(abs, between)
    never.cancel()
    with pytest.raises(CancelledError, match=f"its input '{never.key}' was cancelled"):
        last.result(20)
    assert between.status == last.status == "cancelled"


def test_cancelled_and_retried(c: Client) -> None:
    future = c.submit(abs, -1, pure=False)
    future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    failed = c.submit(truediv, 1, 0)
    assert failed.exception()
    failed.retry()
    assert isinstance(failed.exception(timeout=20), ZeroDivisionError)


def test_callbacks_run_in_a_thread_of_their_own(c: Client) -> None:
    import queue

    got: queue.Queue[Any] = queue.Queue()
    future = c.submit(abs, -1)
    future.add_done_callback(got.put)
    assert got.get(timeout=20) is future
    future.result()
    future.add_done_callback(got.put)
    assert got.get(timeout=20) is future


def test_a_failing_callback_is_logged(
    c: Client, internal_errors: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    future = c.submit(abs, -1)
    future.result()
    future.add_done_callback(lambda _: 1 / 0)
    from testkit.polling import eventually

    eventually(lambda: "callback" in caplog.text)
    internal_errors.clear()
