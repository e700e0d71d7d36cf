"""Ends of connections that record what happens to them, and strangers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from raddle.protocol.comm import Hello, Limits, Link, Listener, connect, listen
from raddle.protocol.comm.address import parse
from raddle.protocol.core.frames import BatchReader
from raddle.protocol.core.handshake import NONCE_SIZE, Connector

HELLO = Hello("client", {"id": "Client-1"})


class End:
    """Records batches and the close of one link; ``changed`` is set each time."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.reasons: list[str] = []
        self.changed = asyncio.Event()
        self.link: Link | None = None

    def on_batch(self, link: Link, batch: list[Any]) -> None:
        """Note a batch."""
        assert self.link in (None, link)
        assert not self.reasons, "a batch after the close"
        self.link = link
        self.batches.append(batch)
        self.changed.set()

    def on_close(self, link: Link, reason: str) -> None:
        """Note the close."""
        assert self.link in (None, link)
        self.reasons.append(reason)
        self.changed.set()

    @property
    def messages(self) -> list[Any]:
        """All messages of all batches."""
        return [message for batch in self.batches for message in batch]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that a batch or the close brings."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def until_messages(self, count: int) -> list[Any]:
        """Wait for this many messages, and return all."""
        await self.until(lambda: len(self.messages) >= count)
        return self.messages

    async def until_closed(self) -> str:
        """Wait for the close, and return the reason."""
        await self.until(lambda: self.reasons)
        (reason,) = self.reasons
        return reason


class Server(End):
    """A listener that keeps what happens to its first link in itself."""

    listener: Listener

    def __init__(self, welcome: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.welcome = welcome or {}
        self.links: list[Link] = []
        self.hellos: list[Hello] = []

    def accept(self, link: Link, hello: Hello) -> dict[str, Any]:
        """Take a link in."""
        self.hellos.append(hello)
        self.links.append(link)
        end = self if len(self.links) == 1 else End()
        link.on_batch, link.on_close = end.on_batch, end.on_close
        self.changed.set()
        return self.welcome

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.listener.address


@asynccontextmanager
async def serving(
    address: str = "tcp://127.0.0.1:0",
    *,
    server: Server | None = None,
    secret: bytes | None = None,
    limits: Limits | None = None,
    patience: float = 60.0,
) -> AsyncIterator[Server]:
    """A server, and the end of all of its links."""
    server = server or Server()
    server.listener = await listen(
        address,
        secret=secret,
        accept=server.accept,
        limits=limits,
        handshake_seconds=patience,
    )
    try:
        yield server
    finally:
        server.listener.close()
        await server.listener.wait_closed()
        for link in server.links:
            link.abort("the test is over")
            await link.wait_closed()


@asynccontextmanager
async def connected(
    address: str,
    *,
    end: End | None = None,
    secret: bytes | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[tuple[Link, End]]:
    """A link to a server, and its end."""
    end = end or End()
    link = await connect(
        address,
        HELLO,
        secret=secret,
        timeout=30,
        on_batch=end.on_batch,
        on_close=end.on_close,
        limits=limits,
    )
    try:
        yield link, end
    finally:
        link.abort("the test is over")
        await link.wait_closed()


class Stranger:
    """The bare other end of a TCP connection, which reads only when told to."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)

    async def everything(self) -> bytes:
        """What comes until the other side closes; then we close too."""
        parts = []
        with suppress(ConnectionError):  # closed with our words unread
            while part := await self.reader.read(2**20):
                parts.append(part)
        self.writer.close()
        return b"".join(parts)

    async def shake_hands(self, secret: bytes | None = None) -> dict[str, Any]:
        """Become a peer, as the connecting side; what came behind is lost."""
        machine = Connector(HELLO, b"n" * NONCE_SIZE, secret)
        self.say(machine.start())
        while not machine.done:
            self.say(machine.feed(await self.reader.read(1)))
        return machine.welcome

    async def batches_and_farewell(self) -> tuple[list[list[Any]], str | None]:
        """What the other side says until it closes."""
        reader = BatchReader()
        return reader.feed(await self.everything()), reader.farewell


@asynccontextmanager
async def stranger(address: str) -> AsyncIterator[Stranger]:
    """Connect without any manners."""
    parsed = parse(address)
    reader, writer = await asyncio.open_connection(parsed.host, parsed.port)
    try:
        yield Stranger(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def host(behave: Callable[[Stranger], Awaitable[None]]) -> AsyncIterator[str]:
    """The address of a TCP server that treats each connection with ``behave``."""
    tasks = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await behave(Stranger(reader, writer))
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        name, port = server.sockets[0].getsockname()
        yield f"tcp://{name}:{port}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
