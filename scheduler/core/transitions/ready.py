"""Ready: all dependencies have values; blocked by slots or by restrictions."""

from __future__ import annotations

from heapq import heappush

from ..entities import READY, TaskState
from ..state import SchedulerState


def enter(s: SchedulerState, task: TaskState, _detail: None) -> None:
    """Take a place in the queue of its restrictions."""
    task.state = READY
    task.queue.n_ready += 1
    enqueue(s, task)


def enqueue(s: SchedulerState, task: TaskState) -> None:
    """Add an entry of the task's present priority to its queue."""
    queue = task.queue
    heappush(queue.ready, (-task.priority, task.generation, task.order, task.tid))
    if not queue.dirty:
        queue.dirty = True
        s.dirty_queues.append(queue)


def leave(_s: SchedulerState, task: TaskState) -> None:
    """Give the place back; the entry itself is skipped when its turn comes."""
    task.queue.n_ready -= 1
