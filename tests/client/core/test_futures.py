"""What becomes of futures, message by message."""

from typing import Any

import pytest

from raddle.client.core.futures import (
    CALLS_MAX,
    CANCELLED,
    ERRED,
    FINISHED,
    PENDING,
    REFUSED,
    SENT,
    STATUS,
    UNSENT,
    Changed,
    Collided,
    FutureTable,
    Record,
    collision_text,
)
from raddle.protocol.core.collisions import CollisionRecord
from raddle.protocol.core.messages.client import (
    Cancelled,
    CollisionNotice,
    Erred,
    Finished,
    GraphAck,
    PendingAgain,
)
from raddle.protocol.errors import AmbiguousKeyError, CancelledError

HERE = ("program.py", 7)
FRAMES = (b"value",)
ERROR = ("", (b"an exception",))
REFUSAL = ("LostDependency", ("x", ("y",)))


def one(table: FutureTable, key: str = "x") -> Record:
    _, (record,) = table.open([key], HERE)
    return record


def finished(record: Record) -> Finished:
    return Finished(((record.fid, 8, "int", FRAMES),))


def changed(actions: list[Any]) -> list[Record]:
    return [r for action in actions if type(action) is Changed for r in action.records]


def test_a_future_is_unsent_then_sent_then_pending_then_finished() -> None:
    table = FutureTable()
    call, (record,) = table.open(["x"], HERE)
    assert (record.state, record.done) == (UNSENT, False)
    table.sent(call.number)
    assert record.state == SENT
    table.handle(GraphAck(call.number, None))
    assert record.state == PENDING
    table.handle(finished(record))
    assert (record.state, record.done, record.failed) == (FINISHED, True, False)
    assert (record.value, record.nbytes, record.type_name) == (FRAMES, 8, "int")


def test_every_state_has_a_public_word() -> None:
    words = ("pending", "pending", "pending", "finished", "error", "cancelled", "error")
    states = (UNSENT, SENT, PENDING, FINISHED, ERRED, CANCELLED, REFUSED)
    assert tuple(STATUS[s] for s in states) == words


def test_the_futures_of_a_call_have_consecutive_numbers_in_the_order_asked() -> None:
    table = FutureTable()
    one(table)
    call, records = table.open(["a", "b", "a"], HERE)
    assert [r.key for r in records] == ["a", "b", "a"]
    assert [r.fid for r in records] == list(call.fids)
    assert call.where == HERE


def test_a_resubmitted_key_is_not_finished_by_the_old_future() -> None:
    table = FutureTable()
    old = one(table)
    table.handle(finished(old))
    new = one(table)
    assert not new.done


def test_only_observed_finished_futures_are_told_of() -> None:
    table = FutureTable()
    a, b = one(table, "a"), one(table, "b")
    b.observers = object()
    actions = table.handle(Finished((*finished(a).items, *finished(b).items)))
    assert changed(actions) == [b]


def test_an_erred_future_keeps_its_error_and_the_task_to_blame() -> None:
    table = FutureTable()
    record = one(table)
    assert changed(table.handle(Erred(((record.fid, ERROR, "y"),)))) == [record]
    assert (record.state, record.value, record.blamed) == (ERRED, ERROR, "y")
    assert record.failed


def test_a_lost_value_is_awaited_again() -> None:
    table = FutureTable()
    record = one(table)
    table.handle(finished(record))
    assert table.handle(PendingAgain((record.fid,))) == []
    assert not record.done
    assert record.value is None


def test_retry_reopens_the_erred_ones_only() -> None:
    table = FutureTable()
    erred, done, refused = one(table, "a"), one(table, "b"), one(table, "c")
    table.handle(finished(done))
    table.handle(Erred(((erred.fid, ERROR, "a"), (refused.fid, REFUSAL, "c"))))
    assert table.retry([erred.fid, done.fid, refused.fid, 99]) == [erred]
    assert not erred.done
    assert done.state == FINISHED
    assert refused.state == REFUSED


def test_a_refused_graph_errs_all_its_futures_for_good() -> None:
    table = FutureTable()
    other = one(table, "other")
    call, records = table.open(["a", "b"], HERE)
    actions = table.handle(GraphAck(call.number, REFUSAL))
    assert changed(actions) == records
    assert all(r.state == REFUSED and r.value == REFUSAL for r in records)
    assert not other.done
    table.handle(PendingAgain((records[0].fid,)))
    table.handle(finished(records[0]))
    assert records[0].state == REFUSED


@pytest.mark.parametrize("late", ["finished", "erred", "pending-again", "cancelled"])
def test_nothing_brings_a_cancelled_future_back(late: str) -> None:
    table = FutureTable()
    record = one(table)
    assert table.cancel([record.fid], "Client-1", "no need") == [record]
    messages = {
        "finished": finished(record),
        "erred": Erred(((record.fid, ERROR, "x"),)),
        "pending-again": PendingAgain((record.fid,)),
        "cancelled": Cancelled((record.fid,), "scheduler", "another reason"),
    }
    assert table.handle(messages[late]) == []
    assert record.state == CANCELLED
    assert isinstance(record.value, CancelledError)
    assert (record.value.who, record.value.why) == ("Client-1", "no need")


def test_the_scheduler_may_cancel() -> None:
    table = FutureTable()
    record = one(table)
    actions = table.handle(Cancelled((record.fid, 99), "Client-2", "forced"))
    assert changed(actions) == [record]
    assert "cancelled by Client-2: forced" in str(record.value)


def test_losing_the_scheduler_cancels_what_is_undecided() -> None:
    table = FutureTable()
    done, pending = one(table, "a"), one(table, "b")
    table.handle(finished(done))
    assert table.lose("scheduler gone: killed") == [pending]
    assert done.state == FINISHED
    assert "scheduler gone: killed" in str(pending.value)


def test_messages_about_released_futures_are_ignored() -> None:
    table = FutureTable()
    record = one(table)
    table.drop(record.fid)
    table.drop(record.fid)
    assert table.handle(finished(record)) == []
    assert table.records == {}
    assert not record.done


def test_unknown_calls_and_messages_are_ignored() -> None:
    table = FutureTable()
    table.sent(5)
    assert table.handle(GraphAck(5, REFUSAL)) == []
    assert table.handle(CollisionNotice(5, (), 0)) == []
    assert table.handle(object()) == []


# Names


def test_a_name_means_the_latest_live_future() -> None:
    table = FutureTable()
    assert table.named("x") is None
    old, new = one(table), one(table)
    assert table.named("x") is new
    table.drop(new.fid)
    assert table.named("x") is old
    table.drop(old.fid)
    assert table.named("x") is None


def test_a_future_is_not_meant_from_the_moment_of_its_release() -> None:
    table = FutureTable()
    old, new = one(table), one(table)
    new.released = True
    assert table.named("x") is old
    old.released = True
    assert table.named("x") is None
    latest = one(table)
    assert table.named("x") is latest
    assert latest.older is None


def test_dropping_an_older_future_leaves_the_latest() -> None:
    table = FutureTable()
    old, new = one(table), one(table)
    table.drop(old.fid)
    assert table.named("x") is new
    table.drop(new.fid)
    assert table.named("x") is None


def test_a_future_bound_by_name_is_pending() -> None:
    table = FutureTable()
    record = table.bind("x")
    assert record.state == PENDING
    assert table.named("x") is record
    table.handle(finished(record))
    assert record.state == FINISHED


# Collisions


def collision(key: str, action: Any = "kept") -> CollisionRecord:
    return CollisionRecord(
        key, key, "spec", "aa", "bb", (), (), "memory", (), "Client-1", "warn", action
    )


def test_a_notice_names_its_call() -> None:
    table = FutureTable()
    call, _ = table.open(["x"], HERE)
    record = collision("x")
    (action,) = table.handle(CollisionNotice(call.number, (tuple(record),), 3))
    assert action == Collided(call, (record,), 3)


def test_a_warning_says_once_what_became_of_all_and_that_it_may_be_harmless() -> None:
    kept = [collision("x"), collision("y")]
    text = collision_text(kept, 2)
    assert text.index("'x'") < text.index("'y'") < text.index("were kept")
    assert text.count("were kept") == 1
    assert "Harmless where both specs mean the same" in text
    assert "else use another key" in text
    text = collision_text([*kept, collision("z", "new-instance")], 9)
    assert text.count("were kept") == text.count("a task of its own") == 1
    assert "6 more" in text


def test_a_notice_may_come_after_the_acknowledgement() -> None:
    table = FutureTable()
    call, _ = table.open(["x"], HERE)
    table.handle(GraphAck(call.number, None))
    assert table.handle(CollisionNotice(call.number, (tuple(collision("x")),), 1))


def test_acknowledged_calls_are_forgotten_in_time() -> None:
    table = FutureTable()
    for _ in range(CALLS_MAX + 10):
        call, _ = table.open(["x"], HERE)
        table.handle(GraphAck(call.number, None))
    assert len(table.calls) == CALLS_MAX


def test_a_failed_call_stays_failed() -> None:
    table = FutureTable()
    call, (record,) = table.open(["x"], HERE)
    error = RuntimeError("a warning made an error")
    assert table.fail(call, error) == [record]
    table.handle(finished(record))
    assert (record.state, record.value) == (REFUSED, error)


def test_a_name_of_two_instances_is_ambiguous() -> None:
    table = FutureTable()
    old = one(table)
    call, (new,) = table.open(["x"], HERE)
    kept, apart = collision("x"), collision("x", "new-instance")
    table.handle(CollisionNotice(call.number, (tuple(kept),), 1))
    assert table.named("x") is new
    table.handle(CollisionNotice(call.number, (tuple(apart),), 1))
    with pytest.raises(AmbiguousKeyError, match="'x'"):
        table.named("x")
    old.released = True
    assert table.named("x") is new
