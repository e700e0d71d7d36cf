"""The collision table: each row, in each status the old task can be in.

`y` is known with an old spec; a second submission names `y` with another. What is
asserted is what the core decides: which instance the second future is bound to,
what exists, what is said; values follow from the instance.
"""

from collections.abc import Callable

import pytest

from raddle.protocol.core.messages.client import (
    CollisionNotice,
    Erred,
    Finished,
    GraphAck,
    GraphTask,
    Release,
    Scatter,
)
from raddle.protocol.core.messages.worker import Absent, Claim, Compute, DropData
from raddle.protocol.errors import RunSpecCollisionError, from_wire
from raddle.scheduler.core.actions import LogRecord
from testkit.core import ME, OTHER, Recorder, task

POLICIES = ("warn", "raise")


class Known:
    """`y` known with its old spec, in some status."""

    def __init__(self, r: Recorder, fid: int | None, old: GraphTask) -> None:
        r.take(DropData)
        r.unread.clear()
        self.r = r
        self.fid = fid
        self.old = old
        self.instance = r.instance("y")


def old_y(deps: tuple[str, ...], annotation: int = -1) -> tuple[GraphTask, ...]:
    x = (task("x1"),) if deps else ()
    return (*x, task("y", *deps, annotation=annotation))


def waiting(deps: tuple[str, ...]) -> Known:
    """A task without inputs does not wait: it is processing at once."""
    r = Recorder(n_workers=1)
    fid = r.submit(*old_y(deps))
    assert r.status("y") == ("waiting" if deps else "processing")
    return Known(r, fid, old_y(deps)[-1])


def queued(deps: tuple[str, ...]) -> Known:
    """Ready, blocked by slots: the only thread is taken by something long."""
    r = Recorder(n_workers=1)
    if deps:
        r.submit(task("x1"))
        r.compute_done(r.compute())
        r.take(Finished)
    r.submit(task("busy"))
    r.compute()
    fid = r.submit(*old_y(deps))
    assert r.status("y") == "ready (slots)"
    return Known(r, fid, old_y(deps)[-1])


def no_worker(deps: tuple[str, ...]) -> Known:
    r = Recorder(n_workers=1)
    fid = r.submit(*old_y(deps, 0), annotations=({"resources": {"R": 1}},))
    if deps:
        r.compute_done(r.compute())
    assert r.status("y") == "ready (restrictions)"
    return Known(r, fid, old_y(deps)[-1])


def processing(deps: tuple[str, ...]) -> Known:
    r = Recorder(n_workers=1)
    fid = r.submit(*old_y(deps))
    if deps:
        r.compute_done(r.compute())
    assert r.status("y") == "processing"
    return Known(r, fid, old_y(deps)[-1])


def memory(deps: tuple[str, ...]) -> Known:
    known = processing(deps)
    known.r.compute_done(computing(known.r))
    assert known.r.status("y") == "memory"
    known.r.unread.clear()
    return known


def released(deps: tuple[str, ...]) -> Known:
    known = memory(deps)
    r = known.r
    r.submit(task("zz", "y"))
    r.compute_done(r.compute())
    r.unread.clear()
    assert known.fid is not None
    r.says(ME, Release((known.fid,)))
    assert r.status("y") == "released"
    return Known(r, None, known.old)


def erred(deps: tuple[str, ...]) -> Known:
    known = processing(deps)
    known.r.fail(computing(known.r))
    known.r.unread.clear()
    assert known.r.status("y") == "erred"
    return known


def computing(r: Recorder) -> Compute:
    """The Compute of y, read or not."""
    attempt = r.instance("y").attempt
    assert attempt is not None
    return Compute(attempt.aid, attempt.task.tid, "y", 0, 0, (), (), (), None)


STATUS: dict[str, Callable[[tuple[str, ...]], Known]] = {
    "waiting": waiting, "queued": queued, "no-worker": no_worker,
    "processing": processing, "memory": memory, "released": released,
}  # fmt: skip
# The new dependencies, and the old ones.
DEPS = {
    "same": (("x1",), ("x1",)),
    "fewer": (("x1",), ()),
    "more": (("x1",), ("x1", "x2")),
    "disjoint": (("x1",), ("x2",)),
    "more0": ((), ("x2",)),
}


def second(
    known: Known,
    deps: tuple[str, ...],
    route: str,
    client: str,
    policy: str,
    fn: str = "new",
) -> int:
    """Submit `y` anew, by one of the routes; the future's number."""
    tasks = [task(d) for d in deps]
    tasks.append(task("y", *deps, fn=fn))
    if route == "dep":
        tasks.append(task("z", "y"))
    message, (fid,) = known.r.graph(*tasks, policy=policy)
    known.r.says(client, message)
    return fid


@pytest.mark.parametrize("client", [ME, OTHER])
@pytest.mark.parametrize("route", ["dep", "direct"])
@pytest.mark.parametrize("change", DEPS)
@pytest.mark.parametrize("status", STATUS)
class TestRows:
    """Rows 2 to 15, and `disjoint` and `more0`."""

    def test_warn_keeps_the_old_spec_and_says_so(
        self, status: str, change: str, route: str, client: str
    ) -> None:
        old, new = DEPS[change]
        known = STATUS[status](old)
        r = known.r
        was = "ready" if status in ("queued", "no-worker") else status
        was = "processing" if status == "waiting" and not old else was
        fid = second(known, new, route, client, "warn")
        assert r.to(client, GraphAck).error is None
        bound = r.machine.clients[client].futures[fid]
        y = bound.deps[0] if route == "dep" else bound
        assert y is known.instance
        assert [d.key for d in y.deps] == list(old)
        assert r.machine.instances("y") == [y]
        assert not r.exists("x2")
        self.check_said(known, new, client, was, "deps" if old != new else "spec")
        r.release_all()

    def check_said(
        self, known: Known, new: tuple[str, ...], client: str, was: str, kind: str
    ) -> None:
        r = known.r
        (record,) = r.machine.records
        assert record.key == "y"
        assert record.kind == kind
        assert record.old_token == known.old.token[:4].hex()
        assert record.new_token == task("y", *new, fn="new").token[:4].hex()
        assert record.old_dependencies == known.old.deps
        assert record.new_dependencies == new
        assert record.old_status == was
        assert record.owners == (ME,)  # for a released one: who wants what needs it
        assert record.submitter == client
        assert (record.policy, record.action) == ("warn", "kept")
        text = r.warning()
        assert text.startswith(
            f"run_spec collision: 1 key of group 'y' in update-graph from {client}: "
            f"key 'y': {kind} differs, token {record.old_token} -> {record.new_token}"
        )
        assert text.endswith("; kept the old run_spec and dependencies (policy warn)")
        assert "\n" not in text
        notice = r.to(client, CollisionNotice)
        assert notice.records == (record,)
        assert notice.total == 1
        assert r.machine.collisions == {(kind, was, "kept"): 1}

    def test_raise_errs_the_submitter_and_changes_nothing(
        self, status: str, change: str, route: str, client: str
    ) -> None:
        old, new = DEPS[change]
        known = STATUS[status](old)
        r = known.r
        before = snapshot(r)
        fid = second(known, new, route, client, "raise")
        ack = r.to(client, GraphAck)
        assert ack.error is not None
        error = from_wire(ack.error)
        assert isinstance(error, RunSpecCollisionError)
        assert error.total == 1
        assert error.records[0].action == "rejected"
        assert error.records[0].submitter == client
        assert snapshot(r) == before
        assert fid not in r.machine.clients[client].futures
        assert "refused the submission" in r.warning()
        # No notice on top of the error.
        r.done()
        r.release_all()


def snapshot(r: Recorder) -> list[object]:
    """Everything about every task that a submission could change."""
    return [
        (
            t.tid, t.key, t.state, t.deps, t.dependents, t.wants, t.n_waiters,
            t.priority, t.retries, t.queue, t.attempt, t.replicas, t.run_spec_token,
        )
        for t in r.machine.tasks.values()
    ]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("client", [ME, OTHER])
@pytest.mark.parametrize("status", [*STATUS, "erred"])
def test_row_1_the_same_spec_is_the_same_instance(
    status: str, client: str, policy: str
) -> None:
    known = (STATUS | {"erred": erred})[status](("x1",))
    r = known.r
    fid = second(known, ("x1",), "direct", client, policy, fn="old")
    assert r.to(client, GraphAck).error is None
    assert r.machine.clients[client].futures[fid] is known.instance
    assert not r.machine.records
    assert not r.take(LogRecord)
    r.release_all()


@pytest.mark.parametrize("change", DEPS)
def test_an_erred_task_is_superseded_under_warn(change: str) -> None:
    old, new = DEPS[change]
    known = erred(old)
    r = known.r
    fid = second(known, new, "direct", OTHER, "warn")
    assert r.to(OTHER, GraphAck).error is None
    fresh = r.machine.clients[OTHER].futures[fid]
    assert fresh is not known.instance
    assert r.machine.instances("y") == [fresh, known.instance]
    assert "replaced the erred instance by a new one (policy warn)" in r.warning()
    assert r.machine.records[0].action == "superseded"
    # Holders of the old future keep the old error.
    assert r.status("y", 1) == "erred"
    assert known.fid in r.machine.clients[ME].futures
    r.run_all()
    assert r.finished(OTHER) == (fid,)
    r.release_all()


@pytest.mark.parametrize("change", DEPS)
def test_an_erred_task_is_a_collision_like_any_under_raise(change: str) -> None:
    old, new = DEPS[change]
    known = erred(old)
    second(known, new, "direct", OTHER, "raise")
    assert known.r.to(OTHER, GraphAck).error is not None
    known.r.warning()
    assert known.r.machine.instances("y") == [known.instance]


def test_a_forgotten_task_collides_with_nothing() -> None:
    known = memory(("x1",))
    assert known.fid is not None
    known.r.says(ME, Release((known.fid,)))
    known.r.unread.clear()
    second(known, ("x2",), "direct", ME, "raise")
    assert known.r.to(ME, GraphAck).error is None
    known.r.unread.clear()
    assert not known.r.machine.records


# Data.


@pytest.mark.parametrize("deps", [(), ("x1",), ("x1", "x2")])
def test_a_spec_for_scattered_data_is_not_adopted(deps: tuple[str, ...]) -> None:
    r = Recorder(n_workers=2)
    data = r.scatter("y", "101")
    r.unread.clear()
    known = Known(r, data, task("y"))
    fid = second(known, deps, "direct", OTHER, "warn")
    r.to(OTHER, GraphAck)
    assert r.finished(OTHER) == (fid,)
    assert r.machine.records[0].kind == "kind"
    assert r.instance("y").is_data
    assert [t.key for t in r.machine.tasks.values()] == ["y"]
    r.unread.clear()
    # When its holder dies, both futures say so; the spec is not run instead.
    r.leave(1)
    assert [e[0][0] for e in r.erred(ME).values()] == ["DataLost"]
    assert [e[0][0] for e in r.erred(OTHER).values()] == ["DataLost"]


def test_a_spec_for_scattered_data_is_refused_under_raise() -> None:
    r = Recorder(n_workers=1, policy="raise")
    data = r.scatter("y", "101")
    r.unread.clear()
    known = Known(r, data, task("y"))
    before = snapshot(r)
    second(known, (), "direct", OTHER, "warn")
    assert r.to(OTHER, GraphAck).error is not None
    r.warning()
    assert snapshot(r) == before


def test_data_and_a_rejected_spec_do_not_depend_on_each_other() -> None:
    """Scatter b, a = f(b); then {a: two(), b: g(a)}: nobody waits for anybody."""
    r = Recorder(n_workers=1)
    r.scatter("b", "101")
    r.unread.clear()
    a = r.submit(task("a", "b"))
    r.compute_done(r.compute())
    assert r.finished() == (a,)
    fids = r.submit(task("a", fn="two"), task("b", "a", fn="one"), wants=("a", "b"))
    assert r.finished() == fids
    r.unread.clear()
    r.leave(1)
    assert {f: e[1] for f, e in r.erred(ME).items()} == dict.fromkeys(
        (1, a, *fids), "b"
    )


@pytest.mark.parametrize("status", [*STATUS, "erred"])
def test_scatter_never_changes_a_computed_task(status: str) -> None:
    known = (STATUS | {"erred": erred})[status](("x1",))
    r = known.r
    before = snapshot(r)
    fid = r.scatter("y", "5", client=OTHER)
    assert r.to(OTHER, GraphAck).error is None
    data = r.machine.clients[OTHER].futures[fid]
    assert r.to(1, Claim).items == ((b"5", data.tid),)
    assert r.finished(OTHER) == (fid,)
    assert data.is_data
    assert snapshot(r)[:-1] == before
    instances = r.machine.instances("y")
    new_first = status == "erred"
    assert instances == (
        [data, known.instance] if new_first else [known.instance, data]
    )
    r.warning()
    r.take(CollisionNotice)
    assert r.machine.records[0].kind == "kind"
    r.release_all()


def test_different_data_of_one_name_are_two_instances_under_warn() -> None:
    r = Recorder(n_workers=2)
    one = r.scatter("y", "1")
    r.unread.clear()
    two = r.scatter("y", "2", client=OTHER, wids=(2,))
    r.to(OTHER, GraphAck)
    first, other = r.machine.instances("y")
    assert r.machine.clients[ME].futures[one] is first
    assert r.machine.clients[OTHER].futures[two] is other
    assert [w.wid for w in other.replicas] == [2]
    assert r.to(2, Claim).items == ((b"2", other.tid),)
    assert r.finished(OTHER) == (two,)
    assert r.machine.records[0].kind == "data"
    assert "made a new instance beside the old one" in r.warning()
    r.take(CollisionNotice)
    r.release_all()


def test_different_data_of_one_name_are_an_error_under_raise() -> None:
    r = Recorder(n_workers=2, policy="raise")
    r.scatter("y", "1")
    r.unread.clear()
    before = snapshot(r)
    fid = r.scatter("y", "2", client=OTHER)
    error = r.to(OTHER, GraphAck).error
    assert error is not None
    assert error[0] == "RunSpecCollisionError"
    r.warning()
    assert snapshot(r) == before
    assert fid not in r.machine.clients[OTHER].futures


def test_equal_data_of_one_name_are_replicas_of_one_instance() -> None:
    r = Recorder(n_workers=2)
    r.scatter("y", "1")
    r.unread.clear()
    fid = r.scatter("y", "1", client=OTHER, wids=(2,))
    r.to(OTHER, GraphAck)
    (data,) = r.machine.instances("y")
    assert r.to(2, Claim).items == ((b"1", data.tid),)
    assert [w.wid for w in data.replicas] == [1, 2]
    assert r.finished(OTHER) == (fid,)
    assert not r.machine.records


def test_equal_data_twice_in_one_scatter_are_one_instance() -> None:
    r = Recorder(n_workers=1)
    rows = tuple((fid, "y", b"t", None, b"u%d" % fid, 5, "str", (1,)) for fid in (1, 2))
    r.says(ME, Scatter(1, rows, None))
    r.to(ME, GraphAck)
    (data,) = r.machine.instances("y")
    claims = [item for m in r.take(Claim) for item in m.items]
    assert claims == [(b"u1", data.tid), (b"u2", data.tid)]
    assert r.finished() == (1, 2)


def test_data_scattered_again_after_it_was_lost_is_a_new_instance() -> None:
    r = Recorder(n_workers=2)
    r.scatter("y", "1")
    r.unread.clear()
    r.leave(1)
    r.take(Erred)
    fid = r.scatter("y", "1", wids=(2,))
    r.to(ME, GraphAck)
    r.to(2, Claim)
    assert r.finished() == (fid,)
    assert not r.instance("y").failure
    assert not r.machine.records


def test_data_whose_workers_are_gone_is_lost_at_once() -> None:
    r = Recorder(n_workers=1)
    fid = r.scatter("y", "1", wids=(7,))
    r.to(ME, GraphAck)
    assert r.erred()[fid][0][0] == "DataLost"


def test_data_that_a_worker_does_not_have_is_lost() -> None:
    r = Recorder(n_workers=1)
    fid = r.scatter("y", "1")
    r.unread.clear()
    r.works(1, Absent(r.instance("y").tid, 0))
    assert r.erred()[fid][0][0] == "DataLost"


def test_a_computed_task_superseding_lost_data() -> None:
    r = Recorder(n_workers=1)
    r.scatter("y", "1")
    r.unread.clear()
    r.works(1, Absent(r.instance("y").tid, 0))
    r.unread.clear()
    fid = r.submit(task("y"))
    r.warning()
    r.take(CollisionNotice)
    r.compute_done(r.compute())
    assert r.finished() == (fid,)
    assert r.status("y", 1) == "erred"
