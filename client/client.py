"""What a user's program talks to, from its first connection to its last."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import secrets
import weakref
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Any, Self, TypeVar

from raddle.protocol import config
from raddle.protocol.context import WorkerHandle, current_task
from raddle.protocol.errors import CommClosedError, ConfigError, RaddleError

from . import current
from .base import checked_policy
from .connecting import Target, Wanted, find_target, make_cluster
from .control import ControlMixin
from .dask import handle
from .dask.collections import CollectionsMixin
from .encode import TokenSettings
from .fetch import Fetcher
from .gather import GatherMixin
from .inspect import InspectMixin
from .iterate import futures_of
from .loop import LoopThread
from .peers import Peers
from .scatter import ScatterMixin
from .session import Session
from .submit import SubmitMixin

logger = logging.getLogger("raddle.client")

T = TypeVar("T")

EXIT_SECONDS_MAX = 2.0
"""How long a client that was never closed may take when the program ends."""


class Client(
    SubmitMixin, GatherMixin, ScatterMixin, CollectionsMixin, ControlMixin, InspectMixin
):
    """Connects to a scheduler and runs functions and graphs on its workers.

    ``address`` is that of a scheduler, or a cluster, or None: then a scheduler file,
    the configured ``raddle.scheduler-address`` (``DASK_SCHEDULER_ADDRESS``), or a
    new local cluster that is made with all further keyword arguments (``n_workers``,
    ``threads_per_worker``, ``processes``, ...) and ends with the client.

    ``timeout`` (seconds or text as "10s") bounds connecting; until then a refused
    connection is tried again. ``name`` begins the client's id. With ``set_as_default``, dask collections compute here while this
    client is the latest. ``asynchronous`` clients belong to the running event loop:
    ``async with Client(..., asynchronous=True) as client``. ``secret`` is what the
    scheduler wants to be proved, ``secret_file`` a file that holds it. ``collision_policy`` (``warn``, ``raise``) may
    strengthen the scheduler's. ``heartbeat_interval``, ``direct_to_workers``,
    ``security=None`` are accepted and change nothing.

    Raises:
        CommClosedError, StartError, TimeoutError: no scheduler can be reached.
        AuthenticationError: the secret is not the scheduler's.
        ConfigError: an argument has no such value.

    """

    _policy: str | None
    _thread: LoopThread | None
    _cluster_made: Any
    _target: Target | None
    _close_once: asyncio.Task[None] | None

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        address: Any = None,
        loop: Any = None,  # noqa: ARG002 (as the peer)
        timeout: str | float | None = None,
        set_as_default: bool = True,
        scheduler_file: str | None = None,
        security: Any = None,
        asynchronous: bool = False,
        name: str | None = None,
        heartbeat_interval: str | float | None = None,  # noqa: ARG002 (as the peer)
        direct_to_workers: bool | None = None,  # noqa: ARG002 (as the peer)
        *,
        secret: str | bytes | None = None,
        secret_file: str | os.PathLike[str] | None = None,
        collision_policy: str | None = None,
        **kwargs: Any,
    ) -> None:
        if security:
            raise ConfigError(
                "security=: TLS is not supported (yet); use secret= or secret_file="
            )
        file = None if secret_file is None else os.fspath(secret_file)
        self._prepare(Wanted(address, scheduler_file, secret, file, kwargs), timeout)
        self._policy = checked_policy(collision_policy)
        self._set_as_default = set_as_default
        self._asynchronous = asynchronous
        self._cluster_made = make_cluster(self._wanted, asynchronous=asynchronous)
        if asynchronous:
            self._attach(name, _running_loop())
            return
        # With a scheduler on the same loop, no message waits for a thread to wake.
        shared = getattr(self._cluster_made or address, "loop_thread", None)
        if shared is None:
            shared = self._thread = LoopThread("raddle-client")
        self._attach(name, shared.loop)
        try:
            self.session.run(self._start())
        except BaseException:
            if self._thread is not None:
                self._thread.stop()
            if self._cluster_made is not None:
                self._cluster_made.close()
            raise
        _open.add(self)

    def _prepare(self, wanted: Wanted, timeout: str | float | None) -> None:
        super().__init__()
        self._wanted = wanted
        self._timeout = _connect_timeout(timeout)
        self._policy = None
        self._set_as_default = False
        self._asynchronous = True
        self._status = "newly-created"
        self._target = self._thread = self._cluster_made = self._close_once = None

    def _attach(self, name: str | None, loop: asyncio.AbstractEventLoop) -> None:
        id = f"{name or 'Client'}-{secrets.token_hex(8)}"
        self.token_settings = TokenSettings.configured()
        self.session = Session(id, name, loop)
        self.session.client = self
        self._peers = Peers(id, self._timeout)
        self.session.fetch = Fetcher(self.session, self._peers).fetch

    # Beginning

    async def _start(self) -> None:
        self._status = "connecting"
        try:
            target = await find_target(self._wanted, self._cluster_made, self._timeout)
            await self.session.connect(
                target.address,
                target.secret,
                self._policy,
                self.token_settings.encoding,
                self._timeout,
            )
        except BaseException as error:
            self._status = "closed"
            await self.session.close(f"not connected: {error}")
            raise
        self._target = target
        self._status = "running"
        if self._set_as_default:
            current.push_default(self)
            handle.install(self)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if not self._asynchronous:
            msg = "this client is not asynchronous: use `with`, or asynchronous=True"
            raise TypeError(msg)
        if self._status == "newly-created":
            await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    def __enter__(self) -> Self:
        if self._asynchronous:
            msg = "this client is asynchronous: use `async with`"
            raise TypeError(msg)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What it is

    @property
    def id(self) -> str:
        """The name by which the scheduler knows this client."""
        return self.session.id

    @property
    def name(self) -> str:
        """As :attr:`id`."""
        return self.session.id

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that this client's coroutines run on."""
        return self.session.loop

    @property
    def status(self) -> str:
        """``newly-created``, ``connecting``, ``running``, or ``closed``."""
        if self._status == "running" and self.session.closed is not None:
            return "closed"
        return self._status

    @property
    def cluster(self) -> Any:
        """The cluster that it was made for, or made; None if it was an address."""
        return self._target.cluster if self._target is not None else None

    @property
    def asynchronous(self) -> bool:
        """Whether calls made here, in this thread, must be awaited."""
        if self._status == "newly-created":
            return self._asynchronous
        return self.session.in_loop()

    def __dask_tokenize__(self) -> str:
        """A function that refers to a global one is the same in every process."""
        return type(self).__name__

    def __repr__(self) -> str:
        where = self.session.address or "nowhere"
        return f"<Client: {self.id} of {where} ({self.status})>"

    # Being the one that is meant

    @classmethod
    def current(cls, allow_global: bool = True) -> Client:
        """The client that is meant where none is named.

        Raises ValueError if there is none. ``allow_global=False`` looks only at
        ``as_current`` and, inside a task, at its worker.
        """
        if not allow_global and current_task.get() is None:
            client = current.chosen.get()
        else:
            client = current.find_client()
        if client is None:
            raise ValueError("no client is open here; make one with raddle.Client(...)")
        found: Client = client
        return found

    @contextlib.contextmanager
    def as_current(self) -> Iterator[Self]:
        """Inside the block, in this thread or coroutine, this client is meant."""
        before = current.chosen.set(self)
        try:
            yield self
        finally:
            current.chosen.reset(before)

    def futures_of(self, futures: Any) -> Any:
        """The client's own futures in collections; see :func:`raddle.futures_of`."""
        return futures_of(futures, client=self)

    def sync(self, func: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> Any:
        """Run a coroutine function on the client's loop; its result.

        An awaitable where the client is asynchronous.
        """
        return self._face(_as_coroutine(func, args, kwargs))

    # End

    def close(self, timeout: str | float | None = None) -> Any:
        """Disconnect; all futures are released, a cluster of its own is closed.

        May be called again, and never hangs: after ``timeout`` seconds (default:
        that of connecting) it returns with what is not closed left behind.
        Awaitable where the client is asynchronous.
        """
        if self.session.in_loop():
            return self._close()
        seconds = self._timeout
        if timeout is not None:
            seconds = config.parse_seconds(timeout, "timeout")
        _open.discard(self)
        if not self.session.loop.is_closed():
            with contextlib.suppress(TimeoutError):
                closing = self._close()
                asyncio.run_coroutine_threadsafe(closing, self.loop).result(seconds)
        if self._thread is not None:
            self._thread.stop()
        if self._cluster_made is not None:
            self._cluster_made.close()
        return None

    def shutdown(self) -> Any:
        """End the workers and the scheduler, then close this client."""
        if self.session.in_loop():
            return self._shutdown()
        with contextlib.suppress(CommClosedError):
            self.session.run(self._shutdown_cluster())
        self.close()
        return None

    async def _shutdown(self) -> None:
        with contextlib.suppress(CommClosedError):
            await self._shutdown_cluster()
        await self._close()

    async def _close(self) -> None:
        if self._close_once is None:
            self._close_once = asyncio.ensure_future(self._end())
        await asyncio.shield(self._close_once)

    async def _end(self) -> None:
        current.remove_default(self)
        handle.uninstall(self)
        self._status = "closed"
        await self._peers.close()
        await self.session.close("the client closed")
        if self._asynchronous and self._cluster_made is not None:
            await self._cluster_made.close()


class WorkerClient(Client):
    """The client that all tasks of one worker share. It runs on the worker's loop.

    It is usable at once; what is submitted waits until it is connected.
    """

    def __init__(self, worker: WorkerHandle) -> None:
        wanted = Wanted(worker.scheduler_address, None, worker.secret, None, {})
        self._prepare(wanted, None)
        self._status = "connecting"
        self._attach(f"Client-{worker.name}", worker.loop)
        self.session.nested = True
        worker.loop.call_soon_threadsafe(self._start_in_background)

    def _start_in_background(self) -> None:
        # Collections that the tasks here compute find this client.
        handle.install(self)
        self._starting = asyncio.ensure_future(self._start())
        self._starting.add_done_callback(_log_failure)


def _log_failure(starting: asyncio.Task[None]) -> None:
    if not starting.cancelled() and starting.exception() is not None:
        logger.error("no client for the tasks here: %s", starting.exception())


async def _as_coroutine(
    func: Callable[..., Awaitable[T]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> T:
    return await func(*args, **kwargs)


def _connect_timeout(given: str | float | None) -> float:
    if given is not None:
        return config.parse_seconds(given, "timeout")
    configured = config.get("client.connect-timeout")
    if configured is None:
        return config.get_seconds("comm.timeouts.connect")
    return config.parse_seconds(configured, "raddle.client.connect-timeout")


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        msg = "Client(asynchronous=True) must be made inside a coroutine"
        raise RaddleError(msg) from None


def get_client(
    address: str | None = None,
    timeout: str | float | None = None,
    resolve_address: bool = True,  # noqa: ARG001 (as the peer)
) -> Client:
    """The client to use here: inside a task that of its worker, else the current one.

    With ``address`` a client of that scheduler, made if the current one is of
    another. Raises ValueError if there is none.
    """
    client: Client | None = current.find_client()
    if address is None:
        if client is None:
            msg = "no client is open here; make one with raddle.Client(...)"
            raise ValueError(msg)
        return client
    if client is not None and client.session.address == address:
        return client
    return Client(address, timeout=timeout)


def default_client(c: Client | None = None) -> Client:
    """``c`` itself, or the client that is meant here. ValueError if there is none."""
    return c if c is not None else Client.current()


# Clients that a program forgot to close say goodbye when it ends.
_open: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for client in tuple(_open):
        client.close(EXIT_SECONDS_MAX)


__all__ = ["Client", "default_client", "get_client"]
