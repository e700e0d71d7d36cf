"""Decides how a TCP connection carries batches: reading, writing, closing.

Small batches are joined into one write. Big buffers are written in chunks as the
kernel takes them, so that no copy of them is made on any event loop (asyncio
before 3.12 copies what a write leaves over). Received frames land in memory of
their own (``core/frames.py``).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Any, Protocol

from ..core.codec import Bytes, Encoder
from ..core.frames import BatchReader, Limits, encode_batch, encode_farewell
from ..errors import ProtocolError
from .address import format_tcp
from .link import BATCH_MAX, Link, logger

JOIN_MAX = 64 * 1024
"""Bytes up to which buffers are joined before they are written."""
CHUNK = 1024 * 1024
"""Bytes of a big buffer that are written in one call."""
PASS_MAX = 16 * CHUNK
"""Bytes written in one go before others get their turn on the loop."""
DRAIN_LOW = 256 * 1024
"""The backlog that ``drain`` waits for, in bytes."""
LINGER_SECONDS = 3.0
"""How long a closing link waits for the other side without any progress."""

_DISCARD = memoryview(bytearray(64 * 1024))


class Opening(Protocol):
    """The handshake: in charge of a connection's bytes until it is done."""

    buffer: bytearray

    def connected(self) -> None:
        """The connection is there."""

    def received(self, data: bytes) -> None:
        """Bytes came in."""

    def lost(self, reason: str) -> None:
        """The connection ended before the handshake did."""


class TcpLink(Link, asyncio.BufferedProtocol):
    """A link over a TCP socket; ``opening`` performs its handshake."""

    __slots__ = (
        "_drainers", "_encoder", "_limits", "_linger", "_paused", "_queue", "_queued", "_reader",
        "established", "opening", "transport",
    )  # fmt: skip

    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        super().__init__(loop)
        self._limits = limits
        self._encoder = Encoder()
        self.opening: Opening | None = None
        self.established = False
        """The handshake succeeded, and the owner has been told."""
        self._reader: BatchReader | None = None
        self._queue: deque[Bytes] = deque()
        self._queued = 0
        self._paused = False
        self._drainers: list[asyncio.Future[None]] = []
        self._linger: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket up and begin the handshake."""
        self.transport = transport  # type: ignore[assignment]
        # Whatever the kernel does not take pauses us: the queue is on our side.
        self.transport.set_write_buffer_limits(high=0)
        _tune(transport.get_extra_info("socket"))
        self.local_address = format_tcp(*transport.get_extra_info("sockname")[:2])
        peer = transport.get_extra_info("peername")
        self.peer_address = format_tcp(*peer[:2]) if peer else "tcp://?"
        assert self.opening is not None
        self.opening.connected()

    def begin(self, rest: bytes) -> None:
        """The handshake is done; ``rest`` came after it."""
        self.opening = None
        self.established = True
        self._reader = BatchReader(self._limits)
        if rest and not self.closed:
            self._take(self._reader.feed(rest))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        if self._reader is None or self.closed:
            return _DISCARD if self.opening is None else memoryview(self.opening.buffer)
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came in: hand out the batches that are complete now."""
        if self.opening is not None:
            self.opening.received(bytes(self.opening.buffer[:nbytes]))
        elif not self.closed and self._reader is not None:
            self._take(self._reader.buffer_updated(nbytes))

    def _take(self, batches: list[list[Any]]) -> None:
        for batch in batches:
            self._deliver(batch)
            if self.closed:
                return
        reader = self._reader
        assert reader is not None
        if reader.error is not None:
            logger.warning("closing %s: protocol error: %s", self, reader.error)
            self.close(f"protocol error: {reader.error}")
        elif reader.farewell is not None:
            self.abort(f"closed by the other side: {reader.farewell}")

    def eof_received(self) -> None:
        """The other side is gone, or answers our farewell: the transport closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone, for whatever reason."""
        lost = f"connection lost: {exc}" if exc else "connection lost"
        self.reason = self.reason or lost
        self.closed = True
        self._queue.clear()
        self._queued = 0
        if self._linger is not None:
            self._linger.cancel()
        for waiter in self._drainers:
            if not waiter.done():
                waiter.set_exception(self._error())
        self._drainers = []
        opening, self.opening = self.opening, None
        if opening is not None and not self.established:
            self.ended = True
            opening.lost(self.reason)
        else:
            self._end()

    def pause_writing(self) -> None:
        """The kernel takes no more for now."""
        self._paused = True

    def resume_writing(self) -> None:
        """All that was written is with the kernel."""
        self._paused = False
        self._pump()

    @property
    def backlog(self) -> int:
        """Bytes that were flushed and that the kernel has not yet taken."""
        if self.ended:
            return 0
        return self._queued + self.transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until at most ``DRAIN_LOW`` bytes wait for the kernel."""
        self._flush()
        if self.closed:
            raise self._error()
        if self.backlog > DRAIN_LOW:
            waiter = self._loop.create_future()
            self._drainers.append(waiter)
            await waiter

    def _flush(self) -> None:
        messages = self._take_outbox()
        if not messages or self.ended:
            return
        try:
            for i in range(0, len(messages), BATCH_MAX):
                batch = messages[i : i + BATCH_MAX]
                for buffer in encode_batch(batch, self._encoder):
                    self._queue.append(buffer)
                    self._queued += len(buffer)
        except ProtocolError as error:
            logger.error("closing %s: %s", self, error)
            self.close(str(error))
        self._pump()

    def _pump(self) -> None:
        """Write while the kernel takes it."""
        queue, transport = self._queue, self.transport
        written = 0
        while queue and not self._paused and not transport.is_closing():
            data = self._next_write()
            transport.write(data)
            written += len(data)
            if written >= PASS_MAX and queue:
                self._loop.call_soon(self._pump)
                return
        if self._drainers and self.backlog <= DRAIN_LOW:
            for waiter in self._drainers:
                if not waiter.done():
                    waiter.set_result(None)
            self._drainers = []
        if self._linger is not None and not queue and not transport.is_closing():
            # The farewell is out: the other side answers by closing.
            transport.write_eof()

    def _next_write(self) -> Bytes:
        """Take the next piece off the queue: small buffers joined, big ones cut."""
        queue = self._queue
        data: Bytes = queue.popleft()
        if len(data) > CHUNK:
            view = memoryview(data)
            queue.appendleft(view[CHUNK:])
            data = view[:CHUNK]
        elif queue and len(data) + len(queue[0]) <= JOIN_MAX:
            parts, size = [data], len(data)
            while queue and size + len(queue[0]) <= JOIN_MAX:
                parts.append(queue.popleft())
                size += len(parts[-1])
            data = b"".join(parts)
        self._queued -= len(data)
        return data

    def close(self, reason: str) -> None:
        """Send what is queued and the reason, then close. May be called again."""
        if self.closed:
            return
        self.closed = True
        self.reason = reason
        if not self.established:  # within accept(): it becomes a refusal
            return
        self._flush()
        farewell = encode_farewell(reason)
        self._queue.append(farewell)
        self._queued += len(farewell)
        self._wait_for_progress(self.backlog)
        self._pump()

    def _wait_for_progress(self, before: int) -> None:
        """Give up on a closing link whose other side takes nothing any more."""

        def look() -> None:
            if 0 < self.backlog < before:
                self._wait_for_progress(self.backlog)
            else:
                self.transport.abort()

        self._linger = self._loop.call_later(LINGER_SECONDS, look)

    def abort(self, reason: str) -> None:
        """Close at once; what is queued is dropped."""
        if not self.closed:
            self.reason = reason
            self.closed = True
        self.transport.abort()


def _tune(sock: socket.socket | None) -> None:
    """Small messages leave at once; a vanished host is noticed within a minute."""
    if sock is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # The last one, in milliseconds, is for a host that vanishes with data under way.
    for name, value in (
        ("KEEPIDLE", 30), ("KEEPINTVL", 5), ("KEEPCNT", 6), ("USER_TIMEOUT", 60_000),
    ):  # fmt: skip
        option = getattr(socket, f"TCP_{name}", None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
