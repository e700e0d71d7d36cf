"""The garbage pass: what nobody needs has no value, what nobody names is forgotten."""

from __future__ import annotations

from .entities import ERRED, FINISHED, FORGOTTEN, NEWS, RELEASED
from .state import SchedulerState
from .table import move, settle


def collect(s: SchedulerState) -> None:
    """Look at everything this event touched, until nothing more goes."""
    touched = s.touched
    while touched:
        task = touched.pop()
        if task.wants is not None or task.n_waiters:
            continue
        state = task.state
        if state == FORGOTTEN:
            continue
        if state not in (RELEASED, ERRED):
            move(s, task, RELEASED)
        if task.dependents is None:
            move(s, task, FORGOTTEN)


def release_detached(s: SchedulerState) -> None:
    """Fire-and-forget tasks that came to their end are wanted by nobody now."""
    futures = s.nobody.futures
    for task in s.changed:
        if NEWS[task.state] >= FINISHED and futures.pop(task.tid, None) is not None:
            task.drop_want(s.nobody, task.tid)
            s.touched.append(task)


def clean_up(s: SchedulerState) -> None:
    """Settle what is in motion, then collect, until neither finds anything."""
    settle(s)
    if s.nobody.futures and s.changed:
        release_detached(s)
    collect(s)
    assert not s.work, "a release set something in motion"
