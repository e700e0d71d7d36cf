"""What the shell may ask about the state; nothing here changes it."""

from __future__ import annotations

from collections.abc import Iterable

from raddle.protocol.core.ids import Address, ClientId, Fid, Key, Tid, Wid
from raddle.protocol.core.messages import Frames

from .entities import STATE_NAMES, TaskState
from .queues import blocked_by
from .state import SchedulerState

Holder = tuple[Wid, Address]


def n_tasks(s: SchedulerState) -> int:
    """How many instances there are."""
    return len(s.tasks)


def counts(s: SchedulerState) -> dict[str, int]:
    """How many instances are in each state (looks at all of them)."""
    found = dict.fromkeys(STATE_NAMES[:-1], 0)
    for task in s.tasks.values():
        found[STATE_NAMES[task.state]] += 1
    return found


def status(s: SchedulerState, key: Key) -> str | None:
    """The state of the primary instance; a ready one says what blocks it."""
    task = s.primary(key)
    if task is None:
        return None
    name = STATE_NAMES[task.state]
    return f"ready ({blocked_by(task.queue)})" if name == "ready" else name


def holders(
    s: SchedulerState, client: ClientId, fids: Iterable[Fid]
) -> tuple[tuple[Fid, Tid, tuple[Holder, ...], Frames | None], ...]:
    """Where the values of a client's futures are.

    Items ``(fid, tid, ((wid, address), ...), frames | None)``; futures that have no
    task are left out.
    """
    known = s.clients.get(client)
    found = []
    for fid in fids:
        task = known.futures.get(fid) if known is not None else None
        if task is not None:
            found.append((fid, task.tid, _places(task), task.frames))
    return tuple(found)


def who_has(
    s: SchedulerState, keys: Iterable[Key] | None = None
) -> tuple[tuple[Key, tuple[Address, ...]], ...]:
    """Which addresses hold the primary instance of each key.

    Without ``keys``: of every key whose primary instance is in memory.
    """
    found = []
    for key in s.names if keys is None else keys:
        task = s.primary(key)
        places = () if task is None else tuple(a for _, a in _places(task))
        if places or keys is not None:
            found.append((key, places))
    return tuple(found)


def who_has_futures(
    s: SchedulerState, client: ClientId, fids: Iterable[Fid]
) -> tuple[tuple[Fid, tuple[Address, ...]], ...]:
    """Which addresses hold the instance behind each of a client's futures."""
    return tuple(
        (fid, tuple(address for _, address in places))
        for fid, _, places, _ in holders(s, client, fids)
    )


def _places(task: TaskState) -> tuple[Holder, ...]:
    return tuple((w.wid, w.address) for w in task.replicas)


def processing(s: SchedulerState) -> dict[Address, tuple[Key, ...]]:
    """The keys that each worker has been handed and has not ended."""
    return {
        w.address: tuple(a.task.key for a in w.attempts.values())
        for w in s.workers.values()
    }


def nthreads(s: SchedulerState) -> dict[Address, int]:
    """Threads of each worker."""
    return {w.address: w.nthreads for w in s.workers.values()}
