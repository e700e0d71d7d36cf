"""Fetches and data entries: whom to ask for what, and what becomes of the answers."""

from raddle.protocol.core.messages.worker import (
    Absent,
    Acquire,
    CancelAttempts,
    Claim,
    Confirm,
    DropData,
    Failed,
    Holders,
    Miss,
    Peers,
    PeersLeft,
    Present,
    Stored,
)
from raddle.worker.core.actions import Ask, Disconnect, LogRecord
from raddle.worker.core.data import Packed
from raddle.worker.core.events import (
    Fetched,
    FetchFailed,
    PutGone,
    PutHere,
    Returned,
)
from testkit.worker_core import Core, Handed, compute, returned

TWO, THREE = "tcp://two:1", "tcp://three:1"
X, Y, Z = (b"x",), (b"y",), (b"z",)


def test_wants_of_one_event_leave_in_one_request_per_peer() -> None:
    core = Core()
    assert core.says(
        compute(7, 10, (1, (2,)), (2, (2,))),
        compute(8, 11, (2, (2,)), (3, (3,))),
    ) == [Ask(2, TWO, 1, (1, 2)), Ask(3, THREE, 2, (3,))]
    assert core.on(Fetched(2, 1, ((1, 4, X), (2, 5, Y)), ())) == [
        Stored(0, ((1, 4), (2, 5))),
        Handed((7,)),
    ]
    assert core.on(Fetched(3, 2, ((3, 6, Z),), ())) == [
        Stored(0, ((3, 6),)),
        Handed((8,)),
    ]


def test_further_wants_gather_while_a_request_is_under_way() -> None:
    core = Core()
    core.says(compute(7, 10, (1, (2,))))
    assert core.says(compute(8, 11, (2, (2,)))) == []
    assert core.says(compute(9, 12, (3, (2,)), (1, (2,)))) == []
    assert core.on(Fetched(2, 1, ((1, 4, X),), ())) == [
        Stored(0, ((1, 4),)),
        Handed((7,)),
        Ask(2, TWO, 2, (2, 3)),
    ]


def test_one_request_asks_for_a_bounded_number_of_bytes() -> None:
    core = Core(request_bytes_max=100)
    big, small = 99, 2
    core.says(compute(6, 20, (9, (2,), big)))
    core.says(compute(7, 10, (1, (2,), big), (2, (2,), small), (3, (2,), 500)))
    assert core.on(Fetched(2, 1, ((9, 4, X),), ()))[-1] == Ask(2, TWO, 2, (1,))
    assert core.on(Fetched(2, 2, ((1, 4, X),), ()))[-1] == Ask(2, TWO, 3, (2,))
    assert core.on(Fetched(2, 3, ((2, 4, X),), ()))[-1] == Ask(2, TWO, 4, (3,))


def test_the_least_busy_holder_is_asked() -> None:
    core = Core()
    asks = core.says(
        compute(7, 10, (1, (2,))), compute(8, 11, (2, (2, 3)), (4, (2, 3)))
    )
    # Equally busy: the tid decides.
    assert asks == [Ask(2, TWO, 1, (1, 4)), Ask(3, THREE, 2, (2,))]


def test_fetched_values_keep_the_origin_they_came_with() -> None:
    core = Core()
    core.says(compute(7, 10, (1, (2,))))
    core.on(Fetched(2, 1, ((1, 4, X),), ()))
    assert core.machine.data.stored[1].origin == 4


def test_a_value_that_came_and_is_stored_already_is_discarded() -> None:
    core = Core()
    core.says(compute(7, 10, (1, (2,))), compute(8, 1))
    assert core.ran(returned(8, "own"))[-1] == Handed((7,))
    assert core.on(Fetched(2, 1, ((1, 4, X),), ())) == []
    assert core.stored == {1: "own"}


def test_a_result_keeps_what_was_fetched_meanwhile() -> None:
    core = Core()
    core.says(compute(8, 1), Acquire(((1, (2,), 8),)))
    core.on(Fetched(2, 1, ((1, 4, X),), ()))
    core.ran(returned(8, "own"))
    assert core.machine.data.stored[1].origin == 4


def test_race_5_not_found_goes_to_the_next_holder_then_to_the_scheduler() -> None:
    core = Core()
    assert core.says(compute(7, 10, (2, (2, 3)))) == [Ask(2, TWO, 1, (2,))]
    assert core.on(Fetched(2, 1, ((2, 0, None),), ())) == [Ask(3, THREE, 2, (2,))]
    # An answer that leaves a tid out says the same.
    assert core.on(Fetched(3, 2, (), ())) == [Miss(2, 3, "not-found")]
    assert core.says(Holders(2, (2,))) == [Ask(2, TWO, 3, (2,))]
    assert core.on(Fetched(2, 3, ((2, 5, X),), ())) == [
        Stored(0, ((2, 5),)),
        Handed((7,)),
    ]


def test_holders_that_are_none_leave_it_wanted() -> None:
    core = Core()
    core.says(compute(7, 10, (1, (2,))))
    core.on(FetchFailed(2, 1))
    assert core.says(Holders(1, ())) == []
    assert core.wanted == {1}
    assert core.says(Holders(1, (1, 3))) == [Ask(3, THREE, 2, (1,))]
    assert core.says(Holders(99, (2,))) == []


def test_unreachable_peers_are_told_of() -> None:
    core = Core()
    core.says(compute(7, 10, (2, (2, 3)), (1, (2,))))
    assert core.on(FetchFailed(2, 1)) == [
        Miss(1, 2, "unreachable"),
        Ask(3, THREE, 2, (2,)),
    ]


def test_a_holder_that_nobody_introduced_cannot_be_asked() -> None:
    core = Core()
    assert core.says(compute(7, 10, (1, (9,)))) == [Miss(1, 1, "not-found")]
    assert core.says(Peers(((9, "tcp://nine:1"),)), Holders(1, (9,))) == [
        Ask(9, "tcp://nine:1", 1, (1,))
    ]


def test_a_worker_does_not_ask_itself() -> None:
    core = Core()
    assert core.says(compute(7, 10, (1, (1, 2)))) == [Ask(2, TWO, 1, (1,))]
    assert core.says(compute(8, 11, (3, (1,)))) == [Miss(3, 1, "not-found")]


def test_peers_that_left_are_not_waited_for() -> None:
    core = Core()
    core.says(compute(7, 10, (2, (2, 3)), (1, (2,))))
    core.says(compute(8, 11, (3, (2,))))
    assert core.says(PeersLeft((2,))) == [
        Disconnect(2),
        Miss(1, 2, "unreachable"),
        Miss(3, 2, "unreachable"),
        Ask(3, THREE, 2, (2,)),
    ]
    # A late answer is nobody's, and so is its failure.
    assert core.on(Fetched(2, 1, ((1, 4, X),), ())) == []
    assert core.on(FetchFailed(2, 1)) == []
    assert core.wanted == {1, 2, 3}


def test_a_want_renewed_while_its_request_is_under_way_waits_for_that() -> None:
    core = Core()
    core.says(compute(7, 10, (1, (2,))))
    core.says(CancelAttempts((7,)))
    assert core.wanted == set()
    assert core.says(compute(8, 11, (1, (2,)))) == []
    assert core.machine.fetches.gathering == {}
    # An answer to another request changes nothing.
    assert core.on(Fetched(2, 99, ((1, 4, X),), ())) == []
    assert core.on(Fetched(2, 1, ((1, 4, X),), ())) == [
        Stored(0, ((1, 4),)),
        Handed((8,)),
    ]


def test_a_want_that_gathers_and_is_cancelled_is_not_asked_for() -> None:
    core = Core()
    core.says(compute(7, 10, (1, (2,))))
    core.says(compute(8, 11, (2, (2,))))
    core.says(CancelAttempts((8,)))
    core.on(Fetched(2, 1, ((1, 4, X),), ()))
    core.ran(returned(7))
    assert core.is_idle()


def test_a_value_that_cannot_travel_fails_those_that_wait_for_it() -> None:
    core = Core()
    core.says(compute(7, 10, (1, (2,)), (2, (3,))), compute(8, 11, (3, (2,))))
    error = ("", (b"SerializationError",))
    text = f"an input cannot be sent by worker {TWO}"
    assert core.on(Fetched(2, 1, ((3, 4, Z),), ((1, error),))) == [
        Stored(0, ((3, 4),)),
        Failed(7, 0, error, text, 0.0),
        LogRecord(20, f"task 'key-10' failed: {text}"),
        Handed((8,)),
    ]
    assert core.wanted == set()


def test_a_replica_is_acquired() -> None:
    core = Core()
    assert core.says(Acquire(((1, (2,), 8), (2, (3,), 8)))) == [
        Ask(2, TWO, 1, (1,)),
        Ask(3, THREE, 2, (2,)),
    ]
    assert core.on(Fetched(2, 1, ((1, 4, X),), ())) == [Stored(0, ((1, 4),))]
    # The order ends where no holder is left.
    assert core.on(FetchFailed(3, 2)) == [Miss(2, 3, "unreachable")]
    assert core.says(Holders(2, ())) == []
    assert core.is_idle()


def test_a_replica_that_cannot_travel_is_given_up() -> None:
    core = Core()
    core.says(Acquire(((1, (2,), 8),)))
    assert core.on(Fetched(2, 1, (), ((1, ("", (b"error",))),))) == []
    assert core.is_idle()


def test_an_acquired_value_that_is_here_is_not_fetched() -> None:
    core = Core()
    core.says(compute(7, 1))
    core.ran(returned(7))
    assert core.says(Acquire(((1, (2,), 8),))) == []


def test_drop_leaves_wanted_entries_alone() -> None:
    core = Core()
    core.says(compute(7, 10, (1, (2,))))
    assert core.says(DropData(1, (1,))) == []
    assert core.on(Fetched(2, 1, ((1, 4, X),), ())) == [
        Stored(1, ((1, 4),)),
        Handed((7,)),
    ]


def test_confirm_is_answered() -> None:
    core = Core()
    core.says(compute(7, 1))
    core.ran(Returned(7, 1, 8, "int", 0.5, None))
    assert core.says(DropData(1, ()), Confirm(1), Confirm(2)) == [
        Present(1, 1),
        Absent(2, 1),
    ]


def test_data_put_here_is_claimed() -> None:
    core = Core()
    value = Packed(X)
    assert core.on(PutHere([(b"u1", value, 1), (b"u2", Packed(Y), 1)])) == []
    core.says(compute(7, 10, (5, (2,))))
    # A value that was wanted meanwhile wakes who waits for it.
    assert core.says(Claim(((b"u1", 5),))) == [Handed((7,))]
    assert core.stored == {5: value}
    core.on(PutGone([b"u1", b"u2"]))
    assert core.stored == {5: value}
    assert core.says(Claim(((b"u2", 6),))) == [Absent(6, 0)]
    core.says(DropData(1, (5,)))
    assert core.stored == {}


def test_an_input_that_is_listed_twice_is_waited_for_once() -> None:
    core = Core()
    assert core.says(compute(7, 10, (1, (2,)), (1, (2,)))) == [Ask(2, TWO, 1, (1,))]
    came = core.on(Fetched(2, 1, ((1, 4, X),), ()))
    assert came == [Stored(0, ((1, 4),)), Handed((7,))]
    assert len(core.machine.attempts[7].inputs) == 2


def test_an_acquired_value_is_fetched_though_its_waiters_are_cancelled() -> None:
    core = Core()
    core.says(Acquire(((1, (2,), 8),)), compute(7, 10, (1, (2,))))
    core.says(CancelAttempts((7,)))
    assert core.on(Fetched(2, 1, ((1, 4, X),), ())) == [Stored(0, ((1, 4),))]
