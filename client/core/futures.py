"""What is known of each future, and what a message of the scheduler makes of it.

A future is *unsent* while its graph is in the outbox, *sent* until the scheduler
has acknowledged that graph, then *pending*, and at last *finished*, *erred* or
*cancelled*. The first three are states of the graph (:class:`Call`), which all its
futures share, so that nothing is done per future when a graph is sent or
acknowledged. Only the scheduler finishes a future: two futures of one key know
nothing of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from raddle.protocol.core.collisions import CollisionRecord
from raddle.protocol.core.ids import ClientId, Fid, Key
from raddle.protocol.core.messages.client import (
    Cancelled,
    CollisionNotice,
    Erred,
    Finished,
    GraphAck,
    PendingAgain,
)
from raddle.protocol.errors import AmbiguousKeyError, CancelledError

UNSENT = 0
SENT = 1
PENDING = 2
FINISHED = 3
ERRED = 4
CANCELLED = 5
REFUSED = 6
"""Erred for good: the call was refused, so no task stands behind the future."""

STATUS = (
    "pending", "pending", "pending", "finished", "error", "cancelled", "error",
)  # fmt: skip
"""The public word for each state."""

CALLS_MAX = 1_000
"""Acknowledged graphs that are remembered, for notices about them."""

_OPEN = -1
"""As a record's own state: not decided, the call's state holds."""

_REFUSALS = frozenset({"InvalidGraph", "LostDependency", "RunSpecCollisionError"})
_OUTCOME = {
    "kept": "the old run_spec and its value were kept",
    "new-instance": "the new one is a task of its own",
    "superseded": "the old one had failed and was replaced",
    "isolated": "the new one is a task of its own",
    "rejected": "nothing of this call was submitted",
}
SHOWN_MAX = 5
"""Collisions that one warning describes."""
_NEW_INSTANCE = frozenset({"new-instance", "isolated"})

Where = tuple[str, int]
"""File and line of the program that made a call."""


class Call:
    """One graph or scatter on its way; its futures have consecutive numbers."""

    __slots__ = ("fids", "number", "state", "where")

    def __init__(self, number: int, fids: range, where: Where) -> None:
        self.number = number
        self.fids = fids
        self.where = where
        self.state = UNSENT


class Record:
    """What is known of one future.

    ``value`` is the frames of a finished future (None where the value stays on the
    cluster), the error pair or exception of an erred or cancelled one. ``older``
    is the previous live future of the same key. ``released`` is set at the moment
    nobody holds the future any more; the record goes when that is sent.
    ``observers`` belongs to the shell.
    """

    __slots__ = (
        "blamed", "call", "distinct", "fid", "key", "nbytes", "observers", "older",
        "own", "released", "type_name", "value",
    )  # fmt: skip

    def __init__(self, fid: Fid, key: Key, call: Call, older: Record | None) -> None:
        self.fid = fid
        self.key = key
        self.call = call
        self.older = older
        self.own = _OPEN
        self.value: Any = None
        self.nbytes = 0
        self.type_name = ""
        self.blamed: Key | None = None
        self.observers: Any = None
        self.released = False
        self.distinct = False

    @property
    def state(self) -> int:
        """The state, as one of this module's constants."""
        own = self.own
        return self.call.state if own == _OPEN else own

    @property
    def done(self) -> bool:
        """Whether nothing more is awaited: finished, erred or cancelled."""
        return self.own != _OPEN

    @property
    def failed(self) -> bool:
        """Whether the future ended without a value."""
        return self.own > FINISHED

    def decide(self, state: int, value: Any) -> None:
        """Become finished, erred or cancelled."""
        self.own = state
        self.value = value

    def reopen(self) -> None:
        """Wait for a value (again)."""
        self.own = _OPEN
        self.value = None
        self.blamed = None


class Changed(NamedTuple):
    """Futures that were decided; of finished ones, only those that are observed."""

    records: list[Record]


class Collided(NamedTuple):
    """A call of this client collided: to be said as a Python warning."""

    call: Call
    records: tuple[CollisionRecord, ...]
    total: int

    def text(self) -> str:
        """What the warning says."""
        return collision_text(self.records, self.total)


Action = Changed | Collided


class FutureTable:
    """All futures of one client that are not released, by number and by key."""

    def __init__(self) -> None:
        self.records: dict[Fid, Record] = {}
        self.calls: dict[int, Call] = {}
        self._latest: dict[Key, Record] = {}
        self._acknowledged: list[int] = []
        self._next_fid = 1
        self._next_call = 1
        # Futures that came by pickle or name have no graph that could be unsent.
        self._bound = Call(0, range(0), ("", 0))
        self._bound.state = PENDING
        self._handlers: dict[type, Callable[[Any], list[Action]]] = {
            Finished: self._finished,
            Erred: self._erred,
            GraphAck: self._acknowledge,
            PendingAgain: self._pending_again,
            Cancelled: self._cancelled,
            CollisionNotice: self._collided,
        }

    def open(self, keys: Sequence[Key], where: Where) -> tuple[Call, list[Record]]:
        """A call that asks for ``keys``, and its futures, in the order of ``keys``."""
        first = self._next_fid
        self._next_fid = end = first + len(keys)
        number = self._next_call
        self._next_call = number + 1
        call = Call(number, range(first, end), where)
        self.calls[number] = call
        latest, records = self._latest, self.records
        added = []
        for fid, key in enumerate(keys, first):
            older = latest.get(key)
            if older is not None:
                older = _live(older)
            record = Record(fid, key, call, older)
            latest[key] = records[fid] = record
            added.append(record)
        return call, added

    def bind(self, key: Key) -> Record:
        """A future that refers to a task which somebody else submitted."""
        fid = self._next_fid
        self._next_fid = fid + 1
        older = self._latest.get(key)
        record = Record(fid, key, self._bound, older and _live(older))
        self._latest[key] = self.records[fid] = record
        return record

    def next_call(self) -> int:
        """A number for a question that has no futures."""
        number = self._next_call
        self._next_call = number + 1
        return number

    def named(self, key: Key) -> Record | None:
        """The live future that ``key`` names: the latest one.

        Raises AmbiguousKeyError where the scheduler has said that the latest and
        an older one that still lives stand for different instances.
        """
        found = self._latest.get(key)
        if found is None:
            return None
        found = _live(found)
        if found is not None and found.distinct and _live(found.older) is not None:
            msg = (
                f"two live futures of this client are named {key!r} and stand for "
                "different tasks: pass the future itself, or release one of them"
            )
            raise AmbiguousKeyError(msg)
        return found

    def sent(self, number: int) -> None:
        """The graph of this call has left the outbox."""
        call = self.calls.get(number)
        if call is not None and call.state == UNSENT:
            call.state = SENT

    def drop(self, fid: Fid) -> None:
        """Forget a released future."""
        record = self.records.pop(fid, None)
        if record is None:
            return
        record.released = True
        if self._latest.get(record.key) is record:
            older = record.older and _live(record.older)
            if older is None:
                del self._latest[record.key]
            else:
                self._latest[record.key] = older

    def cancel(self, fids: Iterable[Fid], who: ClientId, why: str) -> list[Record]:
        """Mark these cancelled; returns the ones that changed."""
        return [r for r in self._known(fids) if _cancel(r, who, why)]

    def retry(self, fids: Iterable[Fid]) -> list[Record]:
        """Await the erred ones among these again; returns those."""
        erred = [r for r in self._known(fids) if r.own == ERRED]
        for record in erred:
            record.reopen()
        return erred

    def fail(self, call: Call, error: BaseException) -> list[Record]:
        """Let all futures of a call end with ``error``; returns them."""
        failed = list(self._known(call.fids))
        for record in failed:
            record.decide(REFUSED, error)
        return failed

    def lose(self, why: str) -> list[Record]:
        """The scheduler is gone: what is undecided will never be decided."""
        return [r for r in self.records.values() if not r.done and _cancel(r, "", why)]

    def handle(self, message: Any) -> list[Action]:
        """Take in one message of the scheduler; tells what the shell must do."""
        handler = self._handlers.get(type(message))
        return [] if handler is None else handler(message)

    def _cancelled(self, message: Cancelled) -> list[Action]:
        changed = self.cancel(message.fids, message.who, message.why)
        return [Changed(changed)] if changed else []

    def _finished(self, message: Finished) -> list[Action]:
        changed = []
        get = self.records.get
        for fid, nbytes, type_name, frames in message.items:
            record = get(fid)
            if record is None or record.own >= CANCELLED:
                continue
            record.own = FINISHED
            record.value = frames
            record.nbytes = nbytes
            record.type_name = type_name
            if record.observers is not None:
                changed.append(record)
        return [Changed(changed)] if changed else []

    def _erred(self, message: Erred) -> list[Action]:
        changed = []
        for fid, error, blamed in message.items:
            record = self.records.get(fid)
            if record is None or record.own >= CANCELLED:
                continue
            record.decide(REFUSED if error[0] in _REFUSALS else ERRED, error)
            record.blamed = blamed
            changed.append(record)
        return [Changed(changed)] if changed else []

    def _acknowledge(self, message: GraphAck) -> list[Action]:
        call = self.calls.get(message.call)
        if call is None:
            return []
        call.state = PENDING
        self._acknowledged.append(message.call)
        if len(self._acknowledged) > CALLS_MAX:
            self.calls.pop(self._acknowledged.pop(0), None)
        if message.error is None:
            return []
        failed = [r for r in self._known(call.fids) if r.own < CANCELLED]
        for record in failed:
            record.decide(REFUSED, message.error)
        return [Changed(failed)]

    def _pending_again(self, message: PendingAgain) -> list[Action]:
        for record in self._known(message.fids):
            if record.own < CANCELLED:
                record.reopen()
        return []

    def _collided(self, message: CollisionNotice) -> list[Action]:
        call = self.calls.get(message.call)
        if call is None:
            return []
        records = tuple(CollisionRecord._make(r) for r in message.records)
        apart = {r.key for r in records if r.action in _NEW_INSTANCE}
        if apart:
            for record in self._known(call.fids):
                record.distinct = record.key in apart
        return [Collided(call, records, message.total)]

    def _known(self, fids: Iterable[Fid]) -> Iterator[Record]:
        get = self.records.get
        return (r for r in map(get, fids) if r is not None)


def collision_text(records: Sequence[CollisionRecord], total: int) -> str:
    """What a warning says about ``total`` collisions, of which some are given."""
    shown = records[:SHOWN_MAX]
    by_outcome: dict[str, list[str]] = {}
    for record in shown:
        outcome = _OUTCOME.get(record.action, record.action)
        by_outcome.setdefault(outcome, []).append(str(record))
    told = [f"{' | '.join(found)}; {o}" for o, found in by_outcome.items()]
    left = total - len(shown)
    more = f" (and {left} more)" if left > 0 else ""
    return (
        f"run_spec collision: {' | '.join(told)}{more}. Harmless where both specs mean "
        "the same, as with fused dask graphs; else use another key, or release the old "
        "futures first"
    )


def _live(record: Record | None) -> Record | None:
    """The record itself or the next older one that is not released."""
    while record is not None and record.released:
        record = record.older
    return record


def _cancel(record: Record, who: ClientId, why: str) -> bool:
    if record.own == CANCELLED:
        return False
    record.decide(CANCELLED, CancelledError(record.key, who, why))
    return True
