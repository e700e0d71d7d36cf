"""Ask queued tasks back from a loaded worker when another one has nothing to do."""

from __future__ import annotations

from itertools import islice

from raddle.protocol.core.messages.worker import YieldAttempts

from .entities import WorkerState
from .placement import transfer_seconds
from .queues import can_run
from .state import SchedulerState

RECALL_SECONDS = 0.001
"""A recall costs a round trip: between ticks it must have more than that to move."""
VICTIMS_MAX = 16
"""Crowded workers that are looked at for the most loaded one."""
LOOKED_AT_MAX = 64
"""Attempts that are looked at, and so at most recalled, at a time."""


def recall(s: SchedulerState, *, ticking: bool) -> None:
    """Where a worker has a free thread, and hence nothing is ready for it, find work.

    On a tick predictions count for less: what has been queued since then was
    predicted to be done by now.
    """
    thief = next(iter(s.idle))
    victims = [w for w in islice(s.crowded, VICTIMS_MAX) if not w.n_yielding]
    if not victims:
        return
    victim = max(victims, key=lambda w: w.occupancy / w.nthreads)
    wait = victim.occupancy / victim.nthreads
    if wait > RECALL_SECONDS or ticking:
        _ask_back(s, victim, thief, wait)


def _ask_back(
    s: SchedulerState, victim: WorkerState, thief: WorkerState, wait: float
) -> None:
    """About half of what waits there, the latest first, if the thief is the better place."""
    surplus = victim.n_slots - victim.nthreads
    wanted = (surplus + 1) // 2
    aids = []
    latest = reversed(victim.attempts.values())
    for attempt in islice(latest, min(surplus, LOOKED_AT_MAX)):
        task = attempt.task
        if attempt.started or not attempt.slot or not can_run(task.queue, thief):
            continue
        if transfer_seconds(task, thief) >= wait:
            continue
        attempt.yielding = True
        aids.append(attempt.aid)
        if len(aids) == wanted:
            break
    if aids:
        victim.n_yielding = len(aids)
        s.to_worker(victim, YieldAttempts(tuple(aids)))
