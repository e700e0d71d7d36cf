"""scatter: the forms it takes and gives, names, places, what can go wrong."""

from __future__ import annotations

import asyncio
import threading
from operator import add
from typing import Any

import numpy as np
import pytest

from raddle.client.client import Client
from raddle.protocol.core.messages.client import Answer, Ask, Scatter
from raddle.protocol.errors import (
    RaddleError,
    RunSpecCollisionError,
    RunSpecCollisionWarning,
    SerializationError,
)
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError
from testkit.cluster import cluster
from testkit.scripted import ScriptedScheduler


def test_the_form_of_the_data_is_kept(c: Client) -> None:
    assert c.scatter(5).result() == 5
    for data in ([1, 2], (1, 2), [], {1, 2}, frozenset([1]), {"u": 1, ("v", 0): 2}):
        futures = c.scatter(data)
        assert type(futures) is type(data)
        assert c.gather(futures) == data


def test_names(c: Client) -> None:
    a, b = c.scatter([1, 1])
    assert a.key == b.key == c.scatter(1).key
    assert a.key.startswith("int-")
    assert c.scatter(1, hash=False).key != a.key
    named = c.scatter({"u": 1})
    assert named["u"].key == "u"
    assert named["u"].status == "finished"


def test_data_is_an_input_like_any_other(c: Client) -> None:
    big = np.arange(100_000.0)
    future = c.scatter(big)
    assert c.submit(np.sum, future).result() == big.sum()
    assert c.submit(add, future, 1).result()[0] == 1
    assert (future.result() == big).all()


def test_what_is_done_to_the_data_afterwards_does_not_count(c: Client) -> None:
    data = np.zeros(100_000)
    future = c.scatter(data)
    data[:] = 1
    assert c.submit(np.sum, future).result() == 0


def test_places(c: Client) -> None:
    addresses = sorted(c.nthreads())
    there = c.scatter([1, 2, 3], workers=addresses[:1], hash=False)
    assert set(map(tuple, c.who_has(there).values())) == {(addresses[0],)}
    everywhere = c.scatter(4, broadcast=True, hash=False)
    assert sorted(c.who_has(everywhere)[everywhere.key]) == addresses
    once = c.scatter(5, broadcast=1, hash=False)
    assert len(c.who_has(once)[once.key]) == 1
    spread = c.scatter(list(range(100, 108)), hash=False)
    held = [a for where in c.who_has(spread).values() for a in where]
    assert sorted(set(held)) == addresses


def test_a_taken_name(c: Client) -> None:
    first = c.scatter({"name": 1})["name"]
    same = c.scatter({"name": 1})["name"]
    with pytest.warns(RunSpecCollisionWarning, match="'name'"):
        other = c.scatter({"name": 2})["name"]
    assert c.gather([first, same, other]) == [1, 1, 2]
    with pytest.raises(RunSpecCollisionError, match="'name'"):
        c.scatter({"name": 3}, collision_policy="raise")
    assert c.gather([first, other]) == [1, 2]


def test_what_cannot_be_pickled(c: Client) -> None:
    with pytest.raises(SerializationError, match="data to scatter as 'k'"):
        c.scatter({"k": threading.Lock()})


async def test_scatter_over_tcp() -> None:
    async with (
        cluster(2) as made,
        Client(made.address, asynchronous=True) as client,
    ):
        big = np.arange(1_000_000.0)
        future = await client.scatter(big, broadcast=True)
        assert (await future == big).all()
        assert len((await client.who_has(future))[future.key]) == 2


async def test_no_worker_in_time(client: Client, scripted: ScriptedScheduler) -> None:
    asking = asyncio.ensure_future(client.scatter(1, timeout=0))
    ask = await scripted.next(Ask)
    scripted.say(Answer(ask.call, True, {"workers": {}}))
    with pytest.raises(RaddleTimeoutError, match="no worker to scatter to"):
        await asking


async def test_workers_that_cannot_be_reached(
    client: Client, scripted: ScriptedScheduler
) -> None:
    workers: dict[str, Any] = {
        f"tcp://127.0.0.1:{i}": {"wid": i, "nthreads": 1, "name": f"w{i}"}
        for i in (1, 2)
    }
    asking = asyncio.ensure_future(client.scatter({"k": 1}))
    ask = await scripted.next(Ask)
    scripted.say(Answer(ask.call, True, {"workers": workers}))
    with pytest.raises(RaddleError, match=r"'k' could not be put.*127\.0\.0\.1:1"):
        await asking
    assert scripted.of(Scatter) == []


def test_nothing_to_scatter(c: Client) -> None:
    assert c.scatter([]) == []
    assert c.scatter({}) == {}
