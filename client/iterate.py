"""How a program waits for some of its futures: ``wait``, ``as_completed`` and kin."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from raddle.protocol import config
from raddle.protocol.core.messages.client import Detach
from raddle.protocol.errors import ConfigError
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError

from .base import Done
from .core.futures import CANCELLED, Record
from .current import find_client
from .dask.graphs import graph_values
from .future import Future, record_of, session_of
from .session import Session
from .sync import (
    ALL,
    FIRST,
    OR_FAILURE,
    blocked,
    wait_in_loop,
    wait_in_thread,
    wake_up,
)
from .values import error_of

ALL_COMPLETED: Final = "ALL_COMPLETED"
FIRST_COMPLETED: Final = "FIRST_COMPLETED"
FIRST_EXCEPTION: Final = "FIRST_EXCEPTION"

ReturnWhen = Literal["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"]

_MODES = {ALL_COMPLETED: ALL, FIRST_COMPLETED: FIRST, FIRST_EXCEPTION: OR_FAILURE}


class DoneAndNotDoneFutures(NamedTuple):
    """What :func:`wait` returns."""

    done: set[Future]
    not_done: set[Future]


def futures_of(o: Any, client: Any = None) -> list[Future]:
    """The futures in nested lists, tuples, sets and dicts, and in dask collections.

    Each occurs once; ``client`` restricts to those of one client.
    """
    found: dict[int, Future] = {}
    pending = deque([o])
    while pending:
        item = pending.popleft()
        if isinstance(item, Future):
            if client is None or session_of(item) is client.session:
                found[id(item)] = item
        elif isinstance(item, list | tuple | set | frozenset):
            pending.extend(item)
        elif isinstance(item, dict):
            pending.extend(item.values())
        else:
            pending.extend(graph_values(item))
    return list(found.values())


def wait(
    fs: Any,
    timeout: str | float | None = None,
    return_when: ReturnWhen = ALL_COMPLETED,
) -> Any:
    """Wait until futures are done; two sets, ``done`` and ``not_done``.

    ``fs`` is a future, a dask collection on futures, or a nest of these.
    ``timeout`` is seconds or text as "5s". Failures are not raised. Awaitable where
    the client is asynchronous.

    Raises:
        TimeoutError: not all (or not one) of them were done in time.
        CancelledError: one of them was cancelled.

    """
    mode = _MODES.get(return_when)
    if mode is None:
        msg = f"return_when must be one of {', '.join(_MODES)}, not {return_when!r}"
        raise ConfigError(msg)
    futures = futures_of(fs)
    seconds = None if timeout is None else config.parse_seconds(timeout, "timeout")
    if not futures:
        nothing = DoneAndNotDoneFutures(set(), set())
        client = find_client()
        awaited = client is not None and client.asynchronous
        return Done(nothing) if awaited else nothing
    session = session_of(futures[0])
    records = [record_of(f) for f in futures]
    if session.in_loop():
        return _wait_async(session, futures, records, seconds, mode)
    in_time = wait_in_thread(session, records, seconds, mode)
    return _sorted_out(futures, records, in_time=in_time, seconds=seconds)


async def _wait_async(
    session: Session,
    futures: list[Future],
    records: list[Record],
    seconds: float | None,
    mode: str,
) -> DoneAndNotDoneFutures:
    in_time = await wait_in_loop(session, records, seconds, mode)
    return _sorted_out(futures, records, in_time=in_time, seconds=seconds)


def _sorted_out(
    futures: list[Future],
    records: list[Record],
    *,
    in_time: bool,
    seconds: float | None,
) -> DoneAndNotDoneFutures:
    if not in_time:
        left = sum(not r.done for r in records)
        msg = f"{left} of {len(records)} futures were not done after {seconds:g} s"
        raise RaddleTimeoutError(msg)
    for record in records:
        if record.state == CANCELLED:
            raise error_of(record)
    done = {f for f, r in zip(futures, records, strict=True) if r.done}
    return DoneAndNotDoneFutures(done, set(futures) - done)


def fire_and_forget(obj: Any) -> None:
    """Run the tasks behind these futures to their end even if nobody holds them.

    ``obj`` is a future, a dask collection on futures, or a nest of these.
    """
    by_session: dict[Session, list[int]] = {}
    for future in futures_of(obj):
        by_session.setdefault(session_of(future), []).append(record_of(future).fid)
    for session, fids in by_session.items():
        session.post(Detach(tuple(fids)))


class as_completed:  # noqa: N801 (the name that fingers know)
    """Futures in the order in which they are done; more may be added meanwhile.

    Iterate over it, or ``async for`` where the client is asynchronous. With
    ``with_results`` it gives pairs of a future and its value; for a failed one it
    raises, or, without ``raise_errors``, gives ``(type, exception, traceback)`` for
    the value. Raises raddle's TimeoutError ``timeout`` (seconds) after its making.
    """

    def __init__(
        self,
        futures: Iterable[Future] | None = None,
        loop: Any = None,  # noqa: ARG002 (as the peer)
        with_results: bool = False,
        raise_errors: bool = True,
        *,
        timeout: str | float | None = None,
    ) -> None:
        self.with_results = with_results
        self.raise_errors = raise_errors
        self._deadline: float | None = None
        if timeout is not None:
            seconds = config.parse_seconds(timeout, "timeout")
            self._deadline = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._ready: deque[Future] = deque()
        self._pending: dict[tuple[int, int], list[Future]] = {}
        self._wakers: list[Callable[[], object]] = []
        if futures:
            self.update(futures)

    def add(self, future: Future) -> None:
        """Wait for this one too."""
        self.update((future,))

    def update(self, futures: Iterable[Future]) -> None:
        """Wait for these too."""
        by_session: dict[Session, list[Record]] = {}
        with self._lock:
            for future in futures:
                if not isinstance(future, Future):
                    raise TypeError(f"as_completed takes futures, not {future!r:.100}")
                record = record_of(future)
                self._pending.setdefault(_name(record), []).append(future)
                by_session.setdefault(session_of(future), []).append(record)
        for session, records in by_session.items():
            session.watch(records, self)

    # As an observer of futures, under the session's lock

    def select(self, records: Sequence[Record]) -> list[Record]:
        """Take what is done already, observe the rest (the session's business)."""
        for record in records:
            if record.done:
                self(record)
        return [r for r in records if not r.done]

    def __call__(self, record: Record) -> None:
        """A future is done (the session's business)."""
        with self._lock:
            self._ready.extend(self._pending.pop(_name(record), ()))
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    # What there is

    def count(self) -> int:
        """How many futures have not been handed out."""
        with self._lock:
            return len(self._ready) + sum(map(len, self._pending.values()))

    def is_empty(self) -> bool:
        """Whether all have been handed out."""
        return self.count() == 0

    def has_ready(self) -> bool:
        """Whether one can be had without waiting."""
        return bool(self._ready)

    def clear(self) -> None:
        """Forget all that were not handed out."""
        with self._lock:
            self._ready.clear()
            self._pending.clear()

    # One after the other

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            gate = threading.Lock()
            gate.acquire()
            future = self._take(gate.release, StopIteration)
            if future is not None:
                return self._item(future)
            with blocked():
                if not gate.acquire(timeout=self._left(-1)):
                    self._give_up(gate.release)

    next = __next__

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        future = await self._next_async()
        if not self.with_results:
            return future
        try:
            return future, await future
        except Exception as error:
            if self.raise_errors:
                raise
            return future, (type(error), error, error.__traceback__)

    async def _next_async(self) -> Future:
        loop = asyncio.get_running_loop()
        while True:
            waiter: asyncio.Future[None] = loop.create_future()
            wake = partial(wake_up, loop, waiter)
            future = self._take(wake, StopAsyncIteration)
            if future is not None:
                return future
            try:
                async with asyncio.timeout(self._left(None)):
                    with blocked():
                        await waiter
            except TimeoutError:
                self._give_up(wake)

    def next_batch(self, block: bool = True) -> list[Any]:
        """All that are done now; with ``block``, at least one (unless it is empty)."""
        batch = [next(self)] if block and not self.is_empty() else []
        while self.has_ready():
            batch.append(next(self))
        return batch

    def batches(self) -> Iterator[list[Any]]:
        """Batches of what is done, until all have been handed out."""
        while not self.is_empty():
            yield self.next_batch()

    def _take(
        self, wake: Callable[[], object], empty: type[BaseException]
    ) -> Future | None:
        """A future that is done, or None: then ``wake`` will be called."""
        with self._lock:
            if self._ready:
                return self._ready.popleft()
            if not self._pending:
                raise empty
            self._wakers.append(wake)
            return None

    def _item(self, future: Future) -> Any:
        if not self.with_results:
            return future
        try:
            return future, future.result()
        except Exception as error:
            if self.raise_errors:
                raise
            return future, (type(error), error, error.__traceback__)

    def _left(self, forever: Any) -> Any:
        if self._deadline is None:
            return forever
        return max(0.0, self._deadline - time.monotonic())

    def _give_up(self, wake: Callable[[], object]) -> None:
        with self._lock:
            if wake in self._wakers:
                self._wakers.remove(wake)
        raise RaddleTimeoutError(f"{self.count()} futures were not done in time")


def _name(record: Record) -> tuple[int, int]:
    """What distinguishes futures, also those of several clients."""
    return id(record), record.fid
