"""Workers and clients of a world without processes: what surrounds the cores.

A worker is its real core, threads that end when the world says so, and requests to
other workers. A client knows what each of its futures was told. A value is a digest
of the function's name and the input values, so a wrong input shows in the result.
"""

from collections import deque
from hashlib import blake2b
from random import Random
from typing import Any, Protocol

from raddle.protocol.core.messages import client as cm
from raddle.worker.core import actions as wa
from raddle.worker.core import events as we
from raddle.worker.core.attempts import Attempt
from raddle.worker.core.data import Packed
from raddle.worker.core.machine import Machine as WorkerMachine
from raddle.worker.core.state import Settings as WorkerSettings

ERROR = ("", (b"an exception",))


def digest(*parts: bytes) -> bytes:
    """A short value that depends on all parts and their order."""
    return blake2b(b"\0".join(parts), digest_size=8).digest()


def value_of(name: bytes, inputs: list[bytes]) -> bytes:
    """What a function of this name makes of these inputs."""
    return name if name.startswith(b"data") else digest(name, *inputs)


class Surroundings(Protocol):
    """What peers see of the world they are in."""

    random: Random
    workers: dict[int, "SimWorker"]
    cut: set[tuple[int, int]]
    runs: dict[int, int]
    inline: float

    def kill(self, worker: "SimWorker") -> None: ...


class Thread:
    """An attempt that a thread has: it was started, and it will end."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.holds_slot = True


class SimWorker:
    """One worker: its core, and what its shell would do."""

    def __init__(self, world: Surroundings, wid: int, nthreads: int, gpus: int) -> None:
        self.world = world
        self.wid = wid
        self.nthreads = nthreads
        self.resources = {"GPU": float(gpus)} if gpus else {}
        settings = WorkerSettings(nthreads, self.resources, validate=True)
        self.core = WorkerMachine(settings)
        self.core.handle(we.Registered(wid))
        self.queue: dict[int, Attempt] = {}
        self.threads: dict[int, Thread] = {}
        self.inbox: deque[list[Any]] = deque()
        self.outbox: deque[list[Any]] = deque()
        self.asks: deque[tuple[str, Any]] = deque()

    def do(self, event: Any) -> None:
        """Give the core an event, and carry out what it says."""
        batch = []
        withdrawn = []
        for action in self.core.handle(event):
            match action:
                case wa.Hand(attempts):
                    self.queue |= {a.aid: a for a in attempts}
                case wa.Abort(aid) | wa.Recall(aid):
                    if self.queue.pop(aid, None) is not None:
                        withdrawn.append(aid)
                case wa.Ask():
                    self.asks.append(("ask", action))
                case wa.Disconnect(wid):
                    self.asks = deque(
                        (kind, what) for kind, what in self.asks if what.wid != wid
                    )
                case wa.LogRecord() | wa.ForShell():
                    pass
                case _:
                    batch.append(action)
        if batch:
            self.outbox.append(batch)
        busy = sum(t.holds_slot for t in self.threads.values())
        while self.queue and busy < self.nthreads:
            aid = min(self.queue, key=lambda a: (self.queue[a].priority, a))
            self.threads[aid] = Thread(self.queue.pop(aid))
            busy += 1
        if withdrawn:
            self.do(we.Withdrawn(withdrawn))

    def serve_ask(self) -> None:
        """A request reaches its peer, or an answer comes back."""
        kind, what = self.asks.popleft()
        if kind == "answer":
            self.do(what)
            return
        peer = self.world.workers.get(what.wid)
        if peer is None or (self.wid, what.wid) in self.world.cut:
            self.asks.append(("answer", we.FetchFailed(what.wid, what.number)))
            return
        items: list[tuple[int, int, tuple[bytes] | None]] = []
        for tid in what.tids:
            entry = peer.core.data.stored.get(tid)
            if entry is None:
                items.append((tid, 0, None))
            else:
                items.append((tid, entry.origin, (loaded(entry.value),)))
        answer = we.Fetched(what.wid, what.number, tuple(items), ())
        self.asks.append(("answer", answer))

    def end_one(self) -> None:
        """Some thread comes to its end, gives its slot back, or takes it again."""
        random = self.world.random
        aid = random.choice(list(self.threads))
        thread = self.threads[aid]
        attempt = thread.attempt
        chance = random.random()
        if chance < 0.05 and thread.holds_slot:
            thread.holds_slot = False
            self.do(we.Ran([we.Seceded(aid)]))
            return
        if chance < 0.1 and not thread.holds_slot:
            busy = sum(t.holds_slot for t in self.threads.values())
            if busy < self.nthreads:
                thread.holds_slot = True
                self.do(we.Ran([we.Rejoined(aid, waited=False)]))
            return
        del self.threads[aid]
        name = attempt.payload[0]
        inputs = [loaded(value) for value in attempt.inputs]
        if name == b"killer":
            self.world.kill(self)
            return
        runs = self.world.runs[attempt.tid] = self.world.runs.get(attempt.tid, 0) + 1
        if name == b"boom" or (name == b"flaky" and runs < 3):
            report: Any = we.Raised(aid, ERROR, "E", 0.01)
        elif chance > 0.97:
            report = we.Rescheduled(aid)
        else:
            value = value_of(name, inputs)
            frames = (value,) if random.random() < self.world.inline else None
            seconds = random.choice((1e-5, 1e-3, 0.1))
            report = we.Returned(aid, value, len(value), "bytes", seconds, frames)
        self.do(we.Ran([report]))

    def flush_begun(self) -> None:
        self.do(we.Begun([a for a, t in self.threads.items() if t.holds_slot]))


def loaded(value: Any) -> bytes:
    """A value as user code would see it."""
    if isinstance(value, Packed):
        assert value.frames is not None
        value = value.frames[0]
    assert isinstance(value, bytes)
    return value


class Future:
    """What a client knows of one of its futures."""

    def __init__(self, key: str, token: bytes | None) -> None:
        self.key = key
        self.token = token
        self.state = "sent"
        self.frames: Any = None


NEXT = {
    "sent": ("pending", "erred"),
    "pending": ("pending", "finished", "erred", "cancelled"),
    "finished": ("pending", "erred", "cancelled"),
    "erred": ("pending", "cancelled"),
    "cancelled": (),
}
"""What a future may become, by what it is."""


class SimClient:
    """One client: futures by fid, and an ordered queue each way."""

    def __init__(self, cid: str, policy: str | None) -> None:
        self.cid = cid
        self.policy = policy
        self.futures: dict[int, Future] = {}
        self.calls: dict[int, tuple[int, ...]] = {}
        self.fids = 0
        self.outbox: deque[list[Any]] = deque()
        self.inbox: deque[Any] = deque()
        self.functions: dict[bytes, int] = {}

    def future(self, key: str, token: bytes | None) -> int:
        self.fids += 1
        self.futures[self.fids] = Future(key, token)
        return self.fids

    def say(self, *messages: Any) -> None:
        self.outbox.append(list(messages))

    def hear(self, message: Any) -> None:
        """Take in one message; each must fit what the future was before."""
        match message:
            case cm.GraphAck(call, error):
                for fid in self.calls.pop(call):
                    self._become(fid, "erred" if error else "pending")
            case cm.Finished(items):
                for fid, _, _, frames in items:
                    self._become(fid, "finished", frames)
            case cm.Erred(items):
                for fid, _, _ in items:
                    self._become(fid, "erred")
            case cm.PendingAgain(fids):
                for fid in fids:
                    self._become(fid, "pending")
            case cm.Cancelled(fids):
                for fid in fids:
                    self._become(fid, "cancelled")
            case _:
                assert isinstance(message, cm.CollisionNotice), message

    def _become(self, fid: int, state: str, frames: Any = None) -> None:
        future = self.futures.get(fid)
        if future is not None:
            assert state in NEXT[future.state], f"{fid} {future.state} -> {state}"
            future.state = state
            future.frames = frames
