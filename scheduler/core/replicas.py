"""What workers report about values: who holds what, and who could not get what."""

from __future__ import annotations

from raddle.protocol.core.ids import Tid, Wid
from raddle.protocol.core.messages.worker import (
    Absent,
    Confirm,
    Holders,
    Miss,
    Present,
    Stored,
)
from raddle.protocol.errors import ProtocolError

from .entities import MEMORY, PROCESSING, READY, WAITING, TaskState, WorkerState
from .facts import void
from .loss import lose_replica
from .scheduling import wids_of
from .state import SchedulerState
from .table import move
from .transitions.memory import Value

NOT_FOUND = "not-found"


def _check_tid(s: SchedulerState, tid: Tid) -> None:
    if tid > s.tid:
        raise ProtocolError(f"task {tid} was never handed out")


def stored(s: SchedulerState, worker: WorkerState, message: Stored) -> None:
    """The worker fetched values: replicas, unless the world has moved on."""
    for tid, origin in message.items:
        _check_tid(s, tid)
        worker.unreachable.pop(tid, None)
        task = s.tasks.get(tid)
        if void(worker, tid, message.seen):
            s.stale_facts += 1
        elif task is None:
            s.drop_at(worker, tid)
        elif task.state == MEMORY:
            if worker in task.replicas:
                continue
            if task.origin != origin:
                s.drop_at(worker, tid)
            else:
                add_replica(task, worker)
        elif WAITING <= task.state <= PROCESSING:
            # The value that is to be computed (again) is here: adopt it.
            value = Value(worker.alone, origin, task.nbytes, task.type_name, None)
            move(s, task, MEMORY, value)
        else:
            s.drop_at(worker, tid)


def add_replica(task: TaskState, worker: WorkerState) -> None:
    """The worker holds the value, too."""
    if worker not in task.replicas:
        task.replicas = (*task.replicas, worker)
        worker.replicas[task] = None


def absent(s: SchedulerState, worker: WorkerState, message: Absent) -> None:
    """The worker does not hold the value: the word of the accused itself."""
    tid = message.tid
    _check_tid(s, tid)
    askers = s.confirming.pop((tid, worker.wid), [])
    task = s.tasks.get(tid)
    if task is None or void(worker, tid, message.seen):
        return
    if task.state == MEMORY and worker in task.replicas:
        s.log(20, f"worker {worker.name!r} lost its replica of {task.key!r}")
        lose_replica(s, task, worker, f"worker {worker.name!r} does not hold it")
    if task.state == MEMORY:
        _tell_holders(s, task, askers)


def present(s: SchedulerState, worker: WorkerState, message: Present) -> None:
    """The worker does hold the value: whoever missed it may ask there again."""
    tid = message.tid
    _check_tid(s, tid)
    askers = s.confirming.pop((tid, worker.wid), [])
    task = s.tasks.get(tid)
    if task is not None and task.state == MEMORY:
        _tell_holders(s, task, askers)


def _tell_holders(s: SchedulerState, task: TaskState, askers: list[Wid]) -> None:
    for wid in askers:
        asker = s.workers.get(wid)
        if asker is not None:
            s.to_worker(asker, Holders(task.tid, wids_of(task)))


def miss(s: SchedulerState, worker: WorkerState, message: Miss) -> None:
    """The worker could not get a value from another one.

    That the value was not found there is hearsay: the accused is asked. That the
    accused is out of reach says nothing about the value, and the worker is not
    sent there again; if there is no other holder, its tasks go elsewhere.
    """
    tid, accused_wid, why = message
    _check_tid(s, tid)
    if accused_wid > s.wid:
        raise ProtocolError(f"worker {accused_wid} was never here")
    task = s.tasks.get(tid)
    if task is None or task.state != MEMORY:
        # Attempts that wait for it were cancelled when it went.
        return
    vain = {worker.wid, accused_wid}
    if why == NOT_FOUND:
        vain |= worker.unreachable.get(tid, set())
    else:
        vain |= worker.unreachable.setdefault(tid, set())
        worker.unreachable[tid].add(accused_wid)
    others = tuple(wid for wid in wids_of(task) if wid not in vain)
    if others:
        s.to_worker(worker, Holders(tid, others))
    accused = s.workers.get(accused_wid)
    if why == NOT_FOUND:
        if accused is not None and accused in task.replicas:
            _ask_the_accused(s, tid, accused, None if others else worker)
    elif not others:
        _move_away(s, task, worker)


def _ask_the_accused(
    s: SchedulerState, tid: Tid, accused: WorkerState, asker: WorkerState | None
) -> None:
    """Have a worker say itself whether it holds the value, and who waits for that."""
    askers = s.confirming.get((tid, accused.wid))
    if askers is None:
        askers = s.confirming[tid, accused.wid] = []
        s.to_worker(accused, Confirm(tid))
    if asker is not None:
        askers.append(asker.wid)


def _move_away(s: SchedulerState, dep: TaskState, worker: WorkerState) -> None:
    """The worker can reach no holder: its tasks go where one can be reached.

    When every worker that a task may run on has failed so, the value is computed
    anew: replicas that nobody can reach are none.
    """
    del worker.unreachable[dep.tid]
    exhausted = False
    for attempt in list(worker.attempts.values()):
        task = attempt.task
        if attempt.started or dep not in task.deps:
            continue
        avoid = s.avoid.setdefault(task.tid, set())
        avoid.add(worker.wid)
        move(s, task, READY)
        if avoid.issuperset(task.queue.workers):
            exhausted = True
            avoid.clear()
    if not exhausted:
        return
    names = ", ".join(repr(holder.name) for holder in dep.replicas)
    s.log(20, f"no worker can reach {names} for {dep.key!r}: it is computed again")
    for holder in dep.replicas:
        s.drop_at(holder, dep.tid)
        lose_replica(s, dep, holder, f"worker {holder.name!r} cannot be reached")
