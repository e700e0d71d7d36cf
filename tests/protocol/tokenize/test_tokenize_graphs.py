"""Specs in normal form, dask's nodes, and that three routes give one body."""

import operator
import threading
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask._task_spec import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    List,
    Set,
    Task,
    TaskRef,
    Tuple,
    _execute_subgraph,
    convert_legacy_graph,
)

from raddle.protocol.spec import Call, Ref
from raddle.protocol.tokenize import (
    Digest,
    Walker,
    minted_token,
    run_spec_token,
    tokenize,
)
from raddle.tokenize import TokenizationError


def body(func: Any, *args: Any, **kwargs: Any) -> Digest:
    return Walker().body(func, args, kwargs)


def inc(x: int, *, by: int = 1) -> int:
    return x + by


def double(x: int) -> int:
    return 2 * x


def test_what_counts() -> None:
    bodies = [
        body(inc),
        body(inc, 1),
        body(inc, (1,)),
        body(inc, 1, 1),
        body(inc, by=1),
        body(inc, {"by": 1}),
        body(double, 1),
        body(inc, Ref("x", 0)),
        body(inc, Ref("y", 0)),
        body(inc, Ref(("x",), 0)),
        body(inc, Ref(("x", 0), 0)),
        body(inc, Ref(("x", "0"), 0)),
        body(inc, Ref(b"x", 0)),
        body(inc, Ref(1, 0)),
        body(inc, Ref(1.5, 0)),
        body(inc, "x"),
        body(inc, [Ref("x", 0)]),
        body(inc, Call(double, (1,), {})),
        body(inc, Call(double, (), {"x": 1})),
        body(inc, [Call(double, (1,), {})]),
    ]
    assert len(set(bodies)) == len(bodies)
    assert all(b.skeleton is None and len(b.digest) == 16 for b in bodies)


def test_what_does_not_count() -> None:
    assert body(inc, Ref("x", 0)) == body(inc, Ref("x", 7))
    assert body(inc, by=1) == Walker().body(inc, (), {"by": 1})
    assert Walker().body(inc, (1,), None) == Walker().body(inc, (1,), {})
    assert body(inc, TaskRef("x")) == body(inc, Ref("x", 0))
    assert body(inc, a=1, b=2) == body(inc, b=2, a=1)


def test_a_walker_gives_the_same_as_a_fresh_one() -> None:
    walker = Walker()
    shared = [1, {"a": double}]
    specs: list[tuple[Any, ...]] = [
        (inc, shared),
        (inc, shared, [shared]),
        (double, Call(inc, (shared,), {})),
        (lambda x: x, shared),
        (inc, np.arange(5)),
    ]
    for _ in range(2):
        for func, *args in specs:
            assert walker.body(func, tuple(args), None) == body(func, *args)
            assert walker.value(args) == Walker().value(args)


def test_futures_count_by_key() -> None:
    class Future(TaskRef):
        __slots__ = ("client",)

        def __dask_tokenize__(self) -> object:
            return object()

    class Duck:
        __dask_future__ = True
        key = ("x", 1)

    assert body(inc, Future("x")) == body(inc, Ref("x", 0))
    assert body(inc, [Duck()]) == body(inc, [Ref(("x", 1), 0)])


class KeyInt(int):
    pass


def test_odd_keys_count_as_plain_ones() -> None:
    assert body(inc, Ref(("x", KeyInt(1)), 0)) == body(inc, Ref(("x", 1), 0))
    one: Any = np.int64(1)
    assert body(inc, Ref(("x", one), 0)) == body(inc, Ref(("x", 1), 0))
    wrong: Any = ("x", object())
    with pytest.raises(TypeError, match="cannot be"):
        body(inc, Ref(wrong, 0))


def test_run_spec_tokens() -> None:
    one, two = body(inc, 1), body(inc, 2)
    tokens = {
        run_spec_token("k", one),
        run_spec_token("k", two),
        run_spec_token("l", one),
        run_spec_token(("k",), one),
        minted_token("k", "client-1"),
        minted_token("k", "client-2"),
        minted_token("l", "client-1"),
    }
    assert len(tokens) == 7
    assert all(token.skeleton is None for token in tokens)
    assert run_spec_token("k", one) == run_spec_token("k", body(inc, 1))


def test_a_flag_reaches_the_run_spec_token() -> None:
    lock, other = threading.Lock(), threading.Lock()
    a, b = body(inc, lock), body(inc, other)
    assert a.skeleton is not None
    assert a != b
    assert a.skeleton == b.skeleton
    assert a.skeleton != body(double, lock).skeleton
    first, second = run_spec_token("k", a), run_spec_token("k", b)
    assert first.digest != second.digest
    assert first.skeleton == second.skeleton
    assert first.skeleton != run_spec_token("l", a).skeleton


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda lock: (inc, (1, lock), {}), "args[1]"),
        (lambda lock: (inc, (), {"by": [lock]}), "kwargs['by'][0]"),
        (lambda lock: (lambda: lock, (), {}), "func.__closure__['lock']"),
        (lambda lock: (inc, (Call(inc, (lock,), {}),), {}), "args[0]()[0]"),
    ],
)
def test_strict_bodies_name_the_place(
    make: Callable[[object], tuple[Any, Any, Any]], path: str
) -> None:
    func, args, kwargs = make(threading.Lock())
    with pytest.raises(TokenizationError) as caught:
        Walker(ensure_deterministic=True).body(func, args, kwargs)
    assert caught.value.path == path


def test_recursive_functions_and_deep_arguments() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(n):\n    return f(n - 1) if n else 0\n", space)
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    cycle: list[Any] = []
    cycle.append(cycle)
    for arg in (1, deep, cycle):
        walker = Walker()
        assert walker.body(space["f"], (arg,), None) == body(space["f"], arg)


# --- dask --------------------------------------------------------------------


def lowered(node: GraphNode) -> Digest:
    """The body of a task as the client would see it: the call that it is."""
    assert isinstance(node, Task)
    return Walker().body(node.func, node.args, node.kwargs)


def test_a_tuple_a_call_and_a_task_are_one() -> None:
    task = convert_legacy_graph(
        {"x": 1, "y": (inc, (double, "x"), [["x"], 2], {"a": 1})}
    )["y"]
    x = Ref("x", 0)
    assert lowered(task) == body(inc, Call(double, (x,), {}), [[x], 2], {"a": 1})
    again = Task(
        "z",
        inc,
        Task(None, double, TaskRef("x")),
        List(List(Alias("x")), 2),
        Dict({"a": 1}),
    )
    assert lowered(again) == lowered(task)


def test_containers_of_nodes_are_containers() -> None:
    x, ref = Ref("x", 0), TaskRef("x")
    assert body(inc, List(ref, 1)) == body(inc, [x, 1])
    assert body(inc, Tuple(ref, 1)) == body(inc, (x, 1))
    assert body(inc, Set(ref, 1)) == body(inc, Set(1, ref))
    assert body(inc, Set(1, 2)) == body(inc, {1, 2})
    assert body(inc, Dict({"a": ref, "b": 1})) == body(inc, {"b": 1, "a": x})
    assert body(inc, List(*range(50))) == body(inc, list(range(50)))
    assert body(inc, DataNode(None, [1])) == body(inc, [1])
    assert body(inc, List(ref, 1)) != body(inc, List(1, ref))


def test_nodes_as_values_keep_their_keys() -> None:
    assert tokenize(Task("a", inc, 1)) != tokenize(Task("b", inc, 1))
    assert tokenize(Task("a", inc, 1)) == tokenize(Task("a", inc, 1))
    assert tokenize(Task("a", inc, 1)) != tokenize(Task("a", inc, 2))
    assert tokenize(Alias("a", "b")) != tokenize(Alias("c", "b"))
    assert tokenize(DataNode("a", 1)) == tokenize(DataNode("b", 1))

    class Barrier(Task):
        __slots__ = ("spec",)
        spec: int

    def barrier(spec: int) -> Barrier:
        made = Barrier("a", inc, 1)
        made.spec = spec
        return made

    assert tokenize(barrier(1)) == tokenize(barrier(1))
    assert tokenize(barrier(1)) != tokenize(barrier(2))
    assert tokenize(barrier(1)) != tokenize(Task("a", inc, 1))


def fused(names: str, order: tuple[str, ...]) -> Task:
    """double(a) + inc(b), made of two inner tasks called as ``names`` says."""
    first, last = names[0], names[1]
    inner = {
        first: Task(first, double, TaskRef("a")),
        last: Task(last, operator.add, TaskRef(first), Task(None, inc, TaskRef("b"))),
    }
    refs = [TaskRef(key) for key in order]
    return Task("out", _execute_subgraph, inner, last, order, *refs)


def test_a_fused_task_is_the_expression_it_makes() -> None:
    plain = body(
        operator.add,
        Call(double, (Ref("a", 0),), {}),
        Call(inc, (Ref("b", 1),), {}),
    )
    for names in ("pq", "xy"):
        for order in (("a", "b"), ("b", "a")):
            assert lowered(fused(names, order)) == plain


def test_a_fused_task_with_renamed_inputs() -> None:
    task = fused("pq", ("a", "b")).substitute({"a": "other"})
    assert lowered(task) == body(
        operator.add,
        Call(double, (Ref("other", 0),), {}),
        Call(inc, (Ref("b", 1),), {}),
    )
    assert lowered(task) != lowered(fused("pq", ("a", "b")))


def test_fused_in_fused_and_as_an_argument() -> None:
    inner = fused("pq", ("a", "b"))
    outer = GraphNode.fuse(inner, Task("top", double, TaskRef("out")))
    expression = Call(
        operator.add,
        (Call(double, (Ref("a", 0),), {}), Call(inc, (Ref("b", 0),), {})),
        {},
    )
    assert lowered(outer) == body(double, expression)
    nested = Call(_execute_subgraph, tuple(inner.args), {})
    assert body(double, nested) == body(double, expression)


def test_shared_inner_tasks_are_walked_once() -> None:
    inner = {0: Task(0, double, TaskRef("a"))}
    for i in range(1, 60):
        before = TaskRef(i - 1)
        inner[i] = Task(i, operator.add, before, List(before, Set(before)))
    task = Task("out", _execute_subgraph, inner, 59, ("a",), TaskRef("a"))
    assert lowered(task) == lowered(task)


def test_a_long_chain_of_inner_tasks() -> None:
    inner = {0: Task(0, double, TaskRef("a"))}
    for i in range(1, 3_000):
        inner[i] = Task(i, double, TaskRef(i - 1))
    task = Task("out", _execute_subgraph, inner, 2_999, ("a",), TaskRef("a"))
    assert lowered(task) == lowered(task)


def test_the_whole_graph_of_a_program_is_deterministic() -> None:
    x = da.ones((40, 40), chunks=10)
    graph = ((x + x.T).sum(axis=0) - x.mean()).__dask_graph__()
    walker = Walker(ensure_deterministic=True)
    for node in convert_legacy_graph(dict(graph)).values():
        if isinstance(node, Task):
            assert walker.body(node.func, node.args, node.kwargs) == lowered(node)
        else:
            walker.value(node)
