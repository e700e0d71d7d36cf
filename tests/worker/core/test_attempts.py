"""Attempts: each row of the worker's table (states.md B3), and its races."""

from raddle.protocol.core.messages.worker import (
    CancelAttempts,
    CloseWorker,
    Done,
    DropData,
    DropFunctions,
    Failed,
    Functions,
    LongRunning,
    Miss,
    Rejected,
    Resumed,
    Run,
    Started,
    YieldAttempts,
)
from raddle.worker.core.actions import Abort, Ask, ForShell, LogRecord, Recall
from raddle.worker.core.data import Packed
from raddle.worker.core.events import (
    Begun,
    Fetched,
    Raised,
    Rejoined,
    Rescheduled,
    Returned,
    Seceded,
    Withdrawn,
)
from testkit.worker_core import Core, Handed, compute, returned

ERROR = ("", (b"pickle",))


def test_an_attempt_without_inputs_is_handed_over_and_reported() -> None:
    core = Core()
    assert core.says(compute(7, 1), compute(8, 2)) == [Handed((7, 8))]
    report = Returned(7, "value", 5, "str", 0.25, (b"frames",))
    assert core.ran(report, returned(8)) == [
        Done(7, 0, 5, "str", 0.25, (b"frames",)),
        Done(8, 0, 8, "int", 0.5, None),
    ]
    assert core.stored == {1: "value", 2: None}
    assert core.is_idle()


def test_a_value_that_is_here_already_is_not_computed_again() -> None:
    core = Core()
    core.says(compute(7, 1))
    core.ran(returned(7, "value"))
    assert core.says(compute(8, 1)) == [Done(8, 0, 8, "int", 0.0, None)]
    # The value is not attempt 8's: cancelling 8 leaves it alone.
    assert core.says(CancelAttempts((8,))) == []
    assert core.stored == {1: "value"}


def test_inputs_are_pinned_in_the_order_of_the_payload() -> None:
    core = Core()
    core.says(compute(7, 1))
    core.ran(returned(7, "here"))
    dep = (2, (), 3, (b"small",))
    assert core.says(compute(8, 3, dep, (1, (1,)))) == [Handed((8,))]
    inline, here = core.machine.attempts[8].inputs
    assert isinstance(inline, Packed)
    assert inline.frames == (b"small",)
    assert here == "here"
    # An inline input is no replica.
    assert set(core.stored) == {1}


def test_started_is_sent_for_what_still_runs_and_once() -> None:
    core = Core()
    core.says(compute(7, 1), compute(8, 2))
    core.ran(returned(8))
    assert core.on(Begun([7, 8])) == [Started((7,))]
    assert core.on(Begun([7])) == []


def test_dropping_an_input_leaves_running_attempts_their_pinned_value() -> None:
    core = Core()
    core.says(compute(7, 1))
    core.ran(returned(7, "x"))
    core.says(compute(8, 2, (1, (1,))))
    assert core.says(DropData(1, (1,))) == []
    assert core.stored == {}
    assert core.machine.attempts[8].inputs == ("x",)
    assert core.ran(returned(8)) == [Done(8, 1, 8, "int", 0.5, None)]


def test_a_ready_attempt_whose_input_was_dropped_wants_it_again() -> None:
    core = Core(resources={"GPU": 1})
    core.says(compute(7, 1))
    core.ran(returned(7, "x"))
    gpu = {"GPU": 1.0}
    core.says(compute(8, 2, resources=gpu), compute(9, 3, (1, (1,)), resources=gpu))
    core.says(DropData(1, (1,)))
    assert core.ran(returned(8)) == [
        Done(8, 1, 8, "int", 0.5, None),
        Miss(1, 1, "not-found"),
    ]
    assert core.wanted == {1}


def test_a_waiting_attempt_whose_other_input_was_dropped_wants_it_again() -> None:
    core = Core()
    core.says(compute(7, 1))
    core.ran(returned(7, "x"))
    assert core.says(compute(8, 3, (1, (1,)), (2, (2,)))) == [
        Ask(2, "tcp://two:1", 1, (2,))
    ]
    core.says(DropData(1, (1,)))
    came = core.on(Fetched(2, 1, ((2, 5, (b"y",)),), ()))
    assert Miss(1, 1, "not-found") in came
    assert core.wanted == {1}
    assert core.machine.attempts[8].missing == 1


def test_errors_are_reported() -> None:
    core = Core()
    core.says(compute(7, 1))
    assert core.ran(Raised(7, ERROR, "ValueError: no", 0.5)) == [
        Failed(7, 0, ERROR, "ValueError: no", 0.5),
    ]
    assert core.is_idle()


def test_a_task_may_ask_to_be_run_elsewhere() -> None:
    core = Core()
    core.says(compute(7, 1))
    assert core.ran(Rescheduled(7)) == [Rejected(7, 0, "rescheduled")]
    assert core.is_idle()


def test_long_running_attempts_are_told_of() -> None:
    core = Core(nthreads=1)
    core.says(compute(7, 1), compute(8, 2))
    assert core.on(Begun([7])) == [Started((7,))]
    assert core.ran(Seceded(7)) == [LongRunning(7)]
    # Its thread counts no more, so that another one may run.
    assert core.on(Begun([8])) == [Started((8,))]
    # And it comes back without waiting, for which the check makes room.
    assert core.ran(Rejoined(7, waited=False)) == [Resumed(7)]
    assert core.ran(returned(7), returned(8)) == [
        Done(7, 0, 8, "int", 0.5, None),
        Done(8, 0, 8, "int", 0.5, None),
    ]


def test_a_zombie_frees_its_slot_without_a_word() -> None:
    core = Core(nthreads=1)
    core.says(compute(7, 1))
    core.on(Begun([7]))
    assert core.says(CancelAttempts((7,))) == [Abort(7)]
    assert core.ran(Seceded(7), Rejoined(7, waited=True)) == []
    assert core.ran(returned(7)) == []
    assert core.is_idle()


def test_cancelling_a_waiting_attempt_deletes_it_and_its_wants() -> None:
    core = Core()
    core.says(compute(7, 3, (1, (2,)), (2, (2,))), compute(8, 4, (2, (2,))))
    assert core.says(CancelAttempts((7,))) == []
    assert core.wanted == {2}
    # What was asked for only by 7 is discarded when it comes.
    came = core.on(Fetched(2, 1, ((1, 5, (b"x",)), (2, 6, (b"y",))), ()))
    assert Handed((8,)) in came
    assert set(core.stored) == {2}


def test_cancelling_a_ready_attempt_deletes_it() -> None:
    core = Core(resources={"GPU": 1})
    gpu = {"GPU": 1.0}
    core.says(compute(7, 1, resources=gpu), compute(8, 2, resources=gpu))
    assert core.says(CancelAttempts((8,))) == []
    core.ran(returned(7))
    assert core.is_idle()


def test_cancelling_what_the_executor_has_makes_a_zombie() -> None:
    core = Core()
    core.says(compute(7, 1))
    attempt = core.machine.attempts[7]
    assert core.says(CancelAttempts((7,))) == [Abort(7)]
    # Running code may read it.
    assert attempt.cancelled
    # The executor had not begun it.
    assert core.on(Withdrawn([7])) == []
    assert core.is_idle()


def test_results_of_zombies_are_discarded() -> None:
    core = Core()
    core.says(compute(7, 1), compute(8, 2), compute(9, 3))
    core.says(CancelAttempts((7, 8, 9)))
    assert core.on(Begun([7, 8])) == []
    reports = returned(7), Raised(8, ERROR, "ValueError: no", 0.5), Rescheduled(9)
    assert core.ran(*reports) == [
        LogRecord(10, "attempt 8 was cancelled and then raised ValueError: no")
    ]
    assert core.stored == {}
    assert core.is_idle()


def test_cancelling_what_ended_removes_its_value_and_no_other() -> None:
    core = Core()
    core.says(compute(7, 1), compute(8, 2))
    core.ran(returned(7), returned(8))
    assert core.says(CancelAttempts((7, 99))) == []
    assert set(core.stored) == {2}


def test_an_attempt_is_given_back_unless_it_has_begun() -> None:
    core = Core(nthreads=1, resources={"GPU": 1})
    gpu = {"GPU": 1.0}
    core.says(
        compute(6, 1, (9, (2,))),
        compute(7, 2, resources=gpu),
        compute(8, 3, resources=gpu),
        compute(9, 4),
        compute(10, 5),
    )
    core.on(Begun([9]))
    assert core.says(YieldAttempts((6, 7, 8, 9, 10, 99))) == [
        Rejected(6, 0, "yielded"),
        Recall(7),
        Rejected(8, 0, "yielded"),
        Recall(10),
    ]
    # The executor lost the race for 7 and won it for 10.
    assert core.on(Withdrawn([10])) == [Rejected(10, 0, "yielded")]
    assert set(core.machine.attempts) == {7, 9}


def test_a_recalled_attempt_that_is_also_cancelled_is_not_given_back() -> None:
    core = Core()
    core.says(compute(7, 1))
    assert core.says(YieldAttempts((7,)), CancelAttempts((7,))) == [Recall(7), Abort(7)]
    assert core.on(Withdrawn([7])) == []
    assert core.is_idle()


def test_resource_tasks_are_handed_over_one_by_one_by_priority() -> None:
    core = Core(resources={"GPU": 2, "disk": 0.3})
    one, two, disk = {"GPU": 1.0}, {"GPU": 2.0}, {"disk": 0.1}
    assert core.says(
        compute(1, 1, priority=(3,), resources=two),
        compute(2, 2, priority=(1,), resources=one),
        compute(3, 3, priority=(2,), resources=one),
        *(compute(n, n, resources=disk) for n in (4, 5, 6, 7)),
    ) == [Handed((4, 5, 6, 2, 3))]
    assert core.ran(returned(4))[-1] == Handed((7,))
    assert core.ran(returned(2)) == [Done(2, 0, 8, "int", 0.5, None)]
    assert core.ran(returned(3))[-1] == Handed((1,))


def test_a_zombie_holds_its_resources_until_it_ends() -> None:
    core = Core(resources={"GPU": 1})
    gpu = {"GPU": 1.0}
    core.says(compute(7, 1, resources=gpu))
    core.on(Begun([7]))
    core.says(CancelAttempts((7,)))
    assert core.says(compute(8, 2, resources=gpu)) == []
    assert core.ran(returned(7)) == [Handed((8,))]


def test_a_dropped_function_stays_with_the_attempts_that_name_it() -> None:
    core = Core()
    assert core.says(
        Functions(((1, (b"f",)),)), compute(7, 1), DropFunctions((1,))
    ) == [Handed((7,))]
    definition = core.machine.attempts[7].definition
    assert definition is not None
    assert definition.frames == (b"f",)
    core.says(compute(8, 2))
    assert core.machine.attempts[8].definition is None


def test_what_is_the_shells_business_goes_there() -> None:
    core = Core()
    run, close = Run(1, (b"f",)), CloseWorker("why")
    assert core.says(run, close) == [ForShell(run), ForShell(close)]


def test_race_1_the_old_attempt_keeps_its_input_and_the_new_one_is_independent() -> (
    None
):
    core = Core()
    core.says(compute(6, 1))
    core.ran(returned(6, "x"))
    core.says(compute(7, 2, (1, (1,))))
    core.on(Begun([7]))
    old = core.machine.attempts[7]
    assert core.says(CancelAttempts((7,)), DropData(1, (1,)), compute(8, 3)) == [
        Abort(7),
        Handed((8,)),
    ]
    assert old.inputs == ("x",)
    assert core.on(Begun([8])) == [Started((8,))]
    assert core.ran(Raised(7, ERROR, "KeyError: x", 0.5), returned(8, "new y")) == [
        LogRecord(10, "attempt 7 was cancelled and then raised KeyError: x"),
        Done(8, 1, 8, "int", 0.5, None),
    ]
    assert core.stored == {3: "new y"}


def test_race_1b_an_identical_task_resubmitted_fetches_its_own_input() -> None:
    core = Core()
    core.says(compute(6, 1))
    core.ran(returned(6, "old x"))
    core.says(compute(7, 2, (1, (1,))))
    core.on(Begun([7]))
    asked = core.says(CancelAttempts((7,)), DropData(1, (1,)), compute(9, 5, (4, (2,))))
    assert asked == [Abort(7), Ask(2, "tcp://two:1", 1, (4,))]
    core.on(Fetched(2, 1, ((4, 8, (b"new x",)),), ()))
    (pinned,) = core.machine.attempts[9].inputs
    assert pinned.frames == (b"new x",)


def test_race_3_cancel_crossing_done_leaves_nothing() -> None:
    core = Core()
    core.says(compute(7, 1))
    core.ran(returned(7))
    assert core.says(CancelAttempts((7,))) == []
    assert core.stored == {}
    assert core.is_idle()


def test_race_4_yield_crossing_start_is_ignored() -> None:
    core = Core()
    core.says(compute(7, 1))
    core.on(Begun([7]))
    assert core.says(YieldAttempts((7,))) == []
    assert core.ran(returned(7)) == [Done(7, 0, 8, "int", 0.5, None)]


def test_seen_is_the_number_of_the_last_drop() -> None:
    core = Core()
    core.says(compute(7, 1), DropData(1, ()), DropData(2, (9,)))
    assert core.ran(Rescheduled(7)) == [Rejected(7, 2, "rescheduled")]
