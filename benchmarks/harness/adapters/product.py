"""raddle, through its public API only."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from .base import Adapter


def _nested(n):
    from fns import inc
    from raddle import get_client

    client = get_client()
    return len(client.gather(client.map(inc, range(n), pure=False)))


class _Completed:
    def __init__(self, handles):
        from raddle import as_completed

        self._completed = as_completed(handles, with_results=True)

    def add(self, handle):
        self._completed.add(handle)

    def __iter__(self):
        for _, result in self._completed:
            yield result


class ProductAdapter(Adapter):
    caps = frozenset(
        "submit deps graph submit_graph scatter placement release nested "
        "as_completed connect dask".split()
    )

    def __init__(self):
        self._processes = []

    def start(self, n_workers, threads, separate=False):
        from raddle import Client

        if separate:
            self._start_separate(n_workers, threads)
        else:
            self.client = Client(n_workers=n_workers, threads_per_worker=threads)
        self.addresses = sorted(self.client.scheduler_info()["workers"])

    def _start_separate(self, n_workers, threads):
        """Scheduler and workers as their own processes, as in production."""
        from raddle import Client

        path = os.path.join(tempfile.mkdtemp(), "scheduler.json")
        commands = (
            ["scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", path],
            ["worker", "--scheduler-file", path, "--nworkers", str(n_workers),
             "--nthreads", str(threads)],
        )
        for command in commands:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "raddle", *command],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            while not os.path.exists(path):
                time.sleep(0.02)
        self.client = Client(scheduler_file=path)
        self.client.wait_for_workers(n_workers)

    def close(self):
        self.client.close()
        for process in self._processes:
            process.terminate()

    def submit(self, fn, *args):
        return self.client.submit(fn, *args, pure=False)

    def map(self, fn, values):
        return self.client.map(fn, values, pure=False)

    def gather(self, handles):
        return self.client.gather(handles)

    def wait(self, handles):
        from raddle import wait

        wait(handles)

    def submit_on(self, worker, fn, *args):
        return self.client.submit(
            fn, *args, pure=False, workers=[self.addresses[worker]]
        )

    def as_completed(self, handles):
        return _Completed(handles)

    def nested(self, n):
        return self.client.submit(_nested, n, pure=False).result()

    def get(self, dsk, key):
        return self.client.get(dsk, key)

    def dask_get(self, *args, **kwargs):
        return self.client.get(*args, **kwargs)

    def submit_graph(self, dsk, keys):
        return self.client.get(dsk, keys, sync=False)

    def scatter(self, value, broadcast=False):
        return self.client.scatter(value, broadcast=broadcast, hash=False)

    def n_tasks(self):
        return self.client.scheduler_info()["tasks"]

    def scheduler_pid(self):
        return self.client.scheduler_info()["pid"]

    def connect(self):
        from raddle import Client

        Client(self.client.cluster, set_as_default=False).close()
