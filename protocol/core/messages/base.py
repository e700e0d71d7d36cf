"""What every message is: a NamedTuple with an op, listed in one table.

On the wire a message is the msgpack array ``[OP, *fields]``. Extra trailing
fields (a newer peer) are ignored; fewer, or of a wrong type, end the connection.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

Frames: TypeAlias = tuple[Any, ...]
"""A serialized value: pickle bytes, then its out-of-band buffers (bytes-like)."""


class Message(Protocol):
    """A NamedTuple of this package: positional fields under one op."""

    OP: int

    def __len__(self) -> int: ...
