"""What clients and the scheduler say to each other (ops 1 to 39)."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..ids import ClientId, Fid, Fn, Key
from .base import Frames, op

# How a task's payload becomes a call.
FORM_VALUE = 0
"""The payload is the value; nothing is called."""
FORM_INPUTS = 1
"""Positional arguments are exactly the inputs, in order; the payload is empty."""
FORM_ARGS = 2
"""The payload loads as ``(args, kwargs)``."""
FORM_NESTED = 3
"""Likewise, with nested calls to be made first (``raddle.protocol.spec.evaluate``)."""


class GraphTask(NamedTuple):
    """One task of a :class:`Graph` (a plain array inside the message).

    ``token`` is the run_spec token (16 bytes), ``skeleton`` None where it is
    deterministic. ``fn`` is the client's number of the function (0 with
    FORM_VALUE). ``deps`` are reference names, in the order of the payload's
    indices. ``annotation`` indexes the message's table (-1: none); ``order`` is
    the position that the graph's own ordering gives the task.
    """

    key: Key
    token: bytes
    skeleton: bytes | None
    form: int
    fn: Fn
    payload: Frames
    deps: tuple[Key, ...]
    annotation: int
    order: int


@op(1)
class Graph(NamedTuple):
    """Tasks to compare, create and want, as one step.

    ``wants`` pairs requested keys with the futures they get. ``embedded`` pairs
    each reference name that stands for one of this client's futures with that
    future; all other names in ``deps`` are tasks of this graph or known keys.
    ``functions`` brings definitions the scheduler has not seen from this client.
    ``annotations`` are dicts with any of: priority, retries, workers,
    allow_other_workers, resources. ``policy`` strengthens the collision policy.
    """

    call: int
    tasks: tuple[Any, ...]
    wants: tuple[tuple[Key, Fid], ...]
    embedded: tuple[tuple[Key, Fid], ...]
    functions: tuple[tuple[Fn, Frames], ...]
    annotations: tuple[dict[str, Any], ...]
    policy: str | None


@op(2)
class Release(NamedTuple):
    """The client no longer wants these futures."""

    fids: tuple[Fid, ...]


@op(3)
class Cancel(NamedTuple):
    """Cancel these futures; ``force`` cancels other clients' futures of the tasks too."""

    fids: tuple[Fid, ...]
    force: bool
    why: str


@op(4)
class Retry(NamedTuple):
    """Compute the erred tasks behind these futures again."""

    fids: tuple[Fid, ...]


@op(5)
class Bind(NamedTuple):
    """A future that arrived by pickle, or by name only.

    ``owner`` and ``owner_fid`` name the future it was pickled from; an empty
    ``owner`` binds to the primary instance named ``key``.
    """

    fid: Fid
    key: Key
    owner: ClientId
    owner_fid: Fid


@op(6)
class Scatter(NamedTuple):
    """Data that this client has put on workers (see ``peer.Put``).

    Each item: ``(fid, key, token, skeleton, uuid, nbytes, type_name, wids)``.
    """

    call: int
    items: tuple[Any, ...]
    policy: str | None


@op(7)
class Detach(NamedTuple):
    """Run these to their end even if no future is left (fire_and_forget)."""

    fids: tuple[Fid, ...]


@op(8)
class Ask(NamedTuple):
    """A question about the cluster; ``topic`` is one of the scheduler's topics."""

    call: int
    topic: str
    argument: Any


@op(9)
class RunOnWorkers(NamedTuple):
    """Call a function on workers outside any task.

    ``workers`` are addresses or names, None for all.
    """

    call: int
    payload: Frames
    workers: tuple[str, ...] | None


@op(10)
class ForgetFunctions(NamedTuple):
    """The client will send these functions' definitions anew if it needs them."""

    fns: tuple[Fn, ...]


@op(11)
class ShutdownCluster(NamedTuple):
    """End workers and scheduler."""


@op(12)
class Goodbye(NamedTuple):
    """The client closes on purpose: release everything of it now."""


@op(20)
class GraphAck(NamedTuple):
    """The graph or scatter of ``call`` was taken in; ``error`` refuses all of it.

    ``error`` is a wire pair (``raddle.protocol.errors``). What the futures become
    follows in messages of their own, always after this one.
    """

    call: int
    error: tuple[str, Any] | None


@op(21)
class Finished(NamedTuple):
    """Futures whose values exist: items ``(fid, nbytes, type_name, frames | None)``."""

    items: tuple[tuple[Fid, int, str, Frames | None], ...]


@op(22)
class Erred(NamedTuple):
    """Futures whose task failed: items ``(fid, error, blamed key)``.

    ``error`` is ``("", frames)`` for an exception of user code, else a wire pair.
    """

    items: tuple[tuple[Fid, tuple[str, Any], Key], ...]


@op(23)
class PendingAgain(NamedTuple):
    """Values of finished futures were lost, or they are retried: wait anew."""

    fids: tuple[Fid, ...]


@op(24)
class Cancelled(NamedTuple):
    """These futures will never have a value."""

    fids: tuple[Fid, ...]
    who: str
    why: str


@op(25)
class CollisionNotice(NamedTuple):
    """What the graph or scatter of ``call`` collided with (up to 10 records)."""

    call: int
    records: tuple[Any, ...]
    total: int


@op(26)
class Answer(NamedTuple):
    """The answer to an :class:`Ask` or :class:`RunOnWorkers`; a text if not ``ok``."""

    call: int
    ok: bool
    value: Any


CLIENT_TO_SCHEDULER = (
    Graph, Release, Cancel, Retry, Bind, Scatter, Detach, Ask, RunOnWorkers,
    ForgetFunctions, ShutdownCluster, Goodbye,
)  # fmt: skip
SCHEDULER_TO_CLIENT = (
    GraphAck, Finished, Erred, PendingAgain, Cancelled, CollisionNotice, Answer,
)  # fmt: skip
