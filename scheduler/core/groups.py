"""How long a task will probably take: a moving average per group of keys."""

from __future__ import annotations

import re

from raddle.protocol.core.ids import Key, group_of

from .entities import Group, TaskState
from .state import SchedulerState

TASK_OVERHEAD = 50e-6
"""Seconds a worker spends around the user's function: so no task is free."""
IDLE_GROUPS_MAX = 10_000
"""Durations of groups without tasks are kept for the next graph, up to this many."""

_WEIGHT = 0.5
_TAIL = re.compile(r"[0-9a-f]{8,}|\d+").fullmatch


def group_for(s: SchedulerState, key: Key) -> Group:
    """The group of ``key``, made if it is the first of it."""
    text = key
    while type(text) is tuple and text:
        text = text[0]
    if type(text) is str:
        # Most names are a word and a token: the word alone is looked up (and
        # cached), where the whole name would be analysed once per task.
        head, _, tail = text.rpartition("-")
        if head and _TAIL(tail):
            text = head
    name = group_of(text)
    group = s.groups.get(name)
    if group is None:
        group = s.groups[name] = Group(name)
    return group


def predicted(s: SchedulerState, task: TaskState) -> float:
    """Seconds that the task will occupy a thread."""
    seconds = task.group.seconds
    if seconds < 0.0:
        return s.settings.unknown_task_duration
    return seconds + TASK_OVERHEAD


def learn(task: TaskState, seconds: float) -> None:
    """A task of the group took so long."""
    group = task.group
    if group.seconds < 0.0:
        group.seconds = seconds
    else:
        group.seconds += (seconds - group.seconds) * _WEIGHT


def forget_idle(s: SchedulerState) -> None:
    """Keep the memory of groups that are gone within its bound, oldest first."""
    excess = len(s.groups) - IDLE_GROUPS_MAX
    if excess > 0:
        gone = [g.name for g in s.groups.values() if not g.n_tasks][:excess]
        for name in gone:
            del s.groups[name]
