"""What the worker's core wants done. The shell carries them out in order.

All actions of one event are carried out before the next event. A message of
``WORKER_TO_SCHEDULER`` is an action itself: send it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from raddle.protocol.core.ids import Address, Aid, Tid, Wid

from .attempts import Attempt


class Hand(NamedTuple):
    """Queue these attempts for the threads; their inputs are pinned."""

    attempts: list[Attempt]


class Abort(NamedTuple):
    """Take the attempt back if no thread has claimed it, else interrupt it.

    Only a coroutine can be interrupted. What was taken back is reported by
    ``events.Withdrawn``.
    """

    aid: Aid


class Recall(NamedTuple):
    """Take the attempt back if no thread has claimed it (``events.Withdrawn``)."""

    aid: Aid


class Ask(NamedTuple):
    """Send worker ``wid`` one ``peer.Get``; there is no other under way to it."""

    wid: Wid
    address: Address
    number: int
    tids: tuple[Tid, ...]


class Disconnect(NamedTuple):
    """Worker ``wid`` is gone: close the connection to it."""

    wid: Wid


class ForShell(NamedTuple):
    """A message that the core has no part in: Run, CloseWorker."""

    message: Any


class LogRecord(NamedTuple):
    """Write one record to the log: ``level`` as in logging (20 is INFO)."""

    level: int
    text: str


Action = Hand | Abort | Recall | Ask | Disconnect | ForShell | LogRecord
