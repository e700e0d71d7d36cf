"""Who holds what: hearsay, silence, and workers that cannot reach each other."""

import pytest

from raddle.protocol.core.messages.client import Finished, PendingAgain, Release
from raddle.protocol.core.messages.worker import (
    Absent,
    CancelAttempts,
    Compute,
    Confirm,
    Done,
    DropData,
    Holders,
    Miss,
    Present,
    Stored,
)
from raddle.scheduler.core.actions import DropPeer
from testkit.core import ME, Recorder, task


def two_inputs(n_workers: int = 2) -> tuple[Recorder, Compute]:
    """y(a, b): a is on worker 1, the larger b and y's attempt are on worker 2."""
    r = Recorder(n_workers=n_workers)
    r.submit(task("a"), task("b"), task("y", "a", "b"))
    a, b = r.take(Compute)
    r.compute_done(a, nbytes=10)
    r.compute_done(b, nbytes=10**6)
    return r, r.compute(2)


def test_not_found_is_hearsay_and_the_accused_is_asked() -> None:
    r, y = two_inputs()
    a = r.instance("a")
    r.works(2, Miss(a.tid, 1, "not-found"))
    assert r.to(1, Confirm).tid == a.tid
    assert r.status("y") == "processing"
    r.works(1, Present(a.tid, 0))
    assert r.to(2, Holders) == Holders(a.tid, (1,))
    assert y.aid in r.machine.workers[2].attempts


def test_a_confirmed_absence_is_a_loss() -> None:
    r, y = two_inputs()
    a = r.instance("a")
    r.works(2, Miss(a.tid, 1, "not-found"))
    r.to(1, Confirm)
    r.works(1, Absent(a.tid, 0))
    assert r.to(2, CancelAttempts).aids == (y.aid,)
    assert r.status("y") == "waiting"
    assert r.compute().tid == a.tid


def test_the_accused_is_asked_once_and_all_askers_are_answered() -> None:
    r = Recorder(n_workers=3)
    r.submit(task("a"))
    a = r.compute(1)
    r.compute_done(a)
    r.take(Finished)
    r.works(2, Miss(a.tid, 1, "not-found"))
    r.to(1, Confirm)
    r.works(3, Miss(a.tid, 1, "not-found"))
    r.done()
    r.works(1, Present(a.tid, 0))
    assert len(r.take(Holders)) == 2
    assert not r.machine.confirming


def test_other_holders_are_named_at_once() -> None:
    r = Recorder(n_workers=3)
    r.submit(task("a"))
    a = r.compute(1)
    r.compute_done(a)
    r.take(Finished)
    r.works(2, Stored(0, ((a.tid, a.aid),)))
    r.works(3, Miss(a.tid, 1, "not-found"))
    assert r.to(3, Holders) == Holders(a.tid, (2,))
    r.to(1, Confirm)
    r.works(1, Absent(a.tid, 0))
    assert [w.wid for w in r.instance("a").replicas] == [2]
    r.works(3, Miss(a.tid, 2, "unreachable"))
    r.done()


def test_a_miss_of_what_is_not_in_memory_needs_no_answer() -> None:
    r, _ = two_inputs()
    a = r.instance("a")
    r.works(1, Absent(a.tid, 0))
    r.unread.clear()
    r.works(2, Miss(a.tid, 1, "not-found"))
    r.works(2, Miss(r.instance("b").tid, 1, "not-found"))
    assert r.take(Holders) == []


def test_a_worker_that_misses_a_value_it_should_hold_itself_is_asked_too() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("a"))
    a = r.compute()
    r.compute_done(a)
    r.take(Finished)
    r.works(1, Miss(a.tid, 1, "not-found"))
    assert r.to(1, Confirm).tid == a.tid
    r.works(1, Absent(a.tid, 0))
    assert r.compute().tid == a.tid
    r.take(PendingAgain)


def test_a_question_to_a_worker_that_dies_is_forgotten() -> None:
    r, _ = two_inputs()
    r.works(2, Miss(r.instance("a").tid, 1, "not-found"))
    r.to(1, Confirm)
    r.leave(1)
    assert not r.machine.confirming
    r.unread.clear()


# Unreachable.


def test_unreachable_never_removes_a_replica_but_moves_the_task() -> None:
    r, y = two_inputs()
    a = r.instance("a")
    r.works(2, Miss(a.tid, 1, "unreachable"))
    assert r.to(2, CancelAttempts).aids == (y.aid,)
    again = r.compute(1)
    assert again.tid == y.tid
    assert [w.wid for w in a.replicas] == [1]


def test_a_task_that_started_has_its_inputs_and_stays() -> None:
    r, y = two_inputs()
    r.machine.workers[2].attempts[y.aid].started = True
    r.works(2, Miss(r.instance("a").tid, 1, "unreachable"))
    r.done()


def test_holders_that_were_out_of_reach_are_not_offered_again() -> None:
    r = Recorder(n_workers=4)
    r.submit(task("a"))
    a = r.compute(1)
    r.compute_done(a, nbytes=10)
    r.take(Finished)
    for wid in (2, 3):
        r.works(wid, Stored(0, ((a.tid, a.aid),)))
    r.works(4, Miss(a.tid, 1, "unreachable"))
    assert r.to(4, Holders).wids == (2, 3)
    r.works(4, Miss(a.tid, 3, "unreachable"))
    assert r.to(4, Holders).wids == (2,)
    r.works(4, Miss(a.tid, 2, "unreachable"))
    r.done()
    assert not r.machine.workers[4].unreachable


def test_workers_that_cannot_reach_each_other_do_not_hang_a_task() -> None:
    """a is on 1, b on 2, and neither reaches the other: something is made anew."""
    r, y = two_inputs()
    a, b = r.instance("a"), r.instance("b")
    r.works(2, Miss(a.tid, 1, "unreachable"))
    r.take(CancelAttempts)
    assert r.compute(1).tid == y.tid
    r.works(1, Miss(b.tid, 2, "unreachable"))
    assert r.to(2, DropData).tids == (b.tid,)
    r.take(CancelAttempts)
    assert r.compute().tid == b.tid
    assert r.status("y") == "waiting"
    assert r.instance("a").replicas


def test_hints_are_forgotten_with_the_task() -> None:
    r, _ = two_inputs()
    r.works(2, Miss(r.instance("a").tid, 1, "unreachable"))
    r.unread.clear()
    assert r.machine.avoid
    r.says(ME, Release((1,)))
    r.unread.clear()
    assert not r.machine.avoid


def test_what_is_remembered_of_unreachable_holders_is_swept() -> None:
    r = Recorder(n_workers=3)
    fid = r.submit(task("a"))
    a = r.compute(1)
    r.compute_done(a)
    r.take(Finished)
    r.works(2, Stored(0, ((a.tid, a.aid),)))
    r.works(3, Miss(a.tid, 1, "unreachable"))
    r.take(Holders)
    assert r.machine.workers[3].unreachable
    r.says(ME, Release((fid,)))
    r.take(DropData)
    r.tick()
    assert not r.machine.workers[3].unreachable


# Rule R1: facts older than the last drop are void.


def dropped() -> tuple[Recorder, int, int]:
    """x was computed on worker 1, dropped there, and is wanted again."""
    r = Recorder(n_workers=2)
    fid = r.submit(task("x"), task("y", "x"))
    x = r.compute(1)
    r.compute_done(x)
    r.compute_done(r.compute(1))
    assert r.finished() == (fid,)
    number = r.to(1, DropData).number
    r.submit(task("x"))
    return r, x.aid, number


def test_a_stored_that_is_older_than_the_drop_is_void() -> None:
    r, aid, number = dropped()
    r.unread.clear()
    tid = r.instance("x").tid
    r.works(1, Stored(number - 1, ((tid, aid),)))
    assert r.status("x") == "processing"
    r.works(1, Stored(number, ((tid, aid),)))
    assert r.status("x") == "memory"
    r.unread.clear()


def test_a_done_that_is_older_than_the_drop_runs_again() -> None:
    r, _, number = dropped()
    x = r.compute()
    wid = r.where(x.aid)
    if wid != 1:
        # The rule is about the worker that was told to drop.
        r.works(wid, Done(x.aid, 0, 1, "int", 0.1, None))
        r.unread.clear()
        return
    r.works(1, Done(x.aid, number - 1, 1, "int", 0.1, None))
    assert r.compute().tid == x.tid


def test_an_absent_that_is_older_than_the_drop_is_void() -> None:
    r, aid, number = dropped()
    r.unread.clear()
    tid = r.instance("x").tid
    r.works(1, Stored(number, ((tid, aid),)))
    r.unread.clear()
    r.machine.workers[1].pending_drops.append((number + 1, {tid: None}))
    r.machine.workers[1].drop_number += 1
    r.works(1, Absent(tid, number))
    assert r.status("x") == "memory"


def test_drops_that_the_worker_has_seen_are_not_remembered() -> None:
    r, _, number = dropped()
    r.unread.clear()
    worker = r.machine.workers[1]
    assert [n for n, _ in worker.pending_drops] == [number]
    r.works(1, Absent(1, number))
    assert not worker.pending_drops


# What was never handed out.


@pytest.mark.parametrize(
    "message",
    [
        Stored(0, ((99, 1),)),
        Absent(99, 0),
        Present(99, 0),
        Miss(99, 1, "not-found"),
        Miss(1, 99, "not-found"),
        Done(99, 0, 1, "int", 0.1, None),
    ],
)
def test_numbers_that_were_never_handed_out_end_the_connection(message: object) -> None:
    r = Recorder(n_workers=1)
    r.submit(task("a"))
    r.compute()
    r.works(1, message)
    (action,) = r.unread
    assert isinstance(action, DropPeer)
    assert action.peer == 1
    assert "never" in action.why
    r.unread.clear()
