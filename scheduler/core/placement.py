"""Which worker gets a ready task: where it would begin to run soonest.

No choice looks at all workers: a task without inputs goes to the open worker with
the least to do, one with inputs there or to a holder of its largest input.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from .entities import ReadyQueue, TaskState, WorkerState
from .queues import can_run
from .state import SchedulerState

BANDWIDTH = 1e9
"""Bytes per second assumed between workers."""
FETCH_SECONDS = 0.0002
"""What asking for a value costs on top of its bytes."""
HOLDERS_MAX = 8
"""Holders of an input that are looked at, of however many there are."""

_COMPACT_BEYOND = 64


def refresh(s: SchedulerState, worker: WorkerState) -> None:
    """File the worker anew, by its load, wherever open workers are looked up.

    Its load is below zero while it has a free thread (the fraction of threads
    that are free), and else the seconds until one will be free.
    """
    stamp = s.stamp = s.stamp + 1
    worker.stamp = stamp
    if not worker.running:
        return
    nthreads = worker.nthreads
    n_slots = worker.n_slots + worker.zombies
    if n_slots < nthreads:
        load = n_slots / nthreads - 1.0
        s.idle[worker] = None
        if worker.loaded:
            worker.loaded = False
            del s.crowded[worker]
    else:
        load = worker.occupancy / nthreads
        s.idle.pop(worker, None)
        if (worker.n_slots > nthreads) is not worker.loaded:
            worker.loaded = not worker.loaded
            if worker.loaded:
                s.crowded[worker] = None
            else:
                del s.crowded[worker]
        if (
            worker.occupancy >= worker.queue_limit
            or worker.n_slots >= s.settings.queue_tasks_max
        ):
            return
    entry = (load, stamp, worker)
    for queue in worker.queues:
        heap = queue.open
        heappush(heap, entry)
        if len(heap) > 2 * len(queue.workers) + _COMPACT_BEYOND:
            queue.open = [e for e in heap if e[2].stamp == e[1]]
            heapify(queue.open)


def place(s: SchedulerState, queue: ReadyQueue, task: TaskState) -> WorkerState | None:
    """The worker for a ready task, or None: it must wait for one to be open."""
    heap = queue.open
    while heap:
        load, stamp, worker = heap[0]
        if worker.stamp != stamp or (
            queue.resources is not None and not can_run(queue, worker)
        ):
            # Out of date; or short of resources, and filed anew when it is not.
            heappop(heap)
            continue
        if task.group.seconds < 0.0 and load >= 0.0:
            # How long it runs is unknown: it goes to a free thread or nowhere.
            return None
        if s.avoid and task.tid in s.avoid:
            worker = _avoiding(s, queue, task, worker)
        if not task.deps:
            return worker
        return _nearest(s, queue, task, worker)
    return None


def wait_of(worker: WorkerState) -> float:
    """Seconds until the worker could begin another task."""
    if worker.n_slots < worker.nthreads:
        return 0.0
    return worker.occupancy / worker.nthreads


def transfer_seconds(task: TaskState, worker: WorkerState) -> float:
    """Seconds to bring the task's inputs to the worker."""
    seconds = 0.0
    held = worker.replicas
    for dep in task.deps:
        if dep.frames is None and dep not in held:
            seconds += dep.nbytes / BANDWIDTH + FETCH_SECONDS
    return seconds


def _nearest(
    s: SchedulerState, queue: ReadyQueue, task: TaskState, least: WorkerState
) -> WorkerState:
    """The least loaded worker, or a holder of the largest input if that is sooner."""
    largest: TaskState | None = None
    for dep in task.deps:
        if dep.frames is None and (largest is None or dep.nbytes > largest.nbytes):
            largest = dep
    if largest is None:
        return least
    best = least
    cost = wait_of(least) + transfer_seconds(task, least)
    if cost <= 0.0:
        return least
    unknown = task.group.seconds < 0.0
    avoid = s.avoid.get(task.tid, ()) if s.avoid else ()
    for worker in largest.replicas[:HOLDERS_MAX]:
        if worker is least or worker.wid in avoid or not can_run(queue, worker):
            continue
        wait = wait_of(worker)
        if wait and (unknown or worker.n_slots >= s.settings.queue_tasks_max):
            continue
        other = wait + transfer_seconds(task, worker)
        if other < cost:
            best, cost = worker, other
    return best


def _avoiding(
    s: SchedulerState, queue: ReadyQueue, task: TaskState, least: WorkerState
) -> WorkerState:
    """Another worker than those where the task's inputs could not be had.

    Rare enough to look at all of them. Who holds an input comes first.
    """
    avoid = s.avoid[task.tid]
    others = [
        w for w in queue.workers.values() if w.wid not in avoid and can_run(queue, w)
    ]
    if not others:
        return least
    return min(others, key=lambda w: (transfer_seconds(task, w), wait_of(w)))
