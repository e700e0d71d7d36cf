"""The races of the design, step by step (B5)."""

from raddle.protocol.core.messages.client import CollisionNotice, GraphAck, Release
from raddle.protocol.core.messages.worker import (
    CancelAttempts,
    Compute,
    Done,
    DropData,
    Rejected,
    Started,
    Stored,
    YieldAttempts,
)
from testkit.core import ME, OTHER, Recorder, task


def started_y() -> tuple[Recorder, tuple[int, int], Compute, Compute]:
    """x is in memory on 1, y(x) runs there; both are wanted."""
    r = Recorder(n_workers=2)
    fids = r.submit(task("x"), task("y", "x"), wants=("x", "y"))
    x = r.compute(1)
    r.compute_done(x)
    r.finished()
    y = r.compute(1)
    r.works(1, Started((y.aid,)))
    return r, fids, x, y


def test_race_1_a_free_name_gets_a_new_instance_and_its_own_attempt() -> None:
    r, fids, x, y = started_y()
    message, _ = r.graph(task("y", fn="new"))
    r.says(ME, Release(fids), message)
    assert r.to(1, CancelAttempts).aids == (y.aid,)
    assert r.to(1, DropData).tids == (x.tid,)
    r.to(ME, GraphAck)
    other = r.compute()
    assert other.tid > y.tid
    assert not r.machine.records
    # Whatever the old attempt does, it is not the new one's.
    r.works(1, Done(y.aid, 0, 1, "int", 0.1, None))
    assert r.status("y") == "processing"
    r.compute_done(other)
    assert r.finished()


def test_race_1b_the_same_tasks_again_share_nothing_with_the_old_ones() -> None:
    r, fids, x, y = started_y()
    message, _ = r.graph(task("x"), task("y", "x"))
    r.says(ME, Release(fids), message)
    r.take(CancelAttempts)
    r.take(DropData)
    r.to(ME, GraphAck)
    again = r.compute()
    assert again.tid not in (x.tid, y.tid)
    r.compute_done(again)
    compute = r.compute()
    assert compute.deps[0][0] == again.tid
    r.unread.clear()


def test_race_2_fused_then_unfused_then_the_releases() -> None:
    """A without dependencies is ready; A(b) comes; no dependency is grafted on."""
    r = Recorder(n_workers=1)
    r.submit(task("busy"))
    r.compute()
    first = r.submit(task("A", fn="one"), task("sum", "A"), wants=("A", "sum"))
    old = r.instance("A")
    assert r.status("A") == "ready (slots)"
    second = r.submit(task("b"), task("A", "b"), task("size", "A"))
    assert r.machine.clients[ME].futures[second].deps == (old,)
    assert old.deps == ()
    assert not r.exists("b")
    r.warning()
    r.take(CollisionNotice)
    r.says(ME, Release(first))
    assert r.status("A") == "ready (slots)"
    assert not r.exists("sum")
    r.says(ME, Release((second,)))
    assert not r.exists("A")


def test_race_3_done_crosses_cancel() -> None:
    r, fids, x, y = started_y()
    r.says(ME, Release(fids))
    r.take(CancelAttempts)
    r.take(DropData)
    r.works(1, Done(y.aid, 0, 1, "int", 0.1, None))
    r.done()
    assert not r.machine.tasks
    assert r.machine.stale_facts == 1
    assert x.tid < y.tid


def test_race_4_a_recall_crosses_the_start() -> None:
    r = Recorder(n_workers=1, queue_seconds=10.0)
    r.submit(task("k-0"))
    r.compute_done(r.compute(), seconds=0.01)
    r.finished()
    keys = ("k-1", "k-2", "k-3")
    r.submit(*(task(k) for k in keys), wants=keys)
    computes = r.take(Compute)
    r.join(2)
    (aid,) = r.to(1, YieldAttempts).aids
    r.works(1, Started((aid,)))
    attempt = r.machine.workers[1].attempts[aid]
    assert (attempt.started, attempt.yielding) == (True, False)
    # The next one is asked for instead; it is given back and goes to the thief.
    (other,) = r.to(1, YieldAttempts).aids
    assert other != aid
    r.works(1, Rejected(other, 0, "yielded"))
    moved = r.compute(2)
    # The first worker's late word about the attempt it gave back is void.
    r.works(1, Done(other, 0, 1, "int", 0.1, None))
    assert r.machine.stale_facts == 1
    assert r.where(moved.aid) == 2
    assert len(computes) == 3


def test_race_4_a_worker_that_comes_back_is_another_worker() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("a"))
    old = r.compute()
    r.leave(1)
    r.join(2)
    new = r.compute(2)
    r.works(1, Done(old.aid, 0, 1, "int", 0.1, None))
    assert r.status("a") == "processing"
    r.works(2, Done(old.aid, 0, 1, "int", 0.1, None))
    assert r.status("a") == "processing"
    r.compute_done(new)
    assert r.finished()


def test_race_6_a_stored_of_what_is_computed_again() -> None:
    """The only replica dies, another is in flight; then it is computed there anew."""
    r = Recorder(n_workers=2)
    fid = r.submit(task("x"))
    x = r.compute(1)
    r.compute_done(x)
    r.finished()
    r.leave(1)
    again = r.compute(2)
    r.unread.clear()
    r.works(2, Stored(0, ((x.tid, x.aid),)), Done(again.aid, 0, 28, "int", 0.1, None))
    # Adopted; the attempt is cancelled, and nothing is told to drop the only copy.
    assert r.to(2, CancelAttempts).aids == (again.aid,)
    assert not r.take(DropData)
    assert r.finished() == (fid,)
    assert r.status("x") == "memory"
    assert r.instance("x").origin == x.aid


def test_two_clients_race_for_one_name() -> None:
    r = Recorder(n_workers=1)
    mine, (my_fid,) = r.graph(task("y"))
    theirs, (their_fid,) = r.graph(task("y", fn="new"))
    r.says(ME, mine)
    r.to(ME, GraphAck)
    compute = r.compute()
    r.says(OTHER, theirs, Release((their_fid,)))
    r.to(OTHER, GraphAck)
    r.warning()
    r.take(CollisionNotice)
    r.compute_done(compute)
    assert r.finished(ME) == (my_fid,)
