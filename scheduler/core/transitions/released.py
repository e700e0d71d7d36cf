"""Released: known by name and run_spec, without a value and without a need for one."""

from __future__ import annotations

from .. import functions
from ..entities import FORGOTTEN, RELEASED, TaskState
from ..queues import drop_queue
from ..state import SchedulerState


def enter(_s: SchedulerState, task: TaskState, _detail: None) -> None:
    """Own nothing."""
    task.state = RELEASED
    task.missing = 0


def forget(s: SchedulerState, task: TaskState, _detail: None) -> None:
    """Remove the instance, and the name with its last instance."""
    task.state = FORGOTTEN
    del s.tasks[task.tid]
    key = task.key
    known = s.names[key]
    if known is task:
        del s.names[key]
    else:
        assert type(known) is list
        # With the primary gone, the oldest variant is what the name means.
        known.remove(task)
        if len(known) == 1:
            s.names[key] = known[0]
    for dep in task.deps:
        dep.drop_dependent(task)
        if dep.dependents is None and dep.wants is None:
            s.touched.append(dep)
    task.group.n_tasks -= 1
    function = task.function
    if function is not None:
        functions.drop_user(s, function)
    queue = task.queue
    queue.n_tasks -= 1
    if not queue.n_tasks and queue is not s.default_queue:
        drop_queue(s, queue)
    if s.avoid:
        s.avoid.pop(task.tid, None)
