"""How the tasks of a graph, in any of dask's dialects, become run_specs.

Three dialects meet in one graph: tuples with a callable first, in which lists are
searched and a string or tuple that equals a key of the graph, or of a live future,
stands for it; dask's graph nodes, in which only nodes and references are looked at;
and plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from raddle.protocol.core.ids import Key
from raddle.protocol.spec import Call, Ref

from ..arguments import with_references
from ..calls import identity, run_node
from ..core.keys import as_key
from ..encode import Encoder, Inputs
from ..future import Future
from ..session import Session
from .private import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    List,
    Set,
    Task,
    TaskRef,
    Tuple,
    execute_subgraph,
    identity_cast,
)

EXPRESSION_MAX = 40
"""Inner tasks up to which a fused task becomes one expression of nested calls."""

_NAMES = frozenset({str, int, float, tuple})
"""Types of values that a key of the graph may equal."""
_SEARCHED = (list, tuple, set, frozenset)


class Spec(NamedTuple):
    """A task in normal form, and the tasks of its graph that it depends on."""

    func: Callable[..., Any] | None
    """None for a literal, which is ``args[0]`` then."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: Inputs
    needs: list[Key]


class External(NamedTuple):
    """What an entry stands for that is nothing but a reference out of the graph."""

    future: Future | None
    key: Key


class _Fused:
    """The inside of a fused task that is being turned into nested calls."""

    __slots__ = ("inner", "inputs", "outside")

    def __init__(
        self,
        inner: Mapping[Key, Any],
        inputs: Mapping[Key, Any],
        outside: _Fused | None,
    ) -> None:
        self.inner = inner
        self.inputs = inputs
        self.outside = outside


class Converter:
    """Converts the entries of one graph."""

    def __init__(
        self, session: Session, encoder: Encoder, graph: Mapping[Key, Any]
    ) -> None:
        self._session = session
        self._encoder = encoder
        self._graph = graph
        self._inputs = Inputs(encoder)
        self._needs: list[Key] = []
        self._calls = 0

    def external(self, key: Key) -> External | None:
        """Where ``key`` leads if not to a task of this graph, else None."""
        graph = self._graph
        seen: set[Key] = set()
        while key in graph:
            value = graph[key]
            if type(value) is DataNode and isinstance(value.value, TaskRef):
                value = value.value
            if isinstance(value, Future):
                return External(value, value.key)
            if isinstance(value, Alias):
                target = value.target
            elif isinstance(value, TaskRef):
                target = value.key
            else:
                return None
            seen.add(key)
            if target in seen:
                # An entry that is its own alias is how dask writes a known key.
                return External(None, target)
            key = target
        return External(None, key)

    def spec(self, key: Key) -> Spec:
        """The entry ``key`` of the graph in normal form."""
        self._inputs = Inputs(self._encoder)
        self._needs = []
        self._calls = 0
        func, args, kwargs = self._top(self._graph[key])
        return Spec(func, args, kwargs, self._inputs, self._needs)

    def _top(
        self, value: Any
    ) -> tuple[Callable[..., Any] | None, tuple[Any, ...], dict[str, Any]]:
        kind = type(value)
        if kind is DataNode:
            return None, (value.value,), {}
        if isinstance(value, GraphNode):
            converted = self.node(value, None)
        elif kind in _NAMES or isinstance(value, (*_SEARCHED, TaskRef)) or kind is dict:
            converted = self.legacy(value)
        else:
            return None, (value,), {}
        if type(converted) is Call:
            self._inputs.nested = self._calls > 1
            return converted.func, converted.args, converted.kwargs
        self._inputs.nested = self._calls > 0
        if self._inputs.deps or self._calls:
            return identity, (converted,), {}
        return None, (converted,), {}

    def _call(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
    ) -> Call:
        self._calls += 1
        return Call(func, args, kwargs or {})

    def reference(self, key: Key) -> Ref:
        """The reference to a task of this graph, to a future, or to a known key."""
        if key in self._graph:
            external = self.external(key)
            if external is None:
                self._needs.append(key)
                key = as_key(key)
                return self._inputs.ref(key, key)
            if external.future is not None:
                return self._inputs.future(external.future)
            key = external.key
        record = self._session.named(key)
        if record is not None:
            return self._inputs.record(record)
        key = as_key(key)
        return self._inputs.ref(key, key)

    # The dialect of tuples

    def legacy(self, value: Any) -> Any:
        """An argument of a task that is a tuple."""
        kind = type(value)
        if kind is tuple and value and callable(value[0]):
            return self._call(value[0], tuple([self.legacy(a) for a in value[1:]]))
        if kind in _NAMES:
            ref = self._named(value)
            if ref is not None:
                return ref
            if kind is not tuple:
                return value
        if isinstance(value, _SEARCHED):
            return _rebuilt(value, [self.legacy(v) for v in value])
        if kind is dict:
            return {k: self._in_dict(v) for k, v in value.items()}
        return self.node(value, None)

    def _in_dict(self, value: Any) -> Any:
        """In a dict of a tuple task, only futures and nodes are looked for."""
        if isinstance(value, GraphNode | TaskRef):
            return self.node(value, None)
        return with_references(value, self._inputs)

    def _named(self, value: Any) -> Ref | None:
        """The reference that a plain value stands for, if it equals a key."""
        try:
            if value in self._graph:
                return self.reference(value)
            if type(value) is str or type(value) is tuple:
                record = self._session.named(value)
                if record is not None:
                    return self._inputs.record(record)
        except TypeError:  # a tuple with something unhashable in it is no key
            return None
        return None

    # The dialect of nodes

    def node(self, value: Any, fused: _Fused | None) -> Any:  # noqa: PLR0911
        """An argument of a graph node, seen from inside of ``fused`` if given."""
        kind: Any = type(value)
        if kind is TaskRef:
            return self._seen(value.key, fused)
        if kind is Task:
            return self._task(value, fused)
        if kind is Future:
            return self._inputs.future(value)
        if not isinstance(value, GraphNode):
            return self._seen(value.key, fused) if isinstance(value, TaskRef) else value
        parts: Any = value
        if kind is List or kind is Tuple or kind is Set:
            return kind.klass([self.node(a, fused) for a in parts.args])
        if kind is Dict:
            items = [self.node(a, fused) for a in parts.args]
            return dict(zip(items[::2], items[1::2], strict=True))
        if isinstance(value, Alias):
            return self._seen(value.target, fused)
        if isinstance(value, DataNode):
            return value.value
        if kind.__call__ is Task.__call__:
            return self._task(value, fused)
        # A node of a class of its own knows itself how it is run.
        needed = {k: self._seen(k, fused) for k in sorted(value.dependencies, key=repr)}
        return self._call(run_node, (value, needed))

    def _seen(self, key: Key, fused: _Fused | None) -> Any:
        """What ``key`` means inside of a fused task."""
        while fused is not None:
            if key in fused.inner:
                return self.node(fused.inner[key], fused)
            value = fused.inputs.get(key)
            fused = fused.outside
            if value is not None:
                return self.node(value, fused)
        return self.reference(key)

    def _task(self, task: Any, fused: _Fused | None) -> Any:
        func = task.func
        if func is identity_cast and task.kwargs.get("typ") in _SEARCHED:
            return task.kwargs["typ"]([self.node(a, fused) for a in task.args])
        if func is execute_subgraph and _is_expression(*task.args[:2]):
            inner, outkey, inkeys, *inputs = task.args
            named = dict(zip(inkeys, inputs, strict=True))
            return self._seen(outkey, _Fused(inner, named, fused))
        args = tuple([self.node(a, fused) for a in task.args])
        kwargs = {k: self.node(v, fused) for k, v in task.kwargs.items()}
        return self._call(func, args, kwargs)


def _rebuilt(old: Any, items: list[Any]) -> Any:
    """The container ``old`` with new items; itself if they are the old ones."""
    if all(new is item for new, item in zip(items, old, strict=True)):
        return old
    if isinstance(old, tuple):
        make: Callable[[Any], Any] = getattr(type(old), "_make", tuple)
        return make(items)
    if isinstance(old, list):
        return items
    return set(items) if isinstance(old, set) else frozenset(items)


def _is_expression(inner: Mapping[Key, Any], outkey: Key) -> bool:
    """Whether a fused task can be written as nested calls: nothing is used twice."""
    if len(inner) > EXPRESSION_MAX:
        return False
    uses: dict[Key, int] = {outkey: 1}
    for node in inner.values():
        if not isinstance(node, GraphNode):
            return False
        if not _count_uses(node, uses):
            return False
    return all(
        uses.get(key, 0) <= 1 or type(node) is DataNode for key, node in inner.items()
    )


def _count_uses(value: Any, uses: dict[Key, int]) -> bool:
    """Count each reference in a node; False if its class is not one of dask's own."""
    if isinstance(value, TaskRef):
        uses[value.key] = uses.get(value.key, 0) + 1
    elif isinstance(value, Alias):
        uses[value.target] = uses.get(value.target, 0) + 1
    elif isinstance(value, Task):
        if type(value).__call__ is not Task.__call__:
            return False
        if value.func is execute_subgraph:
            # The inner graph of another fused task; its inputs are what it uses.
            return all(_count_uses(a, uses) for a in value.args[3:])
        parts = (*value.args, *value.kwargs.values())
        return all(_count_uses(part, uses) for part in parts)
    return True
