"""Hand ready tasks to workers, as far as workers are open, most urgent first."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace

from raddle.protocol.core.ids import Wid
from raddle.protocol.core.messages import Frames
from raddle.protocol.core.messages.worker import Compute

from . import functions
from .entities import PROCESSING, READY, Attempt, ReadyQueue, TaskState, WorkerState
from .groups import predicted
from .placement import place, refresh
from .state import SchedulerState
from .table import move

Entry = tuple[float, int, int, int]


def schedule(s: SchedulerState) -> None:
    """Serve every queue that got a task or an open worker in this event."""
    touched = s.touched_workers
    for worker in touched:
        worker.touched = False
        refresh(s, worker)
        for queue in worker.queues:
            if queue.n_ready and not queue.dirty:
                queue.dirty = True
                s.dirty_queues.append(queue)
    touched.clear()
    queues = s.dirty_queues
    if not queues:
        return
    s.dirty_queues = []
    for queue in queues:
        queue.dirty = False
    if len(queues) == 1:
        queue = queues[0]
        while _serve_one(s, queue, _first(s, queue)):
            pass
    else:
        _serve_by_priority(s, queues)


def _serve_by_priority(s: SchedulerState, queues: list[ReadyQueue]) -> None:
    """Serve the queue whose first task is the most urgent, again and again."""
    heads: list[tuple[Entry, ReadyQueue]] = []
    for queue in queues:
        if _first(s, queue) is not None:
            heappush(heads, (queue.ready[0], queue))
    while heads:
        _, queue = heads[0]
        served = _serve_one(s, queue, _first(s, queue))
        if served and _first(s, queue) is not None:
            heapreplace(heads, (queue.ready[0], queue))
        else:
            heappop(heads)


def _first(s: SchedulerState, queue: ReadyQueue) -> TaskState | None:
    """The most urgent task of the queue; entries out of date are removed."""
    heap = queue.ready
    tasks = s.tasks
    if not queue.n_ready:
        heap.clear()
        return None
    while heap:
        task = tasks.get(heap[0][3])
        if task is not None and task.state == READY and task.queue is queue:
            if len(heap) > 2 * queue.n_ready + 64:
                _compact(s, queue)
            return task
        heappop(heap)
    return None


def _compact(s: SchedulerState, queue: ReadyQueue) -> None:
    """Released tasks leave their entries behind; most entries are such by now."""
    tasks = s.tasks
    live = {}
    for entry in sorted(queue.ready, reverse=True):
        task = tasks.get(entry[3])
        if task is not None and task.state == READY and task.queue is queue:
            live[entry[3]] = entry
    queue.ready = list(live.values())
    heapify(queue.ready)


def _serve_one(s: SchedulerState, queue: ReadyQueue, task: TaskState | None) -> bool:
    """Hand over the queue's first task; False if there is none, or no worker."""
    if task is None:
        return False
    worker = place(s, queue, task)
    if worker is None:
        return False
    hand_over(s, task, worker, heappop(queue.ready))
    return True


def hand_over(
    s: SchedulerState, task: TaskState, worker: WorkerState, priority: Entry
) -> None:
    """Start an attempt of the task on the worker."""
    s.aid += 1
    attempt = Attempt(s.aid, task, worker, predicted(s, task))
    move(s, task, PROCESSING, attempt)
    refresh(s, worker)
    fn = 0
    function = task.function
    if function is not None:
        fn = function.fn
        if worker.wid not in function.workers:
            functions.send(s, worker, function)
    deps: tuple[tuple[int, tuple[Wid, ...], int, Frames | None], ...] = ()
    if task.inputs:
        deps = tuple([
            (dep.tid, wids_of(dep), dep.nbytes, dep.frames) for dep in task.inputs
        ])  # fmt: skip
    s.to_worker(
        worker,
        Compute(
            s.aid, task.tid, task.key, task.form, fn, task.payload, deps, priority,  # type: ignore[arg-type]
            task.queue.resources,
        ),
    )  # fmt: skip


def wids_of(task: TaskState) -> tuple[Wid, ...]:
    """Who holds the value."""
    replicas = task.replicas
    if len(replicas) == 1:
        return replicas[0].wids
    return tuple([worker.wid for worker in replicas])
