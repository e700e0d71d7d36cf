"""Erred: there is an error in place of the value."""

from __future__ import annotations

from raddle.protocol.errors import DataLost, to_wire

from ..entities import ERRED, PROCESSING, WAITING, Failure, TaskState
from ..state import SchedulerState


def enter(s: SchedulerState, task: TaskState, failure: Failure) -> None:
    """Own the error; dependents under way get the same."""
    task.state = ERRED
    task.missing = 0
    task.failure = failure
    if task.wants is not None:
        s.changed.append(task)
    if task.n_waiters:
        for other in task.each_dependent():
            if WAITING <= other.state <= PROCESSING:
                s.work.append((other, ERRED, failure))


def leave(s: SchedulerState, task: TaskState) -> None:
    """Forget the error."""
    task.failure = None
    if task.wants is not None:
        s.changed.append(task)


def data_gone(task: TaskState, why: str = "") -> Failure:
    """The failure of scattered data that no worker holds any more."""
    why = why or (
        "its last future was released and its replicas dropped before it was "
        "needed again"
    )
    return Failure(to_wire(DataLost(key=task.key, why=why)), task.key)
