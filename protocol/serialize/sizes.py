"""How many bytes a value counts for, where memory is planned.

The only module that knows ``dask.sizeof``, which has handlers for the ecosystem's
containers and guesses for the rest.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from dask.sizeof import sizeof as dask_sizeof

logger = logging.getLogger(__name__)

_UNKNOWN = 64
"""Bytes of a value whose own ``__sizeof__`` fails."""
_SHORT = 10
"""Elements up to which a container is looked at in full, as in dask."""

_own = sys.getsizeof
_complained: set[type] = set()


def _of_sequence(value: tuple[Any, ...] | list[Any]) -> int:
    if len(value) > _SHORT:
        return _by_dask(value)
    total = _own(value)
    for item in value:
        measure = _FLAT.get(type(item))
        if measure is None:
            return _by_dask(value)
        total += measure(item)
    return total


def _by_dask(value: Any) -> int:
    try:
        size = int(dask_sizeof(value))
    except Exception as error:  # noqa: BLE001 (the handlers are anybody's code)
        size = -1
        _complain(type(value), error)
    if size >= 0:
        return size
    try:
        return _own(value)
    except Exception:  # noqa: BLE001 (a broken __sizeof__)
        return _UNKNOWN


def _complain(cls: type, error: Exception) -> None:
    if cls not in _complained:
        _complained.add(cls)
        logger.warning("cannot measure values of type %r", cls, exc_info=error)


_FLAT: dict[type, Callable[[Any], int]] = {
    int: _own,
    float: _own,
    complex: _own,
    bool: _own,
    str: _own,
    type(None): _own,
    bytes: len,
    bytearray: len,
}
_FAST: dict[type, Callable[[Any], int]] = _FLAT | {
    tuple: _of_sequence,
    list: _of_sequence,
}


def sizeof(value: Any) -> int:
    """Bytes of memory that ``value`` takes, roughly; never raises, never negative."""
    return _FAST.get(type(value), _by_dask)(value)
