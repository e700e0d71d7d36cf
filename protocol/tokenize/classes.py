"""When two classes are the same class, and which classes have encoders of their own.

One that can be imported counts by its name. Any other (local, or of ``__main__``)
counts by value: name, bases, metaclass and what its body defined. An enum class
counts by its members.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
import weakref
from typing import Any

from .builtins import CONTAINERS, TUPLE
from .functions import FUNCTIONS, MODULE, find_global
from .hashing import str_piece
from .node import PAIRS, UNORDERED, Node, Piece
from .objects import (
    identity,
    is_slotted_dataclass,
    take_field,
    take_member,
    take_object,
    take_slotted_dataclass,
)
from .registry import (
    Encoder,
    composite,
    cyclic,
    leaf,
    module_of,
    namespace_of,
)

# Names in a class's dict that Python puts there itself, that change as the class is
# used, or that describe rather than define.
_SKIPPED = frozenset({
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__",
    "__slotnames__", "_abc_impl", "__abstractmethods__", "__annotations__",
    "__annotate__", "__annotate_func__", "__annotations_cache__",
    "__firstlineno__", "__static_attributes__", "__classcell__", "__classdictcell__",
})  # fmt: skip
_SKIPPED_TYPES = (types.MemberDescriptorType, types.GetSetDescriptorType)


def take_class(_: Any, cls: type) -> Node | Piece:
    """A class object: by reference if it can be imported, else by value."""
    module = module_of(cls)
    qualname: str = type.__dict__["__qualname__"].__get__(cls)
    if find_global(module, qualname) is cls or not _is_made_by_python(cls):
        return b"K" + str_piece(module or "") + str_piece(qualname)
    head: list[Any] = [
        # The main program has a second name in processes that multiprocessing spawns.
        "__main__" if module == "__mp_main__" else module,
        # cloudpickle rebuilds a class without its qualified name.
        type.__dict__["__name__"].__get__(cls),
        type(cls),
        type.__dict__["__bases__"].__get__(cls),
    ]
    labels = [".__module__", ".__name__", ".__class__", ".__bases__"]
    body = namespace_of(cls)
    if issubclass(type(cls), enum.EnumMeta):
        head += _members(body), _body(_without_enum(body))
        return Node(b"OE", head, labels=(*labels, ".__members__", ""))
    head.append(_body(body))
    return Node(b"OX", head, labels=(*labels, ""))


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def _is_made_by_python(cls: type) -> bool:
    """Not for a class that an extension declares: it is known by its name alone."""
    flags: int = type.__dict__["__flags__"].__get__(cls)
    return bool(flags & _HEAP_TYPE)


def _body(names: Any) -> Node:
    children: list[Any] = []
    labels: list[str] = []
    for name, value in names.items():
        if name not in _SKIPPED and type(value) not in _SKIPPED_TYPES:
            children += (name, value)
            labels += (f".{name}", f".{name}")
    return Node(b"OY", children, PAIRS, labels)


def _members(body: Any) -> Node:
    flat: list[Any] = []
    for name, member in body.get("_member_map_", {}).items():
        flat += (name, object.__getattribute__(member, "__dict__").get("_value_"))
    return Node(TUPLE, flat)


def _without_enum(body: Any) -> dict[str, Any]:
    """What an enum's body defines beside members and the enum machinery."""
    members = body.get("_member_map_", {})
    return {
        name: value
        for name, value in body.items()
        if name not in members
        and name not in ("__new__", "__new_member__")
        and not (name[:1] == "_" == name[-1:] and name[:2] != "__")
    }


def _take_weakset(_: Any, items: weakref.WeakSet[Any]) -> Node:
    return Node(b"OW", list(items), UNORDERED)


def _take_typevar(_: Any, var: typing.TypeVar) -> Node | Piece:
    module, name = var.__module__, var.__name__
    if find_global(module, name) is var:
        return b"OV" + str_piece(module) + str_piece(name)
    variance = (var.__covariant__, var.__contravariant__)
    return Node(b"OI", (name, var.__bound__, var.__constraints__, variance))


_FIELD = type(getattr(dataclasses, "_FIELD", None))

_IDENTITY = composite(lambda _, obj: identity(obj))
_EXACT: dict[int, Encoder] = {
    id(cls): encoder
    for cls, encoder in {
        **CONTAINERS,
        **FUNCTIONS,
        weakref.WeakSet: composite(_take_weakset),
        typing.TypeVar: composite(_take_typevar),
        dataclasses.Field: composite(take_field),
        **dict.fromkeys(
            (object, types.TracebackType, types.FrameType),
            _IDENTITY,
        ),
    }.items()
}
_CLASS = cyclic(take_class)
_MEMBER = composite(take_member)
_SLOTTED = composite(take_slotted_dataclass)
_OBJECT = composite(take_object)
_TYPE_FLAG = leaf(lambda _, flag: b"OR" + str_piece(flag.name))


def structural(cls: type) -> Encoder:  # noqa: PLR0911 (a chain of precedence)
    """The encoder of a class that nobody has registered and that has no hook."""
    found = _EXACT.get(id(cls))
    if found is not None:
        return found
    if issubclass(cls, type):
        return _CLASS
    if issubclass(type(cls), enum.EnumMeta):
        return _MEMBER
    if issubclass(cls, types.ModuleType):
        return MODULE
    if cls is _FIELD:  # dataclasses' own sentinels, compared by identity there
        return _TYPE_FLAG
    if module_of(cls) == "itertools":  # pickle gives them up in Python 3.14
        return _IDENTITY
    if is_slotted_dataclass(cls):
        return _SLOTTED
    return _OBJECT
