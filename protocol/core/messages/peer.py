"""What is asked of a worker's data: by other workers and by clients (ops 80 to 99)."""

from __future__ import annotations

from typing import NamedTuple

from ..ids import Aid, Tid
from .base import Frames


class Get(NamedTuple):
    """Send these values; ``request`` numbers the question on this connection."""

    OP = 80
    request: int
    tids: tuple[Tid, ...]


class Data(NamedTuple):
    """The answer to :class:`Get`: items ``(tid, origin aid, frames)``.

    A value that is not here comes with ``frames`` None; one that cannot be
    pickled is listed in ``failed`` with an error pair as in ``client.Erred``.
    """

    OP = 81
    request: int
    items: tuple[tuple[Tid, Aid, Frames | None], ...]
    failed: tuple[tuple[Tid, tuple[str, object]], ...]


class Put(NamedTuple):
    """Keep these values under their uuids until the scheduler's ``Claim``.

    What is not claimed when the connection ends is dropped.
    """

    OP = 82
    request: int
    items: tuple[tuple[bytes, Frames], ...]


class PutDone(NamedTuple):
    """The answer to :class:`Put`: the values are here, or why not."""

    OP = 83
    request: int
    error: str | None


PEER = (Get, Data, Put, PutDone)
