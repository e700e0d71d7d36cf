"""What a client can find out about the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from raddle.protocol.core.collisions import CollisionRecord
from raddle.protocol.core.ids import Key

from .base import ClientBase
from .core.keys import as_key
from .future import Future, record_of
from .gather import futures_in


class InspectMixin(ClientBase):
    """Questions to the scheduler; awaitable where the client is asynchronous."""

    def scheduler_info(self, n_workers: int = -1, **_: Any) -> Any:
        """Who the scheduler is: id, address, its workers by address, and more.

        ``tasks`` counts the tasks it knows; ``n_workers`` limits the workers
        described (-1: all).
        """
        return self._face(self._scheduler_info(n_workers))

    async def _scheduler_info(self, n_workers: int) -> dict[str, Any]:
        info = dict(await self.session.ask("identity"))
        states = await self.session.ask("tasks")
        workers = info["workers"]
        info["n_workers"] = len(workers)
        info["total_threads"] = sum(w["nthreads"] for w in workers.values())
        info["total_memory"] = sum(w["memory_limit"] for w in workers.values())
        info["tasks"] = sum(states.values())
        if n_workers >= 0:
            info["workers"] = dict(list(workers.items())[:n_workers])
        return info

    def nthreads(self, workers: Iterable[str] | None = None) -> Any:
        """Threads by address of worker."""
        return self._face(self._pairs("nthreads", _names(workers)))

    ncores = nthreads

    def processing(self, workers: Iterable[str] | None = None) -> Any:
        """Keys of the tasks that each worker was given, by its address."""
        return self._face(self._pairs("processing", _names(workers)))

    def has_what(self, workers: Iterable[str] | None = None) -> Any:
        """Keys of the values that each worker holds, by its address."""
        return self._face(self._pairs("has_what", _names(workers)))

    def who_has(self, futures: Any = None) -> Any:
        """Addresses of the workers that hold each value, by key.

        ``futures`` are futures, which stand for their own tasks, or keys, which
        stand for the task of that name; everything in memory if None.
        """
        return self._face(self._who_has(futures))

    async def _who_has(self, futures: Any) -> dict[Key, Any]:
        if futures is None:
            return _lists(await self.session.ask("who_has"))
        found = list(futures_in(futures))
        if isinstance(futures, Future | str | bytes | int | float | tuple):
            futures = [] if found else [futures]
        keys = tuple(as_key(k) for k in futures if not isinstance(k, Future))
        held = _lists(await self.session.ask("who_has", keys)) if keys else {}
        if found:
            by_fid = {record_of(f).fid: f.key for f in found}
            answer = await self.session.holders(tuple(by_fid))
            held |= dict.fromkeys(by_fid.values(), ())
            for fid, _, where, _ in answer:
                held[by_fid[fid]] = [address for _, address in where]
        return {key: list(addresses) for key, addresses in held.items()}

    async def _pairs(self, topic: str, argument: Any) -> dict[str, Any]:
        return _lists(await self.session.ask(topic, argument))

    def collisions(self) -> Any:
        """What the scheduler has recorded of run_spec collisions, oldest first."""
        return self._face(self._collisions())

    async def _collisions(self) -> list[CollisionRecord]:
        answer = await self.session.ask("collisions")
        return [CollisionRecord._make(record) for record in answer]


def _names(workers: Iterable[str] | None) -> tuple[str, ...] | None:
    if workers is None:
        return None
    return (workers,) if isinstance(workers, str) else tuple(workers)


def _lists(pairs: Any) -> dict[Any, Any]:
    """A dict from pairs, in which collections are lists."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in pairs}
