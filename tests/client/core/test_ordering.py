"""The order of tasks, and what of a graph is reachable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle.client.core.ordering import depth_first
from raddle.protocol.errors import InvalidGraph


def order(graph: dict[str, str], *wanted: str) -> str:
    """Keys and dependencies are single letters."""
    return "".join(map(str, depth_first(wanted, lambda key: graph[str(key)])))


@pytest.mark.parametrize(
    ("graph", "wanted", "expected"),
    [
        ({}, "", ""),
        ({"a": ""}, "a", "a"),
        ({"a": "", "b": "a", "c": "b"}, "c", "abc"),
        ({"a": "", "b": "", "c": "ab"}, "c", "abc"),
        ({"a": "", "b": "", "c": "ba"}, "c", "bac"),
        # One branch is finished before the next one begins.
        (
            {"t": "uv", "u": "ab", "v": "cd", **dict.fromkeys("abcd", "")},
            "t",
            "abucdvt",
        ),
        # What is shared comes where it is first needed.
        ({"s": "", "a": "s", "b": "s", "t": "ab"}, "t", "sabt"),
        # Nothing but what is reachable.
        ({"a": "", "b": "", "c": "b"}, "a", "a"),
        ({"a": "", "b": "a"}, "aba", "ab"),
    ],
)
def test_depth_first(graph: dict[str, str], wanted: str, expected: str) -> None:
    assert order(graph, *wanted) == expected


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [
        ({"a": "a"}, "'a' -> 'a'"),
        ({"a": "b", "b": "c", "c": "b"}, "'b' -> 'c' -> 'b'"),
    ],
)
def test_a_cycle_is_named(graph: dict[str, str], cycle: str) -> None:
    with pytest.raises(InvalidGraph, match=f"cycle.*: {cycle}$"):
        order(graph, "a")


def test_a_long_cycle_is_abbreviated() -> None:
    with pytest.raises(InvalidGraph) as caught:
        depth_first([0], lambda n: [(int(str(n)) + 1) % 1000])
    assert "0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> ... -> 0" in str(caught.value)


def test_a_deep_graph_needs_no_stack() -> None:
    found = depth_first([50_000], lambda n: [n - 1] if isinstance(n, int) and n else [])
    assert found == list(range(50_001))


@given(st.lists(st.sets(st.integers(0, 29)), max_size=30))
def test_each_task_comes_once_and_after_its_inputs(edges: list[set[int]]) -> None:
    graph = {i: [d for d in sorted(deps) if d < i] for i, deps in enumerate(edges)}
    calls: list[object] = []

    def expand(key: object) -> list[int]:
        calls.append(key)
        return graph[int(str(key))]

    found = depth_first(list(graph), expand)
    assert (
        sorted(map(int, map(str, found)))
        == list(graph)
        == sorted(map(int, map(str, calls)))
    )
    place = {key: i for i, key in enumerate(found)}
    assert all(place[d] < place[k] for k, deps in graph.items() for d in deps)
