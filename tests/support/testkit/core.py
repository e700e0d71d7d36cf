"""The scheduler's core under test: short builders, and a recorder that forgets nothing.

Each action that an event causes must be read by the test; what is left unread fails
the next event, or :meth:`Recorder.done`. Peers messages, functions and INFO records
can be waved through, they are rarely what a test is about.
"""

from typing import Any, TypeVar

from raddle.protocol.core.collisions import Policy
from raddle.protocol.core.ids import Key
from raddle.protocol.core.messages import client as cm
from raddle.protocol.core.messages import worker as wm
from raddle.scheduler.core.actions import Action, LogRecord, ToClient, ToWorker
from raddle.scheduler.core.entities import STATE_NAMES, TaskState
from raddle.scheduler.core.events import (
    ClientJoined,
    ClientLeft,
    FromClient,
    FromWorker,
    Tick,
    WorkerJoined,
    WorkerLeft,
)
from raddle.scheduler.core.machine import Machine, Settings
from raddle.scheduler.core.queues import blocked_by

M = TypeVar("M")
ME, OTHER = "Client-me", "Client-other"
FUNCTIONS = ("old", "new", "one", "two", "bad")
ERROR = ("", (b"an exception",))


def token(*parts: object) -> bytes:
    """16 bytes that differ as the parts do."""
    return repr(parts).encode()[-16:].rjust(16, b".")


def task(
    key: Key,
    *deps: Key,
    fn: str = "old",
    skeleton: str | None = None,
    annotation: int = -1,
    order: int = 0,
    made: bytes | None = None,
) -> cm.GraphTask:
    """A task that calls a function on its inputs.

    With ``skeleton`` the token is not deterministic; ``made`` replaces the token.
    """
    number = FUNCTIONS.index(fn) + 1
    own = made or token(key, fn, deps)
    pale = None if skeleton is None else token(key, skeleton)
    return cm.GraphTask(
        key, own, pale, cm.FORM_ARGS, number, (fn.encode(),), deps, annotation, order
    )


class Recorder:
    """A machine that checks its invariants, two clients, and unread actions."""

    def __init__(
        self, *, policy: Policy = "warn", n_workers: int = 0, **settings: Any
    ) -> None:
        self.machine = Machine(Settings(policy=policy, validate=True, **settings))
        self.unread: list[Action] = []
        self.calls = 0
        self.fids = 0
        self.seen: dict[int, int] = {}
        for client in (ME, OTHER):
            self.add_client(client)
        for wid in range(1, n_workers + 1):
            self.join(wid)

    # Events.

    def on(self, event: Any) -> None:
        """Hand in an event, once all actions of the one before have been read."""
        self.done()
        self.unread = [
            action
            for action in self.machine.handle(event)
            if not (
                isinstance(action, ToWorker)
                and isinstance(action.message, wm.Peers | wm.Functions | wm.PeersLeft)
            )
            and not (isinstance(action, LogRecord) and action.level == 20)
            and not (isinstance(event, WorkerLeft) and isinstance(action, LogRecord))
        ]
        for action in self.unread:
            if isinstance(action, ToWorker) and isinstance(action.message, wm.DropData):
                self.seen[action.wid] = action.message.number

    def done(self) -> None:
        """Nothing happened that was not read."""
        assert not self.unread, f"unread: {self.unread}"

    def add_client(
        self,
        client: str,
        *,
        enc: int = 1,
        policy: str | None = None,
        nested: bool = False,
    ) -> None:
        """A client that has sent the definitions of all functions."""
        self.on(ClientJoined(0.0, client, None, enc, policy, nested))
        numbered = tuple((n, (f.encode(),)) for n, f in enumerate(FUNCTIONS, 1))
        self.says(client, cm.Graph(0, (), (), (), numbered, (), None))
        self.take(cm.GraphAck, client)

    def join(
        self,
        wid: int,
        *,
        nthreads: int = 1,
        resources: dict[str, float] | None = None,
        host: str = "host",
    ) -> None:
        address = f"tcp://{host}:{wid}"
        amounts = resources or {}
        self.on(
            WorkerJoined(0.0, wid, f"w{wid}", address, host, 1, nthreads, 0, amounts)
        )

    def leave(self, wid: int, *, safe: bool = False) -> None:
        self.on(WorkerLeft(0.0, wid, "killed", safe, None))

    def leave_client(self, client: str) -> None:
        self.on(ClientLeft(0.0, client, "gone"))

    def says(self, client: str, *messages: Any) -> None:
        self.on(FromClient(0.0, client, list(messages)))

    def works(self, wid: int, *messages: Any) -> None:
        self.on(FromWorker(0.0, wid, list(messages)))

    def tick(self) -> None:
        self.on(Tick(0.0))

    def graph(
        self,
        *tasks: cm.GraphTask,
        wants: tuple[Key, ...] | None = None,
        embedded: dict[Key, int] | None = None,
        annotations: tuple[dict[str, Any], ...] = (),
        policy: str | None = None,
    ) -> tuple[cm.Graph, tuple[int, ...]]:
        """A Graph message, and the futures it asks for (of the last task, if not said)."""
        self.calls += 1
        keys = (tasks[-1].key,) if wants is None else wants
        first = self.fids + 1
        self.fids += len(keys)
        fids = tuple(range(first, self.fids + 1))
        pairs = tuple(zip(keys, fids, strict=True))
        refs = tuple((embedded or {}).items())
        message = cm.Graph(self.calls, tasks, pairs, refs, (), annotations, policy)
        return message, fids

    def submit(self, *tasks: cm.GraphTask, client: str = ME, **more: Any) -> Any:
        """Submit, read the acknowledgement; the future, or futures if several."""
        message, fids = self.graph(*tasks, **more)
        self.says(client, message)
        ack = self.to(client, cm.GraphAck)
        assert ack == cm.GraphAck(self.calls, None), ack
        return fids[0] if len(fids) == 1 else fids

    def scatter(
        self, key: Key, content: str, *, client: str = ME, wids: tuple[int, ...] = (1,)
    ) -> int:
        """Scatter one value; its future. The acknowledgement is left to be read."""
        self.calls += 1
        self.fids += 1
        uuid = content.encode()
        raw = (self.fids, key, token(content), None, uuid, 5, "str", wids)
        self.says(client, cm.Scatter(self.calls, (raw,), None))
        return self.fids

    # Reading.

    def take(self, kind: type[M], where: Any = None) -> list[M]:
        """All unread messages (or records) of a kind, to or from whom it may be."""
        found = [a for a in self.unread if _is(a, kind, where)]
        self.unread = [a for a in self.unread if a not in found]
        return [_content(a) for a in found]

    def to(self, peer: Any, kind: type[M]) -> M:
        """The one unread message of this kind to this client or worker."""
        found = self.take(kind, peer)
        assert len(found) == 1, f"{kind.__name__} to {peer}: {found}, {self.unread}"
        return found[0]

    def warning(self) -> str:
        """The text of the one unread WARNING."""
        (record,) = self.take(LogRecord)
        assert record.level == 30, record
        return record.text

    def compute(self, wid: int | None = None) -> wm.Compute:
        """The one unread Compute."""
        found = self.take(wm.Compute, wid)
        assert len(found) == 1, f"{found}, {self.unread}"
        return found[0]

    def finished(self, client: str = ME) -> tuple[int, ...]:
        """Futures that the client was told are finished."""
        return tuple(item[0] for item in self.to(client, cm.Finished).items)

    def erred(self, client: str = ME) -> dict[int, tuple[Any, Key]]:
        """Futures that the client was told are erred: error and blamed key."""
        return {
            fid: (error, key) for fid, error, key in self.to(client, cm.Erred).items
        }

    # Shorthands for what workers say.

    def compute_done(
        self, compute: wm.Compute, *, nbytes: int = 28, seconds: float = 0.001
    ) -> None:
        """The worker that was handed the attempt has the value."""
        self.works(self.where(compute.aid), self.done_message(compute, nbytes, seconds))

    def done_message(
        self, compute: wm.Compute, nbytes: int = 28, seconds: float = 0.001
    ) -> wm.Done:
        seen = self.seen.get(self.where(compute.aid), 0)
        return wm.Done(compute.aid, seen, nbytes, "int", seconds, None)

    def run_all(self) -> None:
        """Every attempt is done as soon as it is handed out; the rest stays unread."""
        rest: list[Action] = []
        computes = self.take(wm.Compute)
        while computes:
            rest += self.unread
            self.unread = []
            self.compute_done(computes.pop(0))
            computes += self.take(wm.Compute)
        self.unread = rest + self.unread

    def fail(self, compute: wm.Compute) -> None:
        """The attempt raised."""
        wid = self.where(compute.aid)
        self.works(wid, wm.Failed(compute.aid, 0, ERROR, "E: no", 0.001))

    def where(self, aid: int) -> int:
        """The worker that has the attempt."""
        for worker in self.machine.workers.values():
            if aid in worker.attempts:
                return worker.wid
        raise AssertionError(f"attempt {aid} is with nobody")

    # State.

    def instance(self, key: Key, place: int = 0) -> TaskState:
        return self.machine.instances(key)[place]

    def status(self, key: Key, place: int = 0) -> str:
        """The state's name; ready says what blocks it."""
        found = self.instance(key, place)
        name = STATE_NAMES[found.state]
        return f"{name} ({blocked_by(found.queue)})" if name == "ready" else name

    def exists(self, key: Key) -> bool:
        return bool(self.machine.instances(key))

    def release_all(self) -> None:
        """Release every future of every client; nothing may be left."""
        self.unread.clear()
        for client in list(self.machine.clients.values()):
            fids = (*client.futures, *client.lost)
            if fids:
                self.says(client.cid, cm.Release(fids))
                self.unread.clear()
        assert not self.machine.tasks, self.machine.tasks
        assert not self.machine.names, self.machine.names


def _content(action: Action) -> Any:
    """What was sent, or the record itself."""
    return action.message if isinstance(action, ToClient | ToWorker) else action


def _is(action: Action, kind: type[Any], where: Any) -> bool:
    if isinstance(action, ToClient):
        return isinstance(action.message, kind) and where in (None, action.client)
    if isinstance(action, ToWorker):
        return isinstance(action.message, kind) and where in (None, action.wid)
    return isinstance(action, kind)
