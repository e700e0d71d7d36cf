"""What the scheduler and workers say to each other (ops 40 to 79).

``seen`` in a worker's message is the number of the last :class:`DropData` that the
worker had handled when it found the fact (states.md, rule R1): a fact about data
that was told to be dropped later than that is void.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..ids import Address, Aid, Fn, Key, Tid, Wid
from .base import Frames


class Compute(NamedTuple):
    """Run attempt ``aid`` of task ``tid``.

    ``deps`` are, in the order of the payload's indices, ``(tid, wids, nbytes,
    frames | None)``: who holds the value, or the small value itself.
    ``priority`` sorts ascending. ``resources`` are held while it runs.
    """

    OP = 40
    aid: Aid
    tid: Tid
    key: Key
    form: int
    fn: Fn
    payload: Frames
    deps: tuple[tuple[Tid, tuple[Wid, ...], int, Frames | None], ...]
    priority: tuple[int, ...]
    resources: dict[str, float] | None


class Functions(NamedTuple):
    """Definitions that later ``Compute`` messages name by number."""

    OP = 41
    items: tuple[tuple[Fn, Frames], ...]


class DropFunctions(NamedTuple):
    """These definitions will not be named again."""

    OP = 42
    fns: tuple[Fn, ...]


class CancelAttempts(NamedTuple):
    """Results of these attempts are not wanted; running code may read the flag."""

    OP = 43
    aids: tuple[Aid, ...]


class YieldAttempts(NamedTuple):
    """Give these attempts back unless they have started."""

    OP = 44
    aids: tuple[Aid, ...]


class DropData(NamedTuple):
    """Forget these values. ``number`` counts the drops sent to this worker, from 1."""

    OP = 45
    number: int
    tids: tuple[Tid, ...]


class Acquire(NamedTuple):
    """Fetch replicas: items ``(tid, wids, nbytes)``."""

    OP = 46
    items: tuple[tuple[Tid, tuple[Wid, ...], int], ...]


class Holders(NamedTuple):
    """Who holds ``tid`` now (the answer to a :class:`Miss`); may be empty."""

    OP = 47
    tid: Tid
    wids: tuple[Wid, ...]


class Confirm(NamedTuple):
    """Do you hold ``tid``? Answered by :class:`Present` or :class:`Absent`."""

    OP = 48
    tid: Tid


class Peers(NamedTuple):
    """Workers that joined: items ``(wid, data address)``."""

    OP = 49
    items: tuple[tuple[Wid, Address], ...]


class PeersLeft(NamedTuple):
    """Workers that are gone: do not wait for them."""

    OP = 50
    wids: tuple[Wid, ...]


class Claim(NamedTuple):
    """Data that a client put here is task ``tid`` from now on: ``(uuid, tid)``."""

    OP = 51
    items: tuple[tuple[bytes, Tid], ...]


class Run(NamedTuple):
    """Call a function outside any task (``client.run``)."""

    OP = 52
    call: int
    payload: Frames


class CloseWorker(NamedTuple):
    """End the worker process."""

    OP = 53
    why: str


class Started(NamedTuple):
    """These attempts run (sent only for what still runs at a flush)."""

    OP = 60
    aids: tuple[Aid, ...]


class LongRunning(NamedTuple):
    """The attempt gave its slot back: it seceded, or waits for other tasks."""

    OP = 61
    aid: Aid


class Resumed(NamedTuple):
    """The attempt holds a slot again."""

    OP = 62
    aid: Aid


class Done(NamedTuple):
    """The attempt's value is stored here.

    ``seconds`` is the run time of the user's function, ``frames`` the value
    where it is small.
    """

    OP = 63
    aid: Aid
    seen: int
    nbytes: int
    type_name: str
    seconds: float
    frames: Frames | None


class Failed(NamedTuple):
    """The attempt raised; ``error`` as in ``client.Erred``, ``text`` for logs."""

    OP = 64
    aid: Aid
    seen: int
    error: tuple[str, Any]
    text: str
    seconds: float


class Rejected(NamedTuple):
    """The attempt is given back: yielded, rescheduled, inputs-unavailable, closing."""

    OP = 65
    aid: Aid
    seen: int
    why: str


class Stored(NamedTuple):
    """Fetched values are held here: items ``(tid, origin aid)``."""

    OP = 66
    seen: int
    items: tuple[tuple[Tid, Aid], ...]


class Absent(NamedTuple):
    """The value is not here (answer to :class:`Confirm`)."""

    OP = 67
    tid: Tid
    seen: int


class Present(NamedTuple):
    """The value is here (answer to :class:`Confirm`)."""

    OP = 68
    tid: Tid
    seen: int


class Miss(NamedTuple):
    """``tid`` could not be had from worker ``wid``: not-found or unreachable."""

    OP = 69
    tid: Tid
    wid: Wid
    why: str


class Heartbeat(NamedTuple):
    """Alive, and a few figures: ``executing``, ``zombies``, ``memory`` (bytes) ..."""

    OP = 70
    metrics: dict[str, Any]


class RunResult(NamedTuple):
    """What ``Run`` returned: frames, or an error pair as in ``client.Erred``."""

    OP = 71
    call: int
    frames: Frames | None
    error: tuple[str, Any] | None


class WorkerClosing(NamedTuple):
    """The worker ends on purpose: give it nothing more, its attempts are rejected."""

    OP = 72
    why: str


SCHEDULER_TO_WORKER = (
    Compute, Functions, DropFunctions, CancelAttempts, YieldAttempts, DropData,
    Acquire, Holders, Confirm, Peers, PeersLeft, Claim, Run, CloseWorker,
)  # fmt: skip
WORKER_TO_SCHEDULER = (
    Started, LongRunning, Resumed, Done, Failed, Rejected, Stored, Absent, Present,
    Miss, Heartbeat, RunResult, WorkerClosing,
)  # fmt: skip
