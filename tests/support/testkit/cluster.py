"""Small clusters with real parts: in this process, and by the commands.

A cluster of processes leaves a folder of logs; when it ends, an unexpected error in
one of them fails the test.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import raddle
from testkit.polling import eventually

# What no process may print, whatever the test does to it.
BUGS = re.compile(r"internal error|Traceback \(most recent call last\)")
# What holds the package of tasks.
SUPPORT = Path(__file__).parents[1]
RECORD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - raddle", re.MULTILINE)


def bugs(log: str) -> list[str]:
    """The records that tell of an exception nobody expected; a task's own is not one."""
    starts = [0, *(m.start() for m in RECORD.finditer(log)), len(log)]
    records = [log[a:b] for a, b in pairwise(starts)]
    return [r for r in records if BUGS.search(r) and "Compute Failed" not in r]


@dataclass
class Cluster:
    """A scheduler and its workers on the event loop of the test."""

    scheduler: raddle.Scheduler
    workers: list[raddle.Worker]

    @property
    def address(self) -> str:
        return self.scheduler.address


@asynccontextmanager
async def cluster(
    n_workers: int = 2, nthreads: int = 1, *, protocol: str = "tcp", **options: Any
) -> AsyncIterator[Cluster]:
    """A scheduler and workers named w0, w1, ... on the running event loop.

    ``options`` are the scheduler's.
    """
    async with (
        raddle.Scheduler(protocol=protocol, **options) as scheduler,
        AsyncExitStack() as stack,
    ):
        workers = [
            raddle.Worker(
                scheduler.address,
                name=f"w{i}",
                nthreads=nthreads,
                secret=scheduler.secret,
            )
            for i in range(n_workers)
        ]
        for worker in workers:
            await stack.enter_async_context(worker)
        yield Cluster(scheduler, workers)


class Process:
    """One ``raddle`` command under test; its output goes to a file."""

    def __init__(self, log: Path, *arguments: str, **environment: str) -> None:
        self.log_path = log
        self.arguments = arguments
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "raddle", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(SUPPORT), **environment},
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def log(self) -> str:
        """All that it has printed."""
        return self.log_path.read_text(errors="replace")

    @property
    def lines(self) -> list[str]:
        return self.log.splitlines()

    def says(self, pattern: str) -> re.Match[str]:
        """Wait until its output matches; the match."""
        eventually(lambda: self._found(pattern) or self.popen.poll() is not None)
        found = self._found(pattern)
        assert found, f"no {pattern!r} in {self.arguments}, which said:\n{self.log}"
        return found

    def _found(self, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, self.log)

    def complains(self, code: int, *patterns: str) -> None:
        """Wait for its end with ``code`` and one line of complaint.

        In that line all patterns are found; records of its log come beside it.
        """
        assert self.wait() == code, self.log
        (line,) = [line for line in self.lines if not RECORD.match(line)]
        assert line.startswith("raddle"), line
        for pattern in patterns:
            assert re.search(pattern, line), line

    def send(self, signum: signal.Signals) -> None:
        self.popen.send_signal(signum)

    def wait(self) -> int:
        """Its exit code."""
        return self.popen.wait(30)

    def end(self, signum: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; its exit code."""
        if self.popen.poll() is None:
            self.send(signum)
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.popen.poll() is None:
            self.send(signal.SIGTERM)
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
                if kind is None:
                    raise
        assert kind or not bugs(self.log), self.log


@dataclass
class ProcessCluster:
    """A scheduler process and worker processes, as on several machines."""

    folder: Path
    environment: dict[str, str]
    stack: ExitStack
    workers: dict[str, Process] = field(default_factory=dict)
    scheduler: Process = field(init=False)
    address: str = field(init=False)

    @property
    def scheduler_file(self) -> str:
        return str(self.folder / "scheduler.json")

    def start_scheduler(self, *arguments: str) -> None:
        """``raddle scheduler`` on a free port; waits until it listens."""
        file = ("--scheduler-file", self.scheduler_file)
        self.scheduler = self._start("scheduler", "--port", "0", *file, *arguments)
        self.address = self.scheduler.says(r"scheduler at (\S+)")[1]
        eventually(Path(self.scheduler_file).exists)

    def start_worker(self, name: str, *arguments: str) -> Process:
        """One more ``raddle worker``; wait with ``says`` or the client's means."""
        file = ("--scheduler-file", self.scheduler_file)
        worker = self._start("worker", *file, "--name", name, *arguments, log=name)
        self.workers[name] = worker
        return worker

    def _start(self, command: str, *arguments: str, log: str = "") -> Process:
        path = self.folder / f"{log or command}.log"
        process = Process(path, command, *arguments, **self.environment)
        return self.stack.enter_context(process)


@contextmanager
def process_cluster(
    folder: Path,
    n_workers: int = 2,
    nthreads: int = 1,
    *arguments: str,
    environment: dict[str, str] | None = None,
) -> Iterator[ProcessCluster]:
    """``raddle scheduler`` with ``arguments``, and ``raddle worker`` w0, w1, ..."""
    with ExitStack() as stack:
        made = ProcessCluster(folder, environment or {}, stack)
        made.start_scheduler(*arguments)
        for i in range(n_workers):
            made.start_worker(f"w{i}", "--nthreads", str(nthreads))
        yield made
