"""Which peer is asked for which values: one request per peer, the rest gathers.

All tids wanted from one peer by one event leave in one request. While a request
is under way to a peer, further wants gather for the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raddle.protocol.core.ids import Address, Tid, Wid

from .actions import Ask
from .data import Wanted

REQUEST_BYTES_MAX = 64 * 2**20
"""How much one request asks for, in bytes, unless one value alone is bigger."""


class Fetch(NamedTuple):
    """A request under way."""

    number: int
    tids: tuple[Tid, ...]


class Fetches:
    """Requests under way, wants that gather, and the peers that can be asked."""

    def __init__(self, request_bytes_max: int = REQUEST_BYTES_MAX) -> None:
        self.addresses: dict[Wid, Address] = {}
        self.under_way: dict[Wid, Fetch] = {}
        self.gathering: dict[Wid, dict[Tid, int]] = {}
        self._numbers = 0
        self._request_bytes_max = request_bytes_max

    def seek(self, entry: Wanted) -> bool:
        """Ask one of the entry's holders for it; false when none is left.

        The holder with the fewest wants is taken. It leaves ``entry.holders``.
        """
        known = [wid for wid in entry.holders if wid in self.addresses]
        if not known:
            entry.holders.clear()
            return False
        source = known[0] if len(known) == 1 else self._least_busy(known, entry.tid)
        entry.holders = [wid for wid in known if wid != source]
        entry.source = source
        fetch = self.under_way.get(source)
        if fetch is None or entry.tid not in fetch.tids:
            self.gathering.setdefault(source, {})[entry.tid] = entry.nbytes
        return True

    def _least_busy(self, wids: list[Wid], tid: Tid) -> Wid:
        # The tid rotates the order, so that equally idle holders share the load.
        start = tid % len(wids)
        return min(wids[start:] + wids[:start], key=self._load)

    def _load(self, wid: Wid) -> int:
        fetch = self.under_way.get(wid)
        return len(self.gathering.get(wid, ())) + (len(fetch.tids) if fetch else 0)

    def give_up(self, entry: Wanted) -> None:
        """Nobody waits for this value from its source any more."""
        source = entry.source
        if source is None:
            return
        entry.source = None
        gathering = self.gathering.get(source)
        if gathering is not None:
            gathering.pop(entry.tid, None)
            if not gathering:
                del self.gathering[source]

    def start(self) -> list[Ask]:
        """Requests to the idle peers that something gathers for."""
        asks = []
        for wid in [wid for wid in self.gathering if wid not in self.under_way]:
            gathering = self.gathering[wid]
            tids = self._one_request(gathering)
            for tid in tids:
                del gathering[tid]
            if not gathering:
                del self.gathering[wid]
            self._numbers += 1
            self.under_way[wid] = Fetch(self._numbers, tids)
            asks.append(Ask(wid, self.addresses[wid], self._numbers, tids))
        return asks

    def _one_request(self, gathering: dict[Tid, int]) -> tuple[Tid, ...]:
        total = 0
        tids: list[Tid] = []
        for tid, nbytes in gathering.items():
            total += nbytes
            if tids and total > self._request_bytes_max:
                break
            tids.append(tid)
        return tuple(tids)

    def ended(self, wid: Wid, number: int) -> tuple[Tid, ...] | None:
        """The request is over: its tids, or None when nobody waits for it."""
        fetch = self.under_way.get(wid)
        if fetch is None or fetch.number != number:
            return None
        del self.under_way[wid]
        return fetch.tids

    def joined(self, items: Iterable[tuple[Wid, Address]]) -> None:
        """These peers can be asked from now on."""
        self.addresses.update(items)

    def left(self, wid: Wid) -> list[Tid]:
        """Forget a peer; what was wanted from it needs another source."""
        self.addresses.pop(wid, None)
        fetch = self.under_way.pop(wid, None)
        gathering = self.gathering.pop(wid, {})
        return [*(fetch.tids if fetch else ()), *gathering]
