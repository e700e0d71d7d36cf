"""The only list of transitions there is, and the only way to make one.

A transition gives back what the old state owns (``leave``), then takes what the
new one owns (``enter``). Waiting, ready and processing also own the links to the
dependencies that they wait for or compute from. Transitions never make further
ones: what follows goes onto the work-list, and :func:`settle` works it off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .entities import (
    ERRED,
    FORGOTTEN,
    MEMORY,
    PROCESSING,
    READY,
    RELEASED,
    STATE_NAMES,
    WAITING,
    TaskState,
)
from .state import SchedulerState
from .transitions import erred, links, memory, processing, ready, released, waiting

State = int
Step = Callable[[SchedulerState, TaskState, Any], None]

_ENTER: dict[State, Step] = {
    RELEASED: released.enter,
    WAITING: waiting.enter,
    READY: ready.enter,
    PROCESSING: processing.enter,
    MEMORY: memory.enter,
    ERRED: erred.enter,
    FORGOTTEN: released.forget,
}
_LEAVE: dict[State, Callable[[SchedulerState, TaskState], None]] = {
    READY: ready.leave,
    PROCESSING: processing.leave,
    MEMORY: memory.leave,
    ERRED: erred.leave,
}
_ACTIVE = {WAITING, READY, PROCESSING}


def _step(old: State, new: State) -> Step:
    """Leave ``old`` and enter ``new``, as one function."""
    leave = _LEAVE.get(old)
    enter = _ENTER[new]
    opens = new in _ACTIVE and old not in _ACTIVE
    closes = old in _ACTIVE and new not in _ACTIVE

    def plain(s: SchedulerState, task: TaskState, detail: Any) -> None:
        leave(s, task)  # type: ignore[misc]
        enter(s, task, detail)

    def opening(s: SchedulerState, task: TaskState, detail: Any) -> None:
        if leave is not None:
            leave(s, task)
        links.link(s, task)
        enter(s, task, detail)

    def closing(s: SchedulerState, task: TaskState, detail: Any) -> None:
        if leave is not None:
            leave(s, task)
        enter(s, task, detail)
        links.unlink(s, task)

    if opens:
        return opening
    if closes:
        return closing
    return enter if leave is None else plain


TRANSITIONS: dict[tuple[State, State], Step] = {
    (old, new): _step(old, new)
    for old, new in (
        (RELEASED, WAITING),  # needed, and a dependency has no value
        (RELEASED, READY),  # needed, and all dependencies have values
        (RELEASED, MEMORY),  # scattered
        (RELEASED, ERRED),  # needed, but a dependency is erred, or it is lost data
        (RELEASED, FORGOTTEN),  # neither needed nor depended on
        (WAITING, READY),  # the last missing dependency has its value
        (WAITING, MEMORY),  # a replica turned up
        (WAITING, ERRED),  # a dependency erred
        (WAITING, RELEASED),  # not needed any more
        (READY, WAITING),  # a dependency lost its value
        (READY, PROCESSING),  # a worker takes it
        (READY, MEMORY),  # a replica turned up
        (READY, ERRED),  # a dependency erred
        (READY, RELEASED),  # not needed any more
        (PROCESSING, READY),  # given back, failed with retries left, worker died
        (PROCESSING, WAITING),  # a dependency lost its value
        (PROCESSING, MEMORY),  # done, or a replica turned up
        (PROCESSING, ERRED),  # failed, or a dependency erred, or killed its workers
        (PROCESSING, RELEASED),  # not needed any more
        (MEMORY, RELEASED),  # not needed any more
        (MEMORY, WAITING),  # the last replica is lost, and so is a dependency
        (MEMORY, READY),  # the last replica is lost
        (MEMORY, ERRED),  # the last replica is lost, and it cannot be computed
        (ERRED, RELEASED),  # retried
        (ERRED, FORGOTTEN),  # neither wanted nor depended on
    )
}


def move(s: SchedulerState, task: TaskState, new: State, detail: Any = None) -> None:
    """Make one transition; ``detail`` is what the new state wants to know."""
    step = TRANSITIONS.get((task.state, new))
    assert step is not None, f"{task}: no transition to {STATE_NAMES[new]}"
    step(s, task, detail)


def start(s: SchedulerState, task: TaskState) -> None:
    """Take a task that is needed and has no value (any more) on its way to one."""
    if task.is_data:
        move(s, task, ERRED, erred.data_gone(task))
        return
    target = READY
    for dep in task.deps:
        state = dep.state
        if state == ERRED:
            # Never linked to its dependencies: new ones may be needed by nobody.
            s.touched.extend(task.deps)
            move(s, task, ERRED, dep.failure)
            return
        if state != MEMORY:
            target = WAITING
    TRANSITIONS[task.state, target](s, task, None)


def inputs_present(task: TaskState) -> bool:
    """All dependencies have values."""
    return all(dep.state == MEMORY for dep in task.deps)


def settle(s: SchedulerState) -> None:
    """Work off what transitions have set in motion, until nothing moves.

    An entry whose task has moved on in between is void: what moved it has put
    down its own consequences.
    """
    work = s.work
    to_ready = TRANSITIONS[WAITING, READY]
    while work:
        task, new, detail = work.pop()
        state = task.state
        if state == RELEASED:
            if new == WAITING and task.needed:
                start(s, task)
        elif new == READY:
            if state == WAITING:
                to_ready(s, task, None)
        elif new == WAITING:
            if state in (READY, PROCESSING) and not inputs_present(task):
                move(s, task, WAITING)
        elif new == ERRED and state in _ACTIVE:
            move(s, task, ERRED, detail)
