"""How a thread or a coroutine waits until futures are decided.

One waiter serves one wait call, however many futures it is about: it counts them
down and wakes its thread, or its coroutine, once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Protocol

from raddle.protocol.context import current_task

from .core.futures import Record

ALL = "all"
"""Wait for every future."""
FIRST = "first"
"""Wait for any one of them."""
OR_FAILURE = "or-failure"
"""Wait for every future, or until one of them fails."""


class Waiter:
    """Told of each decided future; calls ``wake`` once, when it is time."""

    __slots__ = ("_mode", "_needed", "_wake")

    def __init__(self, wake: Callable[[], object], mode: str) -> None:
        self._wake = wake
        self._mode = mode
        self._needed = 0

    def select(self, records: Sequence[Record]) -> list[Record]:
        """The futures to observe; none if there is nothing to wait for."""
        pending = [r for r in records if not r.done]
        some = len(pending) < len(records)
        if self._mode == FIRST and some:
            return []
        if self._mode == OR_FAILURE and some and any(r.failed for r in records):
            return []
        self._needed = 1 if self._mode == FIRST else len(pending)
        return pending

    def __call__(self, record: Record) -> None:
        """A future is decided (called under the session's lock)."""
        if self._needed <= 0:
            return
        self._needed -= 1
        if self._mode == OR_FAILURE and record.failed:
            self._needed = 0
        if self._needed == 0:
            self._wake()


class Watched(Protocol):
    """Where futures are observed: the session."""

    def watch(self, records: Sequence[Record], waiter: Waiter) -> bool:
        """Let ``waiter`` know of decisions; False if it need not wait."""

    def unwatch(self, records: Sequence[Record], waiter: Waiter) -> None:
        """``waiter`` gave up."""


def blocked() -> AbstractContextManager[None]:
    """Around a wait: inside a task, the task's slot is given back meanwhile."""
    task = current_task.get()
    return nullcontext() if task is None else task.blocked()


def wait_in_thread(
    session: Watched,
    records: Sequence[Record],
    timeout: float | None = None,
    mode: str = ALL,
) -> bool:
    """Block until the futures are decided; False if ``timeout`` (s) was over first."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        gate = threading.Lock()
        gate.acquire()
        waiter = Waiter(gate.release, mode)
        if not session.watch(records, waiter):
            return True
        opened = False
        try:
            with blocked():
                left = -1 if deadline is None else max(0, deadline - time.monotonic())
                opened = gate.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        finally:
            if not opened:
                session.unwatch(records, waiter)
        if not opened:
            return False
        # Round again: a value may have been lost meanwhile, and is awaited anew.


async def wait_in_loop(
    session: Watched,
    records: Sequence[Record],
    seconds: float | None = None,
    mode: str = ALL,
) -> bool:
    """As :func:`wait_in_thread`, for a coroutine on any loop."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            while True:
                future: asyncio.Future[None] = loop.create_future()
                waiter = Waiter(partial(wake_up, loop, future), mode)
                if not session.watch(records, waiter):
                    return True
                try:
                    with blocked():
                        await future
                finally:
                    if not future.done() or future.cancelled():
                        session.unwatch(records, waiter)
    except TimeoutError:
        return False


def wake_up(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    """Let a coroutine on ``loop`` that awaits ``future`` go on; from any thread."""
    # A loop that is closed has nobody who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_settle, future)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
