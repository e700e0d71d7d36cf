"""What annotations ask for, and how a resubmission's demands join the first ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from raddle.protocol.errors import InvalidGraph

from .entities import PROCESSING, READY, ReadyQueue, TaskState
from .queues import describe, drop_queue, queue_for
from .state import SchedulerState
from .transitions import ready

NAMES = ("priority", "retries", "workers", "allow_other_workers", "resources")


class Demand(NamedTuple):
    """One set of annotations, checked."""

    priority: float = 0
    retries: int = 0
    workers: tuple[str, ...] | None = None
    allow_other_workers: bool = False
    resources: dict[str, float] | None = None


PLAIN = Demand()


def demand_of(annotation: Mapping[str, Any]) -> Demand:
    """Check one annotation; ``InvalidGraph`` says what is wrong with it."""
    unknown = set(annotation) - set(NAMES)
    if unknown:
        raise InvalidGraph(f"unknown annotation {min(unknown)!r}; known are {NAMES}")
    priority = annotation.get("priority") or 0
    retries = annotation.get("retries") or 0
    workers = annotation.get("workers") or None
    resources = annotation.get("resources") or None
    if not _number(priority):
        raise _bad("priority", priority, "a number")
    if type(retries) is not int or retries < 0:
        raise _bad("retries", retries, "a whole number, 0 or more")
    if isinstance(workers, str):
        workers = (workers,)
    if workers is not None and not (
        isinstance(workers, tuple | list) and all(isinstance(w, str) for w in workers)
    ):
        raise _bad("workers", workers, "a list of addresses, names or hosts")
    if resources is not None and not (
        isinstance(resources, Mapping)
        and all(
            isinstance(k, str) and _number(v) and v >= 0 for k, v in resources.items()
        )
    ):
        raise _bad("resources", resources, "a mapping of names to amounts, 0 or more")
    return Demand(
        priority,
        retries,
        tuple(workers) if workers else None,
        bool(annotation.get("allow_other_workers")),
        dict(resources) if resources else None,
    )


def _number(value: object) -> bool:
    return type(value) in (int, float) and value == value  # noqa: PLR0124 (no NaN)


def _bad(name: str, value: object, wanted: str) -> InvalidGraph:
    return InvalidGraph(f"annotation {name}={value!r} is not {wanted}")


def queue_of(s: SchedulerState, demand: Demand) -> ReadyQueue:
    """The queue of the demand's restrictions."""
    if demand.workers is None and demand.resources is None:
        return s.default_queue
    return queue_for(
        s, demand.workers, demand.resources, allow_other=demand.allow_other_workers
    )


def merge(s: SchedulerState, task: TaskState, demand: Demand) -> None:
    """The same task was submitted again: heed both demands, shrink neither."""
    if demand.priority > task.priority:
        task.priority = demand.priority
        if task.state == READY:
            # A second, better entry; the old one is skipped when its turn comes.
            ready.enqueue(s, task)
    if demand.retries > task.retries and task.state <= PROCESSING:
        task.retries = demand.retries
    if task.state < PROCESSING:
        _merge_restrictions(s, task, demand)


def _merge_restrictions(s: SchedulerState, task: TaskState, demand: Demand) -> None:
    old = task.queue
    names = old.names
    if demand.workers is not None:
        asked = frozenset(demand.workers)
        names = asked if names is None else names & asked
        if not names:
            s.log(
                20,
                f"task {task.key!r} was submitted again for workers {sorted(asked)}, "
                f"none of which the first submission allows: it keeps {describe(old)}",
            )
            return
    resources = dict(old.resources or {})
    for name, amount in (demand.resources or {}).items():
        resources[name] = max(amount, resources.get(name, 0))
    allow_other = old.allow_other or demand.allow_other_workers
    if old.names is not None and demand.workers is not None:
        allow_other = old.allow_other and demand.allow_other_workers
    queue = queue_for(s, names, resources, allow_other=allow_other)
    if queue is old:
        return
    was_ready = task.state == READY
    if was_ready:
        ready.leave(s, task)
    task.queue = queue
    queue.n_tasks += 1
    if was_ready:
        ready.enqueue(s, task)
        queue.n_ready += 1
    old.n_tasks -= 1
    if not old.n_tasks and old is not s.default_queue:
        drop_queue(s, old)
