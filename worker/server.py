"""The worker's shell: turns links and threads into events, and actions into sends.

Decides when a worker starts and ends, and what it tells of itself. Why an attempt
runs when, and who is asked for an input, is the core's business.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

import psutil

from raddle.protocol import config, security
from raddle.protocol.comm import Hello, Link, connect
from raddle.protocol.core.ids import Address
from raddle.protocol.core.messages.worker import (
    CloseWorker,
    Heartbeat,
    Run,
    WorkerClosing,
)
from raddle.protocol.errors import CommClosedError, HandshakeError
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError

from . import options
from .calls import answer_run
from .core.actions import Abort, Ask, Disconnect, ForShell, Hand, LogRecord, Recall
from .core.events import (
    Begun,
    Event,
    FromScheduler,
    Ran,
    Registered,
    Report,
    Withdrawn,
)
from .core.machine import Machine
from .core.state import Settings
from .executor import Executor
from .peers import Peers
from .run_task import Runner
from .serve import Server

logger = logging.getLogger("raddle.worker")

STARTED_SECONDS = 0.005
"""How long an attempt runs before the scheduler is told that it has begun."""
RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 1.0
CLOSE_SECONDS_MAX = 5.0
"""How long closing waits for others, altogether, in each of its steps."""


class Worker:
    """A worker in this process, on the running event loop.

    ``scheduler_address`` is where the scheduler listens. ``name`` is unique in the
    cluster (default: the address of the worker's data). ``nthreads`` tasks run at a
    time (default, or 0: the cores this process may use). ``memory_limit`` is
    reported: bytes, ``"4GB"``, a fraction of the machine, ``"auto"`` for the share
    of the machine that belongs to its threads, 0 or None for no limit, by default
    the setting ``raddle.worker.memory-limit``;
    ``resources`` are amounts by name that tasks may require. ``local_directory``
    is where a folder for the worker's files is made when it needs one.
    ``death_timeout`` (seconds, or text as ``"60 s"``) bounds the search for a
    scheduler at the start.

    ``host`` or ``interface``, and ``ports`` (one, or several to choose from) say
    where to serve data, by default on the address that reaches the scheduler;
    ``contact_address`` is what others connect to, if that differs. ``secret`` (or
    the configuration) is what peers must prove to know; without one, anything but
    loopback needs ``insecure``. ``protocol`` is that of the scheduler's address.
    ``validate`` checks all invariants of the core after each event.

    Use as ``async with Worker(address) as w``; ``w.address`` is its data's.
    Raises ConfigError; StartError, AuthenticationError, HandshakeError and raddle's
    TimeoutError at the start.
    """

    def __init__(  # noqa: PLR0913
        self,
        scheduler_address: str,
        *,
        name: str | int | None = None,
        nthreads: int | None = None,
        memory_limit: str | float | None = options.CONFIGURED,
        resources: dict[str, float] | None = None,
        local_directory: str | None = None,
        death_timeout: str | float | None = None,
        secret: str | bytes | None = None,
        host: str | None = None,
        interface: str | None = None,
        ports: int | Sequence[int] = 0,
        contact_address: str | None = None,
        insecure: bool = False,
        protocol: str | None = None,
        validate: bool | None = None,
    ) -> None:
        self.status = "new"
        if "://" not in scheduler_address:
            scheduler_address = f"{protocol or 'tcp'}://{scheduler_address}"
        self.scheduler_address: Address = scheduler_address
        self.nthreads = options.parse_nthreads(nthreads)
        self.memory_limit = options.parse_memory_limit(memory_limit, self.nthreads)
        self.resources = options.parse_resources(resources)
        self.secret = security.load_secret(secret)
        self.name = "" if name is None else str(name)
        self.address: Address = ""
        self.client: Any = None
        self.why_closed = ""
        self.inline_bytes = config.get_bytes("worker.inline-bytes")
        self._death_timeout = (
            config.get_seconds("worker.death-timeout")
            if death_timeout is None
            else config.parse_seconds(death_timeout, "death-timeout")
        )
        self._validate = config.get("worker.validate") if validate is None else validate
        self._listen = partial(
            options.listen_for_data,
            self.scheduler_address,
            self._accept,
            host=host,
            interface=interface,
            ports=ports,
            secret=self.secret,
            insecure=insecure,
        )
        self._contact_address = contact_address
        self._parent_directory = local_directory
        self._directory: Path | None = None
        self._heartbeat_seconds = config.get_seconds("worker.heartbeat")
        self._process = psutil.Process()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        self._lost: str | None = None
        # What closing has to undo, the latest first.
        self._undo = AsyncExitStack()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __dask_tokenize__(self) -> str:
        """A function that refers to a global one is the same in every process."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<Worker {self.name} at {self.address or '?'}: {self.status}>"

    # Start

    async def start(self) -> None:
        """Serve data, find the scheduler, register."""
        self.status = "starting"
        self.loop = asyncio.get_running_loop()
        settings = Settings(self.nthreads, self.resources, validate=self._validate)
        self.machine = Machine(settings)
        self.runner = Runner(self.loop, self.inline_bytes)
        self._undo.callback(self.runner.failures.close)
        self.executor = Executor(self.nthreads, self.runner, self._on_reports, self)
        self._undo.callback(self.executor.close)
        self._on_close(self._cancel_coroutines)
        self._on_close(self._close_client)
        self._server = Server(self.machine.data, self._post)
        self._on_close(self._server.close)
        listener = await self._listen()
        self._on_close(listener.wait_closed)
        self._undo.callback(listener.close)
        self.address = options.contact_address(self._contact_address, listener.address)
        self.name = self.name or self.address
        self._peers = Peers(
            self._post,
            self.address,
            self.secret,
            config.get_seconds("comm.timeouts.connect"),
            config.get("worker.peer-connections-max"),
        )
        self._on_close(self._peers.close)
        self._link = await self._connect()
        self._on_close(self._leave)
        self._post(Registered(self._link.welcome["wid"]))
        self.status = "running"
        logger.info(
            "worker %s at %s, %d threads, scheduler at %s",
            self.name,
            self.address,
            self.nthreads,
            self.scheduler_address,
        )
        self._beat()

    def _accept(self, link: Link, hello: Hello) -> dict[str, Any]:
        if self._closing is not None:
            raise HandshakeError("the worker is closing")
        return self._server.accept(link, hello)

    async def _connect(self) -> Link:
        """The link to the scheduler, which may yet have to start.

        Raises raddle's TimeoutError when it did not within the death-timeout.
        """
        hello = Hello(
            "worker",
            {
                "name": self.name,
                "nthreads": self.nthreads,
                "memory_limit": self.memory_limit,
                "resources": self.resources,
                "address": self.address,
                "host": socket.gethostname(),
                "pid": os.getpid(),
            },
        )
        patience = config.get_seconds("comm.timeouts.connect")
        deadline = self.loop.time() + self._death_timeout
        pause = RETRY_SECONDS
        while True:
            left = max(deadline - self.loop.time(), RETRY_SECONDS)
            try:
                return await connect(
                    self.scheduler_address,
                    hello,
                    secret=self.secret,
                    timeout=min(patience, left),
                    on_batch=self._on_scheduler,
                    on_close=self._on_scheduler_gone,
                )
            except (CommClosedError, RaddleTimeoutError) as error:
                if self.loop.time() + pause >= deadline:
                    msg = (
                        f"no scheduler at {self.scheduler_address} within "
                        f"{self._death_timeout:g} s: {error}"
                    )
                    raise RaddleTimeoutError(msg) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)

    # End

    async def finished(self) -> None:
        """Wait until the worker has closed.

        Raises CommClosedError when that was because its scheduler vanished.
        """
        await self._closed.wait()
        if self._lost is not None:
            msg = f"the scheduler at {self.scheduler_address} is gone: {self._lost}"
            raise CommClosedError(msg)

    async def close(self, why: str = "the worker closed") -> None:
        """Leave the cluster. What threads run now is not waited for."""
        self._end(why)
        assert self._closing is not None
        await asyncio.shield(self._closing)

    def _end(self, why: str) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(why))

    async def _close(self, why: str) -> None:
        started = self.status == "running"
        self.status = "closing"
        self.why_closed = why
        for timer in self._timers.values():
            timer.cancel()
        await self._undo.aclose()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self.status = "closed"
        if started:
            logger.info("worker %s closed: %s", self.name, why)
        self._closed.set()

    def _on_close(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let closing take this step, but not for long, whatever comes of it."""

        async def bounded() -> None:
            try:
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await step()
            except Exception as error:  # noqa: BLE001 (a client's or user's code)
                logger.info("closing worker %s: %r", self.name, error)

        self._undo.push_async_callback(bounded)

    async def _leave(self) -> None:
        """Part from the scheduler: what fails from now on fails nobody's task."""
        self._link.send(WorkerClosing(self.why_closed))
        self._link.close(self.why_closed)
        await self._link.wait_closed()

    async def _close_client(self) -> None:
        if self.client is not None:
            closing = self.client.close()
            if inspect.isawaitable(closing):
                await closing

    async def _cancel_coroutines(self) -> None:
        tasks = [*self._background, *self.runner.coroutines.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Links and threads to events

    def _on_scheduler(self, _link: Link, batch: list[Any]) -> None:
        self._post(FromScheduler(batch))

    def _on_scheduler_gone(self, _link: Link, reason: str) -> None:
        if self._closing is None:
            self._lost = reason
            self._end(f"the scheduler is gone: {reason}")

    def _on_reports(self, reports: list[Report]) -> None:
        self._post(Ran(reports))
        if self.executor.running:
            self._watch_starts()

    def _watch_starts(self) -> None:
        """Tell of attempts that have begun, if they are not done by then."""
        if "starts" not in self._timers:
            self._timers["starts"] = self.loop.call_later(
                STARTED_SECONDS, self._on_starts
            )

    def _on_starts(self) -> None:
        del self._timers["starts"]
        begun = self.executor.begun()
        if begun:
            self._post(Begun(begun))

    def _beat(self) -> None:
        self._link.send(Heartbeat(self.metrics()))
        self._timers["beat"] = self.loop.call_later(self._heartbeat_seconds, self._beat)

    def metrics(self) -> dict[str, Any]:
        """The figures of a heartbeat; ``memory`` is the process's, in bytes."""
        machine = self.machine
        return {
            "executing": self.executor.running,
            "attempts": len(machine.attempts),
            "zombies": len(machine.zombies),
            "stored": len(machine.data.stored),
            "memory": self._process.memory_info().rss,
            "nthreads": self.nthreads,
        }

    # Events to the core, its actions to the world

    def _post(self, event: Event) -> None:
        if self._closing is not None:
            return
        try:
            self._act(self.machine.handle(event))
        except Exception:
            # The state may be broken: better that the tasks run elsewhere.
            logger.exception("internal error at %s", type(event).__name__)
            self._end(f"internal error at {type(event).__name__}")

    def _act(self, actions: list[Any]) -> None:
        withdrawn = []
        send = self._link.send
        for action in actions:
            kind = type(action)
            if kind is Hand:
                self.executor.submit(action.attempts)
                self._watch_starts()
            elif kind is Ask:
                self._peers.ask(action)
            elif kind is Abort or kind is Recall:
                if self.executor.withdraw(action.aid):
                    withdrawn.append(action.aid)
                elif kind is Abort and action.aid in self.runner.coroutines:
                    self.runner.coroutines[action.aid].cancel()
            elif kind is LogRecord:
                logger.log(action.level, "%s", action.text)
            elif kind is ForShell:
                self._on_order(action.message)
            elif kind is Disconnect:
                self._peers.disconnect(action.wid)
            else:
                send(action)
        if withdrawn:
            self._post(Withdrawn(withdrawn))

    def _on_order(self, message: Run | CloseWorker) -> None:
        if isinstance(message, CloseWorker):
            self._end(message.why)
        else:
            self._spawn(self._run(message))

    async def _run(self, message: Run) -> None:
        result = await answer_run(self, message)
        self._link.send(result)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # What tasks may ask

    @property
    def local_directory(self) -> str:
        """A folder for files of this worker, made when first asked for.

        It is removed when the worker closes.
        """
        if self._directory is None:
            parent = self._parent_directory
            if parent is not None:
                Path(parent).mkdir(parents=True, exist_ok=True)
            self._directory = Path(
                tempfile.mkdtemp(prefix="raddle-worker-", dir=parent)
            )
        return str(self._directory)
