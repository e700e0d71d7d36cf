"""A client of a scheduler that says what the test wants, and small real clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from raddle.client.client import Client
from raddle.local import LocalCluster
from testkit.links import serving
from testkit.scripted import ScriptedScheduler


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedScheduler]:
    """A scripted scheduler, over TCP."""
    async with serving(server=ScriptedScheduler({"policy": "warn"})) as server:
        assert isinstance(server, ScriptedScheduler)
        yield server


@pytest.fixture
async def client(scripted: ScriptedScheduler) -> AsyncIterator[Client]:
    """An asynchronous client of the scripted scheduler."""
    async with Client(scripted.address, asynchronous=True, timeout=20) as client:
        yield client


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A real cluster in this process: two workers with two threads each."""
    with LocalCluster(n_workers=2, threads_per_worker=2, processes=False) as cluster:
        yield cluster


@pytest.fixture
def c(cluster: LocalCluster) -> Iterator[Client]:
    """A synchronous client of the real cluster, the default while the test runs."""
    with Client(cluster, timeout=20) as client:
        yield client
