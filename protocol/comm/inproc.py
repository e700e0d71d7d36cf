"""Decides how two ends in one process talk: message objects, not encoded.

The ends may live on different event loops in different threads. Order, batching
(once per loop iteration) and closing are those of TCP.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import os
import threading
from collections.abc import Callable
from typing import Any

from ..core.handshake import Hello
from ..errors import (
    AuthenticationError,
    CommClosedError,
    HandshakeError,
    ProtocolError,
    StartError,
)
from ..errors import TimeoutError as RaddleTimeoutError
from .address import Parsed
from .link import (
    BATCH_MAX,
    Accept,
    Link,
    OnBatch,
    OnClose,
    ignore_batch,
    ignore_close,
    logger,
)

_listeners: dict[str, InprocListener] = {}
_lock = threading.Lock()
_numbers = itertools.count(1)


class InprocLink(Link):
    """One end of a pair within this process."""

    __slots__ = ("_held", "_other")

    _other: InprocLink

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        # What arrived before connect() returned, in order.
        self._held: list[Callable[[], None]] | None = None

    def hold(self) -> None:
        """Keep what arrives until :meth:`release`."""
        self._held = []

    def release(self) -> None:
        """Let what has arrived take effect."""
        held, self._held = self._held or [], None
        for event in held:
            event()

    def _post(self, function: Callable[[Any], None], argument: Any) -> None:
        """Call a method of the other end on its loop."""
        loop = self._other._loop  # noqa: SLF001 (the other half of this object)
        try:
            if loop is self._loop:
                loop.call_soon(function, argument)
            else:
                loop.call_soon_threadsafe(function, argument)
        except RuntimeError:  # that loop is closed, and its thread perhaps gone
            self.abort("connection lost: the other side's event loop is closed")

    def _flush(self) -> None:
        messages = self._take_outbox()
        other = self._other
        for i in range(0, len(messages), BATCH_MAX):
            batch = messages[i : i + BATCH_MAX]
            if other._loop is self._loop:  # noqa: SLF001
                other._receive(batch)  # noqa: SLF001
            else:
                self._post(other._receive, batch)  # noqa: SLF001

    def _receive(self, batch: list[Any]) -> None:
        if self._held is not None:
            self._held.append(lambda: self._receive(batch))
        elif not self.closed:
            self._deliver(batch)

    @property
    def backlog(self) -> int:
        """Always 0: nothing is copied, so nothing waits for a kernel."""
        return 0

    async def drain(self) -> None:
        """Let what is queued reach the other side."""
        await asyncio.sleep(0)
        if self.closed:
            raise self._error()

    def close(self, reason: str) -> None:
        """Send what is queued and the reason, then close. May be called again."""
        if self.closed:
            return
        self.reason = reason
        self.closed = True
        self._loop.call_soon(self._part, f"closed by the other side: {reason}")

    def abort(self, reason: str) -> None:
        """Close at once; what is queued is dropped."""
        if self.closed:
            return
        self.reason = reason
        self.closed = True
        self._outbox = []
        self._loop.call_soon(self._part, "connection lost")

    def _part(self, words: str) -> None:
        self._flush()
        self._post(self._other._leave, words)  # noqa: SLF001
        self._end()

    def _leave(self, words: str) -> None:
        """The other end has closed."""
        if self._held is not None:
            self._held.append(lambda: self._leave(words))
        elif not self.closed:
            self.reason = words
            self.closed = True
            self._end()


class InprocListener:
    """Takes connections of this process at ``address`` until it is closed."""

    def __init__(self, name: str, secret: bytes | None, accept: Accept) -> None:
        self.loop = asyncio.get_running_loop()
        self.secret = secret
        self._name = name or f"{os.getpid()}-{next(_numbers)}"
        self._accept = accept
        self.address = f"inproc://{self._name}"
        with _lock:
            if self._name in _listeners:
                raise StartError(f"{self.address} is in use: choose another name")
            _listeners[self._name] = self

    def take(self, link: InprocLink, hello: Hello) -> ProtocolError | None:
        """Ask the owner; the error refuses. Runs on the listener's loop."""
        try:
            link.welcome = self._accept(link, hello)
            if link.closed:
                raise HandshakeError(link.reason)
        except ProtocolError as error:
            logger.warning("refused %s: %s", link.peer_address, error)
            refusal = error
        except Exception as error:  # noqa: BLE001 (logged; the loop goes on)
            logger.exception("accept failed for %s", link.peer_address)
            refusal = HandshakeError(f"internal error: {type(error).__name__}")
        else:
            return None
        link.closed = link.ended = True
        return refusal

    def close(self) -> None:
        """Take no more connections; the accepted ones stay."""
        with _lock:
            if _listeners.get(self._name) is self:
                del _listeners[self._name]

    async def wait_closed(self) -> None:
        """Nothing to wait for: the name is free."""


def _authenticate(address: str, ours: bytes | None, theirs: bytes | None) -> None:
    if ours is None and theirs is not None:
        raise AuthenticationError(f"{address} requires a secret and this side has none")
    if ours is not None and theirs is None:
        raise AuthenticationError(f"this side has a secret and {address} has none")
    if (
        ours is not None
        and theirs is not None
        and not hmac.compare_digest(ours, theirs)
    ):
        raise AuthenticationError(f"{address} has another secret")


async def connect_inproc(
    parsed: Parsed,
    hello: Hello,
    *,
    secret: bytes | None,
    timeout: float,  # noqa: ASYNC109 (it is raddle's error that is raised)
    on_batch: OnBatch,
    on_close: OnClose,
) -> InprocLink:
    """Connect within the process; see ``raddle.protocol.comm.connect``."""
    address = f"inproc://{parsed.host}"
    with _lock:
        listener = _listeners.get(parsed.host)
    if listener is None:
        msg = f"nothing listens on {address} in this process (pid {os.getpid()})"
        raise CommClosedError(msg)
    try:
        _authenticate(address, secret, listener.secret)
    except AuthenticationError as error:
        logger.warning("refused a connection to %s: %s", address, error)
        raise
    loop = asyncio.get_running_loop()
    near, far = InprocLink(loop), InprocLink(listener.loop)
    near._other, far._other = far, near  # noqa: SLF001
    near.hello = far.hello = hello
    near.on_batch, near.on_close = on_batch, on_close
    name = f"{address}#{next(_numbers)}"
    near.local_address = far.peer_address = name
    near.peer_address = far.local_address = address
    near.hold()
    done: asyncio.Future[ProtocolError | None] = loop.create_future()

    def answer(error: ProtocolError | None) -> None:
        if not done.done():
            done.set_result(error)

    def ask() -> None:
        loop.call_soon_threadsafe(answer, listener.take(far, hello))

    try:
        listener.loop.call_soon_threadsafe(ask)
        async with asyncio.timeout(timeout):
            refusal = await done
    except BaseException as error:
        near.on_batch, near.on_close = ignore_batch, ignore_close
        near.release()
        near.abort("connect() was given up")
        if isinstance(error, TimeoutError):
            msg = f"{address} did not answer within {timeout:g} s"
            raise RaddleTimeoutError(msg) from None
        if isinstance(error, RuntimeError):
            raise CommClosedError(f"{address}: its event loop is closed") from error
        raise
    if refusal is not None:
        raise type(refusal)(f"{address}: the other side refused: {refusal}")
    near.welcome = far.welcome
    # After this has returned, so that the caller has the link before a batch.
    loop.call_soon(near.release)
    return near
