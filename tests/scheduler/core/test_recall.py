"""Queued tasks are asked back for a worker that has nothing to do."""

from raddle.protocol.core.messages.client import Finished
from raddle.protocol.core.messages.worker import (
    Compute,
    Rejected,
    Started,
    YieldAttempts,
)
from testkit.core import Recorder, task


def crowded(
    n: int = 8, *, nbytes: int | None = None, seconds: float = 0.002
) -> Recorder:
    """Worker 1 has n tasks of one thread's work; nobody else is there."""
    r = Recorder(n_workers=1, queue_seconds=10.0)
    r.submit(task("inc-0"))
    r.compute_done(r.compute(), seconds=seconds)
    r.take(Finished)
    deps: tuple[str, ...] = ()
    if nbytes is not None:
        r.submit(task("x"))
        r.compute_done(r.compute(), nbytes=nbytes)
        r.take(Finished)
        deps = ("x",)
    keys = tuple(f"inc-{i}" for i in range(1, n + 1))
    r.submit(*(task(k, *deps, order=i) for i, k in enumerate(keys)), wants=keys)
    assert len(r.machine.workers[1].attempts) == n
    return r


def test_half_of_what_waits_is_asked_back_the_latest_first() -> None:
    r = crowded(8)
    handed = [c.aid for c in r.take(Compute)]
    r.join(2)
    assert r.to(1, YieldAttempts).aids == tuple(handed[:-5:-1])


def test_what_is_given_back_goes_to_the_idle_worker() -> None:
    r = crowded(4)
    r.take(Compute)
    r.join(2)
    aids = r.to(1, YieldAttempts).aids
    r.works(1, *(Rejected(aid, 0, "yielded") for aid in aids))
    assert {r.where(c.aid) for c in r.take(Compute)} == {2}
    assert r.machine.workers[1].n_yielding == 0


def test_there_is_one_recall_at_a_time_per_victim() -> None:
    r = crowded(8)
    r.take(Compute)
    r.join(2)
    aids = r.to(1, YieldAttempts).aids
    r.tick()
    r.done()
    r.works(1, Started(aids[:-1]))
    r.tick()
    r.done()
    # The last one is answered: the victim may be asked again.
    r.works(1, Started(aids[-1:]))
    assert r.take(YieldAttempts)


def test_what_has_started_is_not_asked_back() -> None:
    r = crowded(3)
    computes = r.take(Compute)
    r.works(1, Started(tuple(c.aid for c in computes)))
    r.join(2)
    r.tick()
    r.done()


def test_a_little_is_left_alone_until_the_next_tick() -> None:
    r = crowded(4, seconds=1e-6)
    r.take(Compute)
    r.join(2)
    r.done()
    r.tick()
    assert len(r.to(1, YieldAttempts).aids) == 2


def test_nothing_is_asked_back_while_tasks_are_ready() -> None:
    r = crowded(4)
    r.take(Compute)
    r.submit(task("other-1"), task("other-2"), wants=("other-1", "other-2"))
    assert r.status("other-1") == "ready (slots)"
    r.join(2)
    r.compute(2)
    r.done()


def test_a_task_stays_where_moving_its_input_would_take_longer() -> None:
    r = crowded(4, nbytes=10**9)
    r.take(Compute)
    r.join(2)
    r.tick()
    r.done()


def test_a_task_is_not_asked_back_for_a_worker_it_may_not_run_on() -> None:
    r = Recorder(n_workers=1, queue_seconds=10.0)
    r.submit(task("inc-0"))
    r.compute_done(r.compute(), seconds=0.002)
    r.take(Finished)
    keys = tuple(f"inc-{i}" for i in range(1, 5))
    r.submit(
        *(task(k, annotation=0) for k in keys),
        wants=keys,
        annotations=({"workers": ("w1",)},),
    )
    assert len(r.take(Compute)) == 4
    r.join(2)
    r.tick()
    r.done()


def test_a_task_that_is_done_before_the_recall_arrives_is_done() -> None:
    """Race 4: yield crosses start; the worker ignores it, its facts count."""
    r = crowded(2)
    computes = r.take(Compute)
    r.join(2)
    (aid,) = r.to(1, YieldAttempts).aids
    late = next(c for c in computes if c.aid == aid)
    r.compute_done(late)
    assert len(r.finished()) == 1
    assert r.machine.workers[1].n_yielding == 0
