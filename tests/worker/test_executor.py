"""Threads and slots: order, taking back, giving a slot back, bursts, ending."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from raddle.worker.core.attempts import Attempt
from raddle.worker.core.events import (
    Rejoined,
    Report,
    Rescheduled,
    Returned,
    Seceded,
)
from raddle.worker.executor import Executor, RunningTask
from testkit.polling import eventually_async

WITHIN = 20.0


def attempt(aid: int, *priority: int, value: Any = None) -> Attempt:
    made = Attempt(aid, aid, f"key-{aid}", 0, None, (), (), priority or (0,), None)
    made.inputs = (value,)
    return made


class Gates:
    """What a task waits for in its thread, and what says that it has begun."""

    def __init__(self) -> None:
        self.begun: dict[int, threading.Event] = {}
        self.go: dict[int, threading.Event] = {}

    def of(self, aid: int) -> tuple[threading.Event, threading.Event]:
        return (
            self.begun.setdefault(aid, threading.Event()),
            self.go.setdefault(aid, threading.Event()),
        )

    def open(self, *aids: int) -> None:
        for aid in aids:
            self.of(aid)[1].set()


class Rig:
    """An executor whose tasks do what `does` says, and all that it reported."""

    def __init__(self, nthreads: int) -> None:
        self.gates = Gates()
        self.does: dict[int, Callable[[RunningTask], None]] = {}
        self.ran: list[int] = []
        self.reports: list[Report] = []
        self.bursts: list[int] = []
        loop: Any = asyncio.get_running_loop()
        worker: Any = SimpleNamespace(loop=loop)
        self.executor = Executor(nthreads, self.run, self.deliver, worker)

    def run(self, task: RunningTask) -> Report:
        self.ran.append(task.aid)
        self.does.get(task.aid, self.wait)(task)
        return Returned(task.aid, None, 0, "", 0.0, None)

    def wait(self, task: RunningTask) -> None:
        """Say that the task has begun, and wait for its gate."""
        begun, go = self.gates.of(task.aid)
        begun.set()
        assert go.wait(WITHIN)

    def deliver(self, reports: list[Report]) -> None:
        self.bursts.append(len(reports))
        self.reports += reports

    def submit(self, *attempts: Attempt) -> None:
        self.executor.submit(list(attempts))

    async def begun(self, *aids: int) -> None:
        for aid in aids:
            await eventually_async(self.gates.of(aid)[0].is_set)

    async def reported(self, count: int) -> list[Report]:
        await eventually_async(lambda: len(self.reports) >= count)
        assert len(self.reports) == count
        return self.reports


Make = Callable[[int], Rig]


@pytest.fixture
async def rig() -> AsyncIterator[Make]:
    made: list[Rig] = []

    def make(nthreads: int) -> Rig:
        made.append(Rig(nthreads))
        return made[-1]

    yield make
    for each in made:
        each.executor.close()
        for gate in each.gates.go.values():
            gate.set()
    await eventually_async(
        lambda: not any(t.name.startswith("raddle-task") for t in threading.enumerate())
    )


def nothing(_: RunningTask) -> None:
    pass


def aids(reports: list[Report]) -> list[int]:
    return [r.aid for r in reports]


async def test_attempts_run_by_priority_then_in_the_order_they_came(rig: Make) -> None:
    one = rig(1)
    one.submit(attempt(1))
    await one.begun(1)
    one.does |= dict.fromkeys((2, 3, 4, 5), nothing)
    one.submit(attempt(2, 2, 0), attempt(3, 1), attempt(5, 1, 1), attempt(4, 1, 1))
    one.gates.open(1)
    await one.reported(5)
    assert one.ran == [1, 3, 4, 5, 2]


async def test_at_most_as_many_run_as_there_are_slots(rig: Make) -> None:
    two = rig(2)
    two.submit(*[attempt(n) for n in (1, 2, 3)])
    await two.begun(1, 2)
    assert sorted(two.executor.begun()) == [1, 2]
    assert two.executor.running == 2
    two.gates.open(2)
    await two.begun(3)
    assert sorted(two.executor.begun()) == [1, 3]
    # What was reported before is delivered before the answer.
    assert aids(two.reports) == [2]
    two.gates.open(1, 3)
    await two.reported(3)
    assert two.executor.running == 0


async def test_an_attempt_is_taken_back_unless_a_thread_has_it(rig: Make) -> None:
    one = rig(1)
    one.submit(attempt(1), attempt(2))
    await one.begun(1)
    assert not one.executor.withdraw(1)
    assert one.executor.withdraw(2)
    assert not one.executor.withdraw(2)
    one.gates.open(1, 3)
    one.submit(attempt(3))
    await one.reported(2)
    assert one.ran == [1, 3]


async def test_a_burst_of_reports_wakes_the_loop_once(rig: Make) -> None:
    one = rig(1)
    count = 200
    all_done = threading.Event()

    def last(_: RunningTask) -> None:
        all_done.set()

    one.does |= dict.fromkeys(range(1, count), nothing)
    one.does[count] = last
    one.submit(*[attempt(n) for n in range(1, count + 1)])
    # The loop is held up here until all but the last have been reported.
    assert all_done.wait(WITHIN)
    await one.reported(count)
    assert len(one.bursts) <= 2
    assert aids(one.reports) == list(range(1, count + 1))


async def test_a_blocked_task_gives_its_slot_to_another(rig: Make) -> None:
    one = rig(1)

    def blocks(task: RunningTask) -> None:
        with task.blocked(), task.blocked():
            one.wait(task)

    one.does[1] = blocks
    one.submit(attempt(1), attempt(2))
    await one.begun(1, 2)
    assert one.executor.begun() == [2]
    assert one.reports == [Seceded(1)]
    # It comes back at once, though the other one still runs.
    one.gates.open(1)
    assert await one.reported(3) == [
        Seceded(1),
        Rejoined(1, waited=False),
        Returned(1, None, 0, "", 0.0, None),
    ]
    # Two ran for a moment; one slot it is again: 3 starts when 2 ends.
    one.does[3] = nothing
    one.submit(attempt(3))
    assert one.executor.begun() == [2]
    one.gates.open(2)
    await one.reported(5)
    assert one.ran == [1, 2, 3]


async def test_a_deep_chain_of_blocked_tasks_does_not_deadlock(rig: Make) -> None:
    one = rig(1)
    depth = 30
    done = [threading.Event() for _ in range(depth + 1)]

    def needs_next(task: RunningTask) -> None:
        if task.aid < depth:
            one.executor.submit([attempt(task.aid + 1)])
            with task.blocked():
                assert done[task.aid].wait(WITHIN)
        done[task.aid - 1].set()

    one.does = dict.fromkeys(range(1, depth + 1), needs_next)
    one.submit(attempt(1))
    reports = await one.reported(depth + 2 * (depth - 1))
    returned = [r.aid for r in reports if isinstance(r, Returned)]
    assert sorted(returned) == list(range(1, depth + 1))
    # Surplus threads end.
    await eventually_async(
        lambda: (
            sum(t.name.startswith("raddle-task") for t in threading.enumerate()) <= 5
        )
    )


async def test_a_seceded_task_rejoins_when_a_slot_is_free(rig: Make) -> None:
    one = rig(1)

    def secedes(task: RunningTask) -> None:
        task.secede()
        task.secede()
        one.wait(task)
        task.rejoin()
        # Nothing is asked for twice.
        task.rejoin()

    one.does[1] = secedes
    one.submit(attempt(1), attempt(2))
    await one.begun(1, 2)
    one.gates.open(1)
    # It waits for 2, and comes before 3.
    await eventually_async(lambda: one.executor._rejoining)
    one.does[3] = nothing
    one.submit(attempt(3))
    one.gates.open(2)
    reports = await one.reported(5)
    assert aids(reports) == [1, 2, 1, 1, 3]
    assert isinstance(reports[0], Seceded)
    assert reports[2] == Rejoined(1, waited=True)


async def test_blocking_while_seceded_changes_nothing(rig: Make) -> None:
    one = rig(1)

    def both(task: RunningTask) -> None:
        with task.blocked():
            task.secede()
            task.rejoin()
        task.secede()
        with task.blocked():
            pass

    one.does[1] = both
    one.submit(attempt(1))
    kinds = [type(r) for r in await one.reported(4)]
    assert kinds == [Seceded, Rejoined, Seceded, Returned]
    # The slot is free again, and there is one only.
    one.submit(attempt(2), attempt(3))
    await one.begun(2)
    assert one.executor.begun() == [2]
    one.gates.open(2, 3)
    await one.reported(6)


async def test_a_finished_task_can_give_nothing_back(rig: Make) -> None:
    one = rig(1)
    kept: list[RunningTask] = []
    one.does[1] = kept.append
    one.submit(attempt(1))
    await one.reported(1)
    with kept[0].blocked():
        kept[0].secede()
        kept[0].rejoin()
    one.submit(attempt(2), attempt(3))
    await one.begun(2)
    assert one.executor.begun() == [2]
    assert len(one.reports) == 1
    one.gates.open(2, 3)
    await one.reported(3)


async def test_rejoining_on_the_event_loop_does_not_wait(rig: Make) -> None:
    one = rig(1)
    tasks: list[RunningTask] = []

    def hands_out(task: RunningTask) -> None:
        tasks.append(task)
        one.wait(task)

    one.does[1] = hands_out
    one.submit(attempt(1), attempt(2))
    await one.begun(1)
    tasks[0].secede()
    await one.begun(2)
    tasks[0].rejoin()
    assert sorted(one.executor.begun()) == [1, 2]
    one.gates.open(1, 2)
    await one.reported(4)


async def test_the_flag_of_a_cancelled_attempt_is_visible(rig: Make) -> None:
    one = rig(1)
    seen: list[bool] = []

    def looks(task: RunningTask) -> None:
        one.wait(task)
        seen.append(task.cancelled)

    one.does[1] = looks
    mine = attempt(1)
    one.submit(mine)
    await one.begun(1)
    mine.cancelled = True
    one.gates.open(1)
    await one.reported(1)
    assert seen == [True]


async def test_idle_threads_keep_nothing_alive(rig: Make) -> None:
    one = rig(2)

    class Value:
        pass

    value = Value()
    gone = weakref.ref(value)
    one.does = dict.fromkeys((1, 2), nothing)
    one.submit(attempt(1, value=value))
    await one.reported(1)
    one.submit(attempt(2))
    await one.reported(2)
    one.reports.clear()
    del value
    gc.collect()
    assert gone() is None


async def test_closing_lets_go_of_all_that_waits(rig: Make) -> None:
    one = rig(1)

    def rejoins(task: RunningTask) -> None:
        task.secede()
        task.rejoin()

    one.submit(attempt(1))
    await one.begun(1)
    one.gates.open(1)
    one.does[2] = rejoins
    one.does[4] = one.wait
    one.submit(attempt(2), attempt(4))
    await eventually_async(lambda: one.executor._rejoining)
    one.submit(attempt(3))
    one.executor.close()
    assert not one.executor.withdraw(3)
    one.submit(attempt(5))
    one.gates.open(4)
    await eventually_async(lambda: one.executor.running == 0)
    assert sorted(one.ran) == [1, 2, 4]


def test_reports_after_the_loop_is_closed_go_nowhere() -> None:
    gate = threading.Event()
    threads: list[threading.Thread] = []

    def run(task: RunningTask) -> Report:
        threads.append(threading.current_thread())
        assert gate.wait(WITHIN)
        return Rescheduled(task.aid)

    async def main() -> None:
        worker: Any = SimpleNamespace(loop=asyncio.get_running_loop())
        executor = Executor(1, run, lambda _: None, worker)
        executor.submit([attempt(1)])
        await eventually_async(lambda: threads)
        executor.close()

    asyncio.run(main())
    gate.set()
    threads[0].join(WITHIN)
    assert not threads[0].is_alive()


async def test_without_threads_attempts_wait_for_those_there_are(
    rig: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = rig(2)
    two.submit(attempt(1))
    await two.begun(1)

    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        two.submit(attempt(2), attempt(3))
        assert two.executor.begun() == [1]
        assert two.executor.withdraw(3)
    two.does[2] = nothing
    two.gates.open(1)
    await two.reported(2)
    assert two.ran == [1, 2]
