"""Which words explain that something could not be pickled or unpickled.

The culprit usually sits deep inside an argument (a lock in an attribute of an
element of a list); the error should name that place and not only the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getclosurevars
from itertools import islice
from types import FunctionType
from typing import Any

import cloudpickle

DEPTH_MAX = 8
CHILDREN_MAX = 100


def blame(obj: Any, what: str, error: BaseException) -> str:
    """The sentence for an object that cannot be pickled."""
    try:
        where, culprit = _culprit(obj)
    except Exception as broken:  # noqa: BLE001 (what users' containers raise)
        where, culprit = f"a place that cannot be searched ({type_name(broken)})", obj
    inside = f", at {where}: {type_name(culprit)}" if where else ""
    return (
        f"cannot pickle {what or 'a value'} of type {type_name(obj)}{inside}: "
        f"{type(error).__name__}: {message_of(error)}"
    )


def remedy(error: BaseException) -> str:
    """What to do about an error of unpickling, where that is known."""
    if isinstance(error, ModuleNotFoundError):
        return (
            f". Make {error.name!r} importable on this side, or send it along with "
            "cloudpickle.register_pickle_by_value"
        )
    if isinstance(error, AttributeError):
        return ". The two sides may have different versions of a module"
    return ""


def message_of(error: BaseException) -> str:
    """``str(error)``, or that it cannot be had."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 (a user's __str__)
        return f"(its message is unreadable: {type(broken).__name__})"


def type_name(obj: Any) -> str:
    """The qualified name of ``obj``'s type, without ``builtins``."""
    cls = type(obj)
    if cls.__module__ == "builtins":
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"


def _picklable(obj: Any) -> bool:
    try:  # the callback keeps pickle from copying long buffers
        cloudpickle.dumps(obj, buffer_callback=id)
    except Exception:  # noqa: BLE001 (whatever a __reduce__ raises)
        return False
    return True


def _culprit(obj: Any) -> tuple[str, Any]:
    """Path to, and the innermost part of ``obj`` that cannot be pickled."""
    where = ""
    for _ in range(DEPTH_MAX):
        for step, child in islice(_children(obj), CHILDREN_MAX):
            if not _picklable(child):
                where, obj = where + step, child
                break
        else:
            break
    return where, obj


def _children(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, list | tuple):
        yield from ((f"[{i}]", child) for i, child in enumerate(obj))
    elif isinstance(obj, dict):
        yield from ((f"[{k!r:.40}]", child) for k, child in obj.items())
    elif isinstance(obj, FunctionType):
        cells = getclosurevars(obj)
        yield from ((f".<closure>.{n}", value) for n, value in cells.nonlocals.items())
        yield from ((f".<global>.{n}", value) for n, value in cells.globals.items())
    elif not isinstance(obj, type):
        state = getattr(obj, "__dict__", None) or {}
        yield from ((f".{name}", child) for name, child in state.items())
