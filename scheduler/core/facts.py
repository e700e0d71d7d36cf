"""What workers report about attempts. Facts about attempts that are over are void."""

from __future__ import annotations

from raddle.protocol.core.ids import Aid, Tid
from raddle.protocol.core.messages.worker import (
    Done,
    Failed,
    LongRunning,
    Rejected,
    Resumed,
    Started,
    WorkerClosing,
)
from raddle.protocol.errors import ProtocolError

from .entities import ERRED, MEMORY, READY, Attempt, Failure, WorkerState
from .groups import learn, predicted
from .queues import worker_went
from .state import SchedulerState
from .table import move
from .transitions.memory import Value
from .transitions.processing import end, free_slot

INPUTS_UNAVAILABLE = "inputs-unavailable"


def current(s: SchedulerState, worker: WorkerState, aid: Aid) -> Attempt | None:
    """The attempt, if it is still the worker's; else the fact is stale."""
    attempt = worker.attempts.get(aid)
    if attempt is None:
        if aid > s.aid:
            raise ProtocolError(f"attempt {aid} was never handed out")
        s.stale_facts += 1
    return attempt


def void(worker: WorkerState, tid: Tid, seen: int) -> bool:
    """Rule R1: the worker was told to drop the value after it found this fact."""
    pending = worker.pending_drops
    while pending and pending[0][0] <= seen:
        pending.popleft()
    return tid in worker.drops or any(tid in tids for _, tids in pending)


def started(s: SchedulerState, worker: WorkerState, message: Started) -> None:
    """User code runs: the attempt cannot be yielded, and it is a suspect."""
    for aid in message.aids:
        attempt = current(s, worker, aid)
        if attempt is not None:
            _note_started(s, worker, attempt)


def _note_started(s: SchedulerState, worker: WorkerState, attempt: Attempt) -> None:
    attempt.started = True
    if attempt.yielding:
        # It is not coming back: the worker may be asked for others.
        attempt.yielding = False
        worker.n_yielding -= 1
        s.touch_worker(worker)


def long_running(s: SchedulerState, worker: WorkerState, message: LongRunning) -> None:
    """The attempt gave its slot back."""
    attempt = current(s, worker, message.aid)
    if attempt is not None:
        _note_started(s, worker, attempt)
        if attempt.slot:
            free_slot(worker, attempt)
            s.touch_worker(worker)


def resumed(s: SchedulerState, worker: WorkerState, message: Resumed) -> None:
    """The attempt holds a slot again."""
    attempt = current(s, worker, message.aid)
    if attempt is not None and not attempt.slot:
        attempt.slot = True
        attempt.seconds = predicted(s, attempt.task)
        worker.n_slots += 1
        worker.occupancy += attempt.seconds
        s.touch_worker(worker)


def done(s: SchedulerState, worker: WorkerState, message: Done) -> None:
    """The value is with the worker."""
    aid, seen, nbytes, type_name, seconds, frames = message
    attempt = worker.attempts.get(aid)
    if attempt is None:
        current(s, worker, aid)
        return
    task = attempt.task
    end(s, attempt)
    if seconds > 0.0:
        # A value that was there already took no time, which teaches nothing.
        learn(task, seconds)
    if (worker.drops or worker.pending_drops) and void(worker, task.tid, seen):
        s.stale_facts += 1
        move(s, task, READY)
        return
    move(s, task, MEMORY, Value(worker.alone, aid, nbytes, type_name, frames))


def failed(s: SchedulerState, worker: WorkerState, message: Failed) -> None:
    """User code raised, or the task could not be run at all."""
    attempt = current(s, worker, message.aid)
    if attempt is None:
        return
    task = attempt.task
    end(s, attempt)
    if task.retries > 0:
        task.retries -= 1
        move(s, task, READY)
    else:
        move(s, task, ERRED, Failure(message.error, task.key))


def rejected(s: SchedulerState, worker: WorkerState, message: Rejected) -> None:
    """The attempt is given back; that is neither a failure nor a retry."""
    attempt = current(s, worker, message.aid)
    if attempt is None:
        return
    task = attempt.task
    end(s, attempt)
    if message.why == INPUTS_UNAVAILABLE:
        s.avoid.setdefault(task.tid, set()).add(worker.wid)
    move(s, task, READY)


def closing(s: SchedulerState, worker: WorkerState, message: WorkerClosing) -> None:
    """The worker ends on purpose: it takes nothing more.

    What it has is taken back when its link ends, which will be soon.
    """
    if worker.running:
        worker.running = False
        worker_went(s, worker)
        s.log(20, f"worker {worker.name!r} at {worker.address} closes: {message.why}")
