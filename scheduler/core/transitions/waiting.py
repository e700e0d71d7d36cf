"""Waiting: needed, and at least one dependency has no value yet."""

from __future__ import annotations

from ..entities import MEMORY, WAITING, TaskState
from ..state import SchedulerState


def enter(_s: SchedulerState, task: TaskState, _detail: None) -> None:
    """Count what is missing."""
    task.state = WAITING
    missing = 0
    for dep in task.deps:
        if dep.state != MEMORY:
            missing += 1
    task.missing = missing
