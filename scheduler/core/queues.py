"""Which workers a task may run on: restrictions, and a queue for each set of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .entities import ReadyQueue, WorkerState
from .state import SchedulerState


def queue_for(
    s: SchedulerState,
    names: Iterable[str] | None,
    resources: dict[str, float] | None,
    *,
    allow_other: bool = False,
) -> ReadyQueue:
    """The queue of these restrictions; tasks of equal restrictions share one.

    ``names`` are addresses, names or hosts of workers. With ``allow_other`` they
    only bind while at least one such worker is here.
    """
    wanted = frozenset(names) if names else None
    fresh = ReadyQueue(wanted, resources or None, allow_other=allow_other)
    if wanted is None and not resources:
        return s.default_queue
    queue = s.queues.get(fresh.signature)
    if queue is None:
        queue = s.queues[fresh.signature] = fresh
        for worker in s.workers.values():
            _consider(s, queue, worker)
        _let_others(s, queue)
    return queue


def drop_queue(s: SchedulerState, queue: ReadyQueue) -> None:
    """The last task with these restrictions is gone."""
    del s.queues[queue.signature]
    for worker in queue.workers.values():
        worker.queues.remove(queue)
    queue.workers.clear()


def worker_came(s: SchedulerState, worker: WorkerState) -> None:
    """Let a worker take tasks."""
    for queue in s.queues.values():
        _consider(s, queue, worker)
        if queue.strays:
            _recall_others(queue)
        _let_others(s, queue)
    s.touch_worker(worker)


def worker_went(s: SchedulerState, worker: WorkerState) -> None:
    """Let a worker take no more tasks."""
    queues, worker.queues = worker.queues, []
    for queue in queues:
        del queue.workers[worker.wid]
    for queue in queues:
        _let_others(s, queue)
    worker.stamp = -1
    s.idle.pop(worker, None)
    s.crowded.pop(worker, None)


def _admit(s: SchedulerState, queue: ReadyQueue, worker: WorkerState) -> None:
    queue.workers[worker.wid] = worker
    worker.queues.append(queue)
    s.touch_worker(worker)


def _suffices(queue: ReadyQueue, worker: WorkerState) -> bool:
    """The worker has, in all, what one of these tasks takes."""
    have = worker.resources
    need = queue.resources
    return need is None or all(have.get(n, 0.0) >= need[n] for n in need)


def _named(queue: ReadyQueue, worker: WorkerState) -> bool:
    names = queue.names
    return names is None or bool(names & {worker.address, worker.name, worker.host})


def _consider(s: SchedulerState, queue: ReadyQueue, worker: WorkerState) -> None:
    """Admit the worker if it meets the restrictions to the letter."""
    if worker.running and _named(queue, worker) and _suffices(queue, worker):
        _admit(s, queue, worker)


def _let_others(s: SchedulerState, queue: ReadyQueue) -> None:
    """With ``allow_other`` and nobody of that name here, anybody will do."""
    if queue.allow_other and not queue.workers:
        queue.strays = True
        for worker in s.workers.values():
            if worker.running and _suffices(queue, worker):
                _admit(s, queue, worker)


def _recall_others(queue: ReadyQueue) -> None:
    """Somebody of that name is here again: the stand-ins are excused."""
    named = [w for w in queue.workers.values() if _named(queue, w)]
    if not named:
        return
    for worker in list(queue.workers.values()):
        if worker not in named:
            del queue.workers[worker.wid]
            worker.queues.remove(queue)
    queue.strays = False
    queue.open.clear()


def can_run(queue: ReadyQueue, worker: WorkerState) -> bool:
    """The worker may take a task of this queue, and has the resources free now."""
    if worker.wid not in queue.workers:
        return False
    need = queue.resources
    have = worker.available
    return need is None or all(have[name] >= need[name] for name in need)


def blocked_by(queue: ReadyQueue) -> str:
    """Why a ready task of this queue is not with a worker."""
    return "slots" if queue.workers else "restrictions"


def describe(queue: ReadyQueue) -> dict[str, Any]:
    """The restrictions in the form that annotations have."""
    return {
        "workers": sorted(queue.names) if queue.names else None,
        "allow_other_workers": queue.allow_other,
        "resources": queue.resources,
    }
