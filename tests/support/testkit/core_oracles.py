"""What must hold in a world at rest (Q1 to Q6 of the design's states page)."""

from typing import Protocol

from raddle.protocol.core.messages.client import Graph
from raddle.scheduler.core.entities import ERRED, MEMORY, TaskState
from raddle.scheduler.core.machine import Machine

from .core_peers import Future, SimClient, SimWorker, digest, loaded, value_of


class World(Protocol):
    """What the oracles look at."""

    scheduler: Machine
    workers: dict[int, SimWorker]
    clients: dict[str, SimClient]


def reference(task: TaskState) -> bytes:
    """The value by definition: the instance's function of its inputs' values."""
    if task.is_data:
        return DATA[task.run_spec_token]
    return value_of(task.payload[0], [reference(dep) for dep in task.inputs])


DATA = {digest(b"data", value) + bytes(8): value for value in (b"data-0", b"data-1")}


def check_inputs(world: World, client: SimClient, graph: Graph) -> None:
    """An instance with the submitted token has the submitted inputs, too."""
    futures = world.scheduler.clients[client.cid].futures
    meant = {
        name: futures[fid]
        for name, fid in (*graph.wants, *graph.embedded)
        if fid in futures
    }
    for spec in graph.tasks:
        task = meant.get(spec.key)
        if task is not None and task.run_spec_token == spec.token:
            for name, found in zip(spec.deps, task.inputs, strict=True):
                assert meant.get(name, found) is found, f"Q6: {task} {name}"


def check_rest(world: World) -> None:
    """Q1 to Q4 and Q6."""
    scheduler = world.scheduler
    held = {
        (wid, tid) for wid, w in world.workers.items() for tid in w.core.data.stored
    }
    known = {(w.wid, t.tid) for t in scheduler.tasks.values() for w in t.replicas}
    assert held == known, f"Q1: stores {held - known}, scheduler {known - held}"
    _check_no_work(world)
    for client in world.clients.values():
        assert not client.calls, "a call has no answer"
        bound = scheduler.clients[client.cid].futures
        for fid, future in client.futures.items():
            if future.state == "cancelled" or fid not in bound:
                assert future.state in ("cancelled", "erred"), f"Q3: {future.state}"
                continue
            task = bound[fid]
            _check_future(world, future, task)
            _check_record(world, future, task)


def _check_no_work(world: World) -> None:
    for worker in world.workers.values():
        core = worker.core
        assert not core.attempts, f"Q2: {core.attempts}"
        assert not core.zombies, f"Q2: {core.zombies}"
        assert not core.data.wanted, f"Q2: {core.data.wanted}"


def _check_future(world: World, future: Future, task: TaskState) -> None:
    assert task.state in (MEMORY, ERRED), f"Q3: {task}"
    assert future.state == ("finished" if task.state == MEMORY else "erred"), (
        f"Q3: {task} {future.state}"
    )
    if task.state == MEMORY:
        expected = reference(task)
        for worker in task.replicas:
            entry = world.workers[worker.wid].core.data.stored[task.tid]
            found = loaded(entry.value)
            assert found == expected, f"Q4: {task}"
        if future.frames is not None:
            assert future.frames == (expected,), f"Q4: {task}"


def _check_record(world: World, future: Future, task: TaskState) -> None:
    """Q6: who got something else than submitted finds exactly one record."""
    if future.token is None or future.token == task.run_spec_token:
        return
    old, new = task.run_spec_token[:4].hex(), future.token[:4].hex()
    found = [
        r
        for r in world.scheduler.records
        if r.key == task.key
        and r.old_token.rstrip("?") == old
        and r.new_token.rstrip("?") == new
    ]
    assert found or old == new, f"Q6: {task} silently kept"
    chance = any("?" in r.old_token + r.new_token for r in found)
    distinct = {r.kind for r in found}
    assert chance or len(found) == len(distinct), f"Q6: {found}"


def check_empty(world: World) -> None:
    """Q5: nothing is left when nothing is wanted."""
    scheduler = world.scheduler
    assert not scheduler.tasks, f"Q5: {scheduler.tasks}"
    assert not scheduler.names, f"Q5: {scheduler.names}"
    _check_no_work(world)
    for worker in world.workers.values():
        assert not worker.core.data.stored, f"Q5: {worker.core.data.stored}"
