"""Tasks of each of dask's dialects in normal form."""

from __future__ import annotations

from collections.abc import Mapping
from operator import add, mul, neg
from typing import Any, NamedTuple

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
    convert_legacy_graph,
)

from raddle.client.calls import identity, run_node
from raddle.client.client import Client
from raddle.client.dask.convert import Converter, Spec
from raddle.client.encode import Encoder
from raddle.client.future import Future
from raddle.protocol.serialize import dumps, loads
from raddle.protocol.spec import Call, Ref, bound, evaluate


class Point(NamedTuple):
    x: Any
    y: Any


class Odd(Task):
    """A task that is run in its own way."""

    __slots__ = ()

    def __call__(self, values: Any = ()) -> Any:
        return ("odd", self.func(*(values.get(_key(a), a) for a in self.args)))


def _key(arg: Any) -> Any:
    return arg.key if isinstance(arg, TaskRef) else None


class Converted(NamedTuple):
    """A converted entry, and what is needed to look at it."""

    spec: Spec
    nested: bool
    deps: list[Any]

    def run(self, **values: Any) -> Any:
        """What a worker makes of it: through a pickle, with the values of inputs."""
        inputs = [values[str(d)] for d in self.deps]
        func, args, kwargs = self.spec[:3]
        if func is None:
            return args[0]
        with bound(inputs):
            args, kwargs = loads(dumps((args, kwargs)))
        if self.nested:
            args, kwargs = evaluate(args), evaluate(kwargs)
        else:
            assert "Call" not in repr((args, kwargs))
        return func(*args, **kwargs)


def convert(client: Client, graph: Mapping[Any, Any], key: Any) -> Converted:
    encoder = Encoder(client.session, client.token_settings, graph)
    spec = Converter(client.session, encoder, graph).spec(key)
    return Converted(spec, spec.inputs.nested, spec.inputs.deps)


EXTERNAL = {"x": 10, "y": 20}


@pytest.mark.parametrize(
    ("entry", "deps", "nested", "value"),
    [
        (5, [], False, 5),
        ("text", [], False, "text"),
        ((1, 2), [], False, (1, 2)),
        ((), [], False, ()),
        ({"a": "x"}, [], False, {"a": "x"}),
        ((add, 1, 2), [], False, 3),
        ((add, "x", 2), ["x"], False, 12),
        ((add, "x", "x"), ["x"], False, 20),
        ((add, "y", "x"), ["y", "x"], False, 30),
        ((sum, ["x", "y", 1]), ["x", "y"], False, 31),
        ((sum, ("x", "y", 1)), ["x", "y"], False, 31),
        ((add, (neg, "x"), 1), ["x"], True, -9),
        ((sum, [(neg, "x"), (mul, "x", (neg, "y"))]), ["x", "y"], True, -210),
        ((dict, {"a": "x"}), [], False, {"a": "x"}),
        ((len, "other"), [], False, 5),
        ("x", ["x"], False, 10),
        (["x", [1, "y"]], ["x", "y"], False, [10, [1, 20]]),
        ([(neg, "x")], ["x"], True, [-10]),
        ((tuple, {"x", 3}), ["x"], False, None),
        ((identity, frozenset(["x"])), ["x"], False, frozenset([10])),
        ((identity, Point("x", 1)), ["x"], False, Point(10, 1)),
        # Tuples that are no tasks and hold what cannot be hashed are no keys.
        ((identity, (["x"], "x")), ["x"], False, ([10], 10)),
        ((identity, slice(0, 1)), [], False, slice(0, 1)),
        ((identity, None), [], False, None),
    ],
)
async def test_the_dialect_of_tuples(
    client: Client, entry: Any, deps: list[Any], nested: bool, value: Any
) -> None:
    got = convert(client, {**EXTERNAL, "k": entry}, "k")
    assert (got.deps, got.nested) == (deps, nested)
    assert got.spec.needs.count("x") <= 2
    if value is not None or entry[-1] is None:
        assert got.run(**EXTERNAL) == value


@pytest.mark.parametrize(
    ("entry", "deps", "nested", "value"),
    [
        (DataNode("k", 5), [], False, 5),
        (DataNode("k", ["x"]), [], False, ["x"]),
        (Alias("k", "x"), ["x"], False, 10),
        (Task("k", add, TaskRef("x"), 2), ["x"], False, 12),
        (Task("k", add, Alias("x"), DataNode(None, 2)), ["x"], False, 12),
        (Task("k", sum, List(TaskRef("x"), 1)), ["x"], False, 11),
        (Task("k", sum, Tuple(TaskRef("x"), TaskRef("y"))), ["x", "y"], False, 30),
        (Task("k", identity, Set(TaskRef("x"))), ["x"], False, {10}),
        (Task("k", dict, a=TaskRef("x")), ["x"], False, {"a": 10}),
        (Task("k", identity, Dict(a=TaskRef("x"))), ["x"], False, {"a": 10}),
        (Task("k", add, Task(None, neg, TaskRef("x")), 1), ["x"], True, -9),
        (Task("k", sum, List(Task(None, neg, TaskRef("x")))), ["x"], True, -10),
        # Strings and plain lists are what they are.
        (Task("k", identity, "x"), [], False, "x"),
        (Task("k", identity, ["x"]), [], False, ["x"]),
        (List(TaskRef("x"), 1), ["x"], False, [10, 1]),
        (Odd("k", add, TaskRef("x"), 2), ["x"], False, ("odd", 12)),
        (Task("k", identity, Odd("i", neg, TaskRef("x"))), ["x"], True, ("odd", -10)),
    ],
)
async def test_the_dialect_of_nodes(
    client: Client, entry: Any, deps: list[Any], nested: bool, value: Any
) -> None:
    got = convert(client, {**EXTERNAL, "k": entry}, "k")
    assert (got.deps, got.nested) == (deps, nested)
    assert got.run(**EXTERNAL) == value


async def test_both_dialects_have_one_normal_form(client: Client) -> None:
    graph: dict[Any, Any] = {
        "x": 1,
        "call": (add, "x", 2),
        "nested": (add, (neg, "x"), 2),
        "lists": (sum, ["x", (neg, "x")]),
    }
    nodes = convert_legacy_graph(graph)
    for key in ("call", "nested", "lists"):
        encoder = Encoder(client.session, client.token_settings, graph)
        bodies = []
        for dialect in (graph, nodes):
            spec = Converter(client.session, encoder, dialect).spec(key)
            assert spec.func is not None
            bodies.append(encoder.body(spec.func, spec.args, spec.kwargs))
        assert bodies[0] == bodies[1]


FUSED: dict[str, GraphNode] = {
    "a": Task("a", add, TaskRef("x"), 1),
    "b": Task("b", mul, TaskRef("a"), TaskRef("y")),
    "c": Task("c", neg, TaskRef("b")),
    "twice": Task("twice", add, TaskRef("a"), TaskRef("a")),
    "list": Task("list", sum, List(TaskRef("a"), DataNode(None, 5), TaskRef("x"))),
    "data": DataNode("data", 7),
    "with_data": Task("with_data", add, TaskRef("data"), TaskRef("data")),
    "odd": Odd("odd", neg, TaskRef("a")),
}


@pytest.mark.parametrize(
    ("parts", "expression", "value"),
    [
        ("a b", True, 220),
        ("a b c", True, -220),
        ("a list", True, 26),
        ("data with_data", True, 14),
        ("a twice", False, 22),
        ("a odd", False, ("odd", -11)),
    ],
)
async def test_a_fused_task_is_an_expression_if_nothing_is_used_twice(
    client: Client, parts: str, expression: bool, value: Any
) -> None:
    fused = GraphNode.fuse(*(FUSED[p] for p in parts.split()), key="k")
    got = convert(client, {**EXTERNAL, "k": fused}, "k")
    assert (got.spec.func.__name__ == "_execute_subgraph") is not expression  # type: ignore[union-attr]
    assert got.run(**EXTERNAL) == value


async def test_a_fused_task_inside_a_fused_task(client: Client) -> None:
    inner = GraphNode.fuse(FUSED["a"], FUSED["b"], key="b")
    fused = GraphNode.fuse(inner, FUSED["c"], key="k")
    got = convert(client, {**EXTERNAL, "k": fused}, "k")
    assert got.nested
    assert got.run(**EXTERNAL) == -220


async def test_numpy_numbers_in_references(client: Client) -> None:
    odd: Any = ("p", np.int64(0))
    graph = {("p", 0): 1, "k": Task("k", neg, TaskRef(odd))}
    (dep,) = convert(client, graph, "k").deps
    assert type(dep[1]) is int


# What leads out of the graph


async def test_a_future_in_a_graph(client: Client) -> None:
    future = client.submit(abs, 1, key="f")
    graph = {
        "tuple": (add, future, 1),
        "node": Task("node", add, future, 1),
        "list": (sum, [future]),
        "dict": (identity, {"a": future}),
        "name": (neg, "f"),
        "ref": Task("ref", neg, TaskRef("f")),
        "plain": Task("plain", identity, "f"),
    }
    for key in graph:
        assert convert(client, graph, key).deps == ([] if key == "plain" else ["f"])


async def test_entries_that_are_nothing_but_references(client: Client) -> None:
    future = client.submit(abs, 1, key="f")
    graph: dict[Any, Any] = {
        "f": future,
        "renamed": future,
        "alias": Alias("alias", "f"),
        "chain": Alias("chain", "alias"),
        "known": Alias("known", "known"),
        "away": TaskRef("elsewhere"),
        "data": DataNode("data", future),
        "task": (abs, 1),
        "inner": Alias("inner", "task"),
        "knot": Alias("knot", "tied"),
        "tied": Alias("tied", "knot"),
    }
    encoder = Encoder(client.session, client.token_settings, graph)
    external = Converter(client.session, encoder, graph).external
    for key in ("f", "renamed", "alias", "chain", "data"):
        found = external(key)
        assert found is not None
        assert found.future is future
    assert external("known") == (None, "known")
    assert external("away") == (None, "elsewhere")
    assert external("absent") == (None, "absent")
    assert external("task") is external("inner") is None
    assert external("knot") is not None


async def test_references_to_bound_away_entries(client: Client) -> None:
    future = client.submit(abs, 1, key="f")
    graph = {"renamed": future, "k": (neg, "renamed")}
    got = convert(client, graph, "k")
    assert got.deps == ["f"]
    assert got.spec.needs == []


async def test_two_futures_of_one_key(client: Client) -> None:
    a, b = client.submit(abs, 1, key="f"), client.submit(abs, 2, key="f")
    got = convert(client, {"k": (add, a, b)}, "k")
    assert len(got.deps) == 2
    assert [r.key for r in got.spec.args] == ["f", "f"]


async def test_the_public_key_counts_not_the_reference(client: Client) -> None:
    future = client.submit(abs, 1, key="f")
    got = convert(client, {"f": 3, "k": Task("k", add, future, TaskRef("f"))}, "k")
    first, second = got.spec.args
    assert type(first) is type(second) is Ref
    assert (first.key, second.key) == ("f", "f")
    assert got.deps[0] != "f"
    assert got.deps[1] == "f"


async def test_an_unknown_name_is_left_to_the_scheduler(client: Client) -> None:
    got = convert(client, {"k": Task("k", neg, TaskRef("of another client"))}, "k")
    assert got.deps == ["of another client"]


def test_the_function_for_odd_nodes() -> None:
    assert run_node(Odd("k", add, TaskRef("x"), 2), {"x": 1}) == ("odd", 3)
    assert type(Call(neg, (1,), {})) is Call
    assert Future is not TaskRef
