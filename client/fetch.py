"""How values that lie on workers come to the client.

The scheduler says who holds a value, the worker is asked for it. A worker that does
not answer or has it no longer is not the end: the scheduler is asked again, and a
value that is being computed anew is awaited. After a bounded number of rounds the
error names the key and the worker.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from raddle.protocol.core.ids import Address, Fid, Tid
from raddle.protocol.core.messages.base import Frames
from raddle.protocol.core.messages.peer import Data
from raddle.protocol.errors import CommClosedError, RaddleError
from raddle.protocol.serialize import load_exception

from .core.futures import Record
from .peers import Peers
from .session import Found, Session
from .sync import wait_in_loop
from .values import is_remote

ROUNDS_MAX = 8
"""Times that the scheduler is asked who holds a value."""
PAUSE_SECONDS = 0.05
"""Before the second round; doubled before each further one."""


class Fetcher:
    """Fetches values for one session, on its loop."""

    def __init__(self, session: Session, peers: Peers) -> None:
        self._session = session
        self._peers = peers

    async def fetch(self, records: Sequence[Record]) -> Found:
        """Frames by fid, for those of ``records`` that are finished.

        A value that its worker cannot pickle is represented by the error. Futures
        that turn out to have failed meanwhile are left out.

        Raises:
            CommClosedError: a value stayed out of reach; names key and worker.

        """
        found: Found = {}
        wanted = {r.fid: r for r in records}
        blame: dict[Fid, str] = {}
        avoid: dict[Fid, set[Address]] = defaultdict(set)
        for number in range(ROUNDS_MAX):
            if number:
                await asyncio.sleep(PAUSE_SECONDS * 2 ** (number - 1))
            await wait_in_loop(self._session, tuple(wanted.values()))
            for fid, record in tuple(wanted.items()):
                if not is_remote(record):
                    del wanted[fid]
                    if not record.failed:
                        found[fid] = record.value
            if wanted:
                await self._round(wanted, found, blame, avoid)
            if not wanted:
                return found
        fid, record = next(iter(wanted.items()))
        why = blame.get(fid, "no worker holds it")
        msg = (
            f"the value of {record.key!r} could not be fetched in {ROUNDS_MAX} "
            f"attempts: {why}"
        )
        raise CommClosedError(msg)

    async def _round(
        self,
        wanted: dict[Fid, Record],
        found: Found,
        blame: dict[Fid, str],
        avoid: dict[Fid, set[Address]],
    ) -> None:
        """Ask once for each value; what is found moves from wanted to found."""
        holders = await self._session.holders(tuple(wanted))
        plan: dict[Address, dict[Tid, Fid]] = defaultdict(dict)
        for fid, tid, where, frames in holders:
            if fid not in wanted:
                continue
            if frames is not None:
                found[fid] = frames
                del wanted[fid]
                continue
            addresses = [address for _, address in where]
            fresh = [a for a in addresses if a not in avoid[fid]] or addresses
            if fresh:
                plan[fresh[fid % len(fresh)]][tid] = fid
            else:
                blame[fid] = "the scheduler knows no worker that holds it"
        answers = await asyncio.gather(
            *(self._ask(address, tuple(tids)) for address, tids in plan.items())
        )
        for (address, tids), answer in zip(plan.items(), answers, strict=True):
            values = _values(answer)
            for tid, fid in tids.items():
                value = values.get(tid)
                if value is None:
                    avoid[fid].add(address)
                    blame[fid] = f"worker at {address}: {_why(answer)}"
                elif wanted.pop(fid, None) is not None:
                    found[fid] = value

    async def _ask(
        self, address: Address, tids: tuple[Tid, ...]
    ) -> Data | RaddleError | TimeoutError:
        try:
            return await self._peers.get(address, self._session.secret, tids)
        except (RaddleError, TimeoutError) as error:
            return error


def _values(answer: Any) -> dict[Tid, Frames | BaseException]:
    if not isinstance(answer, Data):
        return {}
    values: dict[Tid, Any] = {tid: frames for tid, _, frames in answer.items}
    for tid, pair in answer.failed:
        values[tid] = load_exception(pair)
    return values


def _why(answer: Any) -> str:
    return "it has it no longer" if isinstance(answer, Data) else str(answer)
