"""What every message is: a NamedTuple with an op, listed in one table.

On the wire a message is the msgpack array ``[OP, *fields]``. Extra trailing
fields (a newer peer) are ignored; fewer, or of a wrong type, end the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

Frames: TypeAlias = tuple[Any, ...]
"""A serialized value: pickle bytes, then its out-of-band buffers (bytes-like)."""

Message: TypeAlias = tuple[Any, ...]
"""A NamedTuple of this package, marked by :func:`op`."""

_Class = TypeVar("_Class", bound=type[Any])


def op(number: int) -> Callable[[_Class], _Class]:
    """Give a message class its number on the wire, as its attribute ``OP``."""

    def mark(cls: _Class) -> _Class:
        cls.OP = number
        return cls

    return mark
