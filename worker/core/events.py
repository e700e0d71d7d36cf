"""What the worker's core reacts to."""

from __future__ import annotations

from typing import Any, NamedTuple

from raddle.protocol.core.ids import Aid, Tid, Wid
from raddle.protocol.core.messages.base import Frames

from .data import Packed


class Registered(NamedTuple):
    """The scheduler has given this worker its number; comes first."""

    wid: Wid


class FromScheduler(NamedTuple):
    """One batch of messages of the scheduler."""

    messages: list[Any]


class Returned(NamedTuple):
    """A thread's report: the call returned.

    ``nbytes`` and ``seconds`` are measured, ``frames`` the value where it is small.
    """

    aid: Aid
    value: Any
    nbytes: int
    type_name: str
    seconds: float
    frames: Frames | None


class Raised(NamedTuple):
    """A thread's report: the call, or what it takes to make it, raised."""

    aid: Aid
    error: tuple[str, Any]
    text: str
    seconds: float


class Rescheduled(NamedTuple):
    """A thread's report: the task asked to be queued again."""

    aid: Aid


class Seceded(NamedTuple):
    """A thread's report: the attempt gave its slot back and runs on."""

    aid: Aid


class Rejoined(NamedTuple):
    """A thread's report: the attempt holds a slot again.

    ``waited`` tells whether it waited for a free one.
    """

    aid: Aid
    waited: bool


Report = Returned | Raised | Rescheduled | Seceded | Rejoined


class Ran(NamedTuple):
    """What the threads reported since the last time, in order."""

    reports: list[Report]


class Begun(NamedTuple):
    """Threads have claimed these attempts and run them now."""

    aids: list[Aid]


class Withdrawn(NamedTuple):
    """The executor gave these back before a thread claimed them."""

    aids: list[Aid]


class Fetched(NamedTuple):
    """Worker ``wid`` answered request ``number``; fields as in ``peer.Data``."""

    wid: Wid
    number: int
    items: tuple[tuple[Tid, Aid, Frames | None], ...]
    failed: tuple[tuple[Tid, tuple[str, Any]], ...]


class FetchFailed(NamedTuple):
    """Worker ``wid`` cannot be reached; request ``number`` gets no answer."""

    wid: Wid
    number: int


class PutHere(NamedTuple):
    """A client put data here: items ``(uuid, packed value, bytes)``."""

    items: list[tuple[bytes, Packed, int]]


class PutGone(NamedTuple):
    """The connection that put these is closed: drop what is still unclaimed."""

    uuids: list[bytes]


Event = (
    Registered
    | FromScheduler
    | Ran
    | Begun
    | Withdrawn
    | Fetched
    | FetchFailed
    | PutHere
    | PutGone
)
