"""The scheduler's shell: turns links into events, and the core's actions into sends.

Decides who may connect, which numbers workers get, and that an error inside the
core costs one link and not the scheduler. It must not know why a task runs where:
that is the core's business. Everything per message is synchronous: one event per
batch that arrives, and each link writes its outbox once per loop iteration.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Self

from raddle.protocol import config, security
from raddle.protocol.comm import Hello, Link, Listener, listen
from raddle.protocol.comm.address import format_tcp, parse
from raddle.protocol.core.ids import ClientId, Wid
from raddle.protocol.core.messages.client import (
    Answer,
    Ask,
    RunOnWorkers,
    ShutdownCluster,
)
from raddle.protocol.core.messages.worker import CloseWorker, DropData, Run
from raddle.protocol.errors import HandshakeError, RaddleError
from raddle.protocol.node import scheduler_file as scheduler_files
from raddle.protocol.node.hosts import bind_host

from .core.actions import (
    AskShell,
    DropPeer,
    Heard,
    LogRecord,
    RunAnswered,
    ToClient,
    ToWorker,
)
from .core.entities import PROCESSING, READY, WAITING
from .core.events import (
    ClientJoined,
    ClientLeft,
    Event,
    FromClient,
    FromWorker,
    Tick,
    WorkerJoined,
    WorkerLeft,
)
from .core.machine import Machine
from .core.settings import Settings, checked_policy
from .hello import read_client, read_worker
from .runs import Runs
from .topics import TOPICS

logger = logging.getLogger("raddle.scheduler")

TICK_SECONDS = 0.1
TICK_SECONDS_MAX = 60.0
CLOSE_SECONDS_MAX = 5.0
BUG = "internal error of the scheduler, see its log"
UNDER_WAY = (WAITING, READY, PROCESSING)
EXIT_CODE_SECONDS_MAX = 0.5
"""How long a worker's death waits for its parent process to tell the exit code."""

ExitCode = Callable[[int], Awaitable[int | None]]
"""From the pid of a dead worker to its exit code, where its parent knows it."""


class Scheduler:
    """A scheduler in this process, on the running event loop.

    ``host`` None binds to loopback without a secret and to all interfaces with one;
    ``interface`` names a network interface instead. ``port`` 0 takes any free one.
    ``protocol`` is ``tcp`` or ``inproc``. ``secret`` (or ``secret_file``, or the
    configuration) is what peers must prove to know; without one, anything but
    loopback needs ``insecure``. ``scheduler_file`` is written for others to find
    this scheduler and removed when it closes. ``collision_policy`` is ``warn`` or
    ``raise``; ``idle_timeout`` (seconds or text as ``"10 minutes"``) ends a
    scheduler that nobody uses; ``validate`` checks all invariants after each event.

    Use as ``async with Scheduler() as s``; ``s.address`` is what others connect to.
    Raises StartError (busy port, unknown host, no secret) and ConfigError.
    """

    def __init__(  # noqa: PLR0913
        self,
        host: str | None = None,
        port: int = 0,
        *,
        protocol: str = "tcp",
        interface: str | None = None,
        scheduler_file: str | None = None,
        secret: str | bytes | None = None,
        secret_file: str | None = None,
        insecure: bool = False,
        collision_policy: str | None = None,
        idle_timeout: str | float | None = None,
        validate: bool | None = None,
    ) -> None:
        self.id = f"Scheduler-{secrets.token_hex(4)}"
        self.epoch = secrets.randbits(63)
        self.address = ""
        self.started = time.time()
        self.secret = security.load_secret(secret, secret_file)
        self.settings = _settings(collision_policy, validate)
        self.machine = Machine(self.settings)
        self.metrics: dict[Wid, dict[str, Any]] = {}
        self.exit_code: ExitCode | None = None
        self._host, self._port = host, port
        self._protocol, self._interface = protocol, interface
        self._insecure = insecure
        self._scheduler_file, self._secret_file = scheduler_file, secret_file
        self._idle_timeout = _idle_timeout(idle_timeout)
        self._idle_since = 0.0
        self._clients: dict[ClientId, Link] = {}
        self._workers: dict[Wid, Link] = {}
        self._names: dict[str, Wid] = {}
        self._told_to_close: set[Wid] = set()
        self._next_wid = 1
        self._runs = Runs()
        self._events: deque[tuple[Event, Link | None]] = deque()
        self._handling = False
        self._tick_seconds = TICK_SECONDS
        self._tick_failed = False
        self._tick: asyncio.TimerHandle | None = None
        self._listeners: list[Listener] = []
        self._closing: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._closed = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close("it could not start")
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __dask_tokenize__(self) -> str:
        """A function that refers to a global one is the same in every process."""
        return type(self).__name__

    def __repr__(self) -> str:
        workers, tasks = len(self.machine.workers), len(self.machine.tasks)
        return f"<Scheduler {self.address}: {workers} workers, {tasks} tasks>"

    async def start(self) -> None:
        """Listen, and write the scheduler file."""
        self._loop = asyncio.get_running_loop()
        address, decision = self._bind_address()
        listener = await listen(address, secret=self.secret, accept=self._accept)
        self._listeners.append(listener)
        self.address = listener.address
        logger.info("scheduler at %s", self.address)
        logger.info("listening on %s", decision)
        if self._scheduler_file is not None:
            content = scheduler_files.SchedulerFile(
                self.id, self.address, self._secret_file
            )
            scheduler_files.write(self._scheduler_file, content)
        self._idle_since = self._loop.time()
        self._on_tick()

    async def listen_in_process(self) -> str:
        """Take connections from this process at another address too; returns it.

        They cost neither sockets nor encoding.
        """
        listener = await listen("inproc://", secret=self.secret, accept=self._accept)
        self._listeners.append(listener)
        return listener.address

    def _bind_address(self) -> tuple[str, str]:
        """Where to listen, and why there."""
        if self._protocol == "inproc":
            return "inproc://", "this process only"
        host, port = self._host, self._port
        if host is not None and "://" in host:
            parsed = parse(host)
            host, port = parsed.host, port if parsed.port is None else parsed.port
        host, decision = bind_host(host, self._interface, self.secret)
        security.check_bind(host, self.secret, self._insecure)
        state = "no secret is set" if self.secret is None else "a secret is set"
        return format_tcp(host, port), f"{decision}; {state}"

    async def finished(self) -> None:
        """Wait until the scheduler has closed: by a client, by idleness, by close."""
        await self._closed.wait()

    async def wait_for_workers(self, count: int) -> None:
        """Wait until so many workers are connected."""
        while len(self._workers) < count:
            self._joined.clear()
            await self._joined.wait()

    async def close(self, why: str = "the scheduler closed") -> None:
        """End workers and links, stop listening, remove the scheduler file."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(why))
        await asyncio.shield(self._closing)

    async def _close(self, why: str) -> None:
        if self._tick is not None:
            self._tick.cancel()
        if self._scheduler_file is not None:
            scheduler_files.remove(self._scheduler_file, self.id)
        for listener in self._listeners:
            listener.close()
        for wid, link in tuple(self._workers.items()):
            if link.closed:
                # Its exit code is not known yet, and need not be now.
                self._worker_left(wid, "its connection was lost", None)
            else:
                self._close_worker(wid, why)
        await self._empty(self._workers)
        # Last, so that a client that asked for the end sees when it has come.
        for link in tuple(self._clients.values()):
            link.close(why)
        await self._empty(self._clients)
        for listener in self._listeners:
            await listener.wait_closed()
        if self.address:
            logger.info("scheduler at %s closed: %s", self.address, why)
        self._closed.set()

    async def _empty(self, links: dict[Any, Link]) -> None:
        """Wait until all links have ended; those that take too long are cut."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                while links:
                    await next(iter(links.values())).wait_closed()
        except TimeoutError:
            logger.warning("%d peers did not leave in time", len(links))
            for link in tuple(links.values()):
                link.abort("it was told to leave and did not")

    # Who may connect

    def _accept(self, link: Link, hello: Hello) -> dict[str, Any]:
        """Take in a client or worker, or say why not (HandshakeError)."""
        if self._closing is not None:
            raise HandshakeError("the scheduler is closing")
        if hello.role == "client":
            return self._accept_client(link, hello.info)
        if hello.role == "worker":
            return self._accept_worker(link, hello.info)
        msg = (
            f"this is a scheduler; it serves clients and workers, not a {hello.role!r}: "
            "data is asked of workers"
        )
        raise HandshakeError(msg)

    def _accept_client(self, link: Link, info: dict[str, Any]) -> dict[str, Any]:
        client = read_client(info)
        if client.id in self._clients:
            raise HandshakeError(f"client {client.id} is connected already")
        self._clients[client.id] = link
        link.on_batch = partial(self._on_client_batch, client.id)
        link.on_close = partial(self._on_client_close, client.id)
        self._post(
            ClientJoined(self._loop.time(), *client),
            link,
        )
        if link.closed:
            self._on_client_close(client.id, link, BUG)
            raise HandshakeError(BUG)
        return {
            "epoch": self.epoch,
            "policy": self.settings.policy,
            "worker_count": len(self._workers),
        }

    def _accept_worker(self, link: Link, info: dict[str, Any]) -> dict[str, Any]:
        worker = read_worker(info)
        self._make_room(worker.name)
        wid, self._next_wid = self._next_wid, self._next_wid + 1
        self._workers[wid] = link
        self._names[worker.name] = wid
        link.on_batch = partial(self._on_worker_batch, wid)
        link.on_close = partial(self._on_worker_close, wid, worker.pid)
        self._post(WorkerJoined(self._loop.time(), wid, *worker), link)
        if link.closed:
            self._worker_left(wid, BUG, None)
            raise HandshakeError(BUG)
        self._joined.set()
        return {"epoch": self.epoch, "wid": wid}

    def _make_room(self, name: str) -> None:
        """Free a worker's name if its old bearer is gone, else refuse the new one."""
        wid = self._names.get(name)
        if wid is None:
            return
        if not self._workers[wid].closed:
            old = self.machine.workers[wid]
            msg = (
                f"a worker named {name!r} is connected already: {old.address}, pid "
                f"{old.pid} on {old.host}. Choose another name or end that worker first"
            )
            raise HandshakeError(msg)
        self._worker_left(wid, "replaced by a new worker of its name", None)

    # Links to events

    def _on_client_batch(self, client: ClientId, link: Link, batch: list[Any]) -> None:
        now = self._loop.time()
        self._idle_since = now
        self._post(FromClient(now, client, batch), link)

    def _on_worker_batch(self, wid: Wid, link: Link, batch: list[Any]) -> None:
        self._post(FromWorker(self._loop.time(), wid, batch), link)

    def _on_client_close(self, client: ClientId, _link: Link, why: str) -> None:
        if self._clients.pop(client, None) is not None:
            self._runs.forget_client(client)
            self._post(ClientLeft(self._loop.time(), client, why), None)

    def _on_worker_close(self, wid: Wid, pid: int, _link: Link, why: str) -> None:
        if self.exit_code is None or self._leaves_on_purpose(wid):
            self._worker_left(wid, why, None)
        else:
            self._spawn(self._worker_died(wid, pid, why, self.exit_code))

    async def _worker_died(
        self, wid: Wid, pid: int, why: str, exit_code: ExitCode
    ) -> None:
        """The parent of the worker may know how it ended; do not wait for long."""
        code = None
        try:
            async with asyncio.timeout(EXIT_CODE_SECONDS_MAX):
                code = await exit_code(pid)
        except TimeoutError:
            logger.debug("no exit code of pid %d within time", pid)
        self._worker_left(wid, why, code)

    def _worker_left(self, wid: Wid, why: str, code: int | None) -> None:
        if self._workers.pop(wid, None) is None:
            return
        self._names = {name: w for name, w in self._names.items() if w != wid}
        self.metrics.pop(wid, None)
        safe = self._leaves_on_purpose(wid)
        self._told_to_close.discard(wid)
        for answer in self._runs.worker_left(wid, why):
            self._answer(*answer)
        self._post(WorkerLeft(self._loop.time(), wid, why, safe, code), None)
        waiting = self.machine.unfinished
        if waiting and not self._workers and self._closing is None:
            logger.warning("%d tasks wait and no worker is connected", waiting)

    def _leaves_on_purpose(self, wid: Wid) -> bool:
        """Whether it was told to leave, or said that it would (WorkerClosing)."""
        worker = self.machine.workers.get(wid)
        said = worker is not None and not worker.running
        return said or wid in self._told_to_close

    def _on_tick(self) -> None:
        now = self._loop.time()
        before, self._tick_seconds = self._tick_seconds, TICK_SECONDS
        self._post(Tick(now), None)
        if self._tick_failed:
            # The log would fill with the same traceback otherwise.
            self._tick_failed = False
            self._tick_seconds = min(TICK_SECONDS_MAX, 2 * before)
        self._tick = self._loop.call_later(self._tick_seconds, self._on_tick)
        if self._idle_timeout is None or now - self._idle_since < self._idle_timeout:
            return
        # Looks at all tasks, but only once in so long a time.
        if any(task.state in UNDER_WAY for task in self.machine.tasks.values()):
            self._idle_since = now
        else:
            logger.info(
                "closing: nobody used this scheduler for %g s", self._idle_timeout
            )
            self._idle_timeout = None
            self._spawn(self.close("idle"))

    # Events to the core, its actions to links

    def _post(self, event: Event, link: Link | None) -> None:
        """Give the core an event; one that arises meanwhile waits for its turn."""
        self._events.append((event, link))
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                event, link = self._events.popleft()
                try:
                    actions = self.machine.handle(event)
                except Exception:
                    logger.exception("internal error at %s", type(event).__name__)
                    self._on_bug(event, link)
                else:
                    self._act(actions)
        finally:
            self._handling = False

    def _on_bug(self, event: Event, link: Link | None) -> None:
        """The core failed at an event: its sender loses its link, nobody else."""
        if link is not None:
            link.close(BUG)
        self._tick_failed = isinstance(event, Tick)

    def _act(self, actions: list[Any]) -> None:
        clients, workers = self._clients, self._workers
        for action in actions:
            kind = type(action)
            if kind is ToWorker:
                link = workers.get(action.wid)
                if link is not None:
                    # Nobody waits for a value to be forgotten.
                    lazy = type(action.message) is DropData
                    (link.send_later if lazy else link.send)(action.message)
            elif kind is ToClient:
                link = clients.get(action.client)
                if link is not None:
                    link.send(action.message)
            elif kind is Heard:
                self.metrics[action.wid] = action.metrics
            elif kind is LogRecord:
                logger.log(
                    action.level, "%s", action.text, extra={"fields": action.fields}
                )
            elif kind is AskShell:
                self._on_request(action.client, action.message)
            elif kind is RunAnswered:
                for answer in self._runs.answered(action.wid, action.message):
                    self._answer(*answer)
            elif kind is DropPeer:
                self._drop(action.peer, action.why)

    def _drop(self, peer: ClientId | Wid, why: str) -> None:
        links: dict[Any, Link] = self._workers if type(peer) is int else self._clients
        logger.warning("closing the link of %s: %s", peer, why)
        if peer in links:
            links[peer].close(why)

    def _close_worker(self, wid: Wid, why: str) -> None:
        self._told_to_close.add(wid)
        self._workers[wid].send(CloseWorker(why))

    # What clients ask of the shell

    def _on_request(self, client: ClientId, message: Any) -> None:
        match message:
            case Ask(call, topic, argument):
                self._answer(client, call, *self._ask(client, topic, argument))
            case RunOnWorkers(call, payload, workers):
                self._run(client, call, payload, workers)
            case ShutdownCluster():
                self._spawn(self.close(f"shut down by {client}"))
            case _:
                self._drop(client, f"unknown request {type(message).__name__}")

    def _answer(self, client: ClientId, call: int, ok: bool, value: Any) -> None:
        link = self._clients.get(client)
        if link is not None:
            link.send(Answer(call, ok, value))

    def _ask(self, client: ClientId, topic: str, argument: Any) -> tuple[bool, Any]:
        answer = TOPICS.get(topic)
        if answer is None:
            return False, f"no topic {topic!r}; there are {', '.join(sorted(TOPICS))}"
        try:
            return True, answer(self, client, argument)
        except RaddleError as error:
            return False, str(error)
        except Exception as error:
            logger.exception("topic %s failed for %r", topic, argument)
            return False, f"topic {topic!r} failed: {type(error).__name__}: {error}"

    def _run(
        self,
        client: ClientId,
        call: int,
        payload: Any,
        wanted: tuple[str, ...] | None,
    ) -> None:
        workers = self.machine.workers
        if wanted is None:
            chosen = [wid for wid in workers if wid in self._workers]
        else:
            named = {w.address: wid for wid, w in workers.items()}
            named |= {w.name: wid for wid, w in workers.items()}
            unknown = [name for name in wanted if name not in named]
            if unknown:
                text = f"no worker has the address or name {', '.join(unknown)}"
                self._answer(client, call, False, text)
                return
            chosen = [named[name] for name in wanted]
        asked = {wid: workers[wid].address for wid in chosen}
        number, answers = self._runs.start(client, call, asked)
        for wid in asked:
            self._workers[wid].send(Run(number, payload))
        for answer in answers:
            self._answer(*answer)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _idle_timeout(given: str | float | None) -> float | None:
    """Seconds; None: never."""
    value = config.get("scheduler.idle-timeout") if given is None else given
    return None if value is None else config.parse_seconds(value, "idle-timeout")


def _settings(policy: str | None, validate: bool | None) -> Settings:
    """The core's settings: what is given here, else the configuration's."""
    policy = policy or config.get("scheduler.collision-policy")
    if validate is None:
        validate = config.get("scheduler.validate")
    return Settings(
        policy=checked_policy(policy),
        allowed_failures=config.get("scheduler.allowed-failures"),
        queue_seconds=config.get_seconds("scheduler.queue-seconds"),
        queue_tasks_max=config.get("scheduler.queue-tasks-max"),
        unknown_task_duration=config.get_seconds("scheduler.unknown-task-duration"),
        inline_bytes_max=config.get_bytes("scheduler.inline-bytes-max"),
        records_max=config.get("scheduler.records-max"),
        validate=validate,
    )
