"""In memory: at least one worker holds the value."""

from __future__ import annotations

from typing import NamedTuple

from raddle.protocol.core.ids import Aid
from raddle.protocol.core.messages import Frames

from ..entities import (
    MEMORY,
    PROCESSING,
    READY,
    WAITING,
    TaskState,
    WorkerState,
)
from ..state import SchedulerState


class Value(NamedTuple):
    """What is known of a value that came into being.

    ``origin`` is the attempt that made it (0 for scattered data); ``frames`` the
    value itself where it is small.
    """

    workers: tuple[WorkerState, ...]
    origin: Aid
    nbytes: int
    type_name: str
    frames: Frames | None


def enter(s: SchedulerState, task: TaskState, value: Value) -> None:
    """Own the replicas; dependents that waited for this one last become ready."""
    task.state = MEMORY
    task.missing = 0
    workers, task.origin, task.nbytes, task.type_name, frames = value
    task.replicas = workers
    for worker in workers:
        worker.replicas[task] = None
    if frames is not None:
        keep_inline(s, task, frames)
    if task.wants is not None:
        s.changed.append(task)
    if task.n_waiters:
        for other in task.each_dependent():
            if other.state == WAITING:
                other.missing -= 1
                if not other.missing:
                    s.work.append((other, READY, None))


def leave(s: SchedulerState, task: TaskState) -> None:
    """Drop what replicas are left; dependents under way wait again."""
    tid = task.tid
    for worker in task.replicas:
        del worker.replicas[task]
        s.drop_at(worker, tid)
    task.replicas = ()
    if task.frames is not None:
        s.inline_bytes -= size_of(task.frames)
        task.frames = None
    if task.wants is not None:
        s.changed.append(task)
    if task.n_waiters:
        for other in task.each_dependent():
            state = other.state
            if state == WAITING:
                other.missing += 1
            elif state in (READY, PROCESSING):
                s.work.append((other, WAITING, None))


def keep_inline(s: SchedulerState, task: TaskState, frames: Frames) -> None:
    """Keep a small value while the task is in memory, within the bound for all."""
    size = size_of(frames)
    if s.inline_bytes + size <= s.settings.inline_bytes_max:
        s.inline_bytes += size
        task.frames = frames


def size_of(frames: Frames) -> int:
    """Bytes of a serialized value."""
    first = frames[0] if len(frames) == 1 else None
    if type(first) is bytes:
        return len(first)
    return sum([memoryview(frame).nbytes for frame in frames])
