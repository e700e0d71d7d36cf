"""Decides how TCP connections begin: resolve, bind, connect, shake hands, refuse.

A stranger, a wrong secret or silence costs one log line and that connection.
"""

from __future__ import annotations

import asyncio
import errno
import secrets

from ..core.frames import Limits
from ..core.handshake import NONCE_SIZE, Acceptor, Connector, Hello
from ..errors import CommClosedError, HandshakeError, ProtocolError, StartError
from ..errors import TimeoutError as RaddleTimeoutError
from .address import Parsed, contact_host, format_tcp, resolve
from .link import Accept, OnBatch, OnClose, ignore_batch, ignore_close, logger
from .tcp import TcpLink

BACKLOG = 1024
"""Connections that may wait to be accepted."""


class _Connecting:
    """The connecting side of a handshake."""

    def __init__(self, link: TcpLink, machine: Connector, address: str) -> None:
        self.buffer = bytearray(4096)
        self.link = link
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._machine = machine
        self._address = address
        self._first = machine.start()

    def connected(self) -> None:
        """Say who we are."""
        self.link.peer_address = self._address
        self.link.transport.write(self._first)

    def received(self, data: bytes) -> None:
        """Go on with the handshake."""
        machine = self._machine
        began = not machine.done
        try:
            reply = machine.feed(data)
        except ProtocolError as error:
            self._fail(type(error)(f"{self._address}: {error}"))
            return
        if reply:
            self.link.transport.write(reply)
        if machine.done and began and not self.done.done():
            self.link.welcome = machine.welcome
            self.link.established = True
            self.done.set_result(None)
            # After connect() has returned, so that its caller has the link before
            # the first batch.
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        if self.link.opening is self:
            self.link.begin(self._machine.rest)

    def lost(self, reason: str) -> None:
        """The other side went away."""
        self._fail(CommClosedError(f"{self._address} closed the handshake: {reason}"))

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


async def connect_tcp(  # noqa: PLR0913 (the parts of one connection)
    address: str,
    parsed: Parsed,
    hello: Hello,
    *,
    secret: bytes | None,
    timeout: float,  # noqa: ASYNC109 (it is raddle's error that is raised)
    on_batch: OnBatch,
    on_close: OnClose,
    limits: Limits,
) -> TcpLink:
    """Connect and shake hands; see ``raddle.protocol.comm.connect``."""
    nonce = secrets.token_bytes(NONCE_SIZE)
    machine = Connector(hello, nonce, secret, limits.preauth)
    link = TcpLink(asyncio.get_running_loop(), limits)
    link.hello, link.on_batch, link.on_close = hello, on_batch, on_close
    opening = link.opening = _Connecting(link, machine, address)
    try:
        async with asyncio.timeout(timeout):
            await _reach(address, parsed, link)
            await opening.done
    except BaseException as error:
        if hasattr(link, "transport"):
            link.on_batch, link.on_close = ignore_batch, ignore_close
            link.abort(f"connect() failed: {error}")
        opening.done.cancel()
        if isinstance(error, TimeoutError):
            msg = f"{address} did not answer within {timeout:g} s"
            raise RaddleTimeoutError(msg) from None
        raise
    return link


async def _reach(address: str, parsed: Parsed, link: TcpLink) -> None:
    """Connect to the first address of the host that takes us."""
    loop = asyncio.get_running_loop()
    if not parsed.port:
        raise StartError(f"address {address!r} names no port")
    failure: OSError | None = None
    for host, port in await resolve(parsed.host, parsed.port):
        try:
            await loop.create_connection(lambda: link, host, port)
        except OSError as error:
            failure = error
        else:
            return
    reason = failure.strerror or str(failure) if failure else "no address"
    raise CommClosedError(f"cannot connect to {address}: {reason}") from failure


class _Accepting:
    """The accepting side of a handshake."""

    def __init__(self, listener: TcpListener, link: TcpLink) -> None:
        self.buffer = bytearray(4096)
        self._listener = listener
        self.link = link
        self._silent = True
        self._machine = Acceptor(
            secrets.token_bytes(NONCE_SIZE), listener.secret, listener.limits.preauth
        )
        self._timer: asyncio.TimerHandle | None = None

    def connected(self) -> None:
        """Wait for the other side's hello, for a while."""
        self._listener.pending.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._listener.patience, self._expired)

    def _expired(self) -> None:
        seconds = self._listener.patience
        self._refuse(HandshakeError(f"no handshake within {seconds:g} s"))

    def received(self, data: bytes) -> None:
        """Go on with the handshake; ask the owner once the hello is there."""
        self._silent = False
        machine, link = self._machine, self.link
        if link.closed:
            return
        try:
            reply = machine.feed(data)
            if reply:
                link.transport.write(reply)
            if machine.hello is None:
                return
            link.hello = machine.hello
            link.welcome = self._listener.accept(link, machine.hello)
            if link.closed:
                raise HandshakeError(link.reason)
            answer = machine.welcome(link.welcome)
        except ProtocolError as error:
            self._refuse(error)
        except Exception as error:  # noqa: BLE001 (logged; the loop goes on)
            logger.exception("accept failed for %s", link.peer_address)
            self._refuse(HandshakeError(f"internal error: {type(error).__name__}"))
        else:
            self._forget()
            link.transport.write(answer)
            link.begin(machine.rest)

    def _refuse(self, error: ProtocolError) -> None:
        self._forget()
        logger.warning("refused %s: %s", self.link.peer_address, error)
        self.link.closed = True
        last_words = self._machine.refusal(error)
        if last_words:
            self.link.transport.write(last_words)
        self.link.transport.close()

    def lost(self, reason: str) -> None:
        """The other side went away."""
        if self._timer is None:  # refused, and logged
            return
        self._forget()
        say = logger.debug if self._silent else logger.warning
        say("%s left during the handshake: %s", self.link.peer_address, reason)

    def _forget(self) -> None:
        self._listener.pending.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def drop(self) -> None:
        """The listener closes before this handshake is done."""
        self._forget()
        self.link.abort("the listener closed")


class TcpListener:
    """Takes TCP connections at ``address`` until it is closed."""

    def __init__(
        self, secret: bytes | None, accept: Accept, limits: Limits, patience: float
    ) -> None:
        self.address = ""
        self.secret = secret
        self.accept = accept
        self.limits = limits
        self.patience = patience
        self.pending: set[_Accepting] = set()
        self._server: asyncio.Server | None = None

    async def start(self, parsed: Parsed) -> None:
        """Bind. Raises StartError when that cannot be."""
        loop = asyncio.get_running_loop()
        port = parsed.port or 0
        host = (await resolve(parsed.host, port))[0][0]
        try:
            self._server = await loop.create_server(
                self._connection, host, port, backlog=BACKLOG
            )
        except OSError as error:
            raise StartError(_why_not(parsed.host or host, port, error)) from error
        bound = self._server.sockets[0].getsockname()
        self.address = format_tcp(contact_host(host), bound[1])

    def _connection(self) -> TcpLink:
        link = TcpLink(asyncio.get_running_loop(), self.limits)
        link.opening = _Accepting(self, link)
        return link

    def close(self) -> None:
        """Take no more connections; the accepted ones stay."""
        if self._server is not None:
            self._server.close()
        for opening in list(self.pending):
            opening.drop()

    async def wait_closed(self) -> None:
        """Wait until the address is free.

        Not ``Server.wait_closed``, which since Python 3.12 waits for the accepted
        connections too: event loops free the socket within two iterations.
        """
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def _why_not(host: str, port: int, error: OSError) -> str:
    """One line on why an address cannot be bound."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use: choose another one, or 0 for any"
    # asyncio since 3.13 raises an error of its own, without a number, in that case.
    if error.errno in {errno.EADDRNOTAVAIL, None}:
        return f"{host} is not an address of this machine: choose another host"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} is not allowed to this user: use one above 1023"
    return f"cannot listen on {host} port {port}: {error.strerror or error}"


async def listen_tcp(
    parsed: Parsed,
    *,
    secret: bytes | None,
    accept: Accept,
    limits: Limits,
    patience: float,
) -> TcpListener:
    """Listen; see ``raddle.protocol.comm.listen``."""
    listener = TcpListener(secret, accept, limits, patience)
    await listener.start(parsed)
    return listener
