"""wait, as_completed, fire_and_forget, futures_of."""

from __future__ import annotations

import asyncio
import threading
from operator import truediv
from typing import Any

import dask
import dask.array as da
import pytest

from raddle.client.client import Client
from raddle.client.future import Future, record_of
from raddle.client.iterate import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    as_completed,
    fire_and_forget,
    futures_of,
    wait,
)
from raddle.protocol.core.messages.client import Detach, Graph
from raddle.protocol.errors import CancelledError, ConfigError
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError
from testkit.scripted import ScriptedScheduler

NOWHERE = {"nowhere": 1.0}


@pytest.fixture
def never(c: Client) -> Future:
    """A future that stays pending."""
    return c.submit(abs, -1, resources=NOWHERE, pure=False)


def test_wait_for_all(c: Client) -> None:
    futures = c.map(abs, range(10))
    bad = c.submit(truediv, 1, 0)
    done, not_done = wait([futures, {"k": bad}])
    assert done == {*futures, bad}
    assert not_done == set()
    assert all(f.done() for f in futures)


def test_wait_for_one(c: Client, never: Future) -> None:
    future = c.submit(abs, -1)
    done, not_done = wait([future, never], return_when=FIRST_COMPLETED)
    assert (done, not_done) == ({future}, {never})


def test_wait_for_a_failure(c: Client, never: Future) -> None:
    bad = c.submit(truediv, 1, 0)
    assert wait([never, bad], return_when=FIRST_EXCEPTION).not_done == {never}


def test_wait_no_longer_than_told(c: Client, never: Future) -> None:
    future = c.submit(abs, -1)
    wait(future)
    with pytest.raises(RaddleTimeoutError, match="1 of 2 futures"):
        wait([future, never], timeout="1 ms")
    assert record_of(never).observers is None


def test_wait_raises_for_cancelled_futures(never: Future) -> None:
    never.cancel()
    with pytest.raises(CancelledError):
        wait([never])


@pytest.mark.usefixtures("c")
def test_wait_for_nothing_and_in_a_wrong_way() -> None:
    assert wait([]) == (set(), set())
    with pytest.raises(ConfigError, match="return_when must be"):
        wait([], return_when="SOME")  # type: ignore[arg-type]


@pytest.mark.usefixtures("c")
def test_wait_for_a_collection() -> None:
    x = da.ones(10, chunks=5).persist()
    done, _ = wait(x)
    assert len(done) == 2
    assert done == set(futures_of(x))


async def test_waiting_is_awaited_on_the_loop(
    client: Client, scripted: ScriptedScheduler
) -> None:
    futures = client.map(abs, range(2), key=["a", "b"])
    waiting = wait(futures)
    scripted.finish(await scripted.next(Graph), 0, 1)
    assert (await waiting).done == set(futures)
    assert await wait([]) == (set(), set())
    assert (await wait(futures, timeout=0)).done == set(futures)


# as_completed


def test_as_completed_gives_each_future_once(c: Client) -> None:
    futures = c.map(abs, range(20))
    seen = list(as_completed(futures))
    assert sorted(f.key for f in seen) == sorted(f.key for f in futures)
    assert all(f.done() for f in seen)


async def test_as_completed_gives_them_as_they_are_done(
    client: Client, scripted: ScriptedScheduler
) -> None:
    futures = [client.submit(abs, i, key=f"k{i}") for i in range(3)]
    graphs = [await scripted.next(Graph, i + 1) for i in range(3)]
    completed = as_completed(futures, with_results=True)
    got = []
    for i in (2, 0, 1):
        scripted.finish(graphs[i], i)
        got.append(await anext(completed))
    assert got == [(futures[i], i) for i in (2, 0, 1)]
    with pytest.raises(StopAsyncIteration):
        await anext(completed)


def test_futures_can_be_added_meanwhile(c: Client) -> None:
    completed = as_completed(c.map(abs, [-3]), with_results=True)
    got = []
    for _, value in completed:
        got.append(value)
        if value:
            completed.add(c.submit(abs, value - 1))
    assert got == [3, 2, 1, 0]
    completed.update(c.map(abs, range(3)))
    assert len(list(completed)) == 3


def test_one_future_added_twice_comes_twice(c: Client, never: Future) -> None:
    future = c.submit(abs, -1)
    completed = as_completed([future, future])
    assert list(completed) == [future, future]
    pending = as_completed([never, never])
    assert pending.count() == 2


def test_what_is_left(c: Client, never: Future) -> None:
    future = c.submit(abs, -1)
    future.result()
    completed = as_completed([future, never])
    assert completed.count() == 2
    assert completed.has_ready()
    assert completed.next_batch() == [future]
    assert completed.next_batch(block=False) == []
    assert not completed.has_ready()
    assert not completed.is_empty()
    completed.clear()
    assert completed.is_empty()
    assert list(completed) == []


def test_batches(c: Client) -> None:
    batches = list(as_completed(c.map(abs, range(20))).batches())
    assert sum(map(len, batches)) == 20


def test_failures_raise_or_not(c: Client) -> None:
    bad = c.submit(truediv, 1, 0)
    with pytest.raises(ZeroDivisionError):
        next(as_completed([bad], with_results=True))
    future, (kind, error, tb) = next(
        as_completed([bad], with_results=True, raise_errors=False)
    )
    assert future is bad
    assert kind is ZeroDivisionError
    assert isinstance(error, ZeroDivisionError)
    assert tb is not None
    assert next(as_completed([bad])) is bad


def test_as_completed_has_a_deadline(never: Future) -> None:
    completed = as_completed([never], timeout="1 ms")
    with pytest.raises(RaddleTimeoutError, match="1 futures"):
        next(completed)


async def test_as_completed_has_a_deadline_on_the_loop(client: Client) -> None:
    completed = as_completed(client.map(abs, [1]), timeout="1 ms")
    with pytest.raises(RaddleTimeoutError):
        await anext(completed)


@pytest.mark.usefixtures("c")
def test_as_completed_takes_futures_only() -> None:
    with pytest.raises(TypeError, match="takes futures, not 3"):
        as_completed([3])  # type: ignore[list-item]


def test_several_threads_share_one_iterator(c: Client) -> None:
    completed = as_completed(c.map(abs, range(200)))
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.extend(completed)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({f.key for f in got}) == len(got) == 200


# The rest


async def test_fire_and_forget(client: Client, scripted: ScriptedScheduler) -> None:
    futures = client.map(abs, range(3))
    fids = tuple(record_of(f).fid for f in futures)
    fire_and_forget(futures)
    assert await scripted.next(Detach) == Detach(fids)


def test_futures_of(c: Client) -> None:
    a, b = c.map(abs, [1, 2])
    assert futures_of([a, {"k": (b, a)}, {a}, 5, "x"]) == [a, b]
    lazy = dask.delayed(abs)(1)
    assert futures_of(lazy) == []
    assert futures_of(lazy.persist(), client=c)[0].client is c
    with Client(c.cluster, set_as_default=False) as other:
        assert futures_of([a, other.submit(abs, 1)], client=c) == [a]


async def test_a_wait_that_is_given_up_leaves_no_observer(
    client: Client, scripted: ScriptedScheduler
) -> None:
    futures = client.map(abs, range(3))
    waiting = asyncio.ensure_future(wait(futures))
    await scripted.next(Graph)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert all(record_of(f).observers is None for f in futures)
