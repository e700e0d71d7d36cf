"""Which connections to other workers there are, and when one is unreachable.

One per peer, opened when something is first asked of it. A peer that cannot be
reached is reported; if that happens again and again, each time a little later, so
that worker and scheduler do not chase each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from raddle.protocol.comm import Hello, Link, connect
from raddle.protocol.core.ids import Address, Wid
from raddle.protocol.core.messages.peer import Data, Get
from raddle.protocol.errors import RaddleError

from .core.actions import Ask
from .core.events import Fetched, FetchFailed

logger = logging.getLogger("raddle.worker")

BACKOFF_SECONDS = 0.05
"""Delay of the second report in a row that a peer is unreachable; it doubles."""
BACKOFF_SECONDS_MAX = 2.0


class _Peer:
    """One peer: its connection or the attempt at one, and the open question."""

    __slots__ = ("address", "ask", "connecting", "failures", "link", "wid")

    def __init__(self, wid: Wid, address: Address) -> None:
        self.wid = wid
        self.address = address
        self.link: Link | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.ask: Ask | None = None
        self.failures = 0


class Peers:
    """The data connections of one worker to others.

    ``post`` takes the core's events. ``own_address`` is what peers are told of us.
    ``timeout`` (seconds) bounds one attempt to connect; beyond ``connections_max``
    the connection that was idle longest is closed.
    """

    def __init__(
        self,
        post: Callable[[Fetched | FetchFailed], None],
        own_address: Address,
        secret: bytes | None,
        timeout: float,
        connections_max: int,
    ) -> None:
        self._post = post
        self._own_address = own_address
        self._secret = secret
        self._timeout = timeout
        self._connections_max = connections_max
        self._loop = asyncio.get_running_loop()
        # By the time of their last use, the latest last.
        self._peers: dict[Wid, _Peer] = {}
        self._links: set[Link] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._closed = False

    def ask(self, ask: Ask) -> None:
        """Put a question to a peer; its answer, or that there is none, is posted."""
        peer = self._peers.pop(ask.wid, None) or _Peer(ask.wid, ask.address)
        self._peers[ask.wid] = peer
        peer.ask = ask
        if peer.link is not None:
            peer.link.send(Get(ask.number, ask.tids))
        elif peer.connecting is None:
            self._make_room()
            task = self._loop.create_task(self._connect(peer))
            peer.connecting = task
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def disconnect(self, wid: Wid) -> None:
        """The peer is gone; nobody waits for it."""
        peer = self._peers.pop(wid, None)
        if peer is not None:
            self._end(peer, "the worker has left")

    async def close(self) -> None:
        """End all connections; nothing is posted any more."""
        self._closed = True
        for peer in self._peers.values():
            self._end(peer, "the worker closed")
        self._peers.clear()
        if self._connecting:
            await asyncio.wait(self._connecting)
        for link in tuple(self._links):
            await link.wait_closed()

    def _end(self, peer: _Peer, why: str) -> None:
        peer.ask = None
        if peer.connecting is not None:
            peer.connecting.cancel()
        if peer.link is not None:
            peer.link.close(why)

    async def _connect(self, peer: _Peer) -> None:
        try:
            link = await connect(
                peer.address,
                Hello("peer", {"from": self._own_address}),
                secret=self._secret,
                timeout=self._timeout,
                on_batch=lambda link, batch: self._on_batch(peer, link, batch),
                on_close=lambda link, reason: self._on_close(peer, link, reason),
            )
        except (RaddleError, OSError) as error:
            peer.connecting = None
            self._unreachable(peer, str(error))
            return
        peer.connecting = None
        self._links.add(link)
        if self._peers.get(peer.wid) is not peer:
            link.close("not needed any more")
            return
        peer.link = link
        if peer.ask is not None:
            link.send(Get(peer.ask.number, peer.ask.tids))

    def _on_batch(self, peer: _Peer, link: Link, batch: list[object]) -> None:
        for message in batch:
            if not isinstance(message, Data):
                why = f"a question for data is not answered by {type(message).__name__}"
                logger.warning("closing the link of %s: %s", peer.address, why)
                link.close(why)
                return
            if peer.ask is not None and peer.ask.number == message.request:
                peer.ask = None
                peer.failures = 0
                self._post(
                    Fetched(peer.wid, message.request, message.items, message.failed)
                )

    def _on_close(self, peer: _Peer, link: Link, reason: str) -> None:
        self._links.discard(link)
        peer.link = None
        self._unreachable(peer, reason)

    def _unreachable(self, peer: _Peer, reason: str) -> None:
        """Report the open question as failed, if there is one."""
        ask, peer.ask = peer.ask, None
        if ask is None or self._closed:
            return
        logger.info("cannot fetch from worker at %s: %s", peer.address, reason)
        peer.failures += 1
        failed = FetchFailed(ask.wid, ask.number)
        if peer.failures == 1:
            self._post(failed)
            return
        delay = BACKOFF_SECONDS * 2 ** min(peer.failures - 2, 10)
        self._loop.call_later(min(delay, BACKOFF_SECONDS_MAX), self._late, failed)

    def _late(self, failed: FetchFailed) -> None:
        if not self._closed:
            self._post(failed)

    def _make_room(self) -> None:
        """Close the connection that was idle longest, if there are too many."""
        open_ones = [p for p in self._peers.values() if p.link is not None]
        if len(open_ones) < self._connections_max:
            return
        for peer in open_ones:
            if peer.ask is None and peer.link is not None:
                del self._peers[peer.wid]
                self._end(peer, "not used lately")
                return
