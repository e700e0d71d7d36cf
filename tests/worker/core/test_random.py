"""Random schedules of the worker's core between a fake scheduler, threads and peers.

The machine checks its invariants after each event. Beyond that: each attempt is
answered exactly once unless it was cancelled, runs at most once, has the right
inputs, and nothing is left when all is answered.
"""

from collections import Counter
from random import Random
from typing import Any

import pytest

from raddle.protocol.core.messages.worker import (
    Acquire,
    CancelAttempts,
    Claim,
    Confirm,
    Done,
    DropData,
    Failed,
    Holders,
    Miss,
    Peers,
    PeersLeft,
    Rejected,
    YieldAttempts,
)
from raddle.worker.core.actions import Abort, Ask, Hand, Recall
from raddle.worker.core.attempts import Attempt
from raddle.worker.core.data import Packed
from raddle.worker.core.events import (
    Begun,
    Fetched,
    FetchFailed,
    FromScheduler,
    PutGone,
    PutHere,
    Raised,
    Ran,
    Rejoined,
    Rescheduled,
    Returned,
    Seceded,
    Withdrawn,
)
from raddle.worker.core.machine import Machine
from testkit.worker_core import OWN, Core, compute

THREADS = 2
SEEDS = range(150)
STEPS = 150


def loaded(value: Any) -> Any:
    """A value as a thread would see it."""
    if isinstance(value, Packed):
        assert value.frames is not None
        return value.frames[0]
    return value


class World:
    """All that surrounds the core, driven by one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.core = Core(THREADS, {"GPU": 1, "disk": 2})
        self.machine: Machine = self.core.machine
        self.tids = 0
        self.aids = 0
        self.drops = 0
        self.uuids = 0
        self.wids = 3
        self.alive = {2, 3}
        self.answers: Counter[int] = Counter()
        self.sent: dict[int, int] = {}
        self.cancelled: set[int] = set()
        self.ran: set[int] = set()
        self.queue: dict[int, Attempt] = {}
        self.threads: dict[int, bool] = {}
        self.asks: list[Ask] = []
        self.misses: list[Miss] = []

    # -- what the core causes

    def do(self, event: Any) -> None:
        """Hand in an event and carry out its actions, and what these cause."""
        withdrawn = []
        for action in self.machine.handle(event):
            match action:
                case Ask():
                    assert action.wid in self.alive
                    assert all(ask.wid != action.wid for ask in self.asks)
                    self.asks.append(action)
                case Abort(aid) | Recall(aid):
                    if self.queue.pop(aid, None):
                        withdrawn.append(aid)
                case Miss():
                    self.misses.append(action)
                case Done(aid=aid) | Failed(aid=aid) | Rejected(aid=aid):
                    assert aid not in self.cancelled
                    self.answers[aid] += 1
                case Hand(attempts):
                    self.queue |= {a.aid: a for a in attempts}
        self.start_threads()
        if withdrawn:
            self.do(Withdrawn(withdrawn))

    def start_threads(self) -> None:
        while self.queue and sum(self.threads.values()) < THREADS:
            aid = min(self.queue, key=lambda a: (self.queue[a].priority, a))
            attempt = self.queue.pop(aid)
            assert aid not in self.ran
            self.ran.add(aid)
            for (tid, _), value in zip(attempt.deps, attempt.inputs, strict=True):
                assert loaded(value) == b"%d" % tid
            self.threads[aid] = True

    def says(self, *messages: Any) -> None:
        """The scheduler's batch."""
        self.do(FromScheduler(list(messages)))

    def report(self, *reports: Any) -> None:
        """The threads' burst."""
        self.do(Ran(list(reports)))

    # -- what happens

    def holders(self) -> tuple[int, ...]:
        count = self.random.choice((0, 1, 1, 2))
        everybody = [OWN, *sorted(self.alive), 99]
        return tuple(self.random.sample(everybody, min(count, len(everybody))))

    def compute(self) -> None:
        random = self.random
        self.aids += 1
        if random.random() < 0.9 or not self.tids:
            self.tids += 1
            tid = self.tids
        else:
            tid = random.randint(1, self.tids)
        deps = []
        for dep in {random.randint(1, self.tids) for _ in range(random.randint(0, 3))}:
            if dep == tid:
                continue
            frames = (b"%d" % dep,) if random.random() < 0.2 else None
            deps.append((dep, self.holders(), random.randint(0, 600), frames))
        resources = random.choice(
            (None, None, None, {"GPU": 1.0}, {"disk": 0.1}, {"disk": 1.5, "GPU": 0.5})
        )
        priority = (random.randint(0, 3), tid)
        self.sent[self.aids] = tid
        self.says(
            compute(self.aids, tid, *deps, priority=priority, resources=resources)
        )

    def some_aids(self) -> tuple[int, ...]:
        if not self.aids:
            return ()
        recent = range(max(1, self.aids - 8), self.aids + 1)
        return tuple(self.random.sample(recent, min(2, len(recent))))

    def cancel(self) -> None:
        aids = self.some_aids()
        self.cancelled |= {aid for aid in aids if aid in self.machine.attempts}
        self.says(CancelAttempts(aids))

    def give_back(self) -> None:
        self.says(YieldAttempts(self.some_aids()))

    def drop(self) -> None:
        if self.tids:
            self.drops += 1
            tids = tuple(self.random.choices(range(1, self.tids + 1), k=2))
            self.says(DropData(self.drops, tids))

    def acquire(self) -> None:
        if self.tids:
            tid = self.random.randint(1, self.tids)
            self.says(Acquire(((tid, self.holders(), 10),)), Confirm(tid))

    def peer_leaves(self) -> None:
        if len(self.alive) > 1:
            wid = self.random.choice(sorted(self.alive))
            self.alive.remove(wid)
            self.asks = [ask for ask in self.asks if ask.wid != wid]
            self.says(PeersLeft((wid,)))

    def peer_joins(self) -> None:
        if len(self.alive) < 4:
            self.wids += 1
            self.alive.add(self.wids)
            self.says(Peers(((self.wids, f"tcp://w{self.wids}:1"),)))

    def put(self) -> None:
        self.tids += 1
        self.uuids += 1
        uuid, packed = b"%d" % self.uuids, Packed((b"%d" % self.tids,))
        self.do(PutHere([(uuid, packed, 1)]))
        if self.random.random() < 0.2:
            self.do(PutGone([uuid]))
        self.says(Claim(((uuid, self.tids),)))

    def answer_miss(self) -> None:
        if self.misses:
            miss = self.misses.pop(self.random.randrange(len(self.misses)))
            self.says(Holders(miss.tid, self.holders()))

    def answer_ask(self) -> None:
        if not self.asks:
            return
        ask = self.asks.pop(self.random.randrange(len(self.asks)))
        if self.random.random() < 0.2:
            self.do(FetchFailed(ask.wid, ask.number))
            return
        items: list[Any] = []
        failed: list[Any] = []
        for tid in ask.tids:
            chance = self.random.random()
            if chance < 0.05:
                failed.append((tid, ("", (b"error",))))
            elif chance < 0.9:
                items.append((tid, 1000 + tid, (b"%d" % tid,)))
            elif chance < 0.95:
                items.append((tid, 0, None))
        self.do(Fetched(ask.wid, ask.number, tuple(items), tuple(failed)))

    def finish(self) -> None:
        if not self.threads:
            return
        aid = self.random.choice(list(self.threads))
        del self.threads[aid]
        value = b"%d" % self.sent[aid]
        report = self.random.choices(
            (
                Returned(aid, value, 5, "bytes", 0.1, None),
                Raised(aid, ("", ()), "E", 0.1),
                Rescheduled(aid),
            ),
            (8, 1, 1),
        )
        self.report(*report)

    def secede(self) -> None:
        holding = [aid for aid, holds in self.threads.items() if holds]
        if holding:
            aid = self.random.choice(holding)
            self.threads[aid] = False
            self.report(Seceded(aid))

    def rejoin(self) -> None:
        given = [aid for aid, holds in self.threads.items() if not holds]
        if given:
            aid = self.random.choice(given)
            self.threads[aid] = True
            self.report(Rejoined(aid, waited=False))

    def begun(self) -> None:
        self.do(Begun([aid for aid, holds in self.threads.items() if holds]))

    # -- the run

    def run(self) -> None:
        """Random steps, then an end in which everything is answered."""
        steps = [
            *[self.compute] * 6, *[self.finish] * 5, *[self.answer_ask] * 4,
            *[self.answer_miss] * 2, *[self.begun] * 2, *[self.drop] * 2,
            self.cancel, self.give_back, self.acquire, self.peer_leaves,
            self.peer_joins, self.put, self.secede, self.rejoin,
        ]  # fmt: skip
        for _ in range(STEPS):
            self.random.choice(steps)()
        self.settle()
        assert self.core.is_idle()
        for aid in self.sent:
            assert self.answers[aid] == (aid not in self.cancelled), f"attempt {aid}"
        for tid, entry in self.machine.data.stored.items():
            assert loaded(entry.value) == b"%d" % tid

    def settle(self) -> None:
        """Threads end and peers answer; what waits for nobody's data is cancelled."""
        for _ in range(1000):
            if not (self.asks or self.threads):
                break
            self.answer_ask()
            self.finish()
        waiting = tuple(self.machine.attempts)
        self.cancelled |= set(waiting)
        self.says(CancelAttempts(waiting))
        for tid in tuple(self.machine.data.wanted):
            self.says(Holders(tid, ()))
        while self.asks:
            self.answer_ask()
        while self.threads:
            self.finish()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_schedule(seed: int) -> None:
    World(seed).run()
