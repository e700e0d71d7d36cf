"""What clients and the scheduler say to each other (ops 1 to 39)."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..ids import ClientId, Fid, Fn, Key
from .base import Frames

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


class Graph(NamedTuple):
    """Tasks to compare, create and want, as one step.

    ``wants`` pairs requested keys with the futures they get. ``embedded`` pairs
    each reference name that stands for one of this client's futures with that
    future; all other names in ``deps`` are tasks of this graph or known keys.
    ``functions`` brings definitions the scheduler has not seen from this client.
    ``annotations`` are dicts with any of: priority, retries, workers,
    allow_other_workers, resources. ``policy`` strengthens the collision policy.
    """

    OP = 1
    call: int
    tasks: tuple[Any, ...]
    wants: tuple[tuple[Key, Fid], ...]
    embedded: tuple[tuple[Key, Fid], ...]
    functions: tuple[tuple[Fn, Frames], ...]
    annotations: tuple[dict[str, Any], ...]
    policy: str | None


class Release(NamedTuple):
    """The client no longer wants these futures."""

    OP = 2
    fids: tuple[Fid, ...]


class Cancel(NamedTuple):
    """Cancel these futures; ``force`` cancels other clients' futures of the tasks too."""

    OP = 3
    fids: tuple[Fid, ...]
    force: bool
    why: str


class Retry(NamedTuple):
    """Compute the erred tasks behind these futures again."""

    OP = 4
    fids: tuple[Fid, ...]


class Bind(NamedTuple):
    """A future that arrived by pickle, or by name only.

    ``owner`` and ``owner_fid`` name the future it was pickled from; an empty
    ``owner`` binds to the primary instance named ``key``.
    """

    OP = 5
    fid: Fid
    key: Key
    owner: ClientId
    owner_fid: Fid


class Scatter(NamedTuple):
    """Data that this client has put on workers (see ``peer.Put``).

    Each item: ``(fid, key, token, skeleton, uuid, nbytes, type_name, wids)``.
    """

    OP = 6
    call: int
    items: tuple[Any, ...]
    policy: str | None


class Detach(NamedTuple):
    """Run these to their end even if no future is left (fire_and_forget)."""

    OP = 7
    fids: tuple[Fid, ...]


class Ask(NamedTuple):
    """A question about the cluster; ``topic`` is one of the scheduler's topics."""

    OP = 8
    call: int
    topic: str
    argument: Any


class RunOnWorkers(NamedTuple):
    """Call a function on workers outside any task.

    ``workers`` are addresses or names, None for all.
    """

    OP = 9
    call: int
    payload: Frames
    workers: tuple[str, ...] | None


class ForgetFunctions(NamedTuple):
    """The client will send these functions' definitions anew if it needs them."""

    OP = 10
    fns: tuple[Fn, ...]


class ShutdownCluster(NamedTuple):
    """End workers and scheduler."""

    OP = 11


class Goodbye(NamedTuple):
    """The client closes on purpose: release everything of it now."""

    OP = 12


class GraphAck(NamedTuple):
    """The graph or scatter of ``call`` was taken in; ``error`` refuses all of it.

    ``error`` is a wire pair (``raddle.protocol.errors``). What the futures become
    follows in messages of their own, always after this one.
    """

    OP = 20
    call: int
    error: tuple[str, Any] | None


class Finished(NamedTuple):
    """Futures whose values exist: items ``(fid, nbytes, type_name, frames | None)``."""

    OP = 21
    items: tuple[tuple[Fid, int, str, Frames | None], ...]


class Erred(NamedTuple):
    """Futures whose task failed: items ``(fid, error, blamed key)``.

    ``error`` is ``("", frames)`` for an exception of user code, else a wire pair.
    """

    OP = 22
    items: tuple[tuple[Fid, tuple[str, Any], Key], ...]


class PendingAgain(NamedTuple):
    """Values of finished futures were lost, or they are retried: wait anew."""

    OP = 23
    fids: tuple[Fid, ...]


class Cancelled(NamedTuple):
    """These futures will never have a value."""

    OP = 24
    fids: tuple[Fid, ...]
    who: str
    why: str


class CollisionNotice(NamedTuple):
    """What the graph or scatter of ``call`` collided with (up to 10 records)."""

    OP = 25
    call: int
    records: tuple[Any, ...]
    total: int


class Answer(NamedTuple):
    """The answer to an :class:`Ask` or :class:`RunOnWorkers`; a text if not ``ok``."""

    OP = 26
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
