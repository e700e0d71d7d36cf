"""gather: order, nesting, failures, and values that lie on workers."""

from __future__ import annotations

from operator import truediv
from typing import Any, NamedTuple

import numpy as np
import pytest

from raddle.client.client import Client
from raddle.client.future import record_of
from raddle.protocol.core.messages.client import (
    Answer,
    Ask,
    Finished,
    Graph,
    GraphAck,
    PendingAgain,
)
from raddle.protocol.errors import CommClosedError, ConfigError
from raddle.protocol.serialize import dumps
from testkit.cluster import cluster
from testkit.polling import eventually_async
from testkit.scripted import ScriptedScheduler


class Point(NamedTuple):
    x: Any
    y: Any


def zeros(n: int) -> Any:
    return np.zeros(n)


def test_order_and_nesting_are_kept(c: Client) -> None:
    a, b = c.submit(abs, -1), c.submit(abs, -2)
    assert c.gather(a) == 1
    assert c.gather([b, a, b]) == [2, 1, 2]
    assert c.gather((a, [b, {"k": a}], 5)) == (1, [2, {"k": 1}], 5)
    assert c.gather({"a": {a}, "f": frozenset([b])}) == {"a": {1}, "f": frozenset([2])}
    assert c.gather(Point(a, 3)) == Point(1, 3)
    assert c.gather(iter([a, b])) == [1, 2]
    assert c.gather([]) == []
    assert c.gather("nothing to do") == "nothing to do"


def test_the_first_failure_in_order_is_raised(c: Client) -> None:
    good, bad = c.submit(abs, -1), c.submit(truediv, 1, 0)
    with pytest.raises(ZeroDivisionError):
        c.gather([good, [bad]])


def test_failures_can_be_left_out(c: Client) -> None:
    good, bad = c.submit(abs, -1), c.submit(truediv, 1, 0)
    assert c.gather([bad, good, [bad]], errors="skip") == [1, []]
    assert c.gather({"a": bad, "b": good}, errors="skip") == {"b": 1}
    assert c.gather((bad, good), errors="skip") == (1,)
    assert c.gather(bad, errors="skip") is None
    with pytest.raises(ConfigError, match="'raise' or 'skip'"):
        c.gather([good], errors="ignore")  # type: ignore[arg-type]


def test_a_failure_is_raised_before_the_rest_is_done(c: Client) -> None:
    from raddle.client.iterate import wait

    address = min(c.nthreads())
    never = c.submit(abs, -1, resources={"nowhere": 1}, pure=False)
    bad = c.submit(truediv, 1, 0, workers=[address], pure=False)
    with pytest.raises(ZeroDivisionError):
        c.gather([never, bad])
    assert never.status == "pending"
    assert wait([bad]).done == {bad}


def test_big_values_come_from_their_workers(c: Client) -> None:
    futures = c.map(zeros, [10, 100_000, 200_000, 100_000], pure=False)
    values = c.gather(futures)
    assert [len(v) for v in values] == [10, 100_000, 200_000, 100_000]
    assert record_of(futures[1]).value is None
    values[1][0] = 1  # writable, and nobody else's
    assert c.gather(futures[1])[0] == 0
    assert len(futures[2].result()) == 200_000


def test_a_value_asked_for_twice_is_one_object(c: Client) -> None:
    future = c.submit(zeros, 100_000, pure=False)
    a, b = c.gather([future, future])
    assert a is b


async def test_values_come_over_tcp_too() -> None:
    async with (
        cluster(2) as made,
        Client(made.address, asynchronous=True) as client,
    ):
        futures = client.map(zeros, [100_000] * 4, pure=False)
        values = await client.gather({"a": futures, "b": futures[0]})
        assert [v.nbytes for v in values["a"]] == [800_000] * 4
        assert values["b"] is values["a"][0]
        assert (await futures[1]).sum() == 0


async def test_a_value_that_is_lost_while_it_is_fetched(
    client: Client, scripted: ScriptedScheduler
) -> None:
    """The worker is gone; the scheduler has the value computed anew."""
    future = client.submit(abs, -1)
    graph = await scripted.next(Graph)
    fid = record_of(future).fid
    scripted.say(GraphAck(graph.call, None), Finished(((fid, 10**6, "ndarray", None),)))
    import asyncio

    asking = asyncio.ensure_future(client.gather([future]))
    ask = await scripted.next(Ask)
    assert (ask.topic, ask.argument) == ("holders", (fid,))
    scripted.say(
        Answer(ask.call, True, ((fid, 5, ((1, "tcp://127.0.0.1:1"),), None),)),
        PendingAgain((fid,)),
    )
    await eventually_async(lambda: future.status == "pending")
    scripted.say(Finished(((fid, 28, "int", dumps(7)),)))
    assert await asking == [7]


async def test_a_value_that_stays_out_of_reach(
    client: Client, scripted: ScriptedScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raddle.client import fetch

    monkeypatch.setattr(fetch, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(fetch, "ROUNDS_MAX", 3)
    import asyncio

    future = client.submit(abs, -1, key="far")
    graph = await scripted.next(Graph)
    fid = record_of(future).fid
    scripted.say(GraphAck(graph.call, None), Finished(((fid, 10**6, "ndarray", None),)))
    asking = asyncio.ensure_future(future.result())
    for number in range(1, 4):
        ask = await scripted.next(Ask, number)
        where = ((1, "tcp://127.0.0.1:1"),)
        scripted.say(Answer(ask.call, True, ((fid, 5, where, None),)))
    with pytest.raises(CommClosedError, match=r"'far'.*3 attempts.*127\.0\.0\.1:1"):
        await asking


async def test_a_value_may_come_with_the_answer(
    client: Client, scripted: ScriptedScheduler
) -> None:
    import asyncio

    future = client.submit(abs, -1)
    await scripted.next(Graph)
    fid = record_of(future).fid
    scripted.say(Finished(((fid, 28, "int", None),)))
    asking = asyncio.ensure_future(future.result())
    ask = await scripted.next(Ask)
    scripted.say(Answer(ask.call, True, ((fid, 5, (), dumps(9)),)))
    assert await asking == 9


def test_what_was_not_fetched_before_the_end(c: Client) -> None:
    big = c.submit(zeros, 100_000, pure=False)
    small = c.submit(abs, -1)
    c.gather([big, small])
    c.close()
    assert small.result() == 1
    with pytest.raises(CommClosedError, match="closed"):
        big.result()
    with pytest.raises(CommClosedError, match="closed"):
        c.gather([big])
    with pytest.raises(CommClosedError, match="closed"):
        c.nthreads()
