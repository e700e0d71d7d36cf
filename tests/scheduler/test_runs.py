"""Questions to several workers: answered when all have answered or left."""

from raddle.protocol.core.messages.worker import RunResult
from raddle.scheduler.runs import Runs

TWO = {1: "tcp://a", 2: "tcp://b"}
VALUE, OTHER = (b"x",), (b"y",)
ERROR = ("", (b"e",))


def test_the_last_answer_completes_it() -> None:
    runs = Runs()
    number, replies = runs.start("c", 7, TWO)
    assert replies == []
    assert runs.answered(2, RunResult(number, OTHER, None)) == []
    (reply,) = runs.answered(1, RunResult(number, None, ERROR))
    # In the order asked, whoever was first.
    items = (("tcp://a", None, ERROR), ("tcp://b", OTHER, None))
    assert reply == ("c", 7, True, items)


def test_a_worker_that_left_counts_as_an_error() -> None:
    runs = Runs()
    number, _ = runs.start("c", 7, TWO)
    assert runs.answered(1, RunResult(number, VALUE, None)) == []
    ((client, call, ok, items),) = runs.worker_left(2, "killed")
    assert (client, call, ok, items[0]) == ("c", 7, True, ("tcp://a", VALUE, None))
    address, frames, error = items[1]
    assert (address, frames, error[0]) == ("tcp://b", None, "CommClosedError")
    assert "killed" in error[1][0]


def test_a_worker_that_has_answered_may_leave() -> None:
    runs = Runs()
    number, _ = runs.start("c", 7, TWO)
    runs.answered(1, RunResult(number, VALUE, None))
    assert runs.worker_left(1, "done") == []
    ((*_, items),) = runs.answered(2, RunResult(number, OTHER, None))
    assert items == (("tcp://a", VALUE, None), ("tcp://b", OTHER, None))


def test_nobody_to_ask() -> None:
    assert Runs().start("c", 7, {})[1] == [("c", 7, True, ())]


def test_questions_do_not_mix() -> None:
    runs = Runs()
    first, _ = runs.start("c", 7, TWO)
    second, _ = runs.start("d", 7, {1: "tcp://a"})
    ((client, *_),) = runs.answered(1, RunResult(second, VALUE, None))
    assert client == "d"
    runs.answered(1, RunResult(first, VALUE, None))
    ((client, *_),) = runs.answered(2, RunResult(first, VALUE, None))
    assert client == "c"


def test_a_late_or_foreign_answer_is_ignored() -> None:
    runs = Runs()
    number, _ = runs.start("c", 7, {1: "tcp://a"})
    assert runs.answered(2, RunResult(number, VALUE, None)) == []
    assert runs.answered(1, RunResult(number + 1, VALUE, None)) == []
    runs.forget_client("c")
    assert runs.answered(1, RunResult(number, VALUE, None)) == []
