"""How objects without an encoder of their own are taken apart.

By what pickle would store (the reduce protocol), asked once and walked as structure:
nothing is serialized, nothing rebuilt. Dataclasses and enum members have rules of
their own; what cannot be taken apart is itself, and flagged.
"""

from __future__ import annotations

import copyreg
import dataclasses
from collections import OrderedDict
from typing import Any

from .functions import find_global
from .hashing import str_piece
from .identity import identity_of
from .node import IDENTITY, ORDERED, PAIRS, UNORDERED, Node, Raw
from .registry import lookup, module_of

_NEWOBJ, _NEWOBJ_EX, _RECONSTRUCTOR, _CALL = b"n", b"x", b"o", b"r"
_new: Any = copyreg.__newobj__  # type: ignore[attr-defined]
_new_ex: Any = copyreg.__newobj_ex__  # type: ignore[attr-defined]
_reconstructor: Any = copyreg._reconstructor  # type: ignore[attr-defined]  # noqa: SLF001

_PLAIN = b"On\2"
_PLAIN_LABELS = (".__class__", ".__dict__")


def identity(obj: Any) -> Node:
    """An object that is only itself: the same while it lives, flagged."""
    return Node(b"I" + identity_of(obj), (type(obj),), IDENTITY)


def take_object(walker: Any, obj: Any) -> Node:
    """Any object, by its reduce form."""
    cls = type(obj)
    if cls is object:
        return identity(obj)
    try:
        return _reduced(obj, cls, _reduce(obj, cls))
    except RecursionError:
        if walker.shallow:
            return identity(obj)
        raise  # the stack is ours: the other way of walking asks again
    except Exception:  # noqa: BLE001 (whatever stops pickle: then it is itself)
        return identity(obj)


def _reduce(obj: Any, cls: type) -> Any:
    # Libraries that carry tracebacks register reducers for exceptions: what is
    # imported must not count. And a class that its metaclass hashes may not be
    # looked up: that runs foreign code.
    if (
        type(cls) is type or lookup(type(cls), "__hash__") is type.__hash__
    ) and not issubclass(cls, BaseException):
        reducer = copyreg.dispatch_table.get(cls)
        if reducer is not None:
            return reducer(obj)
    return obj.__reduce_ex__(4)


def _reduced(obj: Any, cls: type, reduced: Any) -> Node:
    """The node of a reduce form; raises if it is none."""
    if isinstance(reduced, str):
        return _named(obj, cls, reduced)
    func, args, state, items, entries, setter = (*reduced, *(None,) * 6)[:6]
    if func is _new and len(args) == 1 and args[0] is cls:
        alone = items is None and entries is None and setter is None
        if alone and type(state) is dict and state:  # the most common form, quickly
            return Node(_PLAIN, (cls, state), ORDERED, _PLAIN_LABELS)
    children: list[Any] = [cls]
    labels = [".__class__"]
    if func is _new and args[0] is cls:
        kind, args = _NEWOBJ, args[1:]
    elif func is _new_ex and args[0] is cls:
        kind, args = _NEWOBJ_EX, args[1:]
    elif func is _reconstructor and args[0] is cls:
        kind, args = _RECONSTRUCTOR, args[1:]
    else:
        kind = _CALL
        children.append(func)
        labels.append(".__reduce__()[0]")
    present = 0
    if args:
        present |= 1
        children.append(_arguments(func, cls, args))
        labels.append(".__reduce__()[1]")
    # An exception has an empty __dict__ only once somebody has looked at it.
    if state is not None and not (type(state) is dict and not state):
        present |= 2
        children.append(state)
        labels.append(".__dict__" if type(state) is dict else ".__getstate__()")
    if items is not None:
        present |= 4
        children.append(Node(b"Ol", list(items)))
        labels.append("")
    if entries is not None:
        present |= 8
        shape = ORDERED if issubclass(cls, OrderedDict) else PAIRS
        flat = [part for key, value in entries for part in (key, value)]
        children.append(Node(b"Oe", flat, shape))
        labels.append("")
    if setter is not None:
        present |= 16
        children.append(setter)
        labels.append(".__reduce__()[5]")
    return Node(b"O" + kind + bytes([present]), children, labels=labels)


def _arguments(func: Any, cls: type, args: Any) -> Any:
    listed = func is cls and len(args) == 1 and type(args[0]) is list
    if listed and issubclass(cls, set | frozenset):
        return Node(b"Oh", args[0], UNORDERED)  # they come in the order of hashes
    return args


def _named(obj: Any, cls: type, name: str) -> Node:
    """A singleton that reduces to the name under which its module has it."""
    for module in (getattr(obj, "__module__", None), module_of(cls)):
        if type(module) is str and find_global(module, name) is obj:
            return Node(b"OG", (cls, Raw(str_piece(module)), name))
    return identity(obj)


_GENERATED_STATE = getattr(dataclasses, "_dataclass_getstate", None)


def is_slotted_dataclass(cls: type) -> bool:
    """Whether pickle would get a dataclass's fields only, and all or none of them."""
    return (
        _GENERATED_STATE is not None
        and lookup(cls, "__getstate__") is _GENERATED_STATE
        and lookup(cls, "__reduce__") is lookup(object, "__reduce__")
        and lookup(cls, "__reduce_ex__") is lookup(object, "__reduce_ex__")
    )


def take_slotted_dataclass(_: Any, obj: Any) -> Node:
    """A dataclass with slots: every attribute it has, field or not."""
    labels = (".__class__", ".__getstate__()")
    return Node(b"Oa", (type(obj), object.__getstate__(obj)), labels=labels)


def take_field(_: Any, field: dataclasses.Field[Any]) -> Node:
    """A dataclass's field without its annotation."""
    parts = ("name", "default", "default_factory", "init", "repr", "hash", "compare")
    children = [getattr(field, part) for part in (*parts, "kw_only", "metadata")]
    return Node(b"OF", children)


def take_member(_: Any, member: Any) -> Node:
    """An enum member: its class, name and value, whatever its properties say."""
    state = object.__getattribute__(member, "__dict__")
    return Node(
        b"Om",
        (type(member), state.get("_name_"), state.get("_value_")),
        labels=(".__class__", ".name", ".value"),
    )
