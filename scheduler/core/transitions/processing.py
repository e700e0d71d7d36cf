"""Processing: one attempt is with a worker."""

from __future__ import annotations

from ..entities import PROCESSING, Attempt, TaskState, WorkerState
from ..state import SchedulerState


def enter(_s: SchedulerState, task: TaskState, attempt: Attempt) -> None:
    """Own the attempt, and through it a slot and resources of the worker."""
    task.state = PROCESSING
    task.attempt = attempt
    worker = attempt.worker
    worker.attempts[attempt.aid] = attempt
    worker.n_slots += 1
    worker.occupancy += attempt.seconds
    resources = task.queue.resources
    if resources is not None:
        for name, amount in resources.items():
            worker.available[name] -= amount


def leave(s: SchedulerState, task: TaskState) -> None:
    """Give the attempt back; if the worker does not know yet, cancel it there."""
    attempt = task.attempt
    if attempt is not None:
        end(s, attempt)
        s.cancel_at(attempt.worker, attempt.aid)


def end(s: SchedulerState, attempt: Attempt) -> None:
    """The attempt is over: slot, occupancy and resources are free again."""
    worker = attempt.worker
    del worker.attempts[attempt.aid]
    if attempt.yielding:
        worker.n_yielding -= 1
    if attempt.slot:
        free_slot(worker, attempt)
    task = attempt.task
    resources = task.queue.resources
    if resources is not None:
        for name, amount in resources.items():
            worker.available[name] += amount
    task.attempt = None
    if not worker.touched:
        worker.touched = True
        s.touched_workers.append(worker)


def free_slot(worker: WorkerState, attempt: Attempt) -> None:
    """The attempt does not count against the worker's threads (any more)."""
    worker.n_slots -= 1
    if worker.n_slots:
        worker.occupancy -= attempt.seconds
    else:
        worker.occupancy = 0.0
    attempt.slot = False
