"""What clients may ask the scheduler, and the form of each answer.

One table from topic to function of scheduler, asking client and argument. An answer
consists of tuples, dicts with text keys, and scalars, none of which the core goes on
changing: it may be read by a client in this very process. Keys of tasks stand in tuples, never as keys of a dict.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from raddle.protocol.core.ids import Address, ClientId, Fid, Key, Wid
from raddle.protocol.errors import ConfigError

from .core import queries
from .core.entities import WorkerState
from .core.machine import Machine


class Office(Protocol):
    """The part of a scheduler that answers are made of."""

    id: str
    address: Address
    started: float
    machine: Machine
    metrics: dict[Wid, dict[str, Any]]


def identity(office: Office, _client: ClientId, _argument: None) -> dict[str, Any]:
    """Who the scheduler is, and its workers by address."""
    return {
        "type": "Scheduler",
        "id": office.id,
        "address": office.address,
        "pid": os.getpid(),
        "started": office.started,
        "policy": office.machine.policy,
        "clients": tuple(office.machine.clients),
        "workers": {
            worker.address: {
                "type": "Worker",
                "wid": worker.wid,
                "name": worker.name,
                "host": worker.host,
                "pid": worker.pid,
                "status": "running" if worker.running else "closing",
                "nthreads": worker.nthreads,
                "memory_limit": worker.memory_limit,
                "resources": dict(worker.resources),
                "metrics": dict(office.metrics.get(worker.wid, {})),
            }
            for worker in office.machine.workers.values()
        },
    }


def who_has(office: Office, _client: ClientId, keys: tuple[Key, ...] | None) -> Any:
    """Pairs of a key and the addresses that hold it; of all keys in memory if None."""
    return queries.who_has(office.machine, keys)


def has_what(office: Office, _client: ClientId, workers: tuple[str, ...] | None) -> Any:
    """Pairs of a worker's address and the keys that it holds."""
    return tuple(
        (worker.address, tuple(task.key for task in worker.replicas))
        for worker in _chosen(office, workers)
    )


def holders(office: Office, client: ClientId, fids: tuple[Fid, ...]) -> Any:
    """Where the values of the client's futures are; see ``queries.holders``."""
    return queries.holders(office.machine, client, fids)


def nthreads(office: Office, _client: ClientId, workers: tuple[str, ...] | None) -> Any:
    """Pairs of a worker's address and its number of threads."""
    return tuple((w.address, w.nthreads) for w in _chosen(office, workers))


def processing(
    office: Office, _client: ClientId, workers: tuple[str, ...] | None
) -> Any:
    """Pairs of a worker's address and the keys of the tasks that it was given."""
    return tuple(
        (worker.address, tuple(a.task.key for a in worker.attempts.values()))
        for worker in _chosen(office, workers)
    )


def collisions(office: Office, _client: ClientId, _argument: None) -> Any:
    """The collision records that are kept, oldest first."""
    return tuple(tuple(record) for record in office.machine.records)


def tasks(office: Office, _client: ClientId, _argument: None) -> dict[str, int]:
    """How many tasks are in which state."""
    return queries.counts(office.machine)


def _chosen(office: Office, wanted: Iterable[str] | None) -> Iterable[WorkerState]:
    """The workers of these addresses or names, all if None."""
    known = office.machine.workers.values()
    if wanted is None:
        return known
    named = {w.name: w for w in known} | {w.address: w for w in known}
    unknown = [name for name in wanted if name not in named]
    if unknown:
        msg = f"no worker has the address or name {', '.join(map(str, unknown))}"
        raise ConfigError(msg)
    return [named[name] for name in wanted]


TOPICS: dict[str, Callable[[Office, ClientId, Any], Any]] = {
    "identity": identity,
    "who_has": who_has,
    "has_what": has_what,
    "holders": holders,
    "nthreads": nthreads,
    "processing": processing,
    "collisions": collisions,
    "tasks": tasks,
}
