"""What the scheduler's core wants done. The shell carries them out in order."""

from __future__ import annotations

from typing import Any, NamedTuple

from raddle.protocol.core.ids import ClientId, Wid


class ToClient(NamedTuple):
    """Append a message to a client's outbox."""

    client: ClientId
    message: Any


class ToWorker(NamedTuple):
    """Append a message to a worker's outbox."""

    wid: Wid
    message: Any


class LogRecord(NamedTuple):
    """Write one record to the log: ``level`` as in logging (20 is INFO)."""

    level: int
    text: str
    fields: dict[str, Any]


class AskShell(NamedTuple):
    """A client's Ask, RunOnWorkers or ShutdownCluster: more than the core knows.

    The shell answers by its own means.
    """

    client: ClientId
    message: Any


class RunAnswered(NamedTuple):
    """A worker's ``RunResult``; the shell knows who waits for it."""

    wid: Wid
    message: Any


class Heard(NamedTuple):
    """A worker's ``Heartbeat`` metrics, for the shell's tables."""

    wid: Wid
    metrics: dict[str, Any]


class DropPeer(NamedTuple):
    """The peer broke the rules of the stream: close its link with this reason."""

    peer: ClientId | Wid
    why: str


Action = ToClient | ToWorker | LogRecord | AskShell | RunAnswered | Heard | DropPeer
