"""The links between a task under way and the dependencies it needs."""

from __future__ import annotations

from ..entities import RELEASED, WAITING, TaskState
from ..state import SchedulerState


def link(s: SchedulerState, task: TaskState) -> None:
    """The task is under way: its dependencies are needed, whatever that takes."""
    s.unfinished += 1
    for dep in task.deps:
        dep.n_waiters += 1
        if dep.state == RELEASED:
            s.work.append((dep, WAITING, None))


def unlink(s: SchedulerState, task: TaskState) -> None:
    """The task needs its dependencies no more: the garbage pass looks at them."""
    s.unfinished -= 1
    for dep in task.deps:
        dep.n_waiters -= 1
        if not dep.n_waiters and dep.wants is None:
            s.touched.append(dep)
