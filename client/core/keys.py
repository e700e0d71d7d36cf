"""What may be the key of a task: what travels, and is equal when it arrives."""

from __future__ import annotations

import numbers
from typing import Any

from raddle.protocol.core.ids import Key

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


def as_key(key: Any) -> Key:
    """``key`` in the form in which it travels; numpy numbers become Python's.

    Raises:
        TypeError: it cannot be a key, or an int in it does not fit 64 bits.

    """
    if type(key) is str:
        return key
    if isinstance(key, tuple):
        for part in key:
            kind = type(part)
            if kind is not str and (
                kind is not int or not _INT_MIN <= part <= _INT_MAX
            ):
                return tuple([as_key(part) for part in key])
        return key
    if isinstance(key, str | bytes | float):
        return key
    if isinstance(key, numbers.Integral):
        value = int(key)
        if _INT_MIN <= value <= _INT_MAX:
            return value
    msg = (
        f"{key!r} of type {type(key).__name__} cannot be a key; a key is a str, bytes, "
        "number of up to 64 bits, or a tuple of these"
    )
    raise TypeError(msg)
