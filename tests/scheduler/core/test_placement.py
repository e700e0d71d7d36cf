"""Who gets a ready task, how many are queued on a worker, and in which order."""

from collections import Counter
from typing import Any

import pytest

from raddle.protocol.core.messages.client import Finished, Release
from raddle.protocol.core.messages.worker import (
    Compute,
    DropData,
    Heartbeat,
    LongRunning,
    Stored,
    WorkerClosing,
)
from raddle.scheduler.core.actions import Heard
from testkit.core import ME, Recorder, task


def flat(r: Recorder, n: int, name: str = "inc", **more: Any) -> list[Compute]:
    """Submit n new tasks of one group; what is handed out at once."""
    keys = tuple(f"{name}-{r.fids + i}" for i in range(n))
    annotation = 0 if "annotations" in more else -1
    r.submit(
        *(task(k, order=i, annotation=annotation) for i, k in enumerate(keys)),
        wants=keys,
        **more,
    )
    return r.take(Compute)


def learn(r: Recorder, seconds: float, name: str = "inc") -> None:
    """Have the group's duration known."""
    (compute,) = flat(r, 1, name)
    r.compute_done(compute, seconds=seconds)
    r.take(Finished)


def by_worker(r: Recorder, computes: list[Compute]) -> dict[int, int]:
    return dict(Counter(r.where(c.aid) for c in computes))


# How many.


def test_one_task_per_thread_while_the_duration_is_unknown() -> None:
    r = Recorder()
    r.join(1, nthreads=2)
    r.join(2, nthreads=3)
    computes = flat(r, 20)
    assert by_worker(r, computes) == {1: 2, 2: 3}


def test_short_tasks_are_queued_up_to_the_predicted_time() -> None:
    r = Recorder(n_workers=1, queue_seconds=0.005)
    learn(r, 0.00095)
    # Each takes 1 ms with what the worker adds: five of them are 5 ms.
    assert len(flat(r, 20)) == 5


def test_long_tasks_are_not_queued_beyond_the_threads() -> None:
    r = Recorder()
    r.join(1, nthreads=2)
    learn(r, 3.0)
    assert len(flat(r, 20)) == 2


def test_the_number_of_queued_tasks_is_bounded() -> None:
    r = Recorder(n_workers=1, queue_seconds=10.0, queue_tasks_max=7)
    learn(r, 1e-6)
    assert len(flat(r, 20)) == 7


def test_a_task_of_unknown_duration_is_not_queued_behind_short_ones() -> None:
    r = Recorder(n_workers=1)
    learn(r, 1e-5)
    assert len(flat(r, 3)) == 3
    assert flat(r, 1, "other") == []


def test_the_duration_is_a_moving_average() -> None:
    r = Recorder(n_workers=1)
    learn(r, 0.1)
    learn(r, 0.3)
    assert r.machine.groups["inc"].seconds == pytest.approx(0.2)


def test_a_value_that_was_there_already_teaches_nothing() -> None:
    r = Recorder(n_workers=1)
    learn(r, 0.1)
    learn(r, 0.0)
    assert r.machine.groups["inc"].seconds == 0.1


# Where, without inputs.


def test_a_map_is_spread_evenly() -> None:
    r = Recorder(n_workers=10)
    for _ in range(3):
        learn(r, 0.00095)
    computes = flat(r, 30)
    assert set(by_worker(r, computes).values()) == {3}


def test_more_threads_get_more() -> None:
    r = Recorder()
    r.join(1, nthreads=1)
    r.join(2, nthreads=3)
    learn(r, 0.00095)
    assert by_worker(r, flat(r, 8)) == {1: 2, 2: 6}


def test_an_idle_worker_comes_before_a_busy_one() -> None:
    r = Recorder(n_workers=3)
    learn(r, 0.0005)
    first = flat(r, 1)
    second = flat(r, 1)
    third = flat(r, 1)
    assert len(by_worker(r, first + second + third)) == 3


def test_tasks_one_after_the_other_take_turns_among_idle_workers() -> None:
    r = Recorder(n_workers=3)
    places: list[int] = []
    for _ in range(6):
        (compute,) = flat(r, 1, name=f"n{len(places)}")
        places.append(r.where(compute.aid))
        r.compute_done(compute)
        r.take(Finished)
    assert Counter(places) == {1: 2, 2: 2, 3: 2}


def test_zombies_hold_threads() -> None:
    r = Recorder(n_workers=2)
    r.works(1, Heartbeat({"zombies": 1}))
    r.take(Heard)
    assert by_worker(r, flat(r, 2)) == {2: 1}
    r.works(1, Heartbeat({"zombies": 0}))
    r.take(Heard)
    assert r.where(r.compute().aid) == 1


def test_a_closing_worker_gets_nothing_more() -> None:
    r = Recorder(n_workers=1)
    r.works(1, WorkerClosing("retired"))
    assert flat(r, 1) == []
    r.join(2)
    assert r.compute(2).key == "inc-0"


# Where, with inputs.


def dependents(r: Recorder, n: int, nbytes: int) -> list[Compute]:
    """n tasks on one input of this size; what is handed out at once."""
    r.submit(task("x"))
    r.compute_done(r.compute(), nbytes=nbytes)
    r.take(Finished)
    keys = tuple(f"inc-{r.fids + i}" for i in range(n))
    r.submit(*(task(k, "x", order=i) for i, k in enumerate(keys)), wants=keys)
    return r.take(Compute)


def test_a_task_goes_to_its_input() -> None:
    r = Recorder(n_workers=4)
    (compute,) = dependents(r, 1, nbytes=1000)
    assert [r.where(compute.aid)] == [w.wid for w in r.instance("x").replicas]
    assert compute.deps[0][1] == (r.where(compute.aid),)


def test_work_does_not_wait_for_a_busy_holder_if_an_idle_worker_is_sooner() -> None:
    r = Recorder(n_workers=3)
    learn(r, 0.01)
    computes = dependents(r, 3, nbytes=1000)
    assert by_worker(r, computes) == {1: 1, 2: 1, 3: 1}


def test_work_waits_for_the_holder_if_moving_the_input_takes_longer() -> None:
    r = Recorder(n_workers=3)
    learn(r, 0.01)
    computes = dependents(r, 3, nbytes=10**9)
    assert list(by_worker(r, computes).values()) == [3]


def test_an_inline_value_costs_nothing_to_move() -> None:
    r = Recorder(n_workers=2)
    r.submit(task("x"))
    x = r.compute()
    done = r.done_message(x, nbytes=10**9)._replace(frames=(b"value",))
    r.works(r.where(x.aid), done)
    r.take(Finished)
    computes = []
    for name in ("a", "b"):
        r.submit(task(name, "x"))
        computes.append(r.compute())
    assert len(by_worker(r, computes)) == 2
    assert computes[0].deps[0][3] == (b"value",)


def test_inline_values_are_left_out_of_what_is_to_move() -> None:
    """The large input travels along: the small one decides."""
    r = Recorder(n_workers=2)
    r.submit(task("large"), task("small"), wants=("large", "small"))
    large, small = r.take(Compute)
    inline = r.done_message(large, nbytes=10**9)._replace(frames=(b"value",))
    r.works(r.where(large.aid), inline)
    r.take(Finished)
    r.compute_done(small, nbytes=10)
    r.take(Finished)
    r.submit(task("y", "large", "small"))
    place = r.where(r.compute().aid)
    assert [w.wid for w in r.instance("small").replicas] == [place]


def test_inline_values_are_bounded_in_all() -> None:
    r = Recorder(n_workers=1, inline_bytes_max=10)
    fids = {}
    for key, size in (("a", 6), ("b", 6), ("c", 4)):
        fids[key] = r.submit(task(key))
        done = r.done_message(r.compute())._replace(frames=(b"x" * size,))
        r.works(1, done)
        r.take(Finished)
    kept = {k: r.instance(k).frames is not None for k in "abc"}
    assert kept == {"a": True, "b": False, "c": True}
    assert r.machine.inline_bytes == 10
    r.says(ME, Release((fids["a"],)))
    r.take(DropData)
    assert r.machine.inline_bytes == 4


def test_the_largest_input_decides() -> None:
    r = Recorder(n_workers=2)
    r.submit(task("small"), task("large"), wants=("small", "large"))
    small, large = r.take(Compute)
    r.compute_done(small, nbytes=10)
    r.take(Finished)
    r.compute_done(large, nbytes=10**8)
    r.take(Finished)
    r.submit(task("y", "small", "large"))
    place = r.where(r.compute().aid)
    assert [w.wid for w in r.instance("large").replicas] == [place]


def test_of_several_holders_the_least_loaded_is_taken() -> None:
    r = Recorder(n_workers=3)
    r.submit(task("x"))
    x = r.compute()
    r.compute_done(x, nbytes=10**7)
    r.take(Finished)
    others = [w for w in (1, 2, 3) if w != r.instance("x").replicas[0].wid]
    r.works(others[0], Stored(0, ((x.tid, x.aid),)))
    places = []
    for name in ("a", "b"):
        r.submit(task(name, "x"))
        places.append(r.where(r.compute().aid))
    assert sorted(places) == sorted(w.wid for w in r.instance("x").replicas)


# Which comes first.


def test_priorities_order_what_is_handed_out() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("busy"))
    busy = r.compute()
    r.submit(task("later", order=1), task("sooner", order=0), wants=("later", "sooner"))
    r.submit(task("next-graph"))
    r.submit(task("urgent", annotation=0), annotations=({"priority": 1},))
    r.submit(task("patient", annotation=0), annotations=({"priority": -1},))
    order = []
    compute = busy
    for _ in range(5):
        r.compute_done(compute, seconds=1.0)
        r.take(Finished)
        compute = r.compute()
        order.append(compute.key)
    assert order == ["urgent", "sooner", "later", "next-graph", "patient"]


def test_the_worker_is_told_the_priority() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("a", annotation=0, order=7), annotations=({"priority": 3},))
    compute = r.compute()
    assert compute.priority[0] == -3
    assert compute.priority[2] == 7


def test_released_tasks_leave_no_entries_behind_for_ever() -> None:
    r = Recorder(n_workers=1)
    r.machine.settings = r.machine.settings._replace(validate=False)
    r.submit(task("busy"))
    r.compute()
    for round_ in range(30):
        keys = tuple(f"k{round_}-{i}" for i in range(50))
        # Each time more urgent: what was released before is never the first.
        fids = r.submit(
            *(task(k, annotation=0) for k in keys),
            wants=keys,
            annotations=({"priority": round_},),
        )
        r.says(ME, Release(fids[1:]))
    r.submit(task("last"))
    assert len(r.machine.default_queue.ready) < 300


# Restrictions.


@pytest.mark.parametrize("name", ["w2", "tcp://host:2", "other-host"])
def test_a_worker_is_named_by_name_address_or_host(name: str) -> None:
    r = Recorder(n_workers=1)
    r.join(2)
    r.join(3, host="other-host")
    r.submit(task("a", annotation=0), annotations=({"workers": (name,)},))
    assert r.where(r.compute().aid) == (3 if name == "other-host" else 2)


def test_a_restricted_task_waits_for_its_worker_to_join() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("a", annotation=0), annotations=({"workers": ("w2",)},))
    assert r.status("a") == "ready (restrictions)"
    r.join(2)
    assert r.compute(2).key == "a"


def test_a_restricted_task_is_blocked_by_slots_while_its_worker_is_busy() -> None:
    r = Recorder(n_workers=2)
    for name, status in (("a", "processing"), ("b", "ready (slots)")):
        r.submit(task(name, annotation=0), annotations=({"workers": ("w2",)},))
        assert r.status(name) == status
        r.unread.clear()
    r.leave(2)
    assert r.status("b") == "ready (restrictions)"


def test_other_workers_stand_in_while_the_named_one_is_away() -> None:
    r = Recorder(n_workers=1)
    loose = {"workers": ("w2",), "allow_other_workers": True}
    r.submit(task("a", annotation=0), annotations=(loose,))
    a = r.compute(1)
    r.join(2)
    r.submit(task("b", annotation=0), annotations=(loose,))
    assert r.compute(2).key == "b"
    r.submit(task("c", annotation=0), annotations=(loose,))
    assert r.status("c") == "ready (slots)"
    r.compute_done(a)
    r.take(Finished)
    assert r.status("c") == "ready (slots)"
    r.leave(2)
    assert r.compute(1).key in ("b", "c")


def test_stand_ins_are_excused_when_the_named_worker_comes() -> None:
    r = Recorder(n_workers=3)
    loose = {"workers": ("w9",), "allow_other_workers": True}
    r.submit(task("a", annotation=0), annotations=(loose,))
    r.compute()
    r.join(9, nthreads=2)
    for name in ("b", "c"):
        r.submit(task(name, annotation=0), annotations=(loose,))
        assert r.compute(9).key == name
    r.submit(task("d", annotation=0), annotations=(loose,))
    assert r.status("d") == "ready (slots)"


def test_resources_are_held_while_a_task_runs() -> None:
    r = Recorder()
    r.join(1, nthreads=4, resources={"GPU": 2})
    r.join(2, nthreads=4)
    gpu = ({"resources": {"GPU": 1}},)
    computes = flat(r, 5, annotations=gpu)
    assert by_worker(r, computes) == {1: 2}
    assert computes[0].resources == {"GPU": 1}
    r.compute_done(computes[0])
    r.take(Finished)
    third = r.compute(1)
    # Giving the slot back does not give the resource back.
    r.works(1, LongRunning(third.aid))
    r.done()
    r.compute_done(third)
    r.take(Finished)
    r.compute(1)


def test_a_task_that_needs_more_than_any_worker_has_is_blocked() -> None:
    r = Recorder()
    r.join(1, resources={"GPU": 1})
    assert flat(r, 1, annotations=({"resources": {"GPU": 2}},)) == []
    assert r.status("inc-0") == "ready (restrictions)"


def test_a_blocked_task_does_not_block_the_others() -> None:
    r = Recorder(n_workers=1)
    r.submit(
        task("a", annotation=0), annotations=({"workers": ("w2",), "priority": 9},)
    )
    r.submit(task("b"))
    assert r.compute().key == "b"


def test_queues_share_a_worker_by_priority() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("busy"))
    busy = r.compute()
    named = {"workers": ("w1",), "priority": 2}
    r.submit(task("plain"))
    r.submit(task("named", annotation=0), annotations=(named,))
    r.submit(task("urgent", annotation=0), annotations=({"priority": 5},))
    order = []
    compute = busy
    for _ in range(3):
        r.compute_done(compute, seconds=1.0)
        r.take(Finished)
        compute = r.compute()
        order.append(compute.key)
    assert order == ["urgent", "named", "plain"]


def test_a_restriction_that_nobody_uses_any_more_is_forgotten() -> None:
    r = Recorder(n_workers=2)
    fid = r.submit(task("a", annotation=0), annotations=({"workers": ("w2",)},))
    r.compute_done(r.compute())
    r.take(Finished)
    assert len(r.machine.queues) == 2
    r.says(ME, Release((fid,)))
    r.take(DropData)
    assert list(r.machine.queues.values()) == [r.machine.default_queue]
    assert all(len(w.queues) == 1 for w in r.machine.workers.values())


def test_what_tasks_submit_goes_before_what_was_submitted_earlier() -> None:
    r = Recorder(n_workers=1)
    r.add_client("Client-of-worker", nested=True)
    (first,) = flat(r, 3, "outer")
    r.submit(task("inner-a"), client="Client-of-worker")
    r.submit(task("inner-b"), client="Client-of-worker")
    order = []
    compute = first
    for _ in range(2):
        r.compute_done(compute)
        r.take(Finished)
        compute = r.take(Compute)[0]
        order.append(compute.key)
    assert order == ["inner-b", "inner-a"], "the newest first, both before outer-*"
