"""Decides what a connection offers to its owner, whatever carries it.

A link sends message objects in order, hands received batches to a plain function
on the loop, and ends exactly once with a reason. What is sent during one
iteration of the event loop is written together at its end; only what nobody waits
for (:meth:`Link.send_later`) may linger.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ..core.handshake import Hello
from ..core.messages import Message
from ..errors import CommClosedError

logger = logging.getLogger("raddle.comm")

BATCH_MAX = 512
"""Messages in one batch: bounds what the other side handles in one go."""

LINGER_SECONDS = 0.05
"""How long a message of :meth:`Link.send_later` waits for company."""

OnBatch = Callable[["Link", list[Any]], None]
OnClose = Callable[["Link", str], None]
Accept = Callable[["Link", Hello], dict[str, Any]]


def _no_owner(link: Link, _batch: list[Any]) -> None:
    msg = f"nobody takes the batches of {link}; set on_batch in accept()"
    raise RuntimeError(msg)


def ignore_batch(_link: Link, _batch: list[Any]) -> None:
    """For a link whose owner has gone."""


def ignore_close(_link: Link, reason: str) -> None:
    """For a link whose owner does not care how it ends, or has gone."""


class Link(ABC):
    """One connection. All methods belong to its event loop's thread.

    ``hello`` is what the connecting side said, ``welcome`` what the acceptor
    answered. The owner sets ``on_batch`` and ``on_close``: plain functions, called
    on the loop, never from within a method of the link. ``on_close`` is called
    once, with the reason; an exception in ``on_batch`` is logged and closes the
    link.
    """

    __slots__ = (
        "_lingering",
        "_loop",
        "_outbox",
        "_scheduled",
        "_waiters",
        "closed",
        "ended",
        "hello",
        "local_address",
        "on_batch",
        "on_close",
        "peer_address",
        "reason",
        "welcome",
    )  # fmt: skip

    hello: Hello
    welcome: dict[str, Any]
    local_address: str
    peer_address: str
    on_batch: OnBatch
    on_close: OnClose

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._outbox: list[Message] = []
        self._scheduled = False
        self._lingering = False
        self._waiters: list[asyncio.Future[None]] = []
        self.closed = False
        """No more is sent: closing has begun, here or there."""
        self.reason = ""
        """Why it closed, once it has."""
        self.ended = False
        """``on_close`` was called."""
        self.hello = Hello("")
        self.welcome = {}
        self.local_address = self.peer_address = ""
        self.on_batch = _no_owner
        self.on_close = ignore_close

    def __repr__(self) -> str:
        state = f" closed: {self.reason}" if self.closed else ""
        return (
            f"<{type(self).__name__} {self.local_address} - {self.peer_address}{state}>"
        )

    def send(self, message: Message) -> None:
        """Queue a message; it leaves at the end of this loop iteration.

        Never blocks. After close it does nothing. What cannot be encoded closes
        the link with a reason that names message and field.
        """
        if self.closed:
            return
        self._outbox.append(message)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def send_later(self, message: Message) -> None:
        """Queue a message that may wait for the next one, up to LINGER_SECONDS.

        For what nobody waits for: it spares a write, and waking the other side.
        """
        if self.closed:
            return
        self._outbox.append(message)
        if not (self._scheduled or self._lingering):
            self._lingering = True
            self._loop.call_later(LINGER_SECONDS, self._stop_lingering)

    def _stop_lingering(self) -> None:
        self._lingering = False
        self._flush()

    def send_many(self, messages: Iterable[Message]) -> None:
        """Queue several messages, as :meth:`send` does."""
        if self.closed:
            return
        self._outbox.extend(messages)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    @property
    @abstractmethod
    def backlog(self) -> int:
        """Bytes that were flushed and that the kernel has not yet taken."""

    @abstractmethod
    async def drain(self) -> None:
        """Wait until the backlog is small. Raises CommClosedError when closed."""

    @abstractmethod
    def close(self, reason: str) -> None:
        """Send what is queued and the reason, then close. May be called again."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Close at once; what is queued is dropped."""

    @abstractmethod
    def _flush(self) -> None:
        """Pass the outbox on."""

    async def wait_closed(self) -> None:
        """Wait until the link has ended (``on_close`` was called)."""
        if not self.ended:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def _error(self) -> CommClosedError:
        return CommClosedError(f"connection to {self.peer_address}: {self.reason}")

    def _take_outbox(self) -> list[Message]:
        self._scheduled = False
        taken, self._outbox = self._outbox, []
        return taken

    def _deliver(self, batch: list[Any]) -> None:
        """Hand a batch to the owner; an exception there ends this link only."""
        try:
            self.on_batch(self, batch)
        except Exception as error:
            logger.exception("closing %s: its owner failed on a batch", self)
            self.close(f"internal error: {type(error).__name__}: {error}")

    def _end(self) -> None:
        """Tell the owner, once, that it is over."""
        if self.ended:
            return
        self.closed = self.ended = True
        self._outbox = []
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters = []
        try:
            self.on_close(self, self.reason)
        except Exception:
            logger.exception("on_close of %s failed", self)


class Listener(Protocol):
    """Takes connections at ``address`` until it is closed."""

    @property
    def address(self) -> str:
        """What others connect to, with the real port."""

    def close(self) -> None:
        """Take no more connections; the accepted ones stay."""

    async def wait_closed(self) -> None:
        """Wait until the address is free."""
