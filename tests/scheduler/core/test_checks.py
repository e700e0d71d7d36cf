"""The invariants can fail: each is broken by hand once."""

from collections.abc import Callable

import pytest

from raddle.scheduler.core.actions import ToWorker
from raddle.scheduler.core.checks import check
from raddle.scheduler.core.entities import (
    ERRED,
    FORGOTTEN,
    MEMORY,
    READY,
    RELEASED,
    WAITING,
    Failure,
)
from testkit.core import ERROR, ME, Recorder, task


def cluster() -> Recorder:
    """a is in memory on 1, b(a) processes there, c(b) waits, d is ready."""
    r = Recorder(n_workers=1)
    r.submit(
        task("a"), task("b", "a"), task("c", "b"), task("d"), wants=("a", "c", "d")
    )
    r.compute_done(r.compute())
    r.finished()
    r.compute()
    assert [r.status(k) for k in "abcd"] == [
        "memory", "processing", "waiting", "ready (slots)",
    ]  # fmt: skip
    r.unread.clear()
    r.machine.actions = []
    check(r.machine)
    return r


def forgotten_want(r: Recorder) -> None:
    r.instance("a").wants = None


def stale_news(r: Recorder) -> None:
    r.instance("a").told = 0


def kept_bytes(r: Recorder) -> None:
    r.instance("d").frames = (b"x",)


def second_name(r: Recorder) -> None:
    r.machine.names["z"] = r.instance("a")


def lone_list(r: Recorder) -> None:
    r.machine.names["a"] = [r.instance("a")]


def wrong_attempt(r: Recorder) -> None:
    r.instance("b").attempt = None


def lost_attempt(r: Recorder) -> None:
    r.machine.workers[1].attempts.clear()


def no_replica(r: Recorder) -> None:
    r.instance("a").replicas = ()


def unlisted_replica(r: Recorder) -> None:
    r.machine.workers[1].replicas.clear()


def state(key: str, new: int) -> Callable[[Recorder], None]:
    def change(r: Recorder) -> None:
        r.instance(key).state = new

    change.__name__ = f"{key}_{new}"
    return change


def failed_without_state(r: Recorder) -> None:
    r.instance("c").failure = Failure(ERROR, "c")


def miscounted_missing(r: Recorder) -> None:
    r.instance("c").missing = 2


def miscounted_waiters(r: Recorder) -> None:
    r.instance("a").n_waiters += 1


def dependent_unlinked(r: Recorder) -> None:
    r.instance("b").dependents = None


def dependency_added(r: Recorder) -> None:
    r.instance("b").deps = (r.instance("a"), r.instance("d"))


def slots(r: Recorder) -> None:
    r.machine.workers[1].n_slots += 1


def occupancy(r: Recorder) -> None:
    r.machine.workers[1].occupancy += 1.0


def yielding(r: Recorder) -> None:
    r.machine.workers[1].n_yielding += 1


def ready_count(r: Recorder) -> None:
    r.machine.default_queue.n_ready = 0


def ready_entry(r: Recorder) -> None:
    r.machine.default_queue.ready.clear()


def group_count(r: Recorder) -> None:
    r.machine.groups["a"].n_tasks += 1


def function_users(r: Recorder) -> None:
    next(iter(r.machine.functions.values())).users += 1


def inline_bytes(r: Recorder) -> None:
    r.machine.inline_bytes += 1


def unfinished(r: Recorder) -> None:
    r.machine.unfinished += 1


def drop_unsent(r: Recorder) -> None:
    r.machine.workers[1].drops[1] = None


def drop_from_the_future(r: Recorder) -> None:
    r.machine.workers[1].pending_drops.append((7, {}))


def idle(r: Recorder) -> None:
    r.machine.idle[r.machine.workers[1]] = None


def command_to_nobody(r: Recorder) -> None:
    r.machine.actions = [ToWorker(9, None)]


def work_left(r: Recorder) -> None:
    r.machine.touched.append(r.instance("a"))


def hint_left(r: Recorder) -> None:
    r.machine.avoid[99] = {1}


def future_left(r: Recorder) -> None:
    r.machine.clients[ME].futures[99] = r.instance("a")


def unlisted(r: Recorder) -> None:
    del r.machine.tasks[r.instance("d").tid]


FAULTS = [
    (forgotten_want, "S9"), (stale_news, "S9"), (kept_bytes, "S3"),
    (second_name, "S11"), (lone_list, "S11"), (wrong_attempt, "S2"),
    (lost_attempt, "S2"), (no_replica, "S3"), (unlisted_replica, "S3"),
    (state("a", RELEASED), "S3"), (state("b", READY), "S2"),
    (state("c", READY), "S4"), (state("d", WAITING), "S5"), (state("d", MEMORY), "S3"),
    (state("d", ERRED), "S1"), (state("d", FORGOTTEN), "S1"),
    (failed_without_state, "S1"), (miscounted_missing, "S5"),
    (miscounted_waiters, "S6"), (dependent_unlinked, "S6"), (dependency_added, "S4"),
    (slots, "S12"), (occupancy, "S12"), (yielding, "S12"), (ready_count, "S12"),
    (ready_entry, "S1"), (group_count, "S12"), (function_users, "S12"),
    (inline_bytes, "S12"), (unfinished, "S12"), (drop_unsent, "S13"),
    (drop_from_the_future, "S13"), (idle, "S12"), (command_to_nobody, "S14"),
    (work_left, "S0"), (hint_left, "S12"), (future_left, "S9"), (unlisted, "S"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "name"), FAULTS, ids=lambda x: getattr(x, "__name__", x)
)
def test_a_fault_is_found(fault: Callable[[Recorder], None], name: str) -> None:
    r = cluster()
    fault(r)
    with pytest.raises(AssertionError, match=rf"^{name}"):
        check(r.machine)


def test_validate_checks_now_and_then_what_is_too_much_for_each_event() -> None:
    r = Recorder()
    keys = tuple(range(2500))
    r.submit(*(task(k) for k in keys), wants=keys)
    r.machine.unfinished += 1
    # The graph and the first tick did not check; 2500 tasks are due every third time.
    r.tick()
    with pytest.raises(AssertionError, match=r"^S12"):
        r.tick()
