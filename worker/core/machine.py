"""What the worker does about each event: attempts, data entries and fetches.

``Machine.handle(event)`` returns the actions. The machine knows no socket, thread
or clock: values, functions and errors are opaque to it. It must be given all that
the actions of one event cause before the next event from outside.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from typing import Any

from raddle.protocol.core.ids import Aid, Tid, Wid
from raddle.protocol.core.messages.worker import (
    Absent,
    Acquire,
    CancelAttempts,
    Claim,
    CloseWorker,
    Compute,
    Confirm,
    Done,
    DropData,
    DropFunctions,
    Failed,
    Functions,
    Holders,
    LongRunning,
    Miss,
    Peers,
    PeersLeft,
    Present,
    Rejected,
    Resumed,
    Run,
    Started,
    YieldAttempts,
)
from raddle.protocol.core.messages.worker import Stored as StoredMessage

from .actions import Abort, Disconnect, ForShell, Hand, LogRecord, Recall
from .attempts import (
    EXECUTING,
    HANDED,
    LONGRUNNING,
    READY,
    WAITING,
    Attempt,
    Definition,
)
from .checks import check
from .data import NO_ATTEMPT, Packed, Stored, Wanted
from .events import (
    Begun,
    Fetched,
    FetchFailed,
    PutGone,
    PutHere,
    Raised,
    Ran,
    Registered,
    Rejoined,
    Rescheduled,
    Returned,
    Seceded,
    Withdrawn,
)
from .state import Settings, State

DEBUG, INFO = 10, 20


class Machine(State):
    """The worker's state machine."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._actions: list[Any] = []
        self._handing: list[Attempt] = []
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Compute: self._compute,
            Functions: self._functions,
            DropFunctions: self._drop_functions,
            CancelAttempts: self._cancel,
            YieldAttempts: self._yield,
            DropData: self._drop,
            Acquire: self._acquire,
            Holders: self._holders,
            Confirm: self._confirm,
            Peers: self._peers,
            PeersLeft: self._peers_left,
            Claim: self._claim,
            Run: self._for_shell,
            CloseWorker: self._for_shell,
            Registered: self._registered,
            Returned: self._returned,
            Raised: self._raised,
            Rescheduled: self._rescheduled,
            Seceded: self._seceded,
            Rejoined: self._rejoined,
            Begun: self._begun,
            Withdrawn: self._withdrawn,
            Fetched: self._fetched,
            FetchFailed: self._fetch_failed,
            PutHere: self._put_here,
            PutGone: self._put_gone,
        }

    def handle(self, event: Any) -> list[Any]:
        """Take in one event; returns actions and messages to the scheduler, in order."""
        handlers = self._handlers
        kind = type(event)
        if kind is Ran or kind not in handlers:
            for item in event[0]:
                handlers[type(item)](item)
        else:
            handlers[kind](event)
        if self.ready:
            self._hand_ready()
        actions = self._actions
        self._actions = []
        if self._handing:
            actions.append(Hand(self._handing))
            self._handing = []
        if self.fetches.gathering:
            actions += self.fetches.start()
        if self.settings.validate:
            check(self)
        return actions

    def _registered(self, event: Registered) -> None:
        self.wid = event.wid

    # -- attempts: from the message to the executor

    def _compute(self, message: Compute) -> None:
        aid, tid, key, form, fn, payload, deps, priority, resources = message
        stored = self.data.stored
        if tid in stored:
            entry = stored[tid]
            self._actions.append(
                Done(aid, self.seen, entry.nbytes, entry.type_name, 0.0, None)
            )
            return
        attempt = Attempt(
            aid,
            tid,
            key,
            form,
            self.functions.get(fn),
            payload,
            tuple([(dep[0], dep[3]) for dep in deps]) if deps else (),
            priority,
            resources,
        )
        self.attempts[aid] = attempt
        for dep, wids, nbytes, frames in deps:
            if frames is None and dep not in stored:
                self._want(dep, wids, nbytes, attempt)
        if not attempt.missing:
            self._inputs_here(attempt)

    def _inputs_here(self, attempt: Attempt) -> None:
        if attempt.resources:
            attempt.status = READY
            insort(self.ready, (attempt.priority, attempt.aid))
        else:
            self._hand(attempt)

    def _hand_ready(self) -> None:
        """Hand attempts over in order of priority, as long as their resources last."""
        waiting = self.ready
        self.ready = []
        for place in waiting:
            attempt = self.attempts[place[1]]
            if self.admission.fits(attempt.resources or {}):
                self._hand(attempt)
            else:
                self.ready.append(place)

    def _hand(self, attempt: Attempt) -> None:
        """Pin the inputs and give the attempt to the executor, in one step."""
        stored = self.data.stored
        if attempt.deps:
            lost = [
                t for t, frames in attempt.deps if frames is None and t not in stored
            ]
            if lost:
                attempt.status = WAITING
                for tid in lost:
                    self._want(tid, (), 0, attempt)
                return
            attempt.inputs = tuple(
                [
                    stored[tid].value if tid in stored else Packed(frames or ())
                    for tid, frames in attempt.deps
                ]
            )
        if attempt.resources:
            self.admission.held[attempt.aid] = attempt.resources
        attempt.status = HANDED
        self._handing.append(attempt)

    def _leave(self, attempt: Attempt) -> None:
        """Give back what a waiting or ready attempt owns."""
        if attempt.status == READY:
            self.ready.remove((attempt.priority, attempt.aid))
        for tid, _ in attempt.deps:
            entry = self.data.wanted.get(tid)
            if entry is not None and entry.waiters.pop(attempt.aid, None) is not None:
                self._unwanted(entry)

    def _cancel(self, message: CancelAttempts) -> None:
        for aid in message.aids:
            attempt = self.attempts.pop(aid, None)
            if attempt is None:
                if aid not in self.zombies:
                    self.data.drop_made_by(aid)
            elif attempt.status <= READY:
                self._leave(attempt)
            else:
                attempt.cancelled = True
                self.zombies[aid] = attempt
                self._actions.append(Abort(aid))

    def _yield(self, message: YieldAttempts) -> None:
        for aid in message.aids:
            attempt = self.attempts.get(aid)
            if attempt is None:
                continue
            if attempt.status <= READY:
                del self.attempts[aid]
                self._leave(attempt)
                self._actions.append(Rejected(aid, self.seen, "yielded"))
            elif attempt.status == HANDED:
                self._actions.append(Recall(aid))

    def _withdrawn(self, event: Withdrawn) -> None:
        for aid in event.aids:
            attempt = self._ended(aid)
            if attempt is not None:
                self._actions.append(Rejected(aid, self.seen, "yielded"))

    # -- attempts: reports of the threads

    def _begun(self, event: Begun) -> None:
        started = []
        for aid in event.aids:
            attempt = self.attempts.get(aid)
            if attempt is not None and attempt.status == HANDED:
                attempt.status = EXECUTING
                started.append(aid)
            elif attempt is None and aid in self.zombies:
                zombie = self.zombies[aid]
                zombie.status = max(zombie.status, EXECUTING)
        if started:
            self._actions.append(Started(tuple(started)))

    def _ended(self, aid: Aid) -> Attempt | None:
        """The attempt is over: free its resources; None when it was a zombie."""
        attempt = self.attempts.pop(aid, None)
        over = attempt or self.zombies.pop(aid)
        if over.resources:
            del self.admission.held[aid]
        return attempt

    def _returned(self, report: Returned) -> None:
        aid, value, nbytes, type_name, seconds, frames = report
        attempt = self._ended(aid)
        if attempt is None:
            return
        if attempt.tid not in self.data.stored:
            self._store(attempt.tid, Stored(value, aid, nbytes, type_name))
        self._actions.append(Done(aid, self.seen, nbytes, type_name, seconds, frames))

    def _raised(self, report: Raised) -> None:
        aid, error, text, seconds = report
        attempt = self._ended(aid)
        if attempt is None:
            text = f"attempt {aid} was cancelled and then raised {text}"
            self._actions.append(LogRecord(DEBUG, text))
            return
        # The thread has logged it, with the traceback.
        self._fail(attempt, error, text, seconds)

    def _fail(
        self, attempt: Attempt, error: tuple[str, Any], text: str, seconds: float
    ) -> None:
        self._actions.append(Failed(attempt.aid, self.seen, error, text, seconds))

    def _rescheduled(self, report: Rescheduled) -> None:
        if self._ended(report.aid) is not None:
            self._actions.append(Rejected(report.aid, self.seen, "rescheduled"))

    def _seceded(self, report: Seceded) -> None:
        attempt = self.attempts.get(report.aid)
        if attempt is None:
            self.zombies[report.aid].status = LONGRUNNING
        else:
            attempt.status = LONGRUNNING
            self._actions.append(LongRunning(report.aid))

    def _rejoined(self, report: Rejoined) -> None:
        attempt = self.attempts.get(report.aid)
        if attempt is not None:
            self._actions.append(Resumed(report.aid))
        else:
            attempt = self.zombies[report.aid]
        attempt.status = EXECUTING
        attempt.returned = not report.waited

    # -- data

    def _store(self, tid: Tid, entry: Stored) -> None:
        wanted = self.data.store(tid, entry)
        if wanted is None:
            return
        self.fetches.give_up(wanted)
        for attempt in wanted.waiters.values():
            attempt.missing -= 1
            if not attempt.missing:
                self._inputs_here(attempt)

    def _want(
        self, tid: Tid, wids: Iterable[Wid], nbytes: int, attempt: Attempt | None
    ) -> None:
        """An attempt, or an acquire order if None, needs a value that is not here."""
        entry = self.data.wanted.get(tid)
        if entry is None:
            entry = self.data.wanted[tid] = Wanted(tid, nbytes)
        if attempt is None:
            entry.acquired = True
        elif attempt.aid not in entry.waiters:
            entry.waiters[attempt.aid] = attempt
            attempt.missing += 1
        self._offer(entry, wids)

    def _offer(self, entry: Wanted, wids: Iterable[Wid]) -> None:
        """These workers are said to hold the value."""
        own = self.wid
        fresh = [wid for wid in wids if wid not in (own, entry.source)]
        entry.holders = fresh or entry.holders
        if entry.source is None:
            self._seek(entry, own, "not-found")

    def _seek(self, entry: Wanted, failed: Wid, why: str) -> None:
        if not self.fetches.seek(entry):
            self._actions.append(Miss(entry.tid, failed, why))

    def _unwanted(self, entry: Wanted) -> None:
        """Forget an entry that nobody waits for."""
        if not entry.waiters and not entry.acquired:
            self.fetches.give_up(entry)
            del self.data.wanted[entry.tid]

    def _drop(self, message: DropData) -> None:
        self.seen = message.number
        for tid in message.tids:
            self.data.drop(tid)

    def _acquire(self, message: Acquire) -> None:
        for tid, wids, nbytes in message.items:
            if tid not in self.data.stored:
                self._want(tid, wids, nbytes, None)

    def _holders(self, message: Holders) -> None:
        entry = self.data.wanted.get(message.tid)
        if entry is None:
            return
        if message.wids:
            self._offer(entry, message.wids)
        elif entry.source is None:
            # Attempts are cancelled or told of new holders; an order has no such end.
            entry.acquired = False
            self._unwanted(entry)

    def _confirm(self, message: Confirm) -> None:
        answer = Present if message.tid in self.data.stored else Absent
        self._actions.append(answer(message.tid, self.seen))

    def _claim(self, message: Claim) -> None:
        for uuid, tid in message.items:
            put = self.data.unclaimed.pop(uuid, None)
            if put is None:
                self._actions.append(Absent(tid, self.seen))
            elif tid not in self.data.stored:
                value, nbytes = put
                self._store(tid, Stored(value, NO_ATTEMPT, nbytes, ""))

    def _put_here(self, event: PutHere) -> None:
        for uuid, value, nbytes in event.items:
            self.data.unclaimed[uuid] = (value, nbytes)

    def _put_gone(self, event: PutGone) -> None:
        for uuid in event.uuids:
            self.data.unclaimed.pop(uuid, None)

    # -- fetches

    def _fetched(self, event: Fetched) -> None:
        asked = self.fetches.ended(event.wid, event.number)
        if asked is None:
            return
        wanted = self.data.wanted
        came = []
        for tid, origin, frames in event.items:
            entry = wanted.get(tid)
            if entry is not None and frames is not None:
                came.append((tid, origin))
                nbytes = sum(map(len, frames))
                self._store(tid, Stored(Packed(frames), origin, nbytes, ""))
        if came:
            self._actions.append(StoredMessage(self.seen, tuple(came)))
        for tid, error in event.failed:
            if tid in wanted:
                self._cannot_travel(wanted[tid], error, event.wid)
        self._elsewhere(asked, event.wid, "not-found")

    def _elsewhere(self, asked: Iterable[Tid], wid: Wid, why: str) -> None:
        """Look for what is still wanted from ``wid`` and did not come."""
        for tid in asked:
            entry = self.data.wanted.get(tid)
            if entry is not None and entry.source == wid:
                entry.source = None
                self._seek(entry, wid, why)

    def _cannot_travel(self, entry: Wanted, error: tuple[str, Any], wid: Wid) -> None:
        """The value cannot be pickled: no retry helps, so who needs it fails."""
        text = f"an input cannot be sent by worker {self.fetches.addresses[wid]}"
        self.fetches.give_up(entry)
        entry.acquired = False
        for attempt in list(entry.waiters.values()):
            self._leave(self.attempts.pop(attempt.aid))
            self._fail(attempt, error, text, 0.0)
            said = f"task {attempt.key!r} failed: {text}"
            self._actions.append(LogRecord(INFO, said))
        if entry.tid in self.data.wanted:
            self._unwanted(entry)

    def _fetch_failed(self, event: FetchFailed) -> None:
        asked = self.fetches.ended(event.wid, event.number)
        self._elsewhere(asked or (), event.wid, "unreachable")

    def _peers(self, message: Peers) -> None:
        self.fetches.joined(message.items)

    def _peers_left(self, message: PeersLeft) -> None:
        for wid in message.wids:
            asked = self.fetches.left(wid)
            self._actions.append(Disconnect(wid))
            self._elsewhere(asked, wid, "unreachable")

    # -- the rest

    def _functions(self, message: Functions) -> None:
        for fn, frames in message.items:
            self.functions[fn] = Definition(frames)

    def _drop_functions(self, message: DropFunctions) -> None:
        for fn in message.fns:
            self.functions.pop(fn, None)

    def _for_shell(self, message: Any) -> None:
        self._actions.append(ForShell(message))
