"""Which values are here, where each came from, and which are wanted by whom."""

from __future__ import annotations

from typing import Any

from raddle.protocol.core.ids import Aid, Tid, Wid
from raddle.protocol.core.messages.base import Frames

from .attempts import Attempt

NO_ATTEMPT: Aid = 0
"""The origin of scattered data: no attempt made it."""


class Packed:
    """A value as it travelled. The thread that needs it first loads it.

    ``value`` is set, and ``frames`` given up, by whoever loads it.
    """

    __slots__ = ("frames", "value")

    def __init__(self, frames: Frames) -> None:
        self.frames: Frames | None = frames
        self.value: Any = None


class Stored:
    """A value that is here. ``origin`` is the attempt that made it, here or elsewhere."""

    __slots__ = ("nbytes", "origin", "type_name", "value")

    def __init__(self, value: Any, origin: Aid, nbytes: int, type_name: str) -> None:
        self.value = value
        self.origin = origin
        self.nbytes = nbytes
        self.type_name = type_name


class Wanted:
    """A value that is needed and not here.

    ``holders`` are workers to try, ``source`` the one that is being asked now.
    ``waiters`` are the attempts that need it; ``acquired`` says that the scheduler
    ordered a replica.
    """

    __slots__ = ("acquired", "holders", "nbytes", "source", "tid", "waiters")

    def __init__(self, tid: Tid, nbytes: int) -> None:
        self.tid = tid
        self.nbytes = nbytes
        self.holders: list[Wid] = []
        self.source: Wid | None = None
        self.waiters: dict[Aid, Attempt] = {}
        self.acquired = False


class Data:
    """All entries: each tid is in at most one of ``stored`` and ``wanted``.

    ``origins`` finds the value that an attempt left here, ``unclaimed`` holds what
    clients have put here and the scheduler has not named yet, by uuid.
    """

    def __init__(self) -> None:
        self.stored: dict[Tid, Stored] = {}
        self.wanted: dict[Tid, Wanted] = {}
        self.origins: dict[Aid, Tid] = {}
        self.unclaimed: dict[bytes, tuple[Packed, int]] = {}

    def store(self, tid: Tid, entry: Stored) -> Wanted | None:
        """Keep a value that is not here yet; the want it fulfils is returned."""
        self.stored[tid] = entry
        if entry.origin != NO_ATTEMPT:
            self.origins[entry.origin] = tid
        return self.wanted.pop(tid, None) if self.wanted else None

    def drop(self, tid: Tid) -> None:
        """Forget a value; nothing happens when it is not here."""
        entry = self.stored.pop(tid, None)
        if entry is not None and entry.origin != NO_ATTEMPT:
            self.origins.pop(entry.origin, None)

    def drop_made_by(self, aid: Aid) -> None:
        """Forget the value that this attempt left, if it is still here."""
        tid = self.origins.get(aid)
        if tid is not None:
            self.drop(tid)
