"""Data connections: shared, numbered, bounded, and ended."""

from __future__ import annotations

import asyncio

import pytest

from raddle.client import peers as module
from raddle.client.peers import Peers
from raddle.protocol.core.messages.peer import Data, Get, Put, PutDone
from raddle.protocol.errors import CommClosedError
from testkit.links import Server, serving


@pytest.fixture
def peers() -> Peers:
    return Peers("Client-1", 20.0)


async def test_requests_share_one_connection_and_find_their_answers(
    peers: Peers,
) -> None:
    async with serving() as worker:
        asking = [
            asyncio.ensure_future(peers.get(worker.address, None, (tid,)))
            for tid in (1, 2)
        ]
        first, second = await worker.until_messages(2)
        assert (first, second) == (Get(1, (1,)), Get(2, (2,)))
        assert len(worker.links) == 1
        (hello,) = worker.hellos
        assert (hello.role, hello.info) == ("peer", {"from": "Client-1"})
        for request, tid in ((2, 2), (99, 9), (1, 1)):
            worker.links[0].send(Data(request, ((tid, 7, (b"value",)),), ()))
        answers = await asyncio.gather(*asking)
        assert [a.items[0][0] for a in answers] == [1, 2]
        await peers.close()


async def test_values_are_put(peers: Peers) -> None:
    async with serving() as worker:
        putting = asyncio.ensure_future(
            peers.put(worker.address, None, ((b"uuid", (b"value",)),))
        )
        await worker.until_messages(1)
        assert worker.messages == [Put(1, ((b"uuid", (b"value",)),))]
        worker.links[0].send(PutDone(1, None))
        await putting
        refused = asyncio.ensure_future(peers.put(worker.address, None, ()))
        await worker.until_messages(2)
        worker.links[0].send(PutDone(2, "no memory"))
        with pytest.raises(CommClosedError, match="took no data: no memory"):
            await refused
        await peers.close()


async def test_a_worker_that_goes_away(peers: Peers) -> None:
    async with serving() as worker:
        asking = asyncio.ensure_future(peers.get(worker.address, None, (1,)))
        await worker.until_messages(1)
        worker.links[0].abort("killed")
        with pytest.raises(CommClosedError, match=worker.address):
            await asking
        again = asyncio.ensure_future(peers.get(worker.address, None, (1,)))
        await worker.until(lambda: len(worker.links) == 2)
        await peers.close()
        with pytest.raises(CommClosedError, match="the client closes"):
            await again


async def test_a_worker_that_is_not_there(peers: Peers) -> None:
    with pytest.raises(CommClosedError, match=r"127\.0\.0\.1:1"):
        await peers.get("tcp://127.0.0.1:1", None, (1,))
    await peers.close()


async def test_idle_connections_beyond_the_limit_end(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PEERS_MAX", 1)

    async def ask(worker: Server) -> None:
        asking = asyncio.ensure_future(peers.get(worker.address, None, (1,)))
        await worker.until_messages(1)
        worker.links[0].send(Data(1, (), ()))
        await asking

    async with serving() as first, serving() as second:
        await ask(first)
        await ask(second)
        assert "not used lately" in await first.until_closed()
        assert second.reasons == []
        await peers.close()
        await second.until_closed()
