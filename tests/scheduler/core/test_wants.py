"""Binding, detaching, and what becomes of futures when things are lost."""

import pytest

from raddle.protocol.core.messages.client import (
    Bind,
    Cancel,
    Cancelled,
    Detach,
    Erred,
    Finished,
    GraphAck,
    PendingAgain,
    Release,
)
from raddle.protocol.core.messages.worker import Compute, DropData
from raddle.scheduler.core.actions import DropPeer
from testkit.core import ERROR, ME, OTHER, Recorder, task


def test_a_pickled_future_is_bound_to_its_owners_instance() -> None:
    r = Recorder(n_workers=1)
    fid = r.submit(task("x"))
    r.compute_done(r.compute())
    r.finished()
    r.says(OTHER, Bind(70, "x", ME, fid))
    assert r.finished(OTHER) == (70,)
    r.says(ME, Release((fid,)))
    assert r.status("x") == "memory"


def test_a_future_by_name_is_bound_to_the_primary_instance() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("x"))
    r.compute()
    r.says(OTHER, Bind(70, "x", "", 0))
    assert r.machine.clients[OTHER].futures[70] is r.instance("x")


@pytest.mark.parametrize(
    ("owner", "why"), [("", "knows no task named 'x'"), (ME, "was released before")]
)
def test_a_future_of_nothing_is_cancelled_and_says_why(owner: str, why: str) -> None:
    r = Recorder(n_workers=1)
    r.says(OTHER, Bind(70, "x", owner, 5))
    cancelled = r.to(OTHER, Cancelled)
    assert cancelled.fids == (70,)
    assert cancelled.who == "scheduler"
    assert why in cancelled.why
    # It stays lost for graphs that name it, until it is released.
    message, (fid,) = r.graph(task("y", "x"), embedded={"x": 70})
    r.says(OTHER, message)
    r.to(OTHER, GraphAck)
    assert r.to(OTHER, Cancelled).fids == (fid,)
    r.says(OTHER, Release((70, fid)))
    assert not r.machine.clients[OTHER].lost


def test_a_future_of_a_refused_call_carries_its_error() -> None:
    r = Recorder(n_workers=1)
    message, (fid,) = r.graph(task("x", "nobody"))
    r.says(ME, message)
    error = r.to(ME, GraphAck).error
    r.says(OTHER, Bind(70, "x", ME, fid))
    assert r.erred(OTHER) == {70: (error, "x")}


def test_a_future_number_is_bound_once() -> None:
    r = Recorder(n_workers=1)
    fid = r.submit(task("x"))
    r.unread.clear()
    r.says(ME, Bind(fid, "x", "", 0))
    assert isinstance(r.unread.pop(), DropPeer)


# Fire and forget.


def test_a_detached_task_runs_to_its_end_and_is_forgotten() -> None:
    r = Recorder(n_workers=1)
    fid = r.submit(task("x"), task("y", "x"))
    x = r.compute()
    r.says(ME, Detach((fid,)), Detach((fid,)), Release((fid,)))
    r.compute_done(x)
    r.compute_done(r.compute())
    r.take(DropData)
    assert not r.machine.tasks
    assert not r.machine.nobody.futures


def test_a_detached_task_outlives_its_client_and_may_fail() -> None:
    r = Recorder(n_workers=1)
    fid = r.submit(task("x"))
    x = r.compute()
    r.says(ME, Detach((fid,)))
    r.leave_client(ME)
    assert r.status("x") == "processing"
    r.fail(x)
    assert not r.machine.tasks


def test_detaching_what_is_done_changes_nothing() -> None:
    r = Recorder(n_workers=1)
    fid = r.submit(task("x"))
    r.compute_done(r.compute())
    r.finished()
    r.says(ME, Detach((fid,)))
    assert not r.machine.nobody.futures
    r.says(ME, Release((fid,)))
    r.take(DropData)
    assert not r.machine.tasks


# Reports.


def test_one_message_per_client_tells_all_of_one_event() -> None:
    r = Recorder(n_workers=1, queue_seconds=1e9)
    keys = tuple(f"k-{i}" for i in range(5))
    fids = r.submit(*(task(k) for k in keys), wants=keys)
    r.compute_done(r.compute(), seconds=1e-6)
    r.finished()
    r.works(1, *(r.done_message(c) for c in r.take(Compute)))
    assert r.finished() == fids[1:]


def test_what_came_and_went_within_one_event_is_not_reported() -> None:
    r = Recorder(n_workers=2)
    fid = r.submit(task("x"))
    x = r.compute(1)
    done = r.done_message(x)
    r.works(1, done, done)
    assert r.finished() == (fid,)
    assert r.machine.stale_facts == 1


def test_a_future_that_is_dropped_at_once_is_not_reported() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("x"))
    r.compute_done(r.compute())
    r.finished()
    message, (fid,) = r.graph(task("x"))
    r.says(ME, message, Release((fid,)))
    r.to(ME, GraphAck)
    r.done()


def test_a_lost_value_makes_its_futures_wait_anew() -> None:
    r = Recorder(n_workers=2)
    mine = r.submit(task("x"))
    r.compute_done(r.compute(1))
    r.finished()
    other = r.submit(task("x"), client=OTHER)
    r.finished(OTHER)
    r.leave(1)
    assert r.to(ME, PendingAgain).fids == (mine,)
    assert r.to(OTHER, PendingAgain).fids == (other,)
    r.compute_done(r.compute(2))
    assert r.finished(ME) == (mine,)
    assert r.finished(OTHER) == (other,)


def test_a_new_future_of_a_value_that_was_released_meanwhile_hears_of_it_anew() -> None:
    """x is wanted, in memory, released but for its dependent, and wanted again."""
    r = Recorder(n_workers=1)
    first = r.submit(task("x"))
    r.compute_done(r.compute())
    r.finished()
    r.submit(task("y", "x", fn="bad"))
    y = r.compute()
    r.says(ME, Release((first,)))
    again = r.submit(task("x"))
    assert r.finished() == (again,)
    r.fail(y)
    assert [e[0] for e in r.erred().values()] == [ERROR]
    assert not r.take(Finished)
    assert not r.take(Erred)


# Cancel.


def test_a_cancel_reaches_what_depends_on_the_task() -> None:
    r = Recorder(n_workers=1)
    x = r.submit(task("x"))
    r.compute()
    done, z, apart = r.submit(
        task("done"), task("y", "x"), task("z", "y", "done"), task("apart"),
        wants=("done", "z", "apart"),
    )  # fmt: skip
    r.unread.clear()
    r.says(ME, Cancel((x,), False, "enough"))
    mine, dependent = r.take(Cancelled)
    assert mine == Cancelled((x,), ME, "enough")
    assert dependent == Cancelled((z,), ME, "its input 'x' was cancelled")
    assert not any(r.exists(key) for key in "xyz")
    assert set(r.machine.clients[ME].futures) == {done, apart}
    r.unread.clear()
    # A graph that names it hears the same.
    message, (fid,) = r.graph(task("later", "z"), embedded={"z": z})
    r.says(ME, message)
    r.to(ME, GraphAck)
    assert r.to(ME, Cancelled) == Cancelled((fid,), ME, dependent.why)


def test_what_is_finished_is_not_cancelled_with_its_input() -> None:
    r = Recorder(n_workers=1)
    x, y = r.submit(task("x"), task("y", "x"), wants=("x", "y"))
    r.compute_done(r.compute())
    r.finished()
    r.compute_done(r.compute())
    r.finished()
    z = r.submit(task("z", "y"), embedded={"y": y})
    r.unread.clear()
    r.says(ME, Cancel((x,), False, ""))
    assert r.to(ME, Cancelled).fids == (x,)
    assert set(r.machine.clients[ME].futures) == {y, z}
    r.unread.clear()


@pytest.mark.parametrize("client", [ME, OTHER])
def test_nothing_more_is_cancelled_where_another_future_wants_the_input(
    client: str,
) -> None:
    r = Recorder(n_workers=1)
    x, y = r.submit(task("x"), task("y", "x"), wants=("x", "y"))
    r.compute()
    again = r.submit(task("x"), client=client)
    r.unread.clear()
    r.says(ME, Cancel((x,), False, ""))
    assert r.to(ME, Cancelled).fids == (x,)
    assert r.machine.clients[ME].futures[y] is r.instance("y")
    r.says(client, Release((again,)))
    assert r.status("x") == "processing"


@pytest.mark.parametrize("force", [False, True])
def test_others_keep_what_they_want_unless_forced(force: bool) -> None:
    r = Recorder(n_workers=1)
    x, y, z = r.submit(
        task("x"), task("y", "x"), task("z", "y"), wants=("x", "y", "z")
    )  # fmt: skip
    r.compute()
    theirs = r.submit(task("x"), task("y", "x"), client=OTHER)
    r.unread.clear()
    r.says(ME, Cancel((x,), force, "enough"))
    told = r.take(Cancelled)
    assert told[0] == Cancelled((x,), ME, "enough")
    why = "its input 'x' was cancelled"
    if force:
        assert sorted(told[1:]) == sorted(
            [Cancelled((y, z), ME, why), Cancelled((theirs,), ME, why)]
        )
        assert not r.machine.tasks
        r.unread.clear()
    else:
        assert len(told) == 1
        assert r.status("x") == "processing"
        assert r.status("z") == "waiting"
