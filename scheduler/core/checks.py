"""The invariants of the scheduler's state: S1 to S14 of the design, and the counters.

Everything that is kept twice for speed is recomputed here and compared.
"""

from __future__ import annotations

from collections import Counter

from .actions import ToWorker
from .entities import (
    ERRED,
    FORGOTTEN,
    MEMORY,
    NEWS,
    PROCESSING,
    READY,
    RELEASED,
    WAITING,
    TaskState,
    WorkerState,
)
from .state import SchedulerState
from .transitions.memory import size_of

ACTIVE = (WAITING, READY, PROCESSING)


def check(s: SchedulerState) -> None:
    """Raise AssertionError with the name of the invariant that does not hold."""
    for left in (s.work, s.touched, s.changed, s.new_wants, s.unsent):
        assert not left, f"S0: left undone: {left}"
    for task in s.tasks.values():
        _check_task(s, task)
        _check_links(s, task)
        _check_wants(s, task)
    _check_names(s)
    _check_counts(s)
    for worker in s.workers.values():
        _check_worker(s, worker)
    for action in s.actions:
        if type(action) is ToWorker:
            assert action.wid in s.workers, f"S14: {action} to a worker that is gone"


def _check_task(s: SchedulerState, task: TaskState) -> None:
    state = task.state
    assert s.tasks.get(task.tid) is task, f"S1: {task} is listed as another"
    assert RELEASED <= state < FORGOTTEN, f"S1: {task} is listed"
    attempt = task.attempt
    assert (state == PROCESSING) == (attempt is not None), f"S2: {task} and {attempt}"
    if attempt is not None:
        worker = attempt.worker
        assert attempt.task is task, f"S2: attempt {attempt.aid} of {task}"
        assert worker.attempts.get(attempt.aid) is attempt, f"S2: {worker} and {task}"
        assert s.workers.get(worker.wid) is worker, f"S2: {task} is with {worker}"
    assert (state == MEMORY) == bool(task.replicas), f"S3: {task} {task.replicas}"
    for worker in task.replicas:
        assert s.workers.get(worker.wid) is worker, f"S3: {task} is at {worker}"
        assert task in worker.replicas, f"S3: {worker} does not list {task}"
    assert len(set(task.replicas)) == len(task.replicas), f"S3: {task} twice"
    missing = sum(dep.state != MEMORY for dep in task.deps)
    if state in (READY, PROCESSING):
        assert not missing, f"S4: {task} lacks {missing} inputs"
    if state == WAITING:
        assert missing, f"S5: {task} waits for nothing"
    assert task.missing == (missing if state == WAITING else 0), f"S5: {task}"
    assert (state == ERRED) == (task.failure is not None), f"S1: {task} {task.failure}"
    assert task.frames is None or state == MEMORY, f"S3: {task} keeps its bytes"
    assert not (task.is_data and state in ACTIVE), f"S1: data {task}"


def _check_links(s: SchedulerState, task: TaskState) -> None:
    waiters = 0
    for other in task.each_dependent():
        assert task in other.deps, f"S6: {task} lists {other} as a dependent"
        assert s.tasks.get(other.tid) is other, f"S6: {other} is gone"
        waiters += other.state in ACTIVE
    assert task.n_waiters == waiters, f"S6: {task} counts {task.n_waiters}, {waiters}"
    for dep in task.deps:
        assert task in dep.each_dependent(), f"S6: {dep} does not list {task}"
        assert dep.tid < task.tid, f"S10: {task} depends on the later {dep}"
        if task.state in ACTIVE:
            assert dep.state != ERRED, f"S6: {task} waits for {dep}"
    assert set(task.inputs) == set(task.deps), f"S10: {task}"
    if task.state in (*ACTIVE, MEMORY):
        assert task.needed, f"S7: nobody needs {task}"
    if task.state == RELEASED:
        assert not task.needed, f"S8: {task} is needed"
    kept = task.wants is not None or task.dependents is not None
    assert kept, f"S9: nobody knows {task}"


def _check_wants(s: SchedulerState, task: TaskState) -> None:
    for client, fid in task.each_want():
        assert client.futures.get(fid) is task, f"S9: future {fid} of {client}, {task}"
        known = client is s.nobody or s.clients.get(client.cid) is client
        assert known, f"S9: {task} is wanted by {client}"
    if task.wants is not None:
        assert task.told == NEWS[task.state], f"S9: {task}: futures told {task.told}"


def _check_names(s: SchedulerState) -> None:
    named = 0
    for key, known in s.names.items():
        instances = s.instances(key)
        named += len(instances)
        assert type(known) is not list or len(known) > 1, f"S11: {key!r}: {known}"
        for task in instances:
            assert s.tasks.get(task.tid) is task, f"S11: {key!r} means {task}"
            assert task.key == key, f"S11: {key!r} means {task}"
    assert named == len(s.tasks), f"S11: {named} names of {len(s.tasks)} tasks"
    for client in (*s.clients.values(), s.nobody):
        for fid, task in client.futures.items():
            wanted = (client, fid) in tuple(task.each_want())
            assert wanted, f"S9: future {fid} of {client} for {task}"


def _check_counts(s: SchedulerState) -> None:
    tasks = s.tasks.values()
    active = sum(task.state in ACTIVE for task in tasks)
    assert s.unfinished == active, f"S12: {s.unfinished} unfinished, found {active}"
    groups = Counter(task.group for task in tasks)
    for group in s.groups.values():
        assert group.n_tasks == groups[group], f"S12: group {group.name}"
    users = Counter(t.function for t in tasks if t.function is not None)
    users.update(f for c in s.clients.values() for f in c.functions.values())
    for function in s.functions.values():
        assert function.users == users[function], f"S12: function {function.fn}"
    assert set(users) <= set(s.functions.values()), "S12: a function in use is gone"
    kept = sum(size_of(t.frames) for t in tasks if t.frames is not None)
    assert s.inline_bytes == kept, f"S12: {s.inline_bytes} bytes kept, found {kept}"
    assert set(s.avoid) <= set(s.tasks), "S12: hints for tasks that are gone"
    ready = Counter(task.queue for task in tasks if task.state == READY)
    listed = Counter(task.queue for task in tasks)
    for queue in s.queues.values():
        assert queue.n_ready == ready[queue], f"S12: {queue.n_ready}, {ready[queue]}"
        assert queue.n_tasks == listed[queue], f"S12: queue of {listed[queue]} tasks"
        if queue is not s.default_queue:
            assert queue.n_tasks, f"S12: queue {queue.signature} is left over"
        tids = {entry[3] for entry in queue.ready}
        for task in tasks:
            if task.state == READY and task.queue is queue:
                assert task.tid in tids, f"S1: {task} is in no queue"
        for wid, worker in queue.workers.items():
            assert s.workers.get(wid) is worker, f"S12: {worker} is gone"
            assert worker.running, f"S12: {worker} takes no tasks"
            assert queue in worker.queues, f"S12: {worker}"
    assert set(listed) <= set(s.queues.values()), "S12: a queue in use is gone"


def _check_worker(s: SchedulerState, worker: WorkerState) -> None:
    for aid, attempt in worker.attempts.items():
        assert attempt.task.attempt is attempt, f"S2: attempt {aid} of {attempt.task}"
    for task in worker.replicas:
        assert worker in task.replicas, f"S3: {worker} lists {task}"
    slots = [a for a in worker.attempts.values() if a.slot]
    assert worker.n_slots == len(slots), f"S12: {worker} slots {worker.n_slots}"
    seconds = sum(a.seconds for a in slots)
    close = abs(worker.occupancy - seconds) <= 1e-6 * (1.0 + seconds)
    assert close, f"S12: {worker} occupancy {worker.occupancy}, found {seconds}"
    yielding = sum(a.yielding for a in worker.attempts.values())
    assert worker.n_yielding == yielding, f"S12: {worker} yields {worker.n_yielding}"
    free = dict(worker.resources)
    for attempt in worker.attempts.values():
        for name, amount in (attempt.task.queue.resources or {}).items():
            free[name] -= amount
    for name, amount in free.items():
        left = worker.available[name]
        assert abs(left - amount) < 1e-6, f"S12: {worker} has {left} of {name}"
        assert left > -1e-6, f"S12: {worker} gave more {name} than it has"
    assert not worker.drops, f"S13: {worker} was not told of {worker.drops}"
    for number, _ in worker.pending_drops:
        assert number <= worker.drop_number, f"S13: {worker} drop {number}"
    loaded = worker in s.crowded
    assert loaded == worker.loaded, f"S12: {worker} crowded: {loaded}"
    if worker.running:
        idle = worker.n_slots + worker.zombies < worker.nthreads
        assert idle == (worker in s.idle), f"S12: {worker} idle: {idle}"
        crowded = not idle and worker.n_slots > worker.nthreads
        assert crowded == loaded, f"S12: {worker} crowded: {crowded}"
