"""pytest plugin: dask core's own tests run with our client as default scheduler.

Used in a subprocess (``-p testkit.dask_suite``). One in-process cluster serves the
session, each test gets a client of its own. RADDLE_DASK_DIFFERENCES names a
file of expected differences, one ``test id<TAB>reason`` a line: such a test must
fail, or is not run at all where the reason starts with "left out". At the end the number of graphs that reached the client is printed, so that
a run that never touched raddle cannot pass for one that did.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raddle import Client, LocalCluster

GRAPHS = {"count": 0}


class CountingClient(Client):
    """Counts the graphs that dask hands over."""

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Count, and do as ever."""
        GRAPHS["count"] += 1
        return super().get(*args, **kwargs)

    def persist(self, *args: Any, **kwargs: Any) -> Any:
        """Count, and do as ever."""
        GRAPHS["count"] += 1
        return super().persist(*args, **kwargs)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the expected differences; each must still differ."""
    lines = Path(os.environ["RADDLE_DASK_DIFFERENCES"]).read_text().splitlines()
    expected = dict(x.split("\t", 1) for x in lines if x and not x.startswith("#"))
    for item in items:
        reason = expected.get(f"{item.path.name}::{item.name}")
        if reason is None:
            continue
        if reason.startswith("left out"):
            item.add_marker(pytest.mark.skip(reason=reason))
        else:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(scope="session")
def raddle_cluster() -> Iterator[LocalCluster]:
    """Two worker threads in this process, as far as dask's tests can tell."""
    assert importlib.util.find_spec("distributed") is None, "run without distributed"
    with LocalCluster(n_workers=2, threads_per_worker=2, processes=False) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def raddle_client(raddle_cluster: LocalCluster) -> Iterator[Client]:
    """The default scheduler of one test."""
    with CountingClient(raddle_cluster) as client:
        yield client


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many graphs went through raddle."""
    terminalreporter.write_line(f"raddle graphs: {GRAPHS['count']}")
