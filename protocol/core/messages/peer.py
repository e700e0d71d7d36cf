"""What is asked of a worker's data: by other workers and by clients (ops 80 to 99)."""

from __future__ import annotations

from typing import NamedTuple

from ..ids import Aid, Tid
from .base import Frames, op


@op(80)
class Get(NamedTuple):
    """Send these values; ``request`` numbers the question on this connection."""

    request: int
    tids: tuple[Tid, ...]


@op(81)
class Data(NamedTuple):
    """The answer to :class:`Get`: items ``(tid, origin aid, frames)``.

    A value that is not here comes with ``frames`` None; one that cannot be
    pickled is listed in ``failed`` with an error pair as in ``client.Erred``.
    """

    request: int
    items: tuple[tuple[Tid, Aid, Frames | None], ...]
    failed: tuple[tuple[Tid, tuple[str, object]], ...]


@op(82)
class Put(NamedTuple):
    """Keep these values under their uuids until the scheduler's ``Claim``.

    What is not claimed when the connection ends is dropped.
    """

    request: int
    items: tuple[tuple[bytes, Frames], ...]


@op(83)
class PutDone(NamedTuple):
    """The answer to :class:`Put`: the values are here, or why not."""

    request: int
    error: str | None


PEER = (Get, Data, Put, PutDone)
