"""Everything the scheduler's core remembers, and the lists that one event fills.

It decides nothing. ``machine.Machine`` is this plus ``handle``; the modules around
it are functions over this state. What an event sets in motion is collected in
lists and worked off in a fixed order (see ``machine``).
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from raddle.protocol.core.collisions import CollisionRecord
from raddle.protocol.core.ids import Aid, ClientId, Fid, Fn, Key, Tid, Wid

from .actions import Action, LogRecord, ToClient, ToWorker
from .entities import (
    ClientState,
    Function,
    Group,
    ReadyQueue,
    TaskState,
    WorkerState,
)
from .settings import Settings, checked_policy


class SchedulerState:
    """The instances, names, workers and clients of one scheduler process.

    ``names`` maps a key to its only instance, or to a list that starts with the
    primary one where several instances carry the key. ``unfinished`` counts the
    instances that are waiting, ready or processing.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.policy = checked_policy(settings.policy)
        self.tasks: dict[Tid, TaskState] = {}
        self.names: dict[Key, TaskState | list[TaskState]] = {}
        self.workers: dict[Wid, WorkerState] = {}
        self.clients: dict[ClientId, ClientState] = {}
        self.groups: dict[str, Group] = {}
        self.default_queue = ReadyQueue()
        self.queues: dict[Any, ReadyQueue] = {
            self.default_queue.signature: self.default_queue
        }
        self.functions: dict[bytes, Function] = {}
        # What fire_and_forget keeps alive is wanted by nobody in particular.
        self.nobody = ClientState("", "fire-and-forget", 0, None)

        # Numbers that were handed out last.
        self.tid: Tid = 0
        self.aid: Aid = 0
        self.fn: Fn = 0
        self.wid: Wid = 0
        self.generation = 0
        self.stamp = 0

        # What is known about collisions.
        self.records: deque[CollisionRecord] = deque(maxlen=settings.records_max)
        self.reported: dict[int, None] = {}
        self.unproven_groups: set[str] = set()
        self.collisions: Counter[tuple[str, str, str]] = Counter()

        # Figures.
        self.inline_bytes = 0
        self.unfinished = 0
        self.stale_facts = 0
        self.unchecked = 0

        # Workers that have a free thread, and those with more than they can run.
        self.idle: dict[WorkerState, None] = {}
        self.crowded: dict[WorkerState, None] = {}
        # Questions about replicas under way, and workers a task should not return to.
        self.confirming: dict[tuple[Tid, Wid], list[Wid]] = {}
        self.avoid: dict[Tid, set[Wid]] = {}

        # What the event at hand has set in motion.
        self.actions: list[Action] = []
        self.work: list[tuple[TaskState, int, Any]] = []
        self.touched: list[TaskState] = []
        self.changed: list[TaskState] = []
        self.new_wants: list[tuple[ClientState, Fid, TaskState]] = []
        self.dirty_queues: list[ReadyQueue] = []
        self.touched_workers: list[WorkerState] = []
        self.unsent: list[WorkerState] = []

    def to_client(self, client: ClientState, message: Any) -> None:
        """Have a message sent to a client."""
        self.actions.append(ToClient(client.cid, message))

    def to_worker(self, worker: WorkerState, message: Any) -> None:
        """Have a message sent to a worker."""
        self.actions.append(ToWorker(worker.wid, message))

    def log(self, level: int, text: str, **fields: Any) -> None:
        """Have a record written to the log."""
        self.actions.append(LogRecord(level, text, fields))

    def touch_worker(self, worker: WorkerState) -> None:
        """Its load or its resources changed: look at it when scheduling."""
        if not worker.touched:
            worker.touched = True
            self.touched_workers.append(worker)

    def cancel_at(self, worker: WorkerState, aid: Aid) -> None:
        """Tell the worker, with all else of this event, that an attempt is void."""
        worker.cancels.append(aid)
        if not worker.unsent:
            worker.unsent = True
            self.unsent.append(worker)

    def drop_at(self, worker: WorkerState, tid: Tid) -> None:
        """Tell the worker, with all else of this event, to forget a value."""
        worker.drops[tid] = None
        if not worker.unsent:
            worker.unsent = True
            self.unsent.append(worker)

    def primary(self, key: Key) -> TaskState | None:
        """The instance that the bare name means."""
        known = self.names.get(key)
        return known[0] if type(known) is list else known  # type: ignore[return-value]

    def instances(self, key: Key) -> list[TaskState]:
        """All instances of the name, the primary first."""
        known = self.names.get(key)
        if known is None:
            return []
        return known if type(known) is list else [known]  # type: ignore[list-item]
