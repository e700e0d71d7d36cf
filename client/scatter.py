"""How local data gets onto workers: ``scatter``.

The bytes go straight to the workers; the scheduler learns of them afterwards and
has the workers claim them.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from raddle.protocol import config
from raddle.protocol.core.ids import Address, Key, Wid
from raddle.protocol.core.messages.base import Frames
from raddle.protocol.errors import ConfigError, RaddleError
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError
from raddle.protocol.serialize import copy_frames, dumps, sizeof
from raddle.protocol.tokenize import Digest, Walker, minted_token, run_spec_token

from .base import ClientBase, checked_policy
from .core.futures import Where
from .core.keys import as_key
from .future import Future, make_future
from .peers import Peers
from .site import call_site
from .sync import wait_in_loop
from .values import error_of

POLL_SECONDS = 0.02
ROUNDS_MAX = 3
"""Workers that are tried for a value, one after the other."""


class _Item(NamedTuple):
    key: Key
    token: Digest
    uuid: bytes
    frames: Frames
    nbytes: int
    type_name: str


class _Target(NamedTuple):
    address: Address
    wid: Wid
    nthreads: int


class ScatterMixin(ClientBase):
    """``scatter``."""

    _peers: Peers
    _timeout: float
    _turn = 0

    def scatter(  # noqa: PLR0913
        self,
        data: Any,
        workers: str | Iterable[str] | None = None,
        broadcast: bool | int = False,
        direct: bool | None = None,  # noqa: ARG002 (values always go directly)
        hash: bool = True,
        timeout: str | float | None = None,
        asynchronous: bool | None = None,  # noqa: ARG002 (as the peer)
        *,
        collision_policy: str | None = None,
    ) -> Any:
        """Put local data on workers; futures in the form of ``data``.

        A list, tuple or set gives a future for each element, a dict a future named
        by each key, anything else one future. ``workers`` (addresses or names)
        limits where, ``broadcast`` puts everything on all of them, or on so many.
        With ``hash`` equal values get one name; without, each call makes new ones.
        Waits at most ``timeout`` for a worker to be there. Awaitable where the
        client is asynchronous.

        Raises:
            TimeoutError: there is no worker.
            RunSpecCollisionError: under policy ``raise``, a name is taken.
            SerializationError: a value cannot be pickled.

        """
        seconds = self._timeout
        if timeout is not None:
            seconds = config.parse_seconds(timeout, "timeout")
        policy = checked_policy(collision_policy)
        names, values = _taken_apart(data)
        items = self._items(names, values, hash=hash)
        chosen = (workers,) if isinstance(workers, str) else workers
        return self._face(
            self._scatter(
                data, items, None if chosen is None else tuple(chosen), broadcast,
                seconds, policy, call_site(),
            )
        )  # fmt: skip

    def _items(
        self, names: Sequence[Any], values: Sequence[Any], *, hash: bool
    ) -> list[_Item]:
        walker = Walker(
            ensure_deterministic=False,
            function_code=self.token_settings.function_code,
            bulk_hash=self.token_settings.bulk_hash,
        )
        items = []
        for name, value in zip(names, values, strict=True):
            kind = type(value).__name__
            unique = uuid.uuid4()
            if name is None and not hash:
                key: Key = f"{kind}-{unique.hex}"
                token = minted_token(key, self.session.id)
            else:
                digest = walker.value(value)
                key = (
                    as_key(name)
                    if name is not None
                    else f"{kind}-{digest.digest.hex()}"
                )
                token = run_spec_token(key, digest)
            frames = dumps(value, f"data to scatter as {key!r}")
            items.append(_Item(key, token, unique.bytes, frames, sizeof(value), kind))
        return items

    async def _scatter(
        self,
        data: Any,
        items: list[_Item],
        workers: tuple[str, ...] | None,
        broadcast: bool | int,
        seconds: float,
        policy: str | None,
        where: Where,
    ) -> Any:
        once = list({item.key: item for item in items}.values())
        targets = await self._targets(workers, seconds)
        if broadcast:
            count = len(targets) if broadcast is True else min(broadcast, len(targets))
            placed = await self._spread(once, targets[:count])
        else:
            placed = await self._deal(once, targets)
        described = [
            (i.key, i.token.digest, i.token.skeleton, i.uuid, i.nbytes, i.type_name,
             placed[i.key])
            for i in once
        ]  # fmt: skip
        records = self.session.scatter([i.key for i in once], described, policy, where)
        futures = {r.key: make_future(self.session, r) for r in records}
        await wait_in_loop(self.session, records)
        for record in records:
            if record.failed:
                raise error_of(record)
        return _put_together(data, [futures[i.key] for i in items])

    async def _targets(
        self, wanted: tuple[str, ...] | None, seconds: float
    ) -> list[_Target]:
        """The workers to put data on; waits until there is one."""
        deadline = time.monotonic() + seconds
        while True:
            info = await self.session.ask("identity")
            found = [
                _Target(address, w["wid"], w["nthreads"])
                for address, w in info["workers"].items()
                if wanted is None or address in wanted or w["name"] in wanted
            ]
            if found:
                return found
            if time.monotonic() > deadline:
                which = "worker" if wanted is None else f"worker of {wanted}"
                msg = f"no {which} to scatter to after {seconds:g} s"
                raise RaddleTimeoutError(msg)
            await asyncio.sleep(POLL_SECONDS)

    async def _spread(
        self, items: Sequence[_Item], targets: Sequence[_Target]
    ) -> dict[Key, tuple[Wid, ...]]:
        """Put everything on every target."""
        if not targets:
            raise ConfigError("broadcast must be True or a number of at least 1")
        await asyncio.gather(*(self._put(items, target) for target in targets))
        wids = tuple(target.wid for target in targets)
        return {item.key: wids for item in items}

    async def _deal(
        self, items: Sequence[_Item], targets: Sequence[_Target]
    ) -> dict[Key, tuple[Wid, ...]]:
        """Deal the items out, as many to each worker as it has threads in turn."""
        left = list(items)
        placed: dict[Key, tuple[Wid, ...]] = {}
        failed: dict[Address, BaseException] = {}
        for _ in range(ROUNDS_MAX):
            usable = [t for t in targets if t.address not in failed]
            if not left or not usable:
                break
            hands: dict[_Target, list[_Item]] = {}
            ring = [t for t in usable for _ in range(t.nthreads)]
            for item in left:
                hands.setdefault(ring[self._turn % len(ring)], []).append(item)
                self._turn += 1
            results = await asyncio.gather(
                *(self._put(hand, target) for target, hand in hands.items()),
                return_exceptions=True,
            )
            for (target, hand), result in zip(hands.items(), results, strict=True):
                if result is None:
                    placed |= {item.key: (target.wid,) for item in hand}
                    left = [item for item in left if item.key not in placed]
                elif isinstance(result, RaddleError | OSError):
                    failed[target.address] = result
                else:
                    raise result
        if left:
            tried = "; ".join(f"{a}: {e}" for a, e in failed.items())
            msg = f"{left[0].key!r} could not be put on any worker: {tried}"
            raise RaddleError(msg)
        return placed

    async def _put(self, items: Sequence[_Item], target: _Target) -> None:
        share = target.address.startswith("inproc://")
        await self._peers.put(
            target.address,
            self.session.secret,
            tuple(
                (i.uuid, copy_frames(i.frames) if share else i.frames) for i in items
            ),
        )


def _taken_apart(data: Any) -> tuple[list[Any], list[Any]]:
    """Names (None where one is to be made) and values."""
    if isinstance(data, dict):
        return list(data), list(data.values())
    if isinstance(data, list | tuple | set | frozenset):
        values = list(data)
        return [None] * len(values), values
    return [None], [data]


def _put_together(data: Any, futures: list[Future]) -> Any:
    if isinstance(data, dict):
        return dict(zip(data, futures, strict=True))
    if isinstance(data, list | tuple | set | frozenset):
        base = next(t for t in (list, tuple, set, frozenset) if isinstance(data, t))
        return base(futures)
    return futures[0]
