"""What the scheduler's core remembers of tasks, attempts, workers and clients.

Records with slots and no behaviour of their own beyond keeping their small
containers small: who may change what, and when, is decided in ``transitions``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from raddle.protocol.core.ids import Address, Aid, ClientId, Fid, Fn, Key, Tid, Wid
from raddle.protocol.core.messages import Frames
from raddle.protocol.core.messages.client import GraphTask

RELEASED: Final = 0
WAITING: Final = 1
READY: Final = 2
PROCESSING: Final = 3
MEMORY: Final = 4
ERRED: Final = 5
FORGOTTEN: Final = 6
"""Not a state that a listed task can be in: what a task that is gone is left with."""

STATE_NAMES = (
    "released", "waiting", "ready", "processing", "memory", "erred", "forgotten",
)  # fmt: skip

# What the futures of a task have been told.
PENDING: Final = 0
FINISHED: Final = 1
FAILED: Final = 2
NEWS = (PENDING, PENDING, PENDING, PENDING, FINISHED, FAILED, PENDING)
"""By state: what a future of a task in that state should know."""

FORM_DATA: Final = -1
"""The form of scattered data: there is nothing to compute it from."""

FEW: Final = 8
"""Dependents that are kept in a tuple, a third of the size of a dict."""

ErrorPair = tuple[str, Any]


class Failure(NamedTuple):
    """Why a task is erred: the error as it travels, and the task it began with."""

    error: ErrorPair
    blame: Key


class Lost(NamedTuple):
    """Why a future never had a task, or has none any more.

    A refused call leaves an ``error``; a cancellation ``who`` and ``why``.
    """

    error: ErrorPair | None
    who: str = ""
    why: str = ""


class Group:
    """Tasks whose keys share a prefix; ``seconds`` is negative while unknown."""

    __slots__ = ("n_tasks", "name", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.n_tasks = 0
        self.seconds = -1.0


class Function:
    """One function, however many clients sent it.

    ``users`` counts the tasks and the clients that name it; ``workers`` were sent it.
    """

    __slots__ = ("content", "fn", "frames", "users", "workers")

    def __init__(self, fn: Fn, frames: Frames, content: bytes) -> None:
        self.fn = fn
        self.frames = frames
        self.content = content
        self.users = 0
        self.workers: set[Wid] = set()


class TaskState:
    """One instance of a task: a name, a run_spec, and what has become of it.

    Of the run_spec it keeps what a worker needs and what a comparison needs; the
    names of its dependencies have become instances.
    ``inputs`` are the dependencies in the order of the payload's indices, ``deps``
    the same without repetition; both never change. ``missing`` counts the deps
    that are not in memory while the task waits. ``n_waiters`` counts dependents
    that are waiting, ready or processing.
    """

    __slots__ = (
        "attempt", "dependents", "deps", "enc", "failure", "form", "frames",
        "function", "generation", "group", "inputs", "key", "missing", "n_waiters",
        "nbytes", "order", "origin", "payload", "priority", "queue", "replicas",
        "retries", "run_spec_token", "skeleton", "state", "suspicious", "tid", "told",
        "type_name", "wants",
    )  # fmt: skip

    def __init__(
        self,
        tid: Tid,
        spec: GraphTask,
        inputs: tuple[TaskState, ...],
        group: Group,
        queue: ReadyQueue,
    ) -> None:
        self.tid = tid
        self.key = spec.key
        self.run_spec_token = spec.token
        self.skeleton = spec.skeleton
        self.form = spec.form
        self.payload = spec.payload
        self.order = spec.order
        self.enc = 0
        self.inputs = inputs
        self.deps = inputs
        self.group = group
        self.queue = queue
        self.function: Function | None = None
        self.generation = 0
        self.priority: float = 0
        self.retries = 0
        self.suspicious = 0
        self.state: int = RELEASED
        self.told: int = PENDING
        self.missing = 0
        self.n_waiters = 0
        self.dependents: Dependents = None
        self.wants: Want | dict[Want, None] | None = None
        self.attempt: Attempt | None = None
        self.replicas: tuple[WorkerState, ...] = ()
        self.nbytes = 0
        self.type_name = ""
        self.frames: Frames | None = None
        self.origin: Aid = 0
        self.failure: Failure | None = None

    def __repr__(self) -> str:
        return f"<task {self.key!r} tid {self.tid} {STATE_NAMES[self.state]}>"

    @property
    def is_data(self) -> bool:
        """Scattered, hence nothing that could be computed again."""
        return self.form == FORM_DATA

    @property
    def needed(self) -> bool:
        """Somebody wants the value: a future, or a dependent under way."""
        return self.wants is not None or self.n_waiters > 0

    def each_dependent(self) -> Iterable[TaskState]:
        """The instances that name this one among their deps."""
        some = self.dependents
        if some is None:
            return ()
        return (some,) if type(some) is TaskState else some  # type: ignore[return-value]

    def add_dependent(self, other: TaskState) -> None:
        """Note that ``other`` depends on this."""
        some = self.dependents
        if some is None:
            self.dependents = other
        elif type(some) is dict:
            some[other] = None
        elif type(some) is TaskState:
            self.dependents = (some, other)
        else:
            assert type(some) is tuple
            more = (*some, other)
            self.dependents = more if len(more) <= FEW else dict.fromkeys(more)

    def drop_dependent(self, other: TaskState) -> None:
        """``other`` is forgotten."""
        some = self.dependents
        if type(some) is dict:
            del some[other]
            if not some:
                self.dependents = None
        elif type(some) is tuple:
            rest = tuple([task for task in some if task is not other])
            self.dependents = rest if len(rest) > 1 else rest[0]
        else:
            self.dependents = None

    def each_want(self) -> Iterable[Want]:
        """The futures bound to this instance."""
        some = self.wants
        if some is None:
            return ()
        return tuple(some) if type(some) is dict else (some,)  # type: ignore[return-value]

    def add_want(self, client: ClientState, fid: Fid) -> None:
        """Bind a future."""
        some = self.wants
        if some is None:
            self.wants = (client, fid)
        elif type(some) is dict:
            some[client, fid] = None
        else:
            self.wants = {some: None, (client, fid): None}  # type: ignore[dict-item]

    def drop_want(self, client: ClientState, fid: Fid) -> None:
        """Unbind a future."""
        some = self.wants
        if type(some) is dict:
            del some[client, fid]
            if not some:
                self.wants = None
        else:
            self.wants = None


class Attempt:
    """One hand-over of a task to a worker.

    ``seconds`` is what it adds to the worker's occupancy; ``slot`` whether it
    counts against the threads (a long-running one does not); ``yielding``
    whether it was asked back.
    """

    __slots__ = ("aid", "seconds", "slot", "started", "task", "worker", "yielding")

    def __init__(
        self, aid: Aid, task: TaskState, worker: WorkerState, seconds: float
    ) -> None:
        self.aid = aid
        self.task = task
        self.worker = worker
        self.seconds = seconds
        self.slot = True
        self.started = False
        self.yielding = False


class WorkerState:
    """One incarnation of a worker process, as far as the scheduler knows.

    ``stamp`` marks the one entry that is valid among those of this worker in the
    queues' heaps of open workers.
    """

    __slots__ = (
        "address", "alone", "attempts", "available", "cancels", "drop_number",
        "drops", "host", "loaded", "memory_limit", "n_slots", "n_yielding", "name",
        "nthreads", "occupancy", "pending_drops", "pid", "queue_limit", "queues",
        "replicas", "resources", "running", "stamp", "touched", "unreachable",
        "unsent", "wid", "wids", "zombies",
    )  # fmt: skip

    def __init__(self, wid: Wid, name: str, address: Address, nthreads: int) -> None:
        self.wid = wid
        self.name = name
        self.address = address
        self.nthreads = nthreads
        self.host = ""
        self.pid = 0
        self.memory_limit = 0
        self.resources: dict[str, float] = {}
        self.available: dict[str, float] = {}
        self.running = True
        self.zombies = 0
        self.attempts: dict[Aid, Attempt] = {}
        self.n_slots = 0
        self.n_yielding = 0
        self.occupancy = 0.0
        self.queue_limit = 0.0
        self.replicas: dict[TaskState, None] = {}
        # The tuples that nearly every task in memory would otherwise build anew.
        self.alone = (self,)
        self.wids = (wid,)
        self.queues: list[ReadyQueue] = []
        self.stamp = 0
        self.touched = False
        self.loaded = False
        # Rule R1: what was told to be dropped, by the number of the message.
        self.drop_number = 0
        self.drops: dict[Tid, None] = {}
        self.pending_drops: deque[tuple[int, dict[Tid, None]]] = deque()
        self.cancels: list[Aid] = []
        self.unsent = False
        # By value that it lacks: the holders that it could not reach.
        self.unreachable: dict[Tid, set[Wid]] = {}

    def __repr__(self) -> str:
        return f"<worker {self.name!r} wid {self.wid} at {self.address}>"


class ReadyQueue:
    """Ready tasks of equal restrictions, and the workers that may take them.

    ``ready`` is a heap of ``(-priority, generation, order, tid)``, ``open`` one of
    ``(load, stamp, worker)``; both may hold entries that are out of date.
    """

    __slots__ = (
        "allow_other", "dirty", "n_ready", "n_tasks", "names", "open", "ready",
        "resources", "signature", "strays", "workers",
    )  # fmt: skip

    def __init__(
        self,
        names: frozenset[str] | None = None,
        resources: dict[str, float] | None = None,
        *,
        allow_other: bool = False,
    ) -> None:
        self.names = names
        self.resources = resources
        self.allow_other = allow_other
        self.ready: list[tuple[float, int, int, Tid]] = []
        self.open: list[tuple[float, int, WorkerState]] = []
        self.workers: dict[Wid, WorkerState] = {}
        self.strays = False
        self.n_ready = 0
        self.n_tasks = 0
        self.dirty = False
        amounts = tuple(sorted(resources.items())) if resources else ()
        self.signature = (names, allow_other, amounts)


class ClientState:
    """One client: the instances its futures are bound to, and what it sent.

    ``lost`` keeps why a future has no task until the client releases it;
    ``noticed`` the collisions it was told of. ``nested`` is true for the client of a
    worker's tasks.
    """

    __slots__ = (
        "cid", "enc", "functions", "futures", "lost", "name", "nested", "noticed",
        "policy",
    )  # fmt: skip

    def __init__(
        self, cid: ClientId, name: str | None, enc: int, policy: str | None
    ) -> None:
        self.cid = cid
        self.name = name
        self.enc = enc
        self.policy = policy
        self.nested = False
        self.futures: dict[Fid, TaskState] = {}
        self.lost: dict[Fid, Lost] = {}
        self.functions: dict[Fn, Function] = {}
        self.noticed: dict[int, None] = {}

    def __repr__(self) -> str:
        return f"<client {self.cid}>"


Want = tuple[ClientState, Fid]
# Most tasks have one dependent or a few, and no container of their own for them.
Dependents = TaskState | tuple[TaskState, ...] | dict[TaskState, None] | None
