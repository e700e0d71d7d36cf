"""How a client talks to the data side of workers: one pooled connection each.

Requests to one worker share its connection, numbered, so that many may be under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from raddle.protocol.comm import Hello, Link, connect
from raddle.protocol.core.ids import Address, Tid
from raddle.protocol.core.messages.base import Frames, Message
from raddle.protocol.core.messages.peer import Data, Get, Put, PutDone
from raddle.protocol.errors import CommClosedError

PEERS_MAX = 256
"""Open data connections of one client; the one used least recently goes first."""


CLOSE_SECONDS_MAX = 1.0


class Peer:
    """The connection to one worker's data, and who waits for an answer on it."""

    __slots__ = ("_next", "_waiting", "address", "link")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.link: Link | None = None
        self._next = 1
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    @property
    def busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._waiting)

    async def request(self, make: Callable[[int], Message]) -> Any:
        """Send ``make(request number)``; the answer. CommClosedError if it ends."""
        if self.link is None or self.link.closed:
            raise CommClosedError(f"no connection to {self.address}")
        number, self._next = self._next, self._next + 1
        future = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self.link.send(make(number))
        try:
            return await future
        finally:
            self._waiting.pop(number, None)

    def on_batch(self, _link: Link, batch: list[Any]) -> None:
        """Hand each answer to who waits for it."""
        for message in batch:
            if isinstance(message, Data | PutDone):
                future = self._waiting.get(message.request)
                if future is not None and not future.done():
                    future.set_result(message)

    def on_close(self, _link: Link, reason: str) -> None:
        """Nobody gets an answer any more."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    CommClosedError(f"connection to {self.address}: {reason}")
                )


class Peers:
    """The data connections of one client. Belongs to the client's loop."""

    def __init__(self, client_id: str, timeout: float) -> None:
        self._id = client_id
        self._timeout = timeout
        self._peers: dict[Address, Peer] = {}
        self._connecting: dict[Address, asyncio.Future[Peer]] = {}
        self._closed = False

    async def get(
        self, address: Address, secret: bytes | None, tids: tuple[Tid, ...]
    ) -> Data:
        """The values of these tasks, as far as that worker has them.

        Raises CommClosedError and what :func:`raddle.protocol.comm.connect` raises.
        """
        peer = await self._peer(address, secret)
        answer: Data = await peer.request(lambda number: Get(number, tids))
        return answer

    async def put(
        self,
        address: Address,
        secret: bytes | None,
        items: tuple[tuple[bytes, Frames], ...],
    ) -> None:
        """Leave values with that worker, under their uuids.

        Raises as :meth:`get` does, and CommClosedError if the worker refuses.
        """
        peer = await self._peer(address, secret)
        answer: PutDone = await peer.request(lambda number: Put(number, items))
        if answer.error is not None:
            raise CommClosedError(f"worker at {address} took no data: {answer.error}")

    async def close(self) -> None:
        """End all connections; what has not ended in time is dropped."""
        self._closed = True
        links = [p.link for p in self._peers.values() if p.link is not None]
        self._peers.clear()
        for pending in self._connecting.values():
            pending.cancel()
        for link in links:
            link.close("the client closes")
        ends = [asyncio.ensure_future(link.wait_closed()) for link in links]
        if ends:
            await asyncio.wait(ends, timeout=CLOSE_SECONDS_MAX)
        for link in links:
            link.abort("the client closes")

    async def _peer(self, address: Address, secret: bytes | None) -> Peer:
        if self._closed:
            raise CommClosedError("the client closes")
        peer = self._peers.pop(address, None)
        if peer is not None and peer.link is not None and not peer.link.closed:
            self._peers[address] = peer  # the latest used is the last
            return peer
        pending = self._connecting.get(address)
        if pending is None:
            pending = asyncio.ensure_future(self._connect(address, secret))
            self._connecting[address] = pending
            pending.add_done_callback(lambda _: self._connecting.pop(address, None))
        try:
            return await asyncio.shield(pending)
        except asyncio.CancelledError:
            if pending.cancelled():
                raise CommClosedError("the client closes") from None
            raise

    async def _connect(self, address: Address, secret: bytes | None) -> Peer:
        peer = Peer(address)
        peer.link = await connect(
            address,
            Hello("peer", {"from": self._id}),
            secret=secret,
            timeout=self._timeout,
            on_batch=peer.on_batch,
            on_close=peer.on_close,
        )
        self._peers[address] = peer
        self._make_room()
        return peer

    def _make_room(self) -> None:
        for address, peer in tuple(self._peers.items()):
            if len(self._peers) <= PEERS_MAX:
                return
            if not peer.busy and peer.link is not None:
                del self._peers[address]
                peer.link.close("not used lately")
