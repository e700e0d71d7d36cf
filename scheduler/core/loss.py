"""What is lost with a worker, or with a replica, and how it comes back."""

from __future__ import annotations

from raddle.protocol.core.messages.worker import PeersLeft
from raddle.protocol.errors import DataLost, KilledWorker, to_wire

from .entities import ERRED, READY, RELEASED, Attempt, Failure, TaskState, WorkerState
from .events import WorkerLeft
from .queues import worker_went
from .state import SchedulerState
from .table import move, start

TASKS_NAMED_MAX = 10
"""Keys of tasks that a KilledWorker error names."""


def lose_replica(
    s: SchedulerState, task: TaskState, worker: WorkerState, why: str
) -> None:
    """The worker does not hold the value (any more)."""
    del worker.replicas[task]
    task.replicas = tuple(w for w in task.replicas if w is not worker)
    if task.replicas:
        return
    if task.is_data:
        error = DataLost(key=task.key, why=why)
        move(s, task, ERRED, Failure(to_wire(error), task.key))
    elif task.needed:
        start(s, task)
    else:
        move(s, task, RELEASED)
        s.touched.append(task)


def worker_left(s: SchedulerState, event: WorkerLeft) -> None:
    """A worker is gone, with its attempts and its replicas."""
    worker = s.workers.pop(event.wid, None)
    if worker is None:
        return
    if worker.running:
        worker.running = False
        worker_went(s, worker)
    worker.drops.clear()
    worker.cancels.clear()
    for other in s.workers.values():
        s.to_worker(other, PeersLeft((worker.wid,)))
    attempts = list(worker.attempts.values())
    suspects = [] if event.safe else _suspects(worker, attempts)
    held = list(worker.replicas)
    again = 0
    for attempt in attempts:
        task = attempt.task
        # Not cancelled: there is nobody to tell.
        _take_back(attempt)
        if attempt in suspects:
            task.suspicious += 1
            if task.suspicious > s.settings.allowed_failures:
                failure = _killed(s, task, worker, event, suspects)
                move(s, task, ERRED, failure)
                continue
        again += 1
        move(s, task, READY)
    why = f"worker {worker.name!r} at {worker.address} left ({event.why})"
    for task in held:
        again += task.needed and not task.is_data and len(task.replicas) == 1
        lose_replica(s, task, worker, why)
    _log(s, worker, event, again)
    _forget_questions(s, worker)


def _log(s: SchedulerState, worker: WorkerState, event: WorkerLeft, again: int) -> None:
    """Say who left and what it costs; a death is worth a warning."""
    code = event.exitcode
    known = "" if code is None else f", exit code {code}"
    if code is not None and code < 0:
        known = f", killed by signal {-code}"
    s.log(
        20 if event.safe else 30,
        f"worker {worker.name!r} at {worker.address} (host {worker.host}, pid "
        f"{worker.pid}{known}) {'left' if event.safe else 'died'}: {event.why}; "
        f"{again} tasks are computed again",
    )


def _take_back(attempt: Attempt) -> None:
    """End an attempt whose worker is no more: there are no slots to give back."""
    del attempt.worker.attempts[attempt.aid]
    attempt.task.attempt = None


def _suspects(worker: WorkerState, attempts: list[Attempt]) -> list[Attempt]:
    """Which attempts may have brought the worker down.

    Those known to have started; a task that ends its process at once does so
    before the worker could say that it started, hence else the first handed over.
    """
    return [a for a in attempts if a.started] or attempts[: worker.nthreads]


def _killed(
    s: SchedulerState,
    task: TaskState,
    worker: WorkerState,
    event: WorkerLeft,
    suspects: list[Attempt],
) -> Failure:
    error = KilledWorker(
        key=task.key,
        worker=worker.name,
        host=worker.host,
        pid=worker.pid,
        exitcode=event.exitcode,
        tasks=tuple(a.task.key for a in suspects[:TASKS_NAMED_MAX]),
        deaths=task.suspicious,
        allowed=s.settings.allowed_failures,
    )
    return Failure(to_wire(error), task.key)


def _forget_questions(s: SchedulerState, worker: WorkerState) -> None:
    """Questions to the worker about replicas will not be answered."""
    for tid, wid in list(s.confirming):
        if wid == worker.wid:
            del s.confirming[tid, wid]
