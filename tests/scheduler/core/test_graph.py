"""What a graph may look like, what is refused as a whole, and what futures mean."""

from typing import Any

import pytest

from raddle.protocol.core.messages.client import (
    FORM_VALUE,
    Cancel,
    Cancelled,
    Erred,
    Goodbye,
    GraphAck,
    GraphTask,
    Release,
    Scatter,
)
from raddle.protocol.core.messages.worker import Compute, DropData, Started
from raddle.protocol.errors import from_wire
from raddle.scheduler.core.actions import DropPeer
from testkit.core import ME, OTHER, Recorder, task


def refusal(r: Recorder, *tasks: GraphTask, client: str = ME, **more: Any) -> Exception:
    """Submit something that is refused; nothing but the answer may come of it."""
    before = dict(r.machine.tasks)
    message, fids = r.graph(*tasks, **more)
    r.says(client, message)
    error = r.to(client, GraphAck).error
    assert error is not None
    assert r.machine.tasks == before
    assert set(fids) <= set(r.machine.clients[client].lost)
    return from_wire(error)


def test_an_unknown_name_refuses_the_call_and_creates_nothing() -> None:
    r = Recorder(n_workers=1)
    error = refusal(
        r,
        task("a"),
        task("b", "a", "nobody"),
        task("c", "never"),
        wants=("b", "c", "a"),
    )
    assert type(error).__name__ == "LostDependency"
    assert set(error.names) == {"nobody", "never"}  # type: ignore[attr-defined]
    assert error.key == "b"  # type: ignore[attr-defined]


def test_an_unknown_requested_key_is_an_unknown_name() -> None:
    error = refusal(Recorder(), task("a"), wants=("z",))
    assert error.names == ("z",)  # type: ignore[attr-defined]


def test_a_name_that_is_known_is_bound_to_its_primary_instance() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("x"))
    r.unread.clear()
    fid = r.submit(task("y", "x"), client=OTHER)
    assert r.machine.clients[OTHER].futures[fid].deps == (r.instance("x"),)
    z = r.submit(wants=("x",), client=OTHER)
    assert r.machine.clients[OTHER].futures[z] is r.instance("x")


@pytest.mark.parametrize(
    "tasks",
    [
        (task("a", "a"),),
        (task("a", "b"), task("b", "a")),
        (task("a", "b"), task("b", "c"), task("c", "d"), task("d", "b")),
    ],
)
def test_a_cycle_is_refused_and_named(tasks: tuple[GraphTask, ...]) -> None:
    error = refusal(Recorder(), *tasks, wants=("a",))
    assert type(error).__name__ == "InvalidGraph"
    assert "the graph has a cycle, 'a' -> " in str(error) or "'b' -> 'c'" in str(error)


def test_a_cycle_that_nobody_requested_does_not_matter() -> None:
    r = Recorder()
    r.submit(task("a", "b"), task("b", "a"), task("c"), wants=("c",))
    assert r.exists("c")


def test_two_tasks_of_one_key_are_refused() -> None:
    error = refusal(Recorder(), task("a"), task("a", fn="new"), wants=("a",))
    assert "two tasks of one key" in str(error)


def test_a_deep_graph_needs_no_recursion() -> None:
    r = Recorder(n_workers=1)
    n = 5000
    chain = [task(0), *(task(i, i - 1) for i in range(1, n))]
    fid = r.submit(*reversed(chain), wants=(n - 1,))
    assert len(r.machine.tasks) == n
    r.compute()
    r.says(ME, Release((fid,)))
    assert not r.machine.tasks
    r.unread.clear()


def test_a_deep_lineage_is_recomputed_without_recursion() -> None:
    r = Recorder(n_workers=1)
    n = 2000
    fid = r.submit(task(0), *(task(i, i - 1) for i in range(1, n)), wants=(n - 1,))
    r.machine.settings = r.machine.settings._replace(validate=False)
    r.run_all()
    assert r.finished() == (fid,)
    r.unread.clear()
    r.join(2)
    r.leave(1)
    assert r.status(0) == "processing"
    assert r.machine.unfinished == n
    r.unread.clear()


# Annotations.


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ({"priority": "high"}, "annotation priority='high' is not a number"),
        ({"priority": float("nan")}, "annotation priority=nan is not a number"),
        ({"retries": -1}, "annotation retries=-1 is not a whole number, 0 or more"),
        ({"retries": 1.5}, "annotation retries=1.5"),
        ({"workers": [1]}, "annotation workers="),
        ({"resources": {"GPU": -1}}, "annotation resources="),
        ({"resources": "GPU"}, "annotation resources='GPU'"),
        ({"colour": "red"}, "unknown annotation 'colour'"),
    ],
)
def test_a_bad_annotation_is_refused(annotation: dict[str, Any], text: str) -> None:
    error = refusal(Recorder(), task("a", annotation=0), annotations=(annotation,))
    assert text in str(error)


def test_empty_annotations_are_none() -> None:
    r = Recorder()
    nothing: dict[str, Any] = {
        "priority": None,
        "retries": None,
        "workers": None,
        "resources": {},
    }
    r.submit(task("a", annotation=0), annotations=(nothing,))
    assert r.instance("a").queue is r.machine.default_queue


# Embedded futures.


def test_an_embedded_future_means_its_instance_not_its_name() -> None:
    r = Recorder(n_workers=1)
    first = r.submit(task("y", fn="bad"))
    r.unread.clear()
    r.works(1, Started((1,)))
    r.fail(Compute(1, 1, "y", 0, 0, (), (), (), None))
    r.take(Erred)
    second = r.submit(task("y"))
    r.unread.clear()
    z = r.submit(task("z", "y"), embedded={"y": second})
    assert r.machine.clients[ME].futures[z].deps == (r.instance("y", 0),)
    # The one that is erred is meant, though another one is the primary now.
    w = r.submit(task("w", "y"), embedded={"y": first})
    assert list(r.erred()) == [w]
    bound = r.submit(wants=("y",), embedded={"y": first})
    assert r.machine.clients[ME].futures[bound] is r.instance("y", 1)
    r.unread.clear()


def test_an_embedded_future_of_a_refused_call_gives_the_same_error() -> None:
    r = Recorder(n_workers=1)
    refusal(r, task("a", "nobody"))
    error = refusal(r, task("b", "a"), embedded={"a": 1})
    assert type(error).__name__ == "LostDependency"
    assert error.names == ("nobody",)  # type: ignore[attr-defined]


def test_an_embedded_future_that_was_cancelled_cancels_its_dependents() -> None:
    r = Recorder(n_workers=1)
    fid = r.submit(task("a"))
    r.unread.clear()
    r.says(ME, Cancel((fid,), False, "changed my mind"))
    r.unread.clear()
    r.submit(task("a"), client=OTHER)
    r.unread.clear()
    message, (lost,) = r.graph(task("b", "a"), embedded={"a": fid})
    r.says(ME, message)
    assert r.to(ME, GraphAck).error is None
    assert r.to(ME, Cancelled) == Cancelled((lost,), ME, "changed my mind")
    assert not r.exists("b")


def test_a_future_that_was_released_is_an_unknown_name() -> None:
    r = Recorder(n_workers=1)
    fid = r.submit(task("a"))
    r.unread.clear()
    r.says(ME, Release((fid,)))
    r.unread.clear()
    error = refusal(r, task("b", "ref"), embedded={"ref": fid})
    assert error.names == ("ref",)  # type: ignore[attr-defined]


def test_an_embedded_future_that_nobody_reaches_does_not_matter() -> None:
    r = Recorder()
    refusal(r, task("a", "nobody"))
    r.submit(task("b", "a"), task("c"), wants=("c",), embedded={"a": 1})
    assert r.exists("c")


# Values in the graph.


def test_a_literal_is_a_task_without_a_function() -> None:
    r = Recorder(n_workers=1)
    literal = GraphTask("a", b"t" * 16, None, FORM_VALUE, 0, (b"5",), (), -1, 0)
    r.submit(literal)
    compute = r.compute()
    assert (compute.form, compute.fn, compute.payload) == (FORM_VALUE, 0, (b"5",))


# A peer that breaks the rules.


@pytest.mark.parametrize(
    "raw",
    [
        ("a", b"t" * 16, None, 2, 1, (), ()),
        ("a", "token", None, 2, 1, (), (), -1, 0),
        ("a", b"t" * 16, None, 2, 99, (), (), -1, 0),
        ("a", b"t" * 16, None, 9, 1, (), (), -1, 0),
        ("a", b"t" * 16, None, 2, 1, (), (), 0, 0),
        ("a", b"t" * 16, None, 2, 1, (), ["x"], -1, 0),
        (),
        (["a"], b"t" * 16, None, 2, 1, (), (), -1, 0),
        7,
    ],
)
def test_a_malformed_task_ends_the_connection(raw: Any) -> None:
    r = Recorder()
    message, _ = r.graph(task("a"))
    r.says(ME, message._replace(tasks=(raw,)))
    (action,) = r.unread
    assert isinstance(action, DropPeer)
    assert action.peer == ME
    r.unread.clear()
    assert not r.machine.tasks


@pytest.mark.parametrize("fids", [(1, 1), (5,)])
def test_a_future_is_used_once(fids: tuple[int, ...]) -> None:
    r = Recorder()
    r.fids = 4
    r.submit(task("a"))
    message, _ = r.graph(task("b"))
    r.says(ME, message._replace(wants=tuple(("b", fid) for fid in fids)))
    assert isinstance(r.unread.pop(), DropPeer)
    assert not r.exists("b")


def test_a_malformed_scatter_ends_the_connection() -> None:
    r = Recorder()
    r.says(ME, Scatter(1, ((1, "key"),), None))
    assert isinstance(r.unread.pop(), DropPeer)


def test_a_message_of_the_wrong_side_ends_the_connection() -> None:
    r = Recorder(n_workers=1)
    r.says(ME, Started((1,)))
    assert isinstance(r.unread.pop(), DropPeer)
    r.works(1, Release((1,)))
    assert isinstance(r.unread.pop(), DropPeer)


def test_nothing_of_a_batch_after_the_fault_is_heeded() -> None:
    r = Recorder(n_workers=1)
    message, _ = r.graph(task("a"))
    r.says(ME, Started((1,)), message)
    assert isinstance(r.unread.pop(), DropPeer)
    assert not r.exists("a")


# Clients that go.


def test_a_client_that_leaves_releases_everything() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("x"), task("y", "x"))
    r.run_all()
    r.unread.clear()
    r.leave_client(ME)
    r.take(DropData)
    assert not r.machine.tasks
    assert list(r.machine.clients) == [OTHER]


def test_goodbye_is_leaving_and_the_rest_of_the_batch_is_void() -> None:
    r = Recorder(n_workers=1)
    message, _ = r.graph(task("x"))
    r.says(ME, Goodbye(), message)
    assert not r.machine.tasks
    assert list(r.machine.clients) == [OTHER]
    r.leave_client(ME)
    r.says(ME, message)
    r.done()


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 20])
def test_dependents_come_and_go_in_any_number(n: int) -> None:
    r = Recorder()
    keys = tuple(f"y{i}" for i in range(n))
    fids = r.submit(task("x"), *(task(k, "x") for k in keys), wants=keys)
    fids = fids if isinstance(fids, tuple) else (fids,)
    x = r.instance("x")
    assert [d.key for d in x.each_dependent()] == list(keys)
    for left, fid in enumerate(reversed(fids)):
        assert len(tuple(x.each_dependent())) == n - left
        r.says(ME, Release((fid,)))
    assert not r.machine.tasks
