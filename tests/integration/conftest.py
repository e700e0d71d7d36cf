"""Commands under test, and what a failed one says."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testkit.cluster import Process, ProcessCluster, process_cluster

Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``raddle`` commands that end with the test."""
    with ExitStack() as stack:
        count = 0

        def command(*arguments: str, **environment: str) -> Process:
            nonlocal count
            count += 1
            log = tmp_path / f"log-{count}"
            return stack.enter_context(Process(log, *arguments, **environment))

        yield command


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[ProcessCluster]:
    """A scheduler process without workers."""
    with process_cluster(tmp_path, n_workers=0) as made:
        yield made


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text("a secret that is long enough\n")
    return str(path)
