"""Links keep order, batch by loop iteration, and end once: on each transport and loop."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from raddle.protocol.comm import Hello, Link, connect, listen
from raddle.protocol.comm.link import BATCH_MAX
from raddle.protocol.core.codec import RAW_MIN
from raddle.protocol.core.messages.client import Ask, Release
from raddle.protocol.core.messages.peer import Data
from raddle.protocol.core.messages.worker import Present
from raddle.protocol.errors import (
    AuthenticationError,
    CommClosedError,
    ConfigError,
    HandshakeError,
    StartError,
)
from testkit.links import HELLO, End, Server, connected, serving


@pytest.fixture(params=["tcp://127.0.0.1:0", "inproc://"], ids=["tcp", "inproc"])
def address(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "raddle.comm" and record.levelno >= logging.WARNING
    ]


def present(*numbers: int) -> list[Present]:
    return [Present(i, 0) for i in numbers]


async def test_hello_and_welcome(address: str) -> None:
    async with serving(address, server=Server({"epoch": 7})) as server:
        assert server.address.startswith(address.removesuffix(":0"))
        async with connected(server.address) as (link, _):
            assert link.welcome == {"epoch": 7}
            assert link.peer_address == server.address
            assert server.hellos == [HELLO]
            assert server.links[0].hello == HELLO
            assert server.links[0].peer_address == link.local_address


async def test_messages_go_both_ways_in_order(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, end):
        for i in range(3 * BATCH_MAX):
            link.send(Present(i, 0))
            server.links[0].send(Present(-i, 0))
        assert await server.until_messages(3 * BATCH_MAX) == present(
            *range(3 * BATCH_MAX)
        )
        assert await end.until_messages(3 * BATCH_MAX) == present(
            *range(0, -3 * BATCH_MAX, -1)
        )
        assert {len(batch) for batch in end.batches} == {BATCH_MAX}


async def test_an_iteration_of_the_loop_is_a_batch(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, _):
        link.send(Present(1, 0))
        link.send_many(iter(present(2, 3)))
        asyncio.get_running_loop().call_soon(link.send, Present(4, 0))
        link.send(Present(5, 0))
        await server.until_messages(5)
        assert server.batches == [present(1, 2, 3, 5), present(4)]


async def test_what_accept_sends_arrives_after_connect_has_returned(
    address: str,
) -> None:
    class Talkative(Server):
        def accept(self, link: Link, hello: Hello) -> dict[str, Any]:
            link.send_many(present(1, 2))
            link.send(Release((3,)))
            return super().accept(link, hello)

    seen: list[tuple[bool, list[Any]]] = []
    returned = False
    heard = asyncio.Event()

    def on_batch(_: Link, batch: list[Any]) -> None:
        seen.append((returned, batch))
        heard.set()

    async with serving(address, server=Talkative()) as server:
        link = await connect(
            server.address,
            HELLO,
            secret=None,
            timeout=30,
            on_batch=on_batch,
            on_close=End().on_close,
        )
        returned = True
        await heard.wait()
        assert seen == [(True, [*present(1, 2), Release((3,))])]
        link.close("done")
        await link.wait_closed()


async def test_close_sends_what_is_queued_and_says_why(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, end):
        big = b"x" * 3_000_000
        link.send_many([Data(1, ((1, 1, (big,)),), ()), *present(*range(2000))])
        link.close("no more work")
        assert link.closed
        assert await server.until_closed() == "closed by the other side: no more work"
        assert len(server.messages) == 2001
        assert server.messages[0].items[0][2][0] == big
        assert await end.until_closed() == "no more work"


async def test_the_accepting_side_closes_likewise(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (_, end):
        server.links[0].send(Present(1, 0))
        server.links[0].close("shutting down")
        assert await end.until_closed() == "closed by the other side: shutting down"
        assert end.messages == present(1)
        assert await server.until_closed() == "shutting down"


async def test_close_right_after_connect(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, end):
        link.send(Release((1,)))
        link.close("only a word")
        assert "only a word" in await server.until_closed()
        assert server.messages == [Release((1,))]
        assert await end.until_closed() == "only a word"


async def test_both_close_at_once(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, end):
        link.close("mine")
        server.links[0].close("yours")
        assert await end.until_closed() == "mine"
        assert await server.until_closed() == "yours"


async def test_abort_drops_what_is_queued(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, end):
        link.send(Present(1, 0))
        link.abort("enough")
        assert "connection lost" in await server.until_closed()
        assert server.messages == []
        assert await end.until_closed() == "enough"


async def test_a_closed_link_is_silent(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, end):
        link.close("first")
        link.close("second")
        link.send(Present(1, 0))
        link.send_many(present(2, 3))
        await link.wait_closed()
        link.close("third")
        link.abort("fourth")
        link.send(Present(4, 0))
        await link.wait_closed()
        with pytest.raises(CommClosedError, match=f"{server.address}: first"):
            await link.drain()
        await server.until_closed()
        assert end.reasons == ["first"]
        assert server.messages == []
        assert link.backlog == 0


async def test_on_close_comes_later_than_the_call(address: str) -> None:
    """Owners need not expect to be called from within their own call."""
    async with serving(address) as server, connected(server.address) as (link, end):
        link.close("x")
        assert not end.reasons
        server.links[0].abort("y")
        assert not server.reasons


async def test_a_closed_link_hears_nothing(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, end):
        server.links[0].send(Present(1, 0))
        link.close("deaf")
        await server.until_closed()
        await link.wait_closed()
        assert end.messages == []


async def test_drain_waits_for_what_was_sent(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, _):
        big = memoryview(bytearray(20_000_000))
        link.send(Data(1, ((1, 1, (big,)),), ()))
        await link.drain()
        assert link.backlog <= 300_000
        assert (await server.until_messages(1))[0].items[0][2][0] == big


async def test_a_failing_owner_loses_its_link_only(
    address: str, caplog: pytest.LogCaptureFixture, internal_errors: list[str]
) -> None:
    class Clumsy(Server):
        def on_batch(self, link: Link, batch: list[Any]) -> None:
            super().on_batch(link, batch)
            if batch == present(13):
                raise KeyError("a bug of the owner")

    async with (
        serving(address, server=Clumsy()) as server,
        connected(server.address) as (link, end),
        connected(server.address) as (other, other_end),
    ):
        link.send(Present(13, 0))
        reason = (
            "closed by the other side: internal error: KeyError: 'a bug of the owner'"
        )
        assert await end.until_closed() == reason
        assert "KeyError" in await server.until_closed()
        server.links[1].send(Present(1, 0))
        assert await other_end.until_messages(1) == present(1)
        assert not other.closed
    (record,) = [r for r in caplog.records if r.exc_info]
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError
    assert "on_batch" in (record.exc_text or "")
    internal_errors.clear()


async def test_a_failing_on_close_is_logged(
    address: str, internal_errors: list[str]
) -> None:
    class Clumsy(End):
        def on_close(self, link: Link, reason: str) -> None:
            super().on_close(link, reason)
            raise KeyError("a bug of the owner")

    async with (
        serving(address) as server,
        connected(server.address, end=Clumsy()) as (link, _),
    ):
        link.close("x")
        await link.wait_closed()
        await server.until_closed()
    assert len(internal_errors) == 1
    internal_errors.clear()


async def test_an_owner_that_forgot_on_batch_is_told(
    internal_errors: list[str],
) -> None:
    class Forgetful(Server):
        def accept(self, link: Link, hello: Hello) -> dict[str, Any]:
            self.links.append(link)
            return hello.info

    async with (
        serving(server=Forgetful()) as server,
        connected(server.address) as (link, end),
    ):
        link.send(Present(1, 0))
        assert "set on_batch in accept()" in await end.until_closed()
    internal_errors.clear()


async def test_an_owner_may_refuse(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky(Server):
        def accept(self, link: Link, hello: Hello) -> dict[str, Any]:
            super().accept(link, hello)
            raise HandshakeError(f"no {hello.role}s today")

    async with serving(address, server=Picky()) as server:
        for _ in range(2):
            with pytest.raises(HandshakeError) as info:
                async with connected(server.address):
                    pass
            assert server.address in str(info.value)
            assert str(info.value).endswith("the other side refused: no clients today")
    assert [text.endswith("no clients today") for text in warnings_of(caplog)] == [
        True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["close", "abort"])
async def test_closing_within_accept_refuses(address: str, way: str) -> None:
    class Picky(Server):
        def accept(self, link: Link, hello: Hello) -> dict[str, Any]:
            welcome = super().accept(link, hello)
            link.send(Present(1, 0))
            getattr(link, way)("not you")
            return welcome

    async with serving(address, server=Picky()) as server:
        with pytest.raises((HandshakeError, CommClosedError), match=server.address):
            async with connected(server.address):
                pass
        await server.links[0].wait_closed()
        assert server.reasons == []


async def test_a_closed_link_delivers_nothing_more(address: str) -> None:
    """Not even what came together with what its owner closed it for."""

    class Brief(Server):
        def on_batch(self, link: Link, batch: list[Any]) -> None:
            super().on_batch(link, batch)
            link.close("one is enough")

    async with (
        serving(address, server=Brief()) as server,
        connected(server.address) as (link, end),
    ):
        link.send_many(present(*range(2 * BATCH_MAX)))
        assert "one is enough" in await end.until_closed()
        await server.until_closed()
        assert server.batches == [present(*range(BATCH_MAX))]


async def test_an_owner_that_fails_to_accept(
    address: str, internal_errors: list[str]
) -> None:
    class Clumsy(Server):
        def accept(self, link: Link, hello: Hello) -> dict[str, Any]:
            super().accept(link, hello)
            raise KeyError("secret details")

    async with serving(address, server=Clumsy()) as server:
        with pytest.raises(HandshakeError, match=r"internal error: KeyError$"):
            async with connected(server.address):
                pass
    assert len(internal_errors) == 1
    internal_errors.clear()


@pytest.mark.parametrize(
    ("ours", "theirs"), [(b"key", None), (None, b"key"), (b"key", b"another")]
)
async def test_secrets_that_do_not_fit(
    address: str,
    ours: bytes | None,
    theirs: bytes | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(address, secret=theirs) as server:
        with pytest.raises(AuthenticationError, match="secret") as info:
            async with connected(server.address, secret=ours):
                pass
        assert server.address in str(info.value)
        assert not server.hellos
        async with connected(server.address, secret=theirs) as (link, _):
            assert not link.closed
    (line,) = warnings_of(caplog)
    assert "refused" in line
    assert "key" not in line


async def test_secrets_that_fit(address: str) -> None:
    async with (
        serving(address, secret=b"key") as server,
        connected(server.address, secret=b"key") as (link, _),
    ):
        link.send(Present(1, 0))
        assert await server.until_messages(1) == present(1)


async def test_nobody_there(address: str) -> None:
    async with serving(address) as server:
        gone = server.address
    with pytest.raises(CommClosedError, match=gone):
        await connect(
            gone, HELLO, secret=None, timeout=30,
            on_batch=End().on_batch, on_close=End().on_close,
        )  # fmt: skip


async def test_an_address_can_be_listened_on_again(address: str) -> None:
    async with serving(address) as server:
        used = server.address
        with pytest.raises(StartError, match="in use: choose another"):
            await listen(used, secret=None, accept=server.accept)
        async with connected(used) as (link, _):
            server.listener.close()
            await server.listener.wait_closed()
            async with serving(used) as second:
                assert second.address == used
                # The connection from before goes on.
                link.send(Present(1, 0))
                assert await server.until_messages(1) == present(1)


@pytest.mark.parametrize("bad", ["udp://x:1", "tcp://x:port", "tcp://x:65536"])
async def test_not_an_address(bad: str) -> None:
    with pytest.raises(ConfigError, match=bad):
        await listen(bad, secret=None, accept=Server().accept)


async def test_a_connect_that_is_cancelled_leaves_nothing(address: str) -> None:
    """Cancelled at every point of its way; the server never keeps a link."""
    async with serving(address) as server:
        for steps in range(12):
            end = End()
            task = asyncio.ensure_future(
                connect(
                    server.address, HELLO, secret=None, timeout=30,
                    on_batch=end.on_batch, on_close=end.on_close,
                )
            )  # fmt: skip
            for _ in range(steps):
                await asyncio.sleep(0)
            if task.done():
                task.result().abort("connected before it could be cancelled")
                break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not end.reasons
        for link in server.links:
            await link.wait_closed()


def in_thread(target: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


async def test_ends_on_loops_of_two_threads(address: str) -> None:
    """Each end is only ever called on its own loop, in order, and both close."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    home = asyncio.get_running_loop()
    threads: set[int] = set()

    class Echo(Server):
        def on_batch(self, link: Link, batch: list[Any]) -> None:
            threads.add(threading.get_ident())
            super().on_batch(link, batch)
            link.send_many(batch)

        def on_close(self, link: Link, reason: str) -> None:
            threads.add(threading.get_ident())
            super().on_close(link, reason)

    reasons: list[str] = []

    async def serve() -> None:
        async with serving(address, server=Echo()) as server:
            home.call_soon_threadsafe(ready.set_result, server.address)
            reasons.append(await server.until_closed())

    thread = in_thread(lambda: asyncio.run(serve()))
    async with connected(await ready) as (link, end):
        for i in range(1000):
            link.send(Present(i, 0))
            if i % 10 == 0:
                await asyncio.sleep(0)
        assert await end.until_messages(1000) == present(*range(1000))
        link.close("bye")
        assert await end.until_closed() == "bye"
    await asyncio.to_thread(thread.join)
    assert reasons == ["closed by the other side: bye"]
    assert threads == {thread.ident}


async def test_values_within_a_process_are_handed_over_as_they_are() -> None:
    buffer = memoryview(bytearray(RAW_MIN))
    message = Ask(1, "topic", (buffer, object()))
    async with (
        serving("inproc://here") as server,
        connected("inproc://here") as (link, _),
    ):
        link.send(message)
        (arrived,) = await server.until_messages(1)
        assert arrived is message


async def test_an_end_whose_loop_is_gone() -> None:
    """The other end of an inproc link notices when it next speaks."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    home = asyncio.get_running_loop()
    server = Server()

    async def serve() -> None:
        server.changed = asyncio.Event()
        listener = await listen("inproc://", secret=None, accept=server.accept)
        home.call_soon_threadsafe(ready.set_result, listener.address)
        await server.until(lambda: server.links)

    thread = in_thread(lambda: asyncio.run(serve()))
    async with connected(await ready) as (link, end):
        await asyncio.to_thread(thread.join)
        link.send(Present(1, 0))
        assert "event loop is closed" in await end.until_closed()
    with pytest.raises(CommClosedError, match="event loop is closed"):
        async with connected(await ready):
            pass


async def test_what_may_wait_leaves_with_the_next_message(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, _):
        for message in present(1, 2):
            link.send_later(message)
        link.send(Present(3, 0))
        assert await server.until_messages(3) == present(1, 2, 3)


async def test_what_may_wait_does_not_wait_for_ever(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, _):
        link.send_later(Present(1, 0))
        assert await server.until_messages(1) == present(1)
        link.send_later(Present(2, 0))
        assert await server.until_messages(2) == present(1, 2)


async def test_what_may_wait_leaves_before_the_end(address: str) -> None:
    async with serving(address) as server, connected(server.address) as (link, _):
        link.send_later(Present(1, 0))
        link.close("enough")
        assert await server.until_messages(1) == present(1)
        link.send_later(Present(2, 0))
