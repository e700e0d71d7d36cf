"""What the scheduler's core costs per task, alone: no sockets, no other process.

Workers here answer every Compute of a round with one batch of Done messages, and
the client releases everything at the end. Run with the interpreter to be judged:

    python benchmarks/scheduler_core.py [tasks]
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

from raddle.protocol.core.messages.client import FORM_ARGS, Graph, Release
from raddle.protocol.core.messages.worker import Compute, Done, DropData
from raddle.scheduler.core.actions import ToWorker
from raddle.scheduler.core.events import (
    ClientJoined,
    FromClient,
    FromWorker,
    WorkerJoined,
)
from raddle.scheduler.core.machine import Machine, Settings

CLIENT = "Client-1"
FRAMES = (b"\x80\x05K\x01.",)
Row = tuple[str, tuple[str, ...]]


def flat(n: int) -> list[Row]:
    return [(f"inc-{i:032x}", ()) for i in range(n)]


def tree(n: int) -> list[Row]:
    rows: list[Row] = [(f"leaf-{i:032x}", ()) for i in range((n + 1) // 2)]
    level = [key for key, _ in rows]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        made = [(f"add-{len(rows) + i:032x}", pair) for i, pair in enumerate(pairs)]
        rows += made
        level = [key for key, _ in made] + level[len(level) // 2 * 2 :]
    return rows


def chain(n: int) -> list[Row]:
    keys = [f"step-{i:032x}" for i in range(n)]
    before = [(), *((key,) for key in keys)]
    return list(zip(keys, before, strict=False))


def layers(n: int) -> list[Row]:
    width = max(4, int(n**0.5))
    rows: list[Row] = []
    for i in range(n):
        row, place = divmod(i, width)
        before = [(row - 1) * width + (place + k) % width for k in range(3)]
        deps = tuple(f"layer-{b:032x}" for b in before) if row else ()
        rows.append((f"layer-{i:032x}", deps))
    return rows


def message(rows: list[Row], wanted: list[str], annotation: dict[str, Any]) -> Graph:
    tasks = tuple(
        (
            key, i.to_bytes(16, "big"), None, FORM_ARGS, 1, (b"args%d" % i,), deps,
            0 if annotation else -1, i,
        )
        for i, (key, deps) in enumerate(rows)
    )  # fmt: skip
    wants = tuple((key, fid) for fid, key in enumerate(wanted, 1))
    annotations = (annotation,) if annotation else ()
    return Graph(1, tasks, wants, (), ((1, (b"function",)),), annotations, None)


class Workers:
    """Hand every Compute back as Done, one batch per worker, eldest batch first."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.seen: dict[int, int] = {}

    def take(self, actions: list[Any]) -> None:
        for action in actions:
            if type(action) is not ToWorker:
                continue
            if type(action.message) is Compute:
                self.batches.setdefault(action.wid, []).append(action.message.aid)
            elif type(action.message) is DropData:
                self.seen[action.wid] = action.message.number

    def events(self) -> Iterator[FromWorker]:
        while self.batches:
            wid = next(iter(self.batches))
            seen = self.seen.get(wid, 0)
            aids = self.batches.pop(wid)
            done = [Done(aid, seen, 28, "int", 1e-5, FRAMES) for aid in aids]
            yield FromWorker(0.0, wid, done)


def build(n_workers: int, annotation: dict[str, Any]) -> Machine:
    machine = Machine(Settings())
    machine.handle(ClientJoined(0.0, CLIENT, None, 1, None))
    resources = annotation.get("resources", {})
    for wid in range(1, n_workers + 1):
        machine.handle(
            WorkerJoined(
                0.0, wid, f"w{wid}", f"tcp://h:{wid}", "h", 1, 1, 0,
                dict.fromkeys(resources, 4.0),
            )
        )  # fmt: skip
    return machine


def run(
    rows: list[Row], n_workers: int, annotation: dict[str, Any]
) -> dict[str, float]:
    """Microseconds per task, by phase."""
    needed = {dep for _, deps in rows for dep in deps}
    wanted = [key for key, _ in rows if key not in needed]
    machine = build(n_workers, annotation)
    graph = message(rows, wanted, annotation)
    gc.collect()
    gc.freeze()
    clock = time.process_time
    begin = clock()
    actions = machine.handle(FromClient(0.0, CLIENT, [graph]))
    ingested = clock()
    spent = 0.0
    events = 0
    workers = Workers()
    workers.take(actions)
    for event in workers.events():
        start = clock()
        actions = machine.handle(event)
        spent += clock() - start
        events += 1
        workers.take(actions)
    start = clock()
    fids = tuple(range(1, len(wanted) + 1))
    machine.handle(FromClient(0.0, CLIENT, [Release(fids)]))
    released = clock() - start
    gc.unfreeze()
    assert not machine.tasks, len(machine.tasks)
    n = len(rows) / 1e6
    return {
        "ingest": (ingested - begin) / n,
        "run": spent / n,
        "release": released / n,
        "total": (ingested - begin + spent + released) / n,
        "tasks/event": len(rows) / events,
    }


def bytes_per_waiting_task(n: int) -> tuple[float, float]:
    """Beyond the message's own bytes, and in all."""
    machine = build(0, {})
    tracemalloc.start()
    graph = message(flat(n), [key for key, _ in flat(n)], {})
    gc.collect()
    own = tracemalloc.get_traced_memory()[0]
    machine.handle(FromClient(0.0, CLIENT, [graph]))
    del graph
    gc.collect()
    total = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(machine.tasks) == n
    return (total - own) / n, total / n


def main(n: int) -> None:
    gc.set_threshold(50_000, 20, 50)  # as the scheduler's process does
    shapes: dict[str, tuple[Callable[[int], list[Row]], dict[str, Any]]] = {
        "flat": (flat, {}),
        "tree": (tree, {}),
        "chain": (chain, {}),
        "layers": (layers, {}),
        "flat, resources": (flat, {"resources": {"GPU": 1}}),
        "flat, named worker": (flat, {"workers": ("w1",)}),
    }
    print(f"{'us per task':20}{'workers':>8}", end="")
    print(*(f"{p:>9}" for p in ("ingest", "run", "release", "total")), "tasks/event")
    for name, (shape, annotation) in shapes.items():
        for n_workers in (1, 100):
            best = min(
                (run(shape(n), n_workers, annotation) for _ in range(3)),
                key=lambda r: r["total"],
            )
            row = [best[p] for p in ("ingest", "run", "release", "total")]
            figures = "".join(f"{x:10.2f}" for x in row)
            print(f"{name:20}{n_workers:8}{figures} {best['tasks/event']:11.1f}")
    beyond, total = bytes_per_waiting_task(n)
    print(
        f"bytes per waiting task: {beyond:.0f} beyond the message's, {total:.0f} in all"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
