"""What a program holds of a task: a name, a state, and in the end a value.

A future stands for one task instance of one client. It derives from dask's
``TaskRef``, so that dask finds it in graphs and arguments. When the last holder
lets go of it, its release is queued at that moment.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from dask.task_spec import TaskRef

from raddle.protocol import config
from raddle.protocol.core.ids import ClientId, Fid, Key
from raddle.protocol.errors import RaddleError
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError

from .core.futures import CANCELLED, FINISHED, STATUS, Record
from .current import find_client
from .session import Session
from .sync import wait_in_loop, wait_in_thread
from .values import error_of, is_remote, load

logger = logging.getLogger("raddle.client")

_callbacks: ThreadPoolExecutor | None = None


class Future(TaskRef):
    """The result of a task that runs, or will run, on the cluster.

    Made by ``Client.submit`` and its like. ``Future(key, client)`` refers to a task
    that somebody else submitted under this name; without a client, the current one
    is taken when the future is first used.

    It may be awaited, passed to other tasks, and pickled: where it is loaded, it
    belongs to the client of that place. Two futures are equal if their keys and
    their clients are.
    """

    __slots__ = ("__weakref__", "_origin", "_record", "_session")
    __dask_future__ = True

    key: Any  # a Key; TaskRef's own type leaves out bytes
    _session: Session | None
    _record: Record | None

    def __init__(self, key: Key, client: Any = None) -> None:
        super().__init__(key)  # type: ignore[arg-type]
        self._session = self._record = None
        self._origin: tuple[ClientId, Fid] = ("", 0)
        if client is not None:
            self._bind(client.session)

    def _bind(self, session: Session) -> Record:
        self._session = session
        self._record = session.bind(self.key, *self._origin)
        return self._record

    def _known(self) -> tuple[Session, Record]:
        """The session and record, bound to the current client if to none so far."""
        if self._record is None:
            client = find_client()
            if client is None:
                msg = (
                    f"future {self.key!r} belongs to no client: make one, or use it "
                    "inside a task or in 'with client.as_current()'"
                )
                raise RaddleError(msg)
            self._bind(client.session)
        assert self._session is not None
        assert self._record is not None
        return self._session, self._record

    def __del__(self) -> None:
        record = getattr(self, "_record", None)
        if record is not None and not record.released and self._session is not None:
            self._session.release(record)

    @property
    def client(self) -> Any:
        """The client that this future belongs to."""
        return self._known()[0].client

    @property
    def status(self) -> str:
        """``pending``, ``finished``, ``error`` or ``cancelled``."""
        return STATUS[self._known()[1].state]

    @property
    def type(self) -> str | None:
        """The name of the value's type, once it is finished."""
        return self._known()[1].type_name or None

    def done(self) -> bool:
        """Whether it is decided: finished, failed or cancelled."""
        return self._known()[1].done

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._known()[1].state == CANCELLED

    def result(self, timeout: str | float | None = None) -> Any:
        """The value; waits for it at most ``timeout`` (seconds, or as "5s").

        An awaitable where the client is asynchronous. Inside a task the task's slot
        is free while it waits.

        Raises:
            CancelledError: it was cancelled, or the scheduler is gone.
            TimeoutError: it is not decided yet; it goes on.
            Exception: what the task raised, with the remote traceback.

        """
        session, record = self._known()
        if session.in_loop():
            return self._result(timeout)
        if not record.done:
            self._wait(session, record, timeout)
        if record.state != FINISHED:
            raise error_of(record)
        if record.value is None:
            return session.run(self._fetched(session, record))
        return load(record, record.value)

    async def _result(self, within: str | float | None = None) -> Any:
        session, record = self._known()
        await self._wait_async(session, record, within)
        if record.failed:
            raise error_of(record)
        if not is_remote(record):
            return load(record, record.value)
        fetching = self._fetched(session, record)
        if session.in_loop():
            return await fetching
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(fetching, session.loop)
        )

    async def _fetched(self, session: Session, record: Record) -> Any:
        found = await session.fetch((record,))
        frames = found.get(record.fid)
        if frames is None:
            raise error_of(record)
        if isinstance(frames, BaseException):
            raise frames
        return load(record, frames)

    def exception(self, timeout: str | float | None = None) -> Any:
        """What the task raised, None if it finished. Waits and awaits as ``result``."""
        session, record = self._known()
        if session.in_loop():
            return self._exception(timeout)
        if not record.done:
            self._wait(session, record, timeout)
        return error_of(record) if record.failed else None

    async def _exception(self, within: str | float | None) -> BaseException | None:
        session, record = self._known()
        await self._wait_async(session, record, within)
        return error_of(record) if record.failed else None

    def traceback(self, timeout: str | float | None = None) -> Any:
        """The remote traceback of ``exception()``. Waits and awaits as ``result``."""
        if self._known()[0].in_loop():
            return self._traceback(timeout)
        return _traceback_of(self.exception(timeout))

    async def _traceback(self, within: str | float | None) -> TracebackType | None:
        return _traceback_of(await self._exception(within))

    def _wait(
        self, session: Session, record: Record, timeout: str | float | None
    ) -> None:
        if not wait_in_thread(session, (record,), _seconds(timeout)):
            raise _late(self.key, timeout)

    async def _wait_async(
        self, session: Session, record: Record, within: str | float | None
    ) -> None:
        if not record.done and not await wait_in_loop(
            session, (record,), _seconds(within)
        ):
            raise _late(self.key, within)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._result().__await__()

    def add_done_callback(self, fn: Callable[[Future], object]) -> None:
        """Call ``fn(future)`` when it is decided, in a thread for callbacks."""
        session, record = self._known()
        callback = _Callback(fn, self)
        if not session.watch((record,), callback):
            callback(record)

    def cancel(self, reason: str | None = None, msg: str | None = None) -> Any:
        """Cancel the task, unless somebody else wants it; see ``Client.cancel``."""
        return self.client.cancel([self], reason=reason, msg=msg)

    def retry(self) -> Any:
        """Compute it again if it failed; see ``Client.retry``."""
        return self.client.retry([self])

    def release(self) -> None:
        """Let go of it now; it counts as cancelled afterwards."""
        session, record = self._known()
        if not record.released:
            session.abandon(record)
            session.release(record)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._record is None:
            return rebuild, (self.key, *self._origin)
        assert self._session is not None
        return rebuild, (self.key, self._session.id, self._record.fid)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Unlike that of any other future: it may stand for another instance."""
        if self._record is None or self._session is None:
            return type(self).__name__, uuid.uuid4().hex
        return type(self).__name__, self._session.id, self._record.fid

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Future):
            return False
        return self.key == other.key and self._session is other._session

    def __repr__(self) -> str:
        if self._record is None:
            return f"<Future: unbound, key: {self.key!s}>"
        record = self._record
        kind = f", type: {record.type_name}" if record.type_name else ""
        return f"<Future: {STATUS[record.state]}{kind}, key: {self.key!s}>"

    __str__ = __repr__


def make_future(session: Session, record: Record) -> Future:
    """The future that holds ``record``; there is one for each."""
    future: Future = Future.__new__(Future)
    future.key = record.key
    future._session = session  # noqa: SLF001 (the other constructor)
    future._record = record  # noqa: SLF001
    return future


def rebuild(key: Key, owner: ClientId, fid: Fid) -> Future:
    """A future loaded from a pickle; it belongs to the client of this place."""
    future = Future(key)
    future._origin = (owner, fid)  # noqa: SLF001 (the other constructor)
    client = find_client()
    if client is not None:
        future._bind(client.session)  # noqa: SLF001
    return future


def record_of(future: Future) -> Record:
    """The record behind a future, which is bound to the current client if need be."""
    return future._known()[1]  # noqa: SLF001 (the package's own access)


def session_of(future: Future) -> Session:
    """The session of a future, which is bound to the current client if need be."""
    return future._known()[0]  # noqa: SLF001


def record_in(future: Future, session: Session) -> Record | None:
    """The record of a future if it is one of ``session``; an unbound one becomes so."""
    if future._record is None:  # noqa: SLF001
        return future._bind(session)  # noqa: SLF001
    return future._record if future._session is session else None  # noqa: SLF001


def origin_of(future: Future) -> tuple[ClientId, Fid]:
    """By which client and number others may refer to a future."""
    session, record = future._known()  # noqa: SLF001
    return session.id, record.fid


class _Callback:
    """Calls a user's function when a future is decided."""

    __slots__ = ("_fn", "_future")

    def __init__(self, fn: Callable[[Future], object], future: Future) -> None:
        self._fn = fn
        self._future = future

    def select(self, records: Sequence[Record]) -> list[Record]:
        return [r for r in records if not r.done]

    def __call__(self, record: Record) -> None:  # noqa: ARG002 (an Observer)
        _callback_executor().submit(self._run)

    def _run(self) -> None:
        try:
            self._fn(self._future)
        except Exception:
            logger.exception("a callback of %r failed", self._future)


def _callback_executor() -> ThreadPoolExecutor:
    global _callbacks
    if _callbacks is None:
        _callbacks = ThreadPoolExecutor(1, "raddle-callbacks")
    return _callbacks


def _traceback_of(error: BaseException | None) -> TracebackType | None:
    return None if error is None else error.__traceback__


def _seconds(timeout: str | float | None) -> float | None:
    return None if timeout is None else config.parse_seconds(timeout, "timeout")


def _late(key: Key, timeout: str | float | None) -> RaddleTimeoutError:
    seconds = _seconds(timeout)
    return RaddleTimeoutError(
        f"{key!r} was not decided within {seconds:g} s; it goes on"
    )
