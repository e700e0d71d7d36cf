"""What TCP adds: strangers, slow readers, big buffers, addresses that do not work."""

import asyncio
import errno
import logging
import random
import socket
import struct
import tracemalloc

import numpy as np
import pytest

from raddle.protocol.comm import Limits, Link, connect, listen, tcp
from raddle.protocol.core.frames import encode_farewell
from raddle.protocol.core.handshake import NONCE_SIZE, Acceptor, Connector, Hello
from raddle.protocol.core.messages.client import Ask
from raddle.protocol.core.messages.peer import Data
from raddle.protocol.core.messages.worker import Present
from raddle.protocol.errors import (
    AuthenticationError,
    CommClosedError,
    HandshakeError,
    ProtocolError,
    StartError,
)
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError
from testkit.links import (
    HELLO,
    End,
    Server,
    Stranger,
    connected,
    host,
    serving,
    stranger,
)
from testkit.polling import eventually_async
from testkit.wire import as_bytes


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What raddle.comm said at INFO or above."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "raddle.comm" and record.levelno >= logging.INFO
    ]


async def to(address: str, *, timeout: float = 30) -> Link:  # noqa: ASYNC109
    return await connect(
        address,
        HELLO,
        secret=None,
        timeout=timeout,
        on_batch=End().on_batch,
        on_close=End().on_close,
    )


def prelude(
    versions: tuple[int, int] = (1, 1), *, secret: bytes | None = None
) -> bytes:
    return Connector(HELLO, b"n" * NONCE_SIZE, secret, versions=versions).start()


STRANGERS = {
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", r"b'GET / HTTP/1.1\r\n' (HTTP?)"),
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "(TLS?)"),
    "random": (random.Random(7).randbytes(100_000), "not the raddle protocol"),
    "oversized": (
        prelude()[:41] + struct.pack("<BI", 1, 2**31),
        "2147483648 bytes in the handshake; at most 4096",
    ),
    "no hello": (prelude()[:41] + struct.pack("<BI", 9, 0), "9 in place of a hello"),
    "newer": (
        prelude((7, 8)),
        "versions do not fit: this side speaks 1, the other 7 to 8",
    ),
    "no secret": (prelude(), "no secret was offered"),
    "a wrong secret": (
        prelude(secret=b"guess") + struct.pack("<BI", 1, 32) + bytes(32),
        "different secrets",
    ),
}


@pytest.mark.parametrize("name", STRANGERS)
async def test_a_stranger_costs_one_line_and_its_own_connection(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    words, reason = STRANGERS[name]
    secret = b"key" if "secret" in name else None
    async with (
        serving(secret=secret) as server,
        connected(server.address, secret=secret) as (link, _),
    ):
        async with stranger(server.address) as guest:
            guest.say(words)
            await guest.everything()
        async with connected(server.address, secret=secret) as (second, _):
            second.send(Present(2, 0))
        link.send(Present(1, 0))
        assert await server.until_messages(1) == [Present(1, 0)]
        assert len(server.hellos) == 2
    (line,) = lines(caplog)
    assert line.startswith("refused tcp://127.0.0.1:")
    assert reason in line


async def test_a_version_that_does_not_fit_is_told_to_both() -> None:
    async def behave(guest: Stranger) -> None:
        other = Acceptor(b"n" * NONCE_SIZE, versions=(4, 5))
        with pytest.raises(HandshakeError) as refused:
            other.feed(await guest.reader.readexactly(len(prelude())))
        guest.say(other.refusal(refused.value))
        await guest.everything()

    async with host(behave) as address:
        with pytest.raises(HandshakeError) as info:
            await to(address)
    assert str(info.value) == (
        f"{address}: protocol versions do not fit: this side speaks 1, the other 4 to 5; "
        "install the same raddle on both"
    )


async def test_silence_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(patience=0.01) as server, stranger(server.address) as guest:
        assert await guest.everything() == b""
    (line,) = lines(caplog)
    assert "no handshake within 0.01 s" in line


async def test_one_that_begins_and_then_is_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(patience=0.01) as server, stranger(server.address) as guest:
        guest.say(prelude()[:45])
        assert b"no handshake within 0.01 s" in await guest.everything()
    assert len(lines(caplog)) == 1


async def test_patience_ends_with_the_handshake(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A link that is quiet for longer than a handshake may take stays."""
    async with (
        serving(patience=0.01) as server,
        connected(server.address) as (link, _),
    ):
        async with stranger(server.address) as guest:
            await guest.everything()
        link.send(Present(1, 0))
        await server.until_messages(1)
    assert len(lines(caplog)) == 1


async def test_looking_in_costs_no_line(caplog: pytest.LogCaptureFixture) -> None:
    """As a load balancer does that asks whether the port is open."""
    async with serving() as server:
        async with stranger(server.address):
            pass
        async with stranger(server.address) as guest:
            guest.say(b"RDL")
        async with connected(server.address):
            pass
        await eventually_async(lambda: lines(caplog))
    (line,) = lines(caplog)
    assert "left during the handshake" in line


async def test_a_listener_that_closes_drops_whom_it_does_not_know() -> None:
    async with serving() as server, stranger(server.address) as guest:
        guest.say(prelude()[:41])
        await guest.reader.readexactly(41)
        server.listener.close()
        assert await guest.everything() == b""


async def test_a_fault_after_the_handshake_costs_that_link(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = [Present(1, 0)]
    async with (
        serving() as server,
        stranger(server.address) as guest,
    ):
        await guest.shake_hands()
        async with connected(server.address) as (link, _):
            guest.say(as_bytes(good) + struct.pack("<IQ", 1, 2**60) + as_bytes(good))
            batches, farewell = await guest.batches_and_farewell()
            assert batches == []
            assert farewell is not None
            assert "protocol error: a frame of 1152921504606846976 bytes" in farewell
            assert "protocol error" in await server.until_closed()
            assert server.batches == [good]
            assert not link.closed
    (line,) = lines(caplog)
    assert "at most 2147483648" in line


@pytest.mark.parametrize("seed", range(20))
async def test_noise_after_the_handshake(seed: int) -> None:
    async with serving() as server, stranger(server.address) as guest:
        await guest.shake_hands()
        guest.say(random.Random(seed).randbytes(10_000))
        await guest.everything()
        assert "protocol error: a " in await server.until_closed()


async def test_limits_are_the_listeners_own() -> None:
    limits = Limits(message=10_000)
    async with (
        serving(limits=limits) as server,
        connected(server.address) as (link, end),
    ):
        link.send(Ask(1, "topic", "x" * 9_000))
        await server.until_messages(1)
        link.send(Ask(1, "topic", "x" * 10_000))
        assert "at most 10000 are taken" in await end.until_closed()


async def test_a_peer_that_vanishes() -> None:
    async with serving() as server, stranger(server.address) as guest:
        await guest.shake_hands()
        guest.writer.close()
        assert "connection lost" in await server.until_closed()


async def test_a_farewell_is_answered_by_closing() -> None:
    async with serving() as server, stranger(server.address) as guest:
        await guest.shake_hands()
        guest.say(as_bytes([Present(1, 0)]) + encode_farewell("so long"))
        assert await guest.everything() == b""
        assert await server.until_closed() == "closed by the other side: so long"
        assert server.messages == [Present(1, 0)]


async def test_a_slow_reader_is_waited_for() -> None:
    async with serving() as server, stranger(server.address) as guest:
        await guest.shake_hands()
        (link,) = server.links
        big = b"x" * 30_000_000
        link.send(Data(1, ((1, 1, (big,)),), ()))
        drained = asyncio.ensure_future(link.drain())
        for i in range(1000):  # what is sent behind it keeps its place
            link.send(Present(i, 0))
            await asyncio.sleep(0)
        assert not drained.done()
        assert link.backlog > 1_000_000
        link.close("all said")
        # The rest leaves while it closes; a drain only knows that it was closed.
        batches, farewell = await guest.batches_and_farewell()
        assert farewell == "all said"
        messages = [m for batch in batches for m in batch]
        assert messages[0].items[0][2][0] == big
        assert messages[1:] == [Present(i, 0) for i in range(1000)]
        await drained
        assert link.backlog == 0


async def test_a_close_is_heard_by_one_who_is_still_talking() -> None:
    """Closing a socket with words unread would throw away what is on its way."""
    async with serving() as server, stranger(server.address) as guest:
        await guest.shake_hands()
        words = as_bytes([Ask(1, "topic", "x" * 1_000_000)])
        for _ in range(20):
            guest.say(words)
        (link,) = server.links
        link.send(Ask(2, "topic", b"y" * 2_000_000))
        link.close("enough")
        batches, farewell = await guest.batches_and_farewell()
        assert farewell == "enough"
        assert batches == [[Ask(2, "topic", b"y" * 2_000_000)]]


async def test_drain_fails_when_the_link_does() -> None:
    async with serving() as server, stranger(server.address) as guest:
        await guest.shake_hands()
        (link,) = server.links
        link.send(Data(1, ((1, 1, (b"x" * 30_000_000,)),), ()))
        drains = [asyncio.ensure_future(link.drain()) for _ in range(2)]
        await asyncio.sleep(0)
        drains.pop().cancel()
        link.abort("no time")
        with pytest.raises(CommClosedError, match="no time"):
            await drains.pop()


async def test_writing_is_done_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One who takes everything at once does not keep others from their turn."""
    monkeypatch.setattr(tcp, "PASS_MAX", 1)
    async with serving() as server, connected(server.address) as (link, _):
        big = [Data(i, ((1, 1, (bytes([i]) * 2_500_000,)),), ()) for i in range(3)]
        link.send_many([*big, Present(1, 0)])
        assert await server.until_messages(4) == [*big, Present(1, 0)]


async def test_a_close_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side neither reads nor closes."""
    monkeypatch.setattr(tcp, "LINGER_SECONDS", 0.01)
    async with serving() as server, stranger(server.address) as guest:
        await guest.shake_hands()
        (link,) = server.links
        link.send(Data(1, ((1, 1, (b"x" * 30_000_000,)),), ()))
        link.close("going")
        assert await server.until_closed() == "going"
    async with serving() as server, stranger(server.address) as guest:
        await guest.shake_hands()
        server.links[0].close("going")
        assert await server.until_closed() == "going"


async def test_big_buffers_are_copied_nowhere() -> None:
    """Neither by the sender nor on arrival does a second one come to be.

    What arrives lies in pages from the kernel, which tracemalloc does not count.
    """
    value = np.arange(8_000_000, dtype="u8")
    async with serving() as server, connected(server.address) as (link, _):
        tracemalloc.start()
        try:
            link.send(Data(1, ((1, 1, (b"pickle", value.data)),), ()))
            (message,) = await server.until_messages(1)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        arrived = message.items[0][2][1]
        assert np.array_equal(np.frombuffer(arrived, "u8"), value)
        assert np.frombuffer(arrived, "u8").flags.writeable
    assert value.nbytes == 64_000_000
    assert peak < 8_000_000


async def test_what_cannot_be_encoded_closes_the_link(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server, connected(server.address) as (link, end):
        link.send(Present(1, 0))
        link.send(Ask(1, "topic", object()))
        reason = "cannot encode Ask.argument: a object cannot travel in a message"
        assert await end.until_closed() == reason
        assert await server.until_closed() == f"closed by the other side: {reason}"
    (line,) = lines(caplog)
    assert reason in line


async def test_small_messages_do_not_wait_for_company() -> None:
    async with serving() as server, connected(server.address) as (link, _):
        await server.until(lambda: server.links)
        for end in (link, server.links[0]):
            assert isinstance(end, tcp.TcpLink)
            sock = end.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_a_host_that_cannot_be_resolved() -> None:
    with pytest.raises(StartError, match=r"cannot resolve host 'no\.such\.invalid'"):
        await to("tcp://no.such.invalid:1")
    with pytest.raises(StartError, match=r"cannot resolve host 'no\.such\.invalid'"):
        await listen("tcp://no.such.invalid", secret=None, accept=Server().accept)
    with pytest.raises(StartError, match="names no port"):
        await to("tcp://127.0.0.1")


async def test_a_host_of_another_machine() -> None:
    with pytest.raises(StartError, match=r"192\.0\.2\.1 is not an address of this"):
        await listen("tcp://192.0.2.1:0", secret=None, accept=Server().accept)


async def test_addresses_without_scheme_and_by_name() -> None:
    async with serving("localhost:0") as server:
        host_and_port = server.address.removeprefix("tcp://")
        link = await to(host_and_port)
        assert link.peer_address == server.address
        link.close("enough")
        await link.wait_closed()
        port = host_and_port.rpartition(":")[2]
        link = await to(f"tcp://localhost:{port}")
        link.close("enough")
        await link.wait_closed()


async def test_ipv6() -> None:
    async with serving("tcp://[::1]") as server:
        assert server.address.startswith("tcp://[::1]:")
        async with connected(server.address) as (link, _):
            link.send(Present(1, 0))
            await server.until_messages(1)


async def test_all_interfaces_are_contacted_by_one() -> None:
    async with serving("tcp://:0") as server:
        assert "0.0.0.0" not in server.address
        async with connected(server.address) as (link, _):
            assert not link.closed


async def test_one_that_never_answers() -> None:
    async def behave(guest: Stranger) -> None:
        await guest.everything()

    async with host(behave) as address:
        with pytest.raises(RaddleTimeoutError) as info:
            await to(address, timeout=0.01)
    assert str(info.value) == f"{address} did not answer within 0.01 s"


async def test_one_that_hangs_up() -> None:
    async def behave(guest: Stranger) -> None:
        guest.say(b"RDL")

    async with host(behave) as address:
        with pytest.raises(CommClosedError, match=f"{address} closed the handshake"):
            await to(address)


async def test_one_that_is_not_raddle() -> None:
    async def behave(guest: Stranger) -> None:
        guest.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await guest.everything()

    async with host(behave) as address:
        with pytest.raises(ProtocolError, match=rf"{address}: not the raddle.*\(HTTP"):
            await to(address)


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, so nobody else gets it; not listening
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CommClosedError) as info:
            await to(address)
    assert str(info.value).startswith(f"cannot connect to {address}: ")
    assert isinstance(info.value.__cause__, OSError)
    assert info.value.__cause__.errno == errno.ECONNREFUSED


async def test_an_own_hello_that_is_too_long() -> None:
    async with serving() as server:
        with pytest.raises(HandshakeError, match="the hello has"):
            await connect(
                server.address,
                Hello("worker", {"name": "x" * 5000}),
                secret=None,
                timeout=30,
                on_batch=End().on_batch,
                on_close=End().on_close,
            )


async def test_a_server_without_the_secret_learns_nothing() -> None:
    """It is refused before the hello is sent."""
    heard: list[bytes] = []

    async def behave(guest: Stranger) -> None:
        guest.say(prelude()[:41])
        heard.append(await guest.everything())

    async with host(behave) as address:
        with pytest.raises(AuthenticationError, match="the other has none"):
            await connect(
                address, HELLO, secret=b"key", timeout=30,
                on_batch=End().on_batch, on_close=End().on_close,
            )  # fmt: skip
        await eventually_async(lambda: heard)
    assert b"Client-1" not in heard[0]
