"""Cycles, shared structure, depth, and how often an object is asked."""

import collections
import copy
import dataclasses
import pickle
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raddle.protocol.tokenize import Walker
from raddle.tokenize import normalize_token, tokenize


class Node:
    def __init__(self, value: object = None) -> None:
        self.value = value
        self.links: Any = []


@dataclasses.dataclass
class Tree:
    value: object
    parent: "Tree | None" = None
    children: list["Tree"] = dataclasses.field(default_factory=list)

    def add(self, value: object) -> "Tree":
        child = Tree(value, self)
        self.children.append(child)
        return child


def nested(depth: int, core: object = 1) -> object:
    for _ in range(depth):
        core = [core]
    return core


def test_ten_thousand_nested_lists() -> None:
    assert tokenize(nested(10_000)) == tokenize(nested(10_000))
    assert len({tokenize(nested(n)) for n in (9_999, 10_000, 10_001)}) == 3
    assert tokenize(nested(10_000, 2)) != tokenize(nested(10_000))


@pytest.mark.parametrize("depth", [10, 100, 300, 400, 900, 1100, 2000])
def test_the_way_of_walking_does_not_show(depth: int) -> None:
    walker = Walker()
    inside = nested(depth, {"a": (1, Node(2))})
    shallow = walker._deep(inside)
    assert Walker().piece(inside) == shallow
    here = tokenize(inside)

    def deeper(n: int) -> str:
        return tokenize(inside) if n == 0 else deeper(n - 1)

    assert deeper(500) == here


def test_three_thousand_linked_objects() -> None:
    def chain(last: int) -> Node:
        node = Node(last)
        for i in range(3_000):
            before = Node(i)
            before.links = node
            node = before
        return node

    assert tokenize(chain(1)) == tokenize(chain(1))
    assert tokenize(chain(1)) != tokenize(chain(2))


def test_shared_structure_is_walked_once() -> None:
    def tower(core: object) -> object:
        for _ in range(60):
            core = [core, core]
        return core

    assert tokenize(tower(1)) == tokenize(tower(1))
    assert tokenize(tower(1)) != tokenize(tower(2))


@pytest.mark.parametrize(
    "pair",
    [
        lambda x: [x, x],
        lambda x: {"a": x, "b": x},
        lambda x: np.array([x, x, None], object),
        lambda x: collections.OrderedDict(a=x, b=x),
        lambda x: tie(Node(), x, x),
    ],
)
def test_aliasing_is_invisible(pair: Callable[[object], object]) -> None:
    shared = pair(Node([1]))
    copied = pair(Node([1]))
    if isinstance(copied, Node):
        copied.links[1] = Node([1])
    elif isinstance(copied, dict):
        copied["b"] = Node([1])
    else:
        copied[1] = Node([1])  # type: ignore[index]
    assert tokenize(shared) == tokenize(copied)


def tie(node: Node, *links: object) -> Node:
    node.links = list(links)
    return node


def ring(*values: object) -> Node:
    nodes = [Node(value) for value in values]
    for a, b in zip(nodes, nodes[1:] + nodes[:1], strict=True):
        a.links = [b]
    return nodes[0]


def dict_cycle() -> dict[str, object]:
    made: dict[str, object] = {"a": 1}
    made["self"] = made
    return made


def deque_cycle() -> collections.deque[object]:
    made: collections.deque[object] = collections.deque([1])
    made.append(made)
    return made


def array_cycle() -> np.ndarray:
    made = np.array([None, 1], object)
    made[0] = made
    return made


def dataclass_cycle() -> Tree:
    made = Tree(1)
    made.parent = made
    return made


def ordered_cycle() -> collections.OrderedDict[str, object]:
    made: collections.OrderedDict[str, object] = collections.OrderedDict(a=1)
    made["b"] = made
    return made


def set_cycle() -> Node:
    made = Node(1)
    made.links = {Node(1), Node(2)}
    for peer in made.links:
        peer.links = {made}
    return made


def closure_cycle() -> Callable[[int], object]:
    def even(n: int) -> object:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> object:
        return n != 0 and even(n - 1)

    return even


CYCLES = [
    lambda: ring(1),
    lambda: ring(1, 2),
    lambda: ring(2, 1),
    lambda: ring(1, 2, 3),
    dict_cycle,
    deque_cycle,
    array_cycle,
    dataclass_cycle,
    ordered_cycle,
    set_cycle,
    closure_cycle,
]


def test_cycles() -> None:
    tokens = set()
    for make in CYCLES:
        token = tokenize(make(), ensure_deterministic=True)
        assert token == tokenize(make())
        if make is not array_cycle:  # numpy cannot copy that
            assert token == tokenize(copy.deepcopy(make()))
        tokens.add(token)
    assert len(tokens) == len(CYCLES)


def test_a_cycle_unrolls() -> None:
    assert tokenize(ring(1)) == tokenize(ring(1, 1)) == tokenize(ring(1, 1, 1))
    assert tokenize(ring(1, 2)) == tokenize(ring(1, 2, 1, 2))


def test_components_that_agree_at_first_sight() -> None:
    def pair(first_points_to: int) -> Node:
        p, q = Node("p"), Node("q")
        p.links = [q]
        q.links = [p, [q, p][first_points_to], p]
        return p

    assert tokenize(pair(0)) != tokenize(pair(1))


def test_a_member_has_one_token_wherever_the_walk_begins() -> None:
    a = ring(1, 2, 3)
    b = a.links[0]
    alone = tokenize(b)
    walker = Walker()
    assert walker.value([a, b])
    assert Walker().value(b) == walker.value(b)
    assert alone == tokenize(b)
    assert tokenize([a, b]) == tokenize([a, ring(2, 3, 1)])


def test_a_tree_with_parents_and_siblings() -> None:
    def grow(last: int) -> Tree:
        root = Tree(0)
        for i in range(8):
            child = root.add(i)
            for j in range(8):
                child.add([i, j]).add(j)
        root.children[-1].children[-1].value = last
        return root

    root = grow(1)
    assert tokenize(root) == tokenize(grow(1))
    assert tokenize(root) != tokenize(grow(2))
    everyone = [root, *root.children]
    assert tokenize(everyone) == tokenize([grow(1), *grow(1).children])


def test_a_graph_of_neighbours_in_sets() -> None:
    """A grid has more simple paths than there is time to follow."""

    def grid(size: int, odd: int = 0) -> Node:
        nodes = {(x, y): Node() for x in range(size) for y in range(size)}
        for (x, y), node in nodes.items():
            around = [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]
            node.links = {nodes[at] for at in around if at in nodes}
        nodes[size - 1, size - 1].value = odd
        return nodes[0, 0]

    assert tokenize(grid(12)) == tokenize(grid(12))
    assert tokenize(grid(12)) != tokenize(grid(12, odd=1))


def test_a_flag_inside_a_cycle() -> None:
    lock = threading.Lock()
    a, b = ring(1, lock), ring(1, lock)
    assert tokenize(a) == tokenize(b)
    assert not tokenize(a).deterministic
    assert tokenize(a) != tokenize(ring(1, threading.Lock()))
    assert tokenize(a).skeleton == tokenize(ring(1, threading.Lock())).skeleton
    assert tokenize(a).skeleton != tokenize(ring(2, threading.Lock())).skeleton


class Counted:
    """Counts how often it is taken apart and put together."""

    calls: ClassVar[collections.Counter[str]] = collections.Counter()

    def __init__(self, link: object = None) -> None:
        self.link = link

    def __reduce__(self) -> tuple[Any, ...]:
        self.calls["reduce"] += 1
        return Counted, (), {"link": self.link}

    def __setstate__(self, state: object) -> None:
        self.calls["setstate"] += 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: [Counted()] * 3,
        lambda: nested(3_000, Counted()),
        lambda: Counted(nested(3_000)),
        lambda: Counted(dict_cycle()),
        lambda: [Counted(in_itself(Counted())), Counted(threading.Lock())][:1],
    ],
)
def test_one_reduce_per_object(make: Callable[[], object]) -> None:
    value = make()
    Counted.calls.clear()
    tokenize(value)
    objects = 2 if "in_itself" in make.__code__.co_names else 1
    assert Counted.calls == {"reduce": objects}


def in_itself(counted: Counted) -> Counted:
    counted.link = [counted]
    return counted


def test_one_hook_call_per_object() -> None:
    class Hooked:
        calls = 0

        def __dask_tokenize__(self) -> object:
            type(self).calls += 1
            return nested(3_000)

    tokenize([Hooked()] * 2)
    assert Hooked.calls == 1


def test_errors_of_hooks_pass_through_and_leave_the_walker_usable() -> None:
    class Broken:
        fails = True

        def __dask_tokenize__(self) -> object:
            if self.fails:
                raise KeyboardInterrupt
            return 1

    walker, value = Walker(), [[Broken()], 2]
    with pytest.raises(KeyboardInterrupt):
        walker.value(value)
    with pytest.raises(KeyboardInterrupt):
        walker.body(len, (value,), None)
    Broken.fails = False
    assert walker.value(value) == Walker().value(value)
    assert walker.body(len, (value,), None) == Walker().body(len, (value,), None)


def test_a_slow_hook_stops_no_other_thread() -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow:
        def __dask_tokenize__(self) -> object:
            entered.set()
            assert go_on.wait(30)
            return 1

    thread = threading.Thread(target=lambda: tokenize(Slow()))
    thread.start()
    assert entered.wait(30)
    assert tokenize([Node(1)]) == tokenize([Node(1)])  # while the other waits
    go_on.set()
    thread.join(30)
    assert not thread.is_alive()


def test_threads_agree() -> None:
    value = [ring(i, i + 1) for i in range(50)]
    tokens = []
    threads = [
        threading.Thread(target=lambda: tokens.append(tokenize(value)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tokens == [tokenize(value)] * 8


# --- generated structures ----------------------------------------------------

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
structures = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=4)
        | st.sets(st.text(max_size=2) | st.integers(), max_size=4)
        | inner.map(Node)
    ),
    max_leaves=12,
)


@given(structures)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_equal_structures(value: object) -> None:
    token = tokenize(value, ensure_deterministic=True)
    assert token == tokenize(copy.deepcopy(value))
    assert token == tokenize(pickle.loads(pickle.dumps(value)))
    assert Walker().piece(value) == Walker()._deep(value)


def forms(value: object) -> object:
    """A canonical text of a structure, to know whether two are equal."""
    if isinstance(value, dict):
        return ("d", sorted((repr(forms(k)), forms(v)) for k, v in value.items()))
    if isinstance(value, set):
        return ("s", sorted(repr(forms(v)) for v in value))
    if isinstance(value, list | tuple):
        return (type(value).__name__, [forms(v) for v in value])
    if isinstance(value, Node):
        return ("n", forms(value.value))
    return (type(value).__name__, repr(value))


@given(structures, structures)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_different_structures(a: object, b: object) -> None:
    same = repr(forms(a)) == repr(forms(b))
    assert (tokenize(a) == tokenize(b)) is same


@given(structures, st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_one_changed_leaf(value: object, data: st.DataObject) -> None:
    paths = list(leaf_paths(value))
    path = data.draw(st.sampled_from(paths))
    changed = replaced(copy.deepcopy(value), path)
    assert tokenize(changed) != tokenize(value)


def leaf_paths(value: object, path: tuple[Any, ...] = ()) -> Any:
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from leaf_paths(value[key], (*path, key))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from leaf_paths(item, (*path, i))
    elif isinstance(value, Node):
        yield from leaf_paths(value.value, (*path, "value"))


def replaced(value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return ["changed", value]
    first, *rest = path
    if isinstance(value, Node):
        value.value = replaced(value.value, tuple(rest))
    elif isinstance(value, tuple):
        items = list(value)
        items[first] = replaced(items[first], tuple(rest))
        return tuple(items)
    else:
        value[first] = replaced(value[first], tuple(rest))
    return value


def test_handlers_results_are_walked() -> None:
    class Registered:
        def __init__(self, content: object) -> None:
            self.content = content

    normalize_token.register(
        Registered, lambda r: {"inner": normalize_token(r.content)}
    )
    try:
        long = np.arange(10_000)
        changed = long.copy()
        changed[5_000] = -1
        assert tokenize(Registered(long)) == tokenize(Registered(long.copy()))
        assert tokenize(Registered(long)) != tokenize(Registered(changed))
        assert tokenize(Registered(1)) != tokenize({"inner": 1})
        assert not tokenize(Registered(threading.Lock())).deterministic
        assert tokenize(Registered(nested(3_000))) != tokenize(Registered(nested(9)))
    finally:
        normalize_token.unregister(Registered)
