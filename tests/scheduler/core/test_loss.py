"""What is lost with a worker, and how it comes back; who is to blame."""

import pytest

from raddle.protocol.core.messages.client import (
    Erred,
    Finished,
    PendingAgain,
    Release,
    Retry,
)
from raddle.protocol.core.messages.worker import (
    CancelAttempts,
    Compute,
    DropData,
    LongRunning,
    Peers,
    PeersLeft,
    Started,
)
from raddle.protocol.errors import from_wire
from raddle.scheduler.core.actions import LogRecord, ToWorker
from raddle.scheduler.core.events import WorkerJoined, WorkerLeft
from testkit.core import ERROR, ME, Recorder, task


def test_attempts_on_a_lost_worker_run_elsewhere() -> None:
    r = Recorder(n_workers=2)
    r.submit(task("a"))
    a = r.compute(1)
    r.leave(1)
    again = r.compute(2)
    assert again.tid == a.tid
    assert again.aid > a.aid
    assert not r.take(CancelAttempts)


def test_needed_values_are_computed_again_by_lineage() -> None:
    r = Recorder(n_workers=1)
    fid = r.submit(task("a"), task("b", "a"), task("c", "b"))
    r.run_all()
    r.unread.clear()
    r.leave(1)
    assert r.to(ME, PendingAgain).fids == (fid,)
    assert [r.status(k) for k in "abc"] == [
        "ready (restrictions)",
        "waiting",
        "waiting",
    ]
    r.join(2)
    r.run_all()
    assert r.finished() == (fid,)
    r.unread.clear()


def test_values_that_are_not_needed_are_not_computed_again() -> None:
    r = Recorder(n_workers=2)
    r.submit(task("a"), task("b", "a"))
    r.compute_done(r.compute(1))
    b = r.compute(1)
    r.compute_done(b)
    r.unread.clear()
    r.leave(2)
    assert r.status("a") == "released"
    assert r.status("b") == "memory"
    r.done()


def test_a_value_with_another_replica_is_not_lost() -> None:
    r = Recorder(n_workers=2)
    r.submit(task("a"))
    a = r.compute(1)
    r.compute_done(a)
    r.take(Finished)
    r.machine.workers[2].replicas[r.instance("a")] = None
    r.instance("a").replicas += (r.machine.workers[2],)
    r.leave(1)
    assert r.status("a") == "memory"
    r.done()


def test_dependents_under_way_wait_again_and_their_attempts_are_cancelled() -> None:
    r = Recorder(n_workers=2)
    r.submit(task("a"), task("b"), task("c", "a", "b"))
    first, second = r.take(Compute)
    r.compute_done(first)
    r.compute_done(second, nbytes=10**6)
    c = r.compute(2)
    r.leave(1)
    assert r.to(2, CancelAttempts).aids == (c.aid,)
    assert r.status("c") == "waiting"
    assert r.compute(2).key == "a"


def test_everybody_hears_who_left_and_who_joined() -> None:
    r = Recorder(n_workers=3)
    r.done()
    actions = r.machine.handle(WorkerLeft(0.0, 2, "gone", True, None))
    left = [a.wid for a in actions if isinstance(a, ToWorker)]
    assert left == [1, 3]
    assert all(a.message == PeersLeft((2,)) for a in actions if isinstance(a, ToWorker))
    joined = r.machine.handle(WorkerJoined(0.0, 4, "w4", "tcp://h:4", "h", 1, 1, 0, {}))
    everybody = ((1, "tcp://host:1"), (3, "tcp://host:3"), (4, "tcp://h:4"))
    assert [a for a in joined if isinstance(a, ToWorker)] == [
        ToWorker(1, Peers(((4, "tcp://h:4"),))),
        ToWorker(3, Peers(((4, "tcp://h:4"),))),
        ToWorker(4, Peers(everybody)),
    ]


@pytest.mark.parametrize(("safe", "level"), [(True, 20), (False, 30)])
def test_a_death_is_a_warning_that_says_what_it_costs(safe: bool, level: int) -> None:
    r = Recorder(n_workers=1)
    r.submit(task("kept"))
    r.compute_done(r.compute())
    r.unread.clear()
    r.submit(task("running"))
    r.compute()
    actions = r.machine.handle(WorkerLeft(0.0, 1, "gone", safe, -9))
    (record,) = [a for a in actions if isinstance(a, LogRecord)]
    assert record.level == level
    for word in ("'w1'", "host host", "pid 1", "signal 9", "gone", "2 tasks are"):
        assert word in record.text


# Suspects.


def dies_under(r: Recorder, n: int, *, started: bool = True) -> None:
    """n workers in turn get the only task, and die."""
    for _ in range(n):
        wid = max(r.machine.workers, default=0) + 1
        r.join(wid)
        compute = r.compute()
        if started:
            r.works(wid, Started((compute.aid,)))
        r.leave(wid)


def test_a_task_that_kills_too_many_workers_is_given_up() -> None:
    r = Recorder(allowed_failures=2)
    fid = r.submit(task("boom"))
    dies_under(r, 2)
    r.join(9)
    r.works(9, Started((r.compute().aid,)))
    r.on(WorkerLeft(0.0, 9, "killed", False, -9))
    (error, blame) = r.erred()[fid]
    killed = from_wire(error)
    assert blame == "boom"
    assert killed.key == "boom"  # type: ignore[attr-defined]
    assert killed.worker == "w9"  # type: ignore[attr-defined]
    assert killed.host == "host"  # type: ignore[attr-defined]
    assert killed.pid == 1  # type: ignore[attr-defined]
    assert killed.exitcode == -9  # type: ignore[attr-defined]
    assert killed.tasks == ("boom",)  # type: ignore[attr-defined]
    assert (killed.deaths, killed.allowed) == (3, 2)  # type: ignore[attr-defined]


def test_only_started_attempts_are_suspects() -> None:
    r = Recorder(queue_seconds=10.0, n_workers=1, allowed_failures=0)
    r.submit(task("k-0"))
    r.compute_done(r.compute(), seconds=1e-4)
    r.take(Finished)
    keys = ("k-1", "k-2", "k-3")
    fids = r.submit(*(task(k) for k in keys), wants=keys)
    computes = r.take(Compute)
    r.works(1, Started((computes[1].aid,)))
    r.leave(1)
    assert list(r.erred()) == [fids[1]]
    r.take(PendingAgain)
    assert r.instance("k-1").suspicious == 0


def test_without_any_start_the_first_that_fit_the_threads_are_suspects() -> None:
    r = Recorder(queue_seconds=10.0, n_workers=1, allowed_failures=0)
    r.submit(task("k-0"))
    r.compute_done(r.compute(), seconds=1e-4)
    r.take(Finished)
    keys = ("k-1", "k-2", "k-3")
    fids = r.submit(*(task(k) for k in keys), wants=keys)
    r.take(Compute)
    r.leave(1)
    assert list(r.erred()) == [fids[0]]
    r.take(PendingAgain)


def test_a_worker_that_was_meant_to_go_leaves_no_suspects() -> None:
    r = Recorder(n_workers=1, allowed_failures=0)
    r.submit(task("a"))
    r.works(1, Started((r.compute().aid,)))
    r.leave(1, safe=True)
    assert r.status("a") == "ready (restrictions)"
    assert r.instance("a").suspicious == 0


def test_a_killed_task_fails_its_dependents_and_a_retry_forgives() -> None:
    r = Recorder(n_workers=1, allowed_failures=0)
    fid = r.submit(task("a"), task("b", "a"))
    r.compute()
    r.leave(1)
    assert r.erred()[fid][1] == "a"
    r.join(2)
    r.says(ME, Retry((fid,)))
    r.take(PendingAgain)
    assert r.instance("a").suspicious == 0
    r.compute_done(r.compute(2))
    r.compute_done(r.compute(2))
    assert r.finished() == (fid,)


@pytest.mark.parametrize("slot", [True, False])
def test_long_running_attempts_are_lost_with_their_worker(slot: bool) -> None:
    r = Recorder(n_workers=1)
    r.submit(task("a"))
    a = r.compute()
    if not slot:
        r.works(1, LongRunning(a.aid))
    r.leave(1)
    assert r.instance("a").suspicious == 1
    r.join(2)
    assert r.compute(2).tid == a.tid


# Errors on the way back.


def test_a_recomputed_input_that_fails_now_fails_what_was_finished() -> None:
    r = Recorder(n_workers=1)
    fid = r.submit(task("a"), task("b", "a"))
    r.run_all()
    r.unread.clear()
    r.leave(1)
    r.take(PendingAgain)
    r.join(2)
    r.fail(r.compute())
    assert r.erred() == {fid: (ERROR, "a")}


def test_data_that_was_dropped_cannot_be_needed_again() -> None:
    """Scattered x is released while y = f(x) lives; y is lost: that is an error."""
    r = Recorder(n_workers=2)
    x = r.scatter("x", "1")
    r.unread.clear()
    fid = r.submit(task("y", "x"), embedded={"x": x})
    y = r.compute()
    r.says(ME, Release((x,)))
    place = r.where(y.aid)
    r.compute_done(y)
    r.unread.clear()
    assert r.status("x") == "released"
    r.leave(place)
    ((error, blame),) = r.erred().values()
    assert (error[0], blame) == ("DataLost", "x")
    assert list(r.machine.clients[ME].futures) == [fid]


def test_data_with_dependents_under_way_fails_them_when_lost() -> None:
    r = Recorder(n_workers=2)
    x = r.scatter("x", "1")
    r.unread.clear()
    fid = r.submit(task("busy"), task("y", "x"), wants=("y",), embedded={"x": x})
    y = r.compute()
    assert r.where(y.aid) == 1
    r.leave(1)
    errors = r.erred()
    assert {k: e[1] for k, e in errors.items()} == {x: "x", fid: "x"}
    assert "left (killed)" in str(from_wire(errors[x][0]))
    assert not r.take(Erred)
    assert not r.take(DropData)


def test_a_worker_that_joins_is_given_what_waits() -> None:
    r = Recorder()
    keys = tuple(f"k-{i}" for i in range(4))
    r.submit(*(task(k) for k in keys), wants=keys)
    r.join(1, nthreads=3)
    assert len(r.take(Compute)) == 3
