"""How much CPU a worker spends on a trivial task: its core alone, and all of it.

``python benchmarks/worker_core.py [tasks]`` prints microseconds per task. The second
figure is the CPU time of a process that is nothing but a worker (event loop, codec,
threads included); another process plays the scheduler and keeps
``--window`` tasks ahead. ``--profile`` prints where the loop's thread spends it.
"""

import argparse
import asyncio
import cProfile
import multiprocessing
import operator
import pstats
import time
from typing import Any

from raddle.protocol.comm import Hello, Link, listen
from raddle.protocol.core.messages.client import FORM_ARGS
from raddle.protocol.core.messages.worker import CloseWorker, Compute, Done, Functions
from raddle.protocol.node.lifecycle import new_event_loop
from raddle.protocol.serialize import dumps
from raddle.worker.core.events import FromScheduler, Ran, Returned
from raddle.worker.core.machine import Machine
from raddle.worker.core.state import Settings
from raddle.worker.server import Worker

BATCH = 32


def computes(count: int) -> list[Compute]:
    payload = dumps(((1, 2), {}))
    return [
        Compute(n, n, f"add-{n}", FORM_ARGS, 1, payload, (), (0, n), None)
        for n in range(1, count + 1)
    ]


def core(count: int) -> float:
    """Seconds of CPU for that many tasks through the core, in batches."""
    machine = Machine(Settings(nthreads=1, resources={}))
    messages = computes(count)
    begun = time.process_time()
    for i in range(0, count, BATCH):
        batch = messages[i : i + BATCH]
        machine.handle(FromScheduler(batch))
        frames = (b"0123456789",)
        machine.handle(
            Ran([Returned(m.aid, 3, 28, "int", 1e-6, frames) for m in batch])
        )
    return time.process_time() - begun


async def feed(count: int, window: int, pipe: Any) -> None:
    """A scheduler of one worker: keeps some tasks ahead until all are done."""
    messages = computes(count)
    sent = done = 0
    finished = asyncio.Event()

    def refill(link: Link) -> None:
        nonlocal sent
        more = messages[sent : done + window]
        sent += len(more)
        link.send_many(more)

    def on_batch(link: Link, batch: list[Any]) -> None:
        nonlocal done
        done += sum(type(message) is Done for message in batch)
        refill(link)
        if done == count and not finished.is_set():
            finished.set()
            link.send(CloseWorker("done"))

    def accept(link: Link, _: Hello) -> dict[str, Any]:
        link.on_batch = on_batch
        link.send(Functions(((1, dumps(operator.add)),)))
        refill(link)
        return {"epoch": 1, "wid": 1}

    listener = await listen("tcp://127.0.0.1:0", secret=None, accept=accept)
    pipe.send(listener.address)
    await finished.wait()
    await asyncio.to_thread(pipe.recv)


def feeder(count: int, window: int, pipe: Any) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(feed(count, window, pipe))


async def work(address: str) -> tuple[float, float]:
    """Seconds of CPU and of wall time until the scheduler says that it is enough."""
    worker = Worker(address, nthreads=1)
    cpu, wall = time.process_time(), time.perf_counter()
    await worker.start()
    await worker.finished()
    return time.process_time() - cpu, time.perf_counter() - wall


def whole(count: int, window: int, *, profile: bool) -> tuple[float, float]:
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=feeder, args=(count, window, there)
    )
    process.start()
    address = here.recv()
    profiler = cProfile.Profile()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if profile:
            profiler.enable()
        figures = runner.run(work(address))
        profiler.disable()
    here.send("over")
    process.join()
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="?", type=int, default=20_000)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    count = options.tasks
    seconds = min(core(count) for _ in range(3))
    print(f"core alone: {seconds / count * 1e6:.1f} us of CPU per task")
    cpu, wall = whole(count, options.window, profile=options.profile)
    print(
        f"whole worker: {cpu / count * 1e6:.1f} us of CPU per task, "
        f"{count / wall:,.0f} tasks/s"
    )


if __name__ == "__main__":
    main()
