"""What a cluster on one machine consists of, and that it starts and ends as one.

The scheduler runs in this process; workers are processes of their own, or objects
on the same event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import logging
import secrets
import weakref
from collections.abc import Coroutine, Generator
from difflib import get_close_matches
from typing import Any, Self, TypeVar

from raddle.client.loop import LoopThread
from raddle.protocol import config
from raddle.protocol.errors import ConfigError, StartError
from raddle.protocol.log import parse_level, setup_last_resort
from raddle.protocol.node import scheduler_file as scheduler_files
from raddle.protocol.node.cores import cpu_count, shares
from raddle.scheduler.server import Scheduler
from raddle.worker.options import CONFIGURED, parse_memory_limit, parse_resources

from .processes import WorkerProcesses, told

logger = logging.getLogger("raddle.local")

T = TypeVar("T")

START_SECONDS_MAX = 60.0
EXIT_SECONDS_MAX = 5.0


class LocalCluster:
    """A scheduler in this process, and workers on this machine.

    ``n_workers`` and ``threads_per_worker`` share out the cores of this machine: up
    to four cores get a worker process each; beyond that there are about as many
    processes as threads in each. With ``processes=False``, one worker with a thread
    per core runs on the scheduler's event loop. If only one of the two is given, the
    other is such that every core has a thread.

    ``memory_limit`` is per worker: bytes, ``"4GB"``, a fraction, ``"auto"``, 0 or
    None for none; by default the setting ``raddle.worker.memory-limit``. ``host``, ``port``, ``interface``, ``protocol``, ``secret``, ``insecure``,
    ``scheduler_file``, ``idle_timeout`` and ``collision_policy`` are the
    scheduler's; without a host, nobody outside this machine can connect, and
    without a secret a random one is made (:attr:`secret`), which the scheduler file
    leads to. ``scheduler_port`` is another name for ``port``. ``resources``, ``local_directory`` and
    ``death_timeout`` are the workers', which are named ``{name}-0`` and so on.
    ``silence_logs`` is the level, a name or number, that worker processes log from,
    and this one where nobody configures logging (False: what the configuration says).

    There is no dashboard and no TLS yet: ``dashboard_address``,
    ``worker_dashboard_address`` and ``security=None`` are accepted and change nothing.

    Use as a context manager, or :meth:`close` it; with ``asynchronous=True``, use
    ``async with`` or ``await``. Workers end when this process does, however it does.
    Raises StartError and ConfigError, and TypeError for arguments that there are not.
    """

    status = "new"
    _ending: asyncio.Task[None] | None = None
    # Clients in this process join the scheduler's event loop, without a socket.
    client_address: str | None = None
    loop_thread: LoopThread | None = None

    def __init__(  # noqa: PLR0913
        self,
        n_workers: int | None = None,
        threads_per_worker: int | None = None,
        processes: bool = True,
        memory_limit: str | float | None = CONFIGURED,
        *,
        host: str | None = None,
        port: int = 0,
        interface: str | None = None,
        protocol: str | None = None,
        secret: str | bytes | None = None,
        insecure: bool = False,
        scheduler_file: str | None = None,
        idle_timeout: str | float | None = None,
        collision_policy: str | None = None,
        resources: dict[str, float] | None = None,
        local_directory: str | None = None,
        death_timeout: str | float | None = None,
        name: str | None = None,
        silence_logs: str | int | bool | None = "warning",
        asynchronous: bool = False,
        scheduler_port: int = 0,
        dashboard_address: Any = None,
        worker_dashboard_address: Any = None,
        security: Any = None,
        **unknown: Any,
    ) -> None:
        _check_foreign(security, dashboard_address, worker_dashboard_address, unknown)
        log_level = _log_level(silence_logs)
        setup_last_resort(log_level)
        count, threads = sizes(n_workers, threads_per_worker, processes)
        options = _worker_options(
            nthreads=threads,
            memory_limit=parse_memory_limit(memory_limit, threads),
            resources=parse_resources(resources),
            local_directory=local_directory,
            death_timeout=death_timeout,
        )
        self.asynchronous = asynchronous
        protocol = protocol or ("tcp" if processes else "inproc")
        secret, self._own_secret = _secret_for(secret, protocol, scheduler_file)
        self.scheduler = Scheduler(
            host or (None if interface else "127.0.0.1"),
            port or scheduler_port,
            protocol=protocol,
            interface=interface,
            secret=secret,
            insecure=insecure,
            scheduler_file=scheduler_file,
            secret_file=self._own_secret and self._own_secret[0],
            idle_timeout=idle_timeout,
            collision_policy=collision_policy,
        )
        self.worker_options = _named(name or "worker", count, options)
        self._stack = contextlib.AsyncExitStack()
        self._processes = WorkerProcesses(log_level) if processes else None
        if not asynchronous:
            self._start_in_thread()

    @property
    def scheduler_address(self) -> str:
        """Where clients connect."""
        return self.scheduler.address

    @property
    def secret(self) -> bytes | None:
        """What clients must know, if anything."""
        return self.scheduler.secret

    @property
    def workers(self) -> dict[str, str]:
        """The addresses of the workers that are connected, by name."""
        return {
            w.name: w.address for w in tuple(self.scheduler.machine.workers.values())
        }

    def __dask_tokenize__(self) -> str:
        """A function that refers to a global one is the same in every process."""
        return type(self).__name__

    def __repr__(self) -> str:
        threads = sum(o["nthreads"] for o in self.worker_options.values())
        return (
            f"<LocalCluster {self.scheduler_address} ({self.status}): "
            f"{len(self.worker_options)} workers, {threads} threads>"
        )

    # Start and end, on the event loop

    def _start_in_thread(self) -> None:
        self.loop_thread = LoopThread("raddle-local-cluster")
        try:
            self._run(self._start())
        except BaseException:
            self.loop_thread.stop()
            raise
        _open.add(self)

    async def _start(self) -> None:
        self.status = "starting"
        try:
            if self._processes is not None:
                self._processes.attach()
            if self._own_secret is not None:
                scheduler_files.write_secret(*self._own_secret)
            if self._processes is None:
                await self._start_objects()
            else:
                await self._start_processes(self._processes)
        except BaseException:
            await self._end()
            raise
        self.status = "running"
        # A client may shut the cluster down.
        self._watch = asyncio.ensure_future(self._end_with_scheduler())

    async def _start_objects(self) -> None:
        from raddle.worker.server import Worker

        await self.scheduler.start()
        workers = [
            Worker(self.scheduler.address, secret=self.secret, **options)
            for options in self.worker_options.values()
        ]
        entered = (self._stack.enter_async_context(worker) for worker in workers)
        await asyncio.gather(*entered)

    async def _start_processes(self, processes: WorkerProcesses) -> None:
        self.scheduler.exit_code = processes.exit_code
        await self.scheduler.start()
        self.client_address = await self.scheduler.listen_in_process()
        for name, options in self.worker_options.items():
            common = {"scheduler_address": self.scheduler.address}
            processes.start(name, common | options, self.secret)
        arrived = asyncio.ensure_future(
            self.scheduler.wait_for_workers(len(self.worker_options))
        )
        failed = asyncio.ensure_future(processes.any_ended())
        try:
            await asyncio.wait(
                (arrived, failed),
                timeout=START_SECONDS_MAX,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not arrived.done():
                found = [f"{n}: {told(c)}" for n, c in processes.codes.items()]
                why = ", ".join(found) or f"not there after {START_SECONDS_MAX:g} s"
                msg = f"a worker process did not start ({why}); its output says more"
                raise StartError(msg)
        finally:
            arrived.cancel()
            failed.cancel()

    async def _end_with_scheduler(self) -> None:
        await self.scheduler.finished()
        await self._end()

    async def _end(self) -> None:
        """End once; whoever comes second waits for the same end."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end_all())
        await asyncio.shield(self._ending)

    async def _end_all(self) -> None:
        self.status = "closed"
        # It tells the workers to end; the stack then waits for those in this process.
        await self.scheduler.close("the local cluster closed")
        await self._stack.aclose()
        if self._processes is not None:
            await self._processes.close()
        if self._own_secret is not None:
            scheduler_files.remove_secret(*self._own_secret)

    # Two faces

    def __enter__(self) -> Self:
        if self.asynchronous:
            msg = "this cluster is asynchronous: use `async with`"
            raise TypeError(msg)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if self.status == "new":
            await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    def close(self, timeout: float | None = None) -> Any:
        """End workers and scheduler; a coroutine if the cluster is asynchronous.

        Raises TimeoutError after ``timeout`` seconds; the end goes on by itself.
        """
        if self.asynchronous:
            return self._end()
        _open.discard(self)
        if self.loop_thread is not None:
            self._run(self._end(), timeout)
            self.loop_thread.stop()
            self.loop_thread = None
        return None

    def _run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        assert self.loop_thread is not None
        loop = self.loop_thread.loop
        return asyncio.run_coroutine_threadsafe(work, loop).result(timeout)


def sizes(
    n_workers: int | None, threads: int | None, processes: bool
) -> tuple[int, int]:
    """How many workers, with how many threads each (see :class:`LocalCluster`).

    Raises ConfigError for fewer workers than none, or threads than one.
    """
    for what, number, least in (
        ("n_workers", n_workers, 0),
        ("threads_per_worker", threads, 1),
    ):
        if number is not None and number < least:
            raise ConfigError(f"{what}: {number!r} should be at least {least}")
    cores = cpu_count()
    if n_workers is None and threads is None:
        return shares(cores) if processes else (1, cores)
    if n_workers is None:
        assert threads is not None
        n_workers = max(1, cores // threads) if processes else 1
    return n_workers, threads or max(1, cores // max(1, n_workers))


def _secret_for(
    given: str | bytes | None, protocol: str, scheduler_file: str | None
) -> tuple[str | bytes | None, tuple[str, str] | None]:
    """The cluster's secret, and the file to write a minted one to with its content."""
    if given is not None or protocol == "inproc":
        return given, None
    minted = secrets.token_hex(32)
    if scheduler_file is None:
        return minted, None
    return minted, (f"{scheduler_file}.secret", minted)


def _check_foreign(
    security: Any, dashboard: Any, worker_dashboard: Any, unknown: dict[str, Any]
) -> None:
    """What scripts of the field pass, and what to say of it here."""
    if unknown:
        raise _not_supported(unknown)
    if security:
        raise ConfigError("security=: TLS is not supported (yet); use secret=")
    if dashboard is not None or worker_dashboard is not None:
        logger.info("there is no dashboard yet: no address is taken for one")


def _named(name: str, count: int, options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The options of each worker, by its name."""
    names = [f"{name}-{i}" for i in range(count)]
    return {name: {"name": name, **options} for name in names}


def _not_supported(unknown: dict[str, Any]) -> TypeError:
    """The error for arguments that there are not; names the nearest that there is."""
    known = inspect.signature(LocalCluster).parameters
    texts = []
    for name in unknown:
        near = get_close_matches(name, known, n=1)
        texts.append(f"{name}=" + (f" (did you mean {near[0]}=?)" if near else ""))
    are = "is" if len(texts) == 1 else "are"
    return TypeError(f"LocalCluster: {', '.join(texts)} {are} not supported (yet)")


def _log_level(silence_logs: str | int | bool | None) -> int | None:
    """The level that is meant; None for what the configuration says."""
    if silence_logs is True:
        return logging.WARNING
    return parse_level(silence_logs, "silence_logs") if silence_logs else None


def _worker_options(**options: Any) -> dict[str, Any]:
    """Those that are given; wrong ones are told here, not by workers that die."""
    if options["death_timeout"] is not None:
        config.parse_seconds(options["death_timeout"], "death_timeout")
    return {key: value for key, value in options.items() if value is not None}


# Clusters that a program forgot to close end in order when it does.
_open: weakref.WeakSet[LocalCluster] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for cluster in tuple(_open):
        with contextlib.suppress(TimeoutError):
            cluster.close(EXIT_SECONDS_MAX)
