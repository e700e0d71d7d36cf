"""Which futures inside the arguments of ``submit`` and ``map`` become dependencies.

Futures are found in nested lists, tuples, sets and dict values, as in
dask.distributed; everything else travels as it is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .encode import Inputs
from .future import Future

ATOMS = frozenset(
    {int, float, complex, bool, str, bytes, bytearray, type(None), type(...), slice}
)
"""Types that certainly hold no futures."""

_SEQUENCES = (list, tuple, set, frozenset)


def has_futures(value: Any) -> bool:
    """Whether there is a future in ``value``; containers may be deep or cyclic."""
    if type(value) in ATOMS:
        return False
    pending = [value]
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        if isinstance(item, Future):
            return True
        children: Collection[Any]
        if isinstance(item, _SEQUENCES):
            children = item
        elif isinstance(item, dict):
            children = item.values()
        else:
            continue
        if id(item) not in seen and not set(map(type, children)) <= ATOMS:
            seen.add(id(item))
            pending.extend(children)
    return False


def with_references(value: Any, inputs: Inputs) -> Any:
    """``value`` with each future replaced by a reference.

    Containers without futures are returned as they are; the others become new ones
    of the builtin type, namedtuples new ones of their own type.
    """
    if isinstance(value, Future):
        return inputs.future(value)
    if not has_futures(value):
        return value
    if isinstance(value, dict):
        return {k: with_references(v, inputs) for k, v in value.items()}
    items = [with_references(v, inputs) for v in value]
    if isinstance(value, tuple):
        make = getattr(type(value), "_make", tuple)
        return make(items)
    if isinstance(value, list):
        return items
    return set(items) if isinstance(value, set) else frozenset(items)


def replaced(args: tuple[Any, ...], inputs: Inputs) -> tuple[Any, ...]:
    """Positional arguments with references for futures."""
    for arg in args:
        if type(arg) not in ATOMS:
            return tuple([with_references(a, inputs) for a in args])
    return args
