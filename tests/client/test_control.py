"""What a client asks of workers and scheduler: run, info, workers to come, the end."""

from __future__ import annotations

import asyncio
from operator import truediv
from typing import Any

import pytest

from raddle.client.client import Client
from raddle.protocol.core.messages.client import RunOnWorkers
from raddle.protocol.errors import CommClosedError, ConfigError
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError
from raddle.worker.server import Worker
from testkit.cluster import cluster
from testkit.scripted import ScriptedScheduler


def test_run_on_all_workers(c: Client) -> None:
    addresses = sorted(c.nthreads())
    assert c.run(abs, -3) == dict.fromkeys(addresses, 3)
    assert c.run(int, "10", base=2, workers=addresses[0]) == {addresses[0]: 2}


def test_run_with_the_worker(c: Client) -> None:
    def name_of(dask_worker: Any) -> str:
        return str(dask_worker.address)

    assert c.run(name_of) == {a: a for a in c.nthreads()}


def test_run_with_errors(c: Client) -> None:
    address = next(iter(c.nthreads()))
    with pytest.raises(ZeroDivisionError) as caught:
        c.run(truediv, 1, 0)
    assert "raised on worker" in str(caught.value.__notes__)
    returned = c.run(truediv, 1, 0, workers=[address], on_error="return")
    assert isinstance(returned[address], ZeroDivisionError)
    assert c.run(truediv, 1, 0, on_error="ignore") == {}
    with pytest.raises(ConfigError, match="on_error"):
        c.run(abs, 1, on_error="log")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="nanny"):
        c.run(abs, 1, nanny=True)


async def test_run_without_waiting(client: Client, scripted: ScriptedScheduler) -> None:
    assert await client.run(abs, -1, wait=False) is None
    assert (await scripted.next(RunOnWorkers)).workers is None


def test_what_the_cluster_says_of_itself(c: Client) -> None:
    future = c.submit(abs, -5, pure=False)
    future.result()
    info = c.scheduler_info()
    assert info["address"] == c.session.address
    assert (info["n_workers"], info["total_threads"]) == (2, 4)
    assert info["tasks"] >= 1
    assert sorted(info["workers"]) == sorted(c.nthreads())
    assert len(c.scheduler_info(n_workers=1)["workers"]) == 1
    assert c.ncores() == c.nthreads() == dict.fromkeys(info["workers"], 2)
    (address,) = c.who_has([future])[future.key]
    assert c.who_has(future.key) == {future.key: [address]}
    assert c.who_has()[future.key] == [address]
    assert c.who_has(["unknown"]) == {"unknown": []}
    assert future.key in c.has_what()[address]
    assert c.has_what(workers=[address]).keys() == {address}
    assert c.processing() == {a: [] for a in c.nthreads()}


def test_collisions_are_kept(c: Client) -> None:
    old = c.submit(abs, -1, key="twice")
    new = c.submit(abs, -2, key="twice")
    with pytest.warns(UserWarning, match="collision"):
        assert c.gather([old, new]) == [1, 1]
    record = c.collisions()[-1]
    assert (record.key, record.kind, record.action) == ("twice", "spec", "kept")
    assert record.submitter == c.id


async def test_waiting_for_workers() -> None:
    async with (
        cluster(1) as made,
        Client(made.address, asynchronous=True) as client,
    ):
        await client.wait_for_workers(1)
        waiting = asyncio.ensure_future(client.wait_for_workers(2, timeout=20))
        with pytest.raises(RaddleTimeoutError, match="1 of 3 workers"):
            await client.wait_for_workers(3, timeout="1 ms")
        async with Worker(made.address, name="late"):
            await waiting
        with pytest.raises(ConfigError, match="at least 1"):
            await client.wait_for_workers(0)


async def test_shutdown_ends_the_cluster() -> None:
    async with cluster(1) as made:
        client = await Client(made.address, asynchronous=True)
        await client.shutdown()
        await made.scheduler.finished()
        assert client.status == "closed"
        with pytest.raises(CommClosedError):
            await client.nthreads()
