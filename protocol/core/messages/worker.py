"""What the scheduler and workers say to each other (ops 40 to 79).

``seen`` in a worker's message is the number of the last :class:`DropData` that the
worker had handled when it found the fact (states.md, rule R1): a fact about data
that was told to be dropped later than that is void.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..ids import Address, Aid, Fn, Key, Tid, Wid
from .base import Frames, op


@op(40)
class Compute(NamedTuple):
    """Run attempt ``aid`` of task ``tid``.

    ``deps`` are, in the order of the payload's indices, ``(tid, wids, nbytes,
    frames | None)``: who holds the value, or the small value itself.
    ``priority`` sorts ascending. ``resources`` are held while it runs.
    """

    aid: Aid
    tid: Tid
    key: Key
    form: int
    fn: Fn
    payload: Frames
    deps: tuple[tuple[Tid, tuple[Wid, ...], int, Frames | None], ...]
    priority: tuple[int, ...]
    resources: dict[str, float] | None


@op(41)
class Functions(NamedTuple):
    """Definitions that later ``Compute`` messages name by number."""

    items: tuple[tuple[Fn, Frames], ...]


@op(42)
class DropFunctions(NamedTuple):
    """These definitions will not be named again."""

    fns: tuple[Fn, ...]


@op(43)
class CancelAttempts(NamedTuple):
    """Results of these attempts are not wanted; running code may read the flag."""

    aids: tuple[Aid, ...]


@op(44)
class YieldAttempts(NamedTuple):
    """Give these attempts back unless they have started."""

    aids: tuple[Aid, ...]


@op(45)
class DropData(NamedTuple):
    """Forget these values. ``number`` counts the drops sent to this worker, from 1."""

    number: int
    tids: tuple[Tid, ...]


@op(46)
class Acquire(NamedTuple):
    """Fetch replicas: items ``(tid, wids, nbytes)``."""

    items: tuple[tuple[Tid, tuple[Wid, ...], int], ...]


@op(47)
class Holders(NamedTuple):
    """Who holds ``tid`` now (the answer to a :class:`Miss`); may be empty."""

    tid: Tid
    wids: tuple[Wid, ...]


@op(48)
class Confirm(NamedTuple):
    """Do you hold ``tid``? Answered by :class:`Present` or :class:`Absent`."""

    tid: Tid


@op(49)
class Peers(NamedTuple):
    """Workers that joined: items ``(wid, data address)``."""

    items: tuple[tuple[Wid, Address], ...]


@op(50)
class PeersLeft(NamedTuple):
    """Workers that are gone: do not wait for them."""

    wids: tuple[Wid, ...]


@op(51)
class Claim(NamedTuple):
    """Data that a client put here is task ``tid`` from now on: ``(uuid, tid)``."""

    items: tuple[tuple[bytes, Tid], ...]


@op(52)
class Run(NamedTuple):
    """Call a function outside any task (``client.run``)."""

    call: int
    payload: Frames


@op(53)
class CloseWorker(NamedTuple):
    """End the worker process."""

    why: str


@op(60)
class Started(NamedTuple):
    """These attempts run (sent only for what still runs at a flush)."""

    aids: tuple[Aid, ...]


@op(61)
class LongRunning(NamedTuple):
    """The attempt gave its slot back: it seceded, or waits for other tasks."""

    aid: Aid


@op(62)
class Resumed(NamedTuple):
    """The attempt holds a slot again."""

    aid: Aid


@op(63)
class Done(NamedTuple):
    """The attempt's value is stored here.

    ``seconds`` is the run time of the user's function, ``frames`` the value
    where it is small.
    """

    aid: Aid
    seen: int
    nbytes: int
    type_name: str
    seconds: float
    frames: Frames | None


@op(64)
class Failed(NamedTuple):
    """The attempt raised; ``error`` as in ``client.Erred``, ``text`` for logs."""

    aid: Aid
    seen: int
    error: tuple[str, Any]
    text: str
    seconds: float


@op(65)
class Rejected(NamedTuple):
    """The attempt is given back: ``why`` is yielded or rescheduled.

    A scheduler also understands ``inputs-unavailable``, which no worker says yet.
    """

    aid: Aid
    seen: int
    why: str


@op(66)
class Stored(NamedTuple):
    """Fetched values are held here: items ``(tid, origin aid)``."""

    seen: int
    items: tuple[tuple[Tid, Aid], ...]


@op(67)
class Absent(NamedTuple):
    """The value is not here (answer to :class:`Confirm`)."""

    tid: Tid
    seen: int


@op(68)
class Present(NamedTuple):
    """The value is here (answer to :class:`Confirm`)."""

    tid: Tid
    seen: int


@op(69)
class Miss(NamedTuple):
    """``tid`` could not be had from worker ``wid``: not-found or unreachable."""

    tid: Tid
    wid: Wid
    why: str


@op(70)
class Heartbeat(NamedTuple):
    """Alive, and a few figures: ``executing``, ``zombies``, ``memory`` (bytes) ..."""

    metrics: dict[str, Any]


@op(71)
class RunResult(NamedTuple):
    """What ``Run`` returned: frames, or an error pair as in ``client.Erred``."""

    call: int
    frames: Frames | None
    error: tuple[str, Any] | None


@op(72)
class WorkerClosing(NamedTuple):
    """The worker ends on purpose: give it nothing more, what it has fails nobody."""

    why: str


SCHEDULER_TO_WORKER = (
    Compute, Functions, DropFunctions, CancelAttempts, YieldAttempts, DropData,
    Acquire, Holders, Confirm, Peers, PeersLeft, Claim, Run, CloseWorker,
)  # fmt: skip
WORKER_TO_SCHEDULER = (
    Started, LongRunning, Resumed, Done, Failed, Rejected, Stored, Absent, Present,
    Miss, Heartbeat, RunResult, WorkerClosing,
)  # fmt: skip
