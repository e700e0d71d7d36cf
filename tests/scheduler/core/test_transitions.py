"""Each row of the table of states: what an event does to a task in each state."""

from collections.abc import Callable

import pytest

from raddle.protocol.core.messages.client import (
    Cancel,
    Cancelled,
    Erred,
    Finished,
    PendingAgain,
    Release,
    Retry,
)
from raddle.protocol.core.messages.worker import (
    Absent,
    CancelAttempts,
    Compute,
    Done,
    DropData,
    Failed,
    LongRunning,
    Rejected,
    Resumed,
    Started,
    Stored,
)
from testkit.core import ERROR, ME, OTHER, Recorder, task


class Case:
    """y(x) in some state; `fid` is its future, wanted by ME."""

    def __init__(self, n_workers: int = 2) -> None:
        self.r = Recorder(n_workers=n_workers)
        self.fid = self.r.submit(task("x"), task("y", "x"))
        self.x = self.r.compute() if n_workers else None

    def processing(self) -> Compute:
        assert self.x is not None
        self.r.compute_done(self.x)
        return self.r.compute()


def waiting() -> Case:
    case = Case()
    assert case.r.status("y") == "waiting"
    return case


def ready_blocked_by_slots() -> Case:
    """The only worker is busy with a task that could take long."""
    case = Case(n_workers=1)
    case.r.submit(task("busy"))
    case.r.unread.clear()
    case.r.compute_done(case.x)  # type: ignore[arg-type]
    case.r.take(Compute)
    assert case.r.status("y") in ("processing", "ready (slots)")
    return case


def ready_blocked_by_restrictions() -> Case:
    case = Case(n_workers=0)
    case.r = Recorder(n_workers=1)
    case.fid = case.r.submit(
        task("x"), task("y", "x", annotation=0), annotations=({"workers": ("other",)},)
    )
    case.r.compute_done(case.r.compute())
    assert case.r.status("y") == "ready (restrictions)"
    return case


def processing() -> Case:
    case = Case()
    case.processing()
    assert case.r.status("y") == "processing"
    return case


def memory() -> Case:
    case = Case()
    case.r.compute_done(case.processing())
    assert case.r.finished() == (case.fid,)
    case.r.take(DropData)
    assert case.r.status("y") == "memory"
    return case


def erred() -> Case:
    case = Case()
    case.r.fail(case.processing())
    assert case.r.erred() == {case.fid: (ERROR, "y")}
    case.r.take(DropData)
    assert case.r.status("y") == "erred"
    return case


def released() -> Case:
    """z(y) is in memory and wanted; y is only its lineage."""
    case = memory()
    zid = case.r.submit(task("z", "y"))
    case.r.compute_done(case.r.compute())
    assert case.r.finished() == (zid,)
    case.r.says(ME, Release((case.fid,)))
    case.r.take(DropData)
    assert case.r.status("y") == "released"
    return case


STATES: list[Callable[[], Case]] = [
    waiting, ready_blocked_by_slots, ready_blocked_by_restrictions, processing,
    memory, erred, released,
]  # fmt: skip
UNFINISHED = STATES[:4]


# Want, or needed by a dependent.


@pytest.mark.parametrize("state", UNFINISHED)
def test_another_want_of_an_unfinished_task_changes_nothing(
    state: Callable[[], Case],
) -> None:
    case = state()
    before = case.r.status("y")
    case.r.submit(task("x"), task("y", "x"), client=OTHER)
    assert case.r.status("y") == before


def test_a_want_of_a_task_in_memory_is_answered_at_once() -> None:
    case = memory()
    fid = case.r.submit(task("x"), task("y", "x"), client=OTHER)
    assert case.r.finished(OTHER) == (fid,)


def test_a_want_of_an_erred_task_gets_the_error_at_once() -> None:
    case = erred()
    fid = case.r.submit(task("x"), task("y", "x"), client=OTHER)
    assert case.r.erred(OTHER) == {fid: (ERROR, "y")}


def test_a_want_of_a_released_task_computes_it_and_its_inputs_again() -> None:
    case = released()
    fid = case.r.submit(task("x"), task("y", "x"), client=OTHER)
    assert case.r.status("y") == "waiting"
    case.r.compute_done(case.r.compute())
    case.r.compute_done(case.r.compute())
    assert case.r.finished(OTHER) == (fid,)


def test_a_task_that_needs_an_erred_one_errs_with_the_same_blame() -> None:
    case = erred()
    fid = case.r.submit(task("x"), task("y", "x"), task("z", "y"))
    assert case.r.erred() == {fid: (ERROR, "y")}


# A dependency gets its value, loses it, errs.


def test_the_last_missing_dependency_makes_a_task_ready() -> None:
    r = Recorder(n_workers=2)
    r.submit(task("a"), task("b"), task("c", "a", "b"))
    first, second = r.take(Compute)
    r.compute_done(first)
    assert r.status("c") == "waiting"
    r.compute_done(second)
    compute = r.compute()
    assert [d[0] for d in compute.deps] == [r.instance("a").tid, r.instance("b").tid]
    assert [d[1] for d in compute.deps] == [(1,), (2,)]


@pytest.mark.parametrize("state", [processing, ready_blocked_by_restrictions])
def test_a_lost_dependency_sends_a_task_back_to_waiting(
    state: Callable[[], Case],
) -> None:
    case = state()
    holder = case.r.instance("x").replicas[0]
    was_processing = case.r.status("y") == "processing"
    case.r.works(holder.wid, Absent(case.r.instance("x").tid, 0))
    assert case.r.status("y") == "waiting"
    case.r.compute()
    if was_processing:
        case.r.take(CancelAttempts)


def test_a_second_lost_dependency_is_waited_for_as_well() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("a"), task("b"), task("c", "a", "b", annotation=0),
             annotations=({"workers": ("other",)},))  # fmt: skip
    r.compute_done(r.compute())
    r.compute_done(r.compute())
    assert r.status("c") == "ready (restrictions)"
    r.leave(1)
    assert r.status("c") == "waiting"
    assert r.instance("c").missing == 2


@pytest.mark.parametrize("key", ["y", "z"])
def test_a_failed_dependency_fails_waiting_dependents(key: str) -> None:
    r = Recorder(n_workers=1)
    fids = r.submit(
        task("x", fn="bad"), task("y", "x"), task("z", "y"), wants=("y", "z")
    )
    r.fail(r.compute())
    assert r.erred() == dict.fromkeys(fids, (ERROR, "x"))
    assert r.status(key) == "erred"


def test_an_erred_task_lets_go_of_its_other_inputs() -> None:
    r = Recorder(n_workers=2)
    fid = r.submit(task("good"), task("bad", fn="bad"), task("y", "good", "bad"))
    good, bad = r.take(Compute)
    r.compute_done(good)
    r.fail(bad)
    assert r.erred() == {fid: (ERROR, "bad")}
    assert r.to(1, DropData).tids == (r.instance("good").tid,)
    assert r.status("good") == "released"


def test_a_dependent_of_two_tasks_errs_while_it_runs_elsewhere() -> None:
    """Erring cancels the attempts of dependents that are not of the failed kind."""
    r = Recorder(n_workers=2)
    r.submit(task("a"), task("b", "a"), task("c", "a", "b"), wants=("c",))
    r.compute_done(r.compute())
    r.fail(r.compute())
    assert r.status("c") == "erred"
    r.take(Erred)
    r.take(DropData)


# What the current attempt does.


def test_started_and_long_running_and_resumed_count_slots() -> None:
    case = processing()
    attempt = case.r.instance("y").attempt
    assert attempt is not None
    worker = attempt.worker
    case.r.works(worker.wid, Started((attempt.aid,)))
    assert attempt.started
    case.r.works(worker.wid, LongRunning(attempt.aid))
    assert worker.n_slots == 0
    assert worker.occupancy == 0.0
    case.r.works(worker.wid, Resumed(attempt.aid))
    assert worker.n_slots == 1
    assert worker.occupancy > 0.0


def test_a_long_running_attempt_makes_room_for_another_task() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("a"), task("b"), wants=("a", "b"))
    first = r.compute()
    r.works(1, LongRunning(first.aid))
    second = r.compute()
    assert second.tid != first.tid
    r.works(1, r.done_message(first), r.done_message(second))
    assert len(r.finished()) == 2


def test_done_finishes_and_frees_the_inputs() -> None:
    case = Case()
    y = case.processing()
    x_at = case.r.instance("x").replicas[0].wid
    case.r.compute_done(y, nbytes=1234)
    assert case.r.to(ME, Finished).items == ((case.fid, 1234, "int", None),)
    assert case.r.to(x_at, DropData).tids == (case.r.instance("x").tid,)
    assert case.r.status("x") == "released"


def test_failed_with_retries_left_runs_again() -> None:
    r = Recorder(n_workers=1)
    fid = r.submit(task("x", annotation=0), annotations=({"retries": 2},))
    for _ in range(2):
        r.fail(r.compute())
    last = r.compute()
    r.fail(last)
    assert r.erred() == {fid: (ERROR, "x")}


@pytest.mark.parametrize("why", ["yielded", "rescheduled", "closing"])
def test_a_rejected_attempt_is_handed_out_again(why: str) -> None:
    r = Recorder(n_workers=1)
    r.submit(task("x"))
    first = r.compute()
    r.works(1, Rejected(first.aid, 0, why))
    second = r.compute()
    assert second.aid > first.aid
    assert r.instance("x").retries == 0


def test_inputs_that_a_worker_cannot_get_send_the_task_elsewhere() -> None:
    """Even to a worker that is busy, while the first one has nothing to do."""
    r = Recorder(n_workers=2)
    r.submit(task("busy"))
    r.compute(1)
    r.submit(task("x"))
    first = r.compute(2)
    r.works(2, Rejected(first.aid, 0, "inputs-unavailable"))
    assert r.compute(1).tid == first.tid


# Stored.


@pytest.mark.parametrize("state", [waiting, ready_blocked_by_restrictions, processing])
def test_a_stored_value_is_adopted_by_a_needed_task(state: Callable[[], Case]) -> None:
    case = state()
    case.r.unread.clear()
    was_processing = case.r.status("y") == "processing"
    case.r.works(1, Stored(0, ((case.r.instance("y").tid, 77),)))
    assert case.r.finished() == (case.fid,)
    assert case.r.instance("y").origin == 77
    assert bool(case.r.take(CancelAttempts)) == (was_processing or state is waiting)
    case.r.take(DropData)


def test_a_stored_value_of_a_task_in_memory_is_a_replica() -> None:
    case = memory()
    y = case.r.instance("y")
    other = 3 - y.replicas[0].wid
    case.r.works(other, Stored(0, ((y.tid, y.origin),)))
    assert [w.wid for w in y.replicas] == [3 - other, other]
    case.r.works(other, Stored(0, ((y.tid, y.origin),)))
    assert len(y.replicas) == 2


def test_a_stored_value_of_another_origin_is_dropped_there() -> None:
    case = memory()
    y = case.r.instance("y")
    other = 3 - y.replicas[0].wid
    case.r.works(other, Stored(0, ((y.tid, y.origin + 1),)))
    assert case.r.to(other, DropData).tids == (y.tid,)
    assert len(y.replicas) == 1


@pytest.mark.parametrize("state", [erred, released])
def test_a_stored_value_that_nobody_needs_is_dropped_there(
    state: Callable[[], Case],
) -> None:
    case = state()
    tid = case.r.instance("y").tid
    case.r.works(2, Stored(99, ((tid, 1),)))
    assert case.r.to(2, DropData).tids == (tid,)


def test_a_stored_value_of_a_forgotten_task_is_dropped_there() -> None:
    case = memory()
    tid = case.r.instance("y").tid
    case.r.says(ME, Release((case.fid,)))
    case.r.take(DropData)
    case.r.works(1, Stored(99, ((tid, 1),)))
    assert case.r.to(1, DropData).tids == (tid,)


# Not needed any more.


@pytest.mark.parametrize("state", STATES)
def test_what_nobody_needs_is_forgotten(state: Callable[[], Case]) -> None:
    case = state()
    was_processing = case.r.status("y") == "processing"
    for client in list(case.r.machine.clients.values()):
        case.r.unread.clear()
        case.r.says(client.cid, Release(tuple(client.futures)))
        assert bool(case.r.take(CancelAttempts)) == (
            client.cid == ME and (was_processing or state in UNFINISHED[:2])
        )
    assert not case.r.machine.tasks
    for worker in case.r.machine.workers.values():
        assert not worker.attempts
        assert not worker.replicas


def test_a_released_task_with_dependents_stays_as_lineage() -> None:
    case = released()
    assert case.r.status("y") == "released"
    assert case.r.status("x") == "released"
    assert case.r.instance("y").replicas == ()


# Retry and cancel.


def test_retry_computes_an_erred_task_again() -> None:
    case = erred()
    case.r.says(ME, Retry((case.fid,)))
    assert case.r.to(ME, PendingAgain).fids == (case.fid,)
    case.r.compute_done(case.r.compute())
    case.r.compute_done(case.r.compute())
    assert case.r.finished() == (case.fid,)


def test_retry_takes_the_blamed_and_the_blaming_along() -> None:
    r = Recorder(n_workers=1)
    fids = r.submit(
        task("x", fn="bad"), task("y", "x"), task("z", "y"), wants=("x", "y", "z")
    )
    r.fail(r.compute())
    r.take(Erred)
    r.says(ME, Retry((fids[1],)))
    assert sorted(r.to(ME, PendingAgain).fids) == sorted(fids)
    assert [r.status(k) for k in "xyz"] == ["processing", "waiting", "waiting"]
    for _ in range(3):
        r.compute_done(r.compute())
        r.take(Finished)


@pytest.mark.parametrize("state", [*STATES[:6]])
def test_forced_cancel_takes_the_futures_of_all_clients(
    state: Callable[[], Case],
) -> None:
    case = state()
    other = case.r.submit(task("x"), task("y", "x"), client=OTHER)
    case.r.unread.clear()
    case.r.says(ME, Cancel((case.fid,), True, "enough"))
    assert case.r.to(ME, Cancelled) == Cancelled((case.fid,), ME, "enough")
    assert case.r.to(OTHER, Cancelled) == Cancelled((other,), ME, "enough")
    assert not case.r.exists("y")
    case.r.unread.clear()


def test_a_cancel_that_is_not_forced_leaves_the_others_alone() -> None:
    case = processing()
    case.r.submit(task("x"), task("y", "x"), client=OTHER)
    case.r.says(ME, Cancel((case.fid,), False, "enough"))
    assert case.r.to(ME, Cancelled) == Cancelled((case.fid,), ME, "enough")
    assert case.r.status("y") == "processing"


# Stale facts.


@pytest.mark.parametrize("kind", ["done", "failed", "rejected", "started"])
def test_a_fact_about_an_attempt_that_is_over_is_ignored_and_counted(kind: str) -> None:
    case = Case()
    y = case.processing()
    case.r.says(ME, Cancel((case.fid,), False, ""))
    case.r.unread.clear()
    before = case.r.machine.stale_facts
    wid = 1 if y.aid % 2 else 2
    message = {
        "done": Done(y.aid, 0, 1, "int", 0.1, None),
        "failed": Failed(y.aid, 0, ERROR, "", 0.1),
        "rejected": Rejected(y.aid, 0, "yielded"),
        "started": Started((y.aid,)),
    }
    case.r.works(wid, message[kind])
    assert case.r.machine.stale_facts == before + 1
    assert not case.r.machine.tasks
