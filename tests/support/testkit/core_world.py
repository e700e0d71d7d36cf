"""A cluster without processes: the real cores of scheduler and workers, one seed.

Links are FIFO queues that are served in random order, threads end in random order,
workers die with what is in flight. The invariants of both machines are checked
after every event, the oracles at the end.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from raddle.protocol.core.collisions import Policy
from raddle.protocol.core.messages import client as cm
from raddle.scheduler.core import events as se
from raddle.scheduler.core.actions import DropPeer, LogRecord, ToClient, ToWorker
from raddle.scheduler.core.machine import Machine, Settings
from raddle.worker.core import events as we
from raddle.worker.core.data import Packed

from .core_graphs import Graphs
from .core_oracles import check_empty, check_inputs, check_rest
from .core_peers import SimClient, SimWorker, digest


class World:
    """A cluster and what happens to it, all decided by one seed."""

    def __init__(self, seed: int, policy: Policy = "warn") -> None:
        self.random = Random(seed)
        settings = Settings(policy=policy, allowed_failures=1, validate=True)
        self.scheduler = Machine(settings)
        self.workers: dict[int, SimWorker] = {}
        self.clients: dict[str, SimClient] = {}
        self.dead: list[SimWorker] = []
        self.gone: list[SimClient] = []
        self.cut: set[tuple[int, int]] = set()
        self.runs: dict[int, int] = {}
        # What this world is like: how many names, how often a key changes its
        # function, how often a value travels inline.
        self.n_names = self.random.choice((4, 8, 16, 60))
        self.mutation = self.random.choice((0.0, 0.02, 0.1, 0.5))
        self.graphs = Graphs(self.random, self.n_names, self.mutation)
        self.inline = self.random.choice((0.0, 0.0, 0.3, 1.0))
        self.wids = self.cids = self.calls = self.steps = 0
        self.warnings: list[str] = []
        for _ in range(2):
            self.join_worker()
            self.join_client()

    # Peers come and go.

    def join_worker(self, *, gpus: int | None = None) -> None:
        self.wids += 1
        n = self.random.choice((1, 1, 2))
        gpus = self.random.choice((0, 0, 1)) if gpus is None else gpus
        worker = self.workers[self.wids] = SimWorker(self, self.wids, n, gpus)
        address = f"tcp://w:{self.wids}"
        self.tell(
            se.WorkerJoined(
                0.0, self.wids, f"w{self.wids}", address, "h", 1, n, 0, worker.resources
            )
        )

    def kill(self, worker: SimWorker) -> None:
        """The process dies; some of what it sent may still arrive."""
        del self.workers[worker.wid]
        for _ in range(self.random.randint(0, len(worker.outbox))):
            worker.outbox.pop()
        self.dead.append(worker)

    def join_client(self) -> None:
        self.cids += 1
        cid = f"Client-{self.cids}"
        policy = self.random.choice((None, None, None, "raise"))
        client = self.clients[cid] = SimClient(cid, policy)
        self.tell(se.ClientJoined(0.0, cid, None, 1, client.policy))

    def leave_client(self, client: SimClient) -> None:
        del self.clients[client.cid]
        self.gone.append(client)

    # What clients do.

    def some_future(self, client: SimClient) -> int | None:
        return self.random.choice(list(client.futures)) if client.futures else None

    def submit(self, client: SimClient) -> None:
        self.calls += 1
        client.say(self.graphs.graph(client, self.calls))

    def release(self, client: SimClient) -> None:
        fid = self.some_future(client)
        if fid is not None:
            del client.futures[fid]
            client.say(cm.Release((fid,)))

    def cancel(self, client: SimClient) -> None:
        fid = self.some_future(client)
        if fid is not None and client.futures[fid].state != "sent":
            client.say(cm.Cancel((fid,), self.random.random() < 0.5, "why not"))

    def retry(self, client: SimClient) -> None:
        fid = self.some_future(client)
        if fid is not None:
            client.say(cm.Retry((fid,)))

    def detach(self, client: SimClient) -> None:
        fid = self.some_future(client)
        if fid is not None:
            client.say(cm.Detach((fid,)))

    def scatter(self, client: SimClient) -> None:
        random = self.random
        self.calls += 1
        items = []
        fids = []
        for _ in range(random.randint(1, 2)):
            letter = "k" if random.random() < self.mutation else "d"
            key = f"{letter}{random.randrange(self.n_names)}"
            value = b"data-%d" % random.randrange(2)
            token = digest(b"data", value) + bytes(8)
            wids = random.sample(list(self.workers), min(2, len(self.workers)))
            uuid = random.randbytes(8)
            for wid in wids:
                self.workers[wid].do(we.PutHere([(uuid, Packed((value,)), 5)]))
            fid = client.future(key, token)
            fids.append(fid)
            items.append((fid, key, token, None, uuid, 5, "bytes", tuple(wids)))
        client.calls[self.calls] = tuple(fids)
        client.say(cm.Scatter(self.calls, tuple(items), None))

    def bind(self, client: SimClient) -> None:
        """A future comes from another client, or by name."""
        other = self.random.choice(list(self.clients.values()))
        fid = self.some_future(other)
        if fid is None:
            return
        key = other.futures[fid].key
        own = client.future(key, None)
        client.futures[own].state = "pending"
        owner = other.cid if self.random.random() < 0.7 else ""
        client.say(cm.Bind(own, key, owner, fid))

    # One thing happens.

    def act(self) -> None:
        """Somebody does something."""
        random = self.random
        client = random.choice(list(self.clients.values()))
        options: dict[Callable[[SimClient], None], int] = {
            self.submit: 16,
            self.release: 12,
            self.cancel: 2,
            self.retry: 2,
            self.detach: 1,
            self.scatter: 2,
            self.bind: 2,
        }
        chance = random.random()
        if chance < 0.04 and len(self.workers) < 4:
            self.join_worker()
        elif chance < 0.07 and self.workers:
            self.kill(random.choice(list(self.workers.values())))
        elif chance < 0.08 and len(self.clients) < 3:
            self.join_client()
        elif chance < 0.09 and len(self.clients) > 1:
            self.leave_client(client)
        elif chance < 0.11 and len(self.workers) > 1:
            self.cut.add(tuple(random.sample(list(self.workers), 2)))  # type: ignore[arg-type]
        elif chance < 0.15:
            self.tell(se.Tick(0.0))
        else:
            random.choices(list(options), list(options.values()))[0](client)

    def pending(self) -> list[Callable[[], None]]:
        """Everything that could happen next by itself."""
        steps: list[Callable[[], None]] = []
        for worker in self.workers.values():
            if worker.inbox:
                steps.append(partial(self._deliver_to_worker, worker))
            if worker.outbox:
                steps.append(partial(self._deliver_from_worker, worker))
            if worker.asks:
                steps.append(worker.serve_ask)
            if worker.threads:
                steps.append(worker.end_one)
        for client in self.clients.values():
            if client.outbox:
                steps.append(partial(self._deliver_from_client, client))
            if client.inbox:
                steps.append(partial(self._deliver_to_client, client))
        steps += [partial(self._bury, worker) for worker in self.dead]
        steps += [partial(self._leave, client) for client in self.gone]
        return steps

    def step(self) -> bool:
        """Let one of them happen; False if there is none."""
        steps = self.pending()
        if not steps:
            return False
        self.steps += 1
        self.random.choice(steps)()
        if self.random.random() < 0.1:
            for worker in list(self.workers.values()):
                worker.flush_begun()
        return True

    def _deliver_to_worker(self, worker: SimWorker) -> None:
        worker.do(we.FromScheduler(worker.inbox.popleft()))

    def _deliver_from_worker(self, worker: SimWorker) -> None:
        self.tell(se.FromWorker(0.0, worker.wid, worker.outbox.popleft()))

    def _deliver_to_client(self, client: SimClient) -> None:
        client.hear(client.inbox.popleft())

    def _deliver_from_client(self, client: SimClient) -> None:
        batch = client.outbox.popleft()
        self.tell(se.FromClient(0.0, client.cid, batch))
        for message in batch:
            if isinstance(message, cm.Graph):
                check_inputs(self, client, message)

    def _bury(self, worker: SimWorker) -> None:
        if worker.outbox:
            self._deliver_from_worker(worker)
            return
        self.dead.remove(worker)
        safe = self.random.random() < 0.1
        self.tell(se.WorkerLeft(0.0, worker.wid, "gone", safe, None))

    def _leave(self, client: SimClient) -> None:
        if client.outbox:
            self._deliver_from_client(client)
            return
        self.gone.remove(client)
        self.tell(se.ClientLeft(0.0, client.cid, "gone"))

    def tell(self, event: Any) -> None:
        """Give the scheduler's core an event and put its actions on the links."""
        boxes: dict[int, list[Any]] = {}
        for action in self.scheduler.handle(event):
            match action:
                case ToWorker(wid, message):
                    boxes.setdefault(wid, []).append(message)
                case ToClient(cid, message):
                    if cid in self.clients:
                        self.clients[cid].inbox.append(message)
                case LogRecord(level, text):
                    if level >= 30:
                        self.warnings.append(text)
                case DropPeer():
                    raise AssertionError(action)
        for wid, batch in boxes.items():
            if wid in self.workers:
                self.workers[wid].inbox.append(batch)

    # From the first action to the end.

    def run(self, n_actions: int) -> None:
        """Random actions between random deliveries; then rest, and the oracles."""
        for _ in range(n_actions):
            self.act()
            for _ in range(self.random.choice((0, 1, 3, 10))):
                if not self.step():
                    break
        self.settle()
        check_rest(self)
        for client in self.clients.values():
            if client.futures:
                client.say(cm.Release(tuple(client.futures)))
                client.futures.clear()
        self.settle()
        check_empty(self)

    def settle(self) -> None:
        """Nothing new happens but that there are workers enough."""
        self.cut.clear()
        limit = self.steps + 20_000
        while True:
            if not self.workers and not self.dead:
                self.join_worker(gpus=1)
            if not self.step():
                if any(w.resources for w in self.workers.values()):
                    return
                self.join_worker(gpus=1)
            assert self.steps < limit, "no end in sight"
