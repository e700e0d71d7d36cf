"""How dask finds the client, and what is left when it is gone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from operator import add
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.config
import pytest
from dask.base import get_scheduler

from raddle.client.client import Client, get_client
from raddle.client.dask import handle
from raddle.client.iterate import futures_of
from raddle.local import LocalCluster
from testkit.cluster import cluster as made_cluster

NAMES = tuple(handle.SETTINGS)
MISSING = "is not set"


def settings() -> list[Any]:
    return [dask.config.get(name, MISSING) for name in NAMES]


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = settings()
    yield
    assert settings() == before


def graphs(client: Client) -> int:
    return len(client.session.table.calls)


def test_distributed_is_not_there() -> None:
    assert "distributed" not in sys.modules


def test_collections_compute_on_the_client(c: Client) -> None:
    assert settings() == [handle.handle, "tasks", "tasks"]
    assert dask.delayed(add)(1, 2).compute() == 3
    assert da.ones(4, chunks=2).sum().compute() == 4
    assert db.from_sequence([1, 2]).sum().compute() == 3
    assert dask.compute({"a": [dask.delayed(add)(1, 2)]}) == ({"a": [3]},)
    assert graphs(c) == 4
    x = da.ones(4, chunks=2).persist()
    assert len(futures_of(x)) == 2
    assert x.sum().compute() == 4
    assert graphs(c) == 6
    assert "Client" in repr(get_scheduler())


def test_an_explicit_scheduler_counts_more(c: Client) -> None:
    x = da.ones(4, chunks=2).sum()
    assert x.compute(scheduler="sync") == 4
    with dask.config.set(scheduler="threads"):
        assert x.compute() == 4
    assert graphs(c) == 0
    assert x.compute(scheduler=c) == 4
    assert graphs(c) == 1


def test_a_client_that_is_no_default_is_not_found(cluster: LocalCluster) -> None:
    with Client(cluster, set_as_default=False) as client:
        assert get_scheduler() is None
        assert da.ones(4, chunks=2).sum().compute() == 4
        assert graphs(client) == 0


def test_several_clients_in_any_order(cluster: LocalCluster) -> None:
    first, second = Client(cluster), Client(cluster)
    x = da.ones(4, chunks=2).sum()
    x.compute()
    assert (graphs(first), graphs(second)) == (0, 1)
    with first.as_current():
        x.compute()
    assert (graphs(first), graphs(second)) == (1, 1)
    first.close()
    x.compute()
    assert graphs(second) == 2
    second.close()
    assert get_scheduler() is None


def test_settings_of_the_user_are_restored(cluster: LocalCluster) -> None:
    with dask.config.set({"scheduler": "sync", "array.rechunk.method": "p2p"}):
        client = Client(cluster)
        assert settings() == [handle.handle, "tasks", "tasks"]
        client.close()
        assert settings() == ["sync", None, "p2p"]


def test_settings_that_the_user_changes_meanwhile_stay(cluster: LocalCluster) -> None:
    before = dask.config.get("scheduler", None)
    client = Client(cluster)
    dask.config.set({"scheduler": "sync"})
    client.close()
    assert dask.config.get("scheduler") == "sync"
    dask.config.config.pop("scheduler")
    assert dask.config.get("scheduler", None) == before


async def test_an_asynchronous_client_leaves_blocking_calls_to_dask() -> None:
    async with (
        made_cluster(1) as made,
        Client(made.address, asynchronous=True) as client,
    ):
        x = da.ones(4, chunks=2)
        assert x.sum().compute() == 4
        assert graphs(client) == 0
        # Persisting does not wait.
        assert len(futures_of(x.persist())) == 2
        assert graphs(client) == 1
        # In another thread it may block.
        assert await asyncio.to_thread(x.sum().compute) == 4
        assert graphs(client) == 2
        assert await client.compute(x.sum()) == 4


def compute_inside() -> Any:
    client = get_client()
    before = graphs(client)
    return da.ones(4, chunks=2).sum().compute(), graphs(client) - before


def test_a_task_computes_on_its_workers_client() -> None:
    with LocalCluster(n_workers=1, processes=False) as cluster:
        with Client(cluster) as c:
            assert c.submit(compute_inside).result() == (4, 1)
            assert graphs(c) == 1
        # The worker's tasks may go on; elsewhere dask does what it would have done.
        assert dask.config.get("scheduler") is handle.handle
        assert da.ones(4, chunks=2).sum().compute() == 4
        assert len(da.ones(4, chunks=2).persist().dask) == 2
    handle.uninstall("never there")
