"""How dask's graph nodes count: by what they compute, not by how they are written.

A nested task is a call, a reference counts by its key, and a fused task is the
expression that its inner tasks make: their names, and the order in which dask has
put its inputs (by string hash, so different in each process), do not count.
"""

from __future__ import annotations

from typing import Any

from dask._task_spec import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    NestedContainer,
    Set,
    Task,
    TaskRef,
    _execute_subgraph,
    _identity_cast,
)

from ..core.ids import Key
from ..spec import Call, Ref
from .builtins import DICT, FROZENSET, SET
from .hashing import key_piece
from .node import PAIRS, UNORDERED, Node, Raw, Same
from .registry import composite, leaf, normalize_token

_PLAIN_SLOTS = frozenset(Task.get_all_slots())


def register() -> None:
    """Register the node classes, and the functions that stand for structure."""
    normalize_token.encode_with(Task, composite(_take_task))
    normalize_token.encode_with(Alias, composite(_take_alias))
    # The key of a literal is a counter where dask has made it up.
    normalize_token.encode_with(DataNode, composite(lambda _, node: Same(node.value)))
    normalize_token.encode_with(TaskRef, leaf(lambda _, ref: b"R" + key_piece(ref.key)))
    normalize_token.rewrite_calls(_execute_subgraph, _rewrite_fused)
    normalize_token.rewrite_calls(_identity_cast, _rewrite_cast)


def _take_task(_: Any, task: Any) -> Node | Same:
    call = lower(task, {})
    if task.key is None:
        return Same(call)
    key = Raw(key_piece(task.key))
    return Node(b"4I", (type(task), key, call, bool(task.data_producer)))


def _take_alias(_: Any, alias: Any) -> Node | Same:
    target = Ref(alias.target, 0)
    if alias.key == alias.target:
        return Same(target)
    return Node(b"4A", (type(alias), Raw(key_piece(alias.key)), target))


Values = dict[Key, Any]


def lower(node: Any, values: Values) -> Any:  # noqa: PLR0911 (one per class)
    """A node as calls, containers and references; ``values`` are inner results."""
    kind = type(node)
    if kind is TaskRef:
        return _value(node.key, values)
    if kind is Task:
        args = [lower(arg, values) for arg in node.args]
        return _call(node.func, args, _lowered(node.kwargs, values))
    if isinstance(node, NestedContainer):
        return _container(node, [lower(arg, values) for arg in node.args])
    if isinstance(node, TaskRef):
        return _value(node.key, values)
    if isinstance(node, Alias):
        return _value(node.target, values)
    if isinstance(node, DataNode):
        return node.value
    if isinstance(node, Task):
        args = [lower(arg, values) for arg in node.args]
        call = Call(node.func, tuple(args), _lowered(node.kwargs, values))
        return Node(b"4i", (type(node), call, _extras(node)))
    return node


def _lowered(kwargs: dict[str, Any], values: Values) -> dict[str, Any]:
    return {name: lower(value, values) for name, value in kwargs.items()}


def _value(key: Key, values: Values) -> Any:
    return values[key] if key in values else Ref(key, 0)


def _call(func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if func is _execute_subgraph:
        return _rewrite_fused(args, kwargs)
    if func is _identity_cast:
        return _rewrite_cast(args, kwargs)
    return Call(func, tuple(args), kwargs)


def _container(node: NestedContainer, parts: list[Any]) -> Any:
    if isinstance(node, Dict):
        return Node(DICT, parts, PAIRS)
    if isinstance(node, Set):
        return Node(SET, parts, UNORDERED)
    return node.klass(parts)


def _extras(task: Task) -> dict[str, Any]:
    """What a subclass of Task (a barrier, say) has beyond a task."""
    slots = [name for name in task.get_all_slots() if name not in _PLAIN_SLOTS]
    found = {name: getattr(task, name) for name in slots if hasattr(task, name)}
    return found | getattr(task, "__dict__", {})


def _rewrite_cast(args: Any, kwargs: dict[str, Any]) -> Any:
    """``_identity_cast(*args, typ=list)`` is that list."""
    kind = kwargs.get("typ")
    if kind is list or kind is tuple:
        return kind(args)
    if kind is set:
        return Node(SET, list(args), UNORDERED)
    if kind is frozenset:
        return Node(FROZENSET, list(args), UNORDERED)
    return Node(b"4V", (_identity_cast, tuple(args), kwargs))


def _rewrite_fused(args: Any, _: dict[str, Any]) -> Any:
    """A fused task as the expression that gives its value."""
    inner, outkey, inkeys, *inputs = args
    values: Values = dict(zip(inkeys, inputs, strict=True))
    begun = set()
    todo = [outkey]
    while todo:
        key = todo[-1]
        if key in values:
            todo.pop()
            continue
        node = inner.get(key)
        if not isinstance(node, GraphNode):
            values[key] = Ref(key, 0) if node is None else node
            continue
        missing = [k for k in node.dependencies if k not in values and k in inner]
        if missing and key not in begun:
            begun.add(key)
            todo.extend(missing)
        else:
            values[key] = lower(node, values)
    return values[outkey]
