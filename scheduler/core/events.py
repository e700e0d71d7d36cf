"""What the scheduler's core reacts to. Time is a field (seconds, monotonic)."""

from __future__ import annotations

from typing import Any, NamedTuple

from raddle.protocol.core.ids import ClientId, Wid


class ClientJoined(NamedTuple):
    """A client's link is up. ``enc`` names what its tokens are comparable with.

    ``nested`` says that it serves the tasks of a worker: others wait for what it
    submits, while they hold a thread.
    """

    now: float
    client: ClientId
    name: str | None
    enc: int
    policy: str | None
    nested: bool = False


class ClientLeft(NamedTuple):
    """A client's link is gone, for good."""

    now: float
    client: ClientId
    why: str


class WorkerJoined(NamedTuple):
    """A worker's link is up; ``wid`` is the number the shell has given it.

    ``address`` is where its data is served; ``resources`` maps name to amount.
    """

    now: float
    wid: Wid
    name: str
    address: str
    host: str
    pid: int
    nthreads: int
    memory_limit: int
    resources: dict[str, float]


class WorkerLeft(NamedTuple):
    """A worker's link is gone, for good.

    ``safe`` says that the scheduler or the worker wanted it so: its tasks are no
    suspects. ``exitcode`` where a parent process in this program knows it.
    """

    now: float
    wid: Wid
    why: str
    safe: bool
    exitcode: int | None


class FromClient(NamedTuple):
    """One batch of messages of a client."""

    now: float
    client: ClientId
    messages: list[Any]


class FromWorker(NamedTuple):
    """One batch of messages of a worker."""

    now: float
    wid: Wid
    messages: list[Any]


class Tick(NamedTuple):
    """Time passes (about ten a second): balance, forget idle caches."""

    now: float


Event = (
    ClientJoined
    | ClientLeft
    | WorkerJoined
    | WorkerLeft
    | FromClient
    | FromWorker
    | Tick
)
