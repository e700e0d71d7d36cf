"""A worker on real connections: tasks, data of others, calls, figures."""

import asyncio
import operator
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

import dask.config
import numpy as np
import pytest

from raddle.protocol.comm import Hello, Link, connect
from raddle.protocol.context import current_task
from raddle.protocol.core.ids import FN_LITERAL
from raddle.protocol.core.messages.client import FORM_ARGS, FORM_INPUTS, FORM_VALUE
from raddle.protocol.core.messages.peer import Data, Get, Put, PutDone
from raddle.protocol.core.messages.worker import (
    Absent,
    CancelAttempts,
    Claim,
    Compute,
    Confirm,
    Done,
    DropData,
    Failed,
    Functions,
    Heartbeat,
    Holders,
    LongRunning,
    Miss,
    Peers,
    PeersLeft,
    Present,
    Rejected,
    Resumed,
    Run,
    RunResult,
    Started,
    Stored,
    YieldAttempts,
)
from raddle.protocol.errors import CommClosedError, HandshakeError, SerializationError
from raddle.protocol.serialize import dumps, load_exception, loads
from raddle.worker.api import get_worker
from raddle.worker.server import Worker
from testkit.polling import eventually_async
from testkit.scripted_scheduler import ScriptedScheduler

WITHIN = 20.0


def worker(
    scheduler: ScriptedScheduler, **options: Any
) -> AbstractAsyncContextManager[Worker]:
    """A worker with all checks on."""
    options = {"nthreads": 2, "validate": True, "memory_limit": 0} | options
    return open_worker(scheduler, Worker(scheduler.address, **options))


@asynccontextmanager
async def open_worker(
    scheduler: ScriptedScheduler, made: Worker
) -> AsyncIterator[Worker]:
    """The worker while it runs; its farewell is read."""
    async with made:
        yield made
    for wid, link in scheduler.links.items():
        if scheduler.infos[wid]["address"] == made.address:
            scheduler.said[wid].pop()  # WorkerClosing
            assert link.closed


def value(aid: int, tid: int, content: Any) -> Compute:
    """A task that is nothing but a value."""
    payload = dumps(content)
    key = f"value-{tid}"
    return Compute(aid, tid, key, FORM_VALUE, FN_LITERAL, payload, (), (0,), None)


def call(aid: int, tid: int, function: Any, *deps: tuple[Any, ...]) -> tuple[Any, ...]:
    """A definition, and the task that is this function of its inputs."""
    full = tuple((*dep, *(8, None)[len(dep) - 2 :]) for dep in deps)
    form, payload = (FORM_INPUTS, ()) if deps else (FORM_ARGS, dumps(((), {})))
    key = f"{getattr(function, '__name__', 'call')}-{tid}"
    compute = Compute(aid, tid, key, form, aid, payload, full, (0,), None)
    return Functions(((aid, dumps(function)),)), compute


@asynccontextmanager
async def data_link(address: str) -> AsyncIterator[tuple[Link, "asyncio.Queue[Any]"]]:
    """A connection to a worker's data, and what comes back on it."""
    answers: asyncio.Queue[Any] = asyncio.Queue()

    def on_batch(_: Link, batch: list[Any]) -> None:
        for message in batch:
            answers.put_nowait(message)

    link = await connect(
        address,
        Hello("peer", {"from": "test"}),
        secret=None,
        timeout=WITHIN,
        on_batch=on_batch,
        on_close=lambda _, reason: answers.put_nowait(reason),
    )
    try:
        yield link, answers
    finally:
        link.close("done")
        await link.wait_closed()


# What it says of itself


async def test_it_says_who_it_is(scheduler: ScriptedScheduler, protocol: str) -> None:
    options = {"name": "anna", "memory_limit": "1MB", "resources": {"GPU": 2}}
    async with worker(scheduler, **options) as anna:
        info = scheduler.infos[1]
        assert info["name"] == anna.name == "anna"
        assert info["nthreads"] == 2
        assert info["memory_limit"] == 10**6
        assert info["resources"] == {"GPU": 2.0}
        assert info["address"] == anna.address
        assert anna.address.startswith(f"{protocol}://")
        async with worker(scheduler) as other:
            assert other.name == other.address


async def test_it_reports_figures(scheduler: ScriptedScheduler) -> None:
    with dask.config.set({"raddle.worker.heartbeat": "10 ms"}):
        three = worker(scheduler, nthreads=3)
    async with three:
        first = await scheduler.hears(1, Heartbeat)
        scheduler.send(1, value(1, 1, "x"))
        await scheduler.hears(1, Done)
        scheduler.apart[1].clear()
        second = await scheduler.hears(1, Heartbeat)
        assert first.metrics["stored"] == 0
        assert second.metrics["stored"] == 1
        assert second.metrics["nthreads"] == 3
        assert second.metrics["executing"] == second.metrics["zombies"] == 0
        assert second.metrics["memory"] > 10**6


# Tasks


async def test_a_small_result_comes_with_the_report(
    scheduler: ScriptedScheduler,
) -> None:
    async with worker(scheduler):
        scheduler.send(1, value(1, 1, 20), *call(2, 2, float, (9, (), 8, dumps(3))))
        done = {(d := await scheduler.hears(1, Done)).aid: d for _ in range(2)}
        assert done[1].frames is not None
        assert loads(done[1].frames) == 20
        assert done[2].frames is not None
        assert loads(done[2].frames) == 3.0
        assert done[2].type_name == "float"
        # An inline input is no replica.
        scheduler.send(1, Confirm(9), Confirm(1))
        assert (await scheduler.hears(1, Absent)).tid == 9
        assert (await scheduler.hears(1, Present)).tid == 1


async def test_what_runs_for_long_is_reported_as_begun(
    scheduler: ScriptedScheduler,
) -> None:
    gate = threading.Event()
    waits.gates["begun"] = gate
    async with worker(scheduler):
        scheduler.send(1, *call(1, 1, Waits("begun")), *call(2, 2, Waits("begun")))
        assert set((await scheduler.hears(1, Started)).aids) == {1, 2}
        gate.set()
        await scheduler.hears(1, Done)
        await scheduler.hears(1, Done)


class waits:  # noqa: N801 (a namespace that workers in this process share)
    gates: ClassVar[dict[str, threading.Event]] = {}


class Waits:
    """A function that waits for a gate of the test, wherever it was pickled."""

    def __init__(self, gate: str, *, blocked: bool = False) -> None:
        self.gate = gate
        self.blocked = blocked

    def __call__(self, *_: Any) -> bool:
        gate = waits.gates[self.gate]
        if not self.blocked:
            return gate.wait(WITHIN)
        task = current_task.get()
        assert task is not None
        with task.blocked():
            return gate.wait(WITHIN)


async def test_a_blocked_task_gives_its_slot_back(scheduler: ScriptedScheduler) -> None:
    gate = waits.gates["blocked"] = threading.Event()
    async with worker(scheduler, nthreads=1):
        scheduler.send(1, *call(1, 1, Waits("blocked", blocked=True)))
        assert (await scheduler.hears(1, LongRunning)).aid == 1
        scheduler.send(1, value(2, 2, "meanwhile"))
        assert (await scheduler.hears(1, Done)).aid == 2
        gate.set()
        assert (await scheduler.hears(1, Resumed)).aid == 1
        assert (await scheduler.hears(1, Done)).aid == 1


async def test_cancelled_and_recalled_tasks_do_not_run(
    scheduler: ScriptedScheduler,
) -> None:
    gate = waits.gates["cancelled"] = threading.Event()
    async with worker(scheduler, nthreads=1) as only:
        scheduler.send(1, *call(1, 1, Waits("cancelled")))
        scheduler.send(1, *call(2, 2, Waits("cancelled")), value(3, 3, "x"))
        await scheduler.hears(1, Started)
        scheduler.send(1, CancelAttempts((1, 2)), YieldAttempts((3,)), Confirm(1))
        assert (await scheduler.hears(1, Absent)).tid == 1
        assert (await scheduler.hears(1, Rejected)).why == "yielded"
        assert set(only.machine.zombies) == {1}
        gate.set()
        scheduler.send(1, value(4, 4, "y"))
        assert (await scheduler.hears(1, Done)).aid == 4
        assert not only.machine.zombies


async def test_cancelling_interrupts_a_coroutine(scheduler: ScriptedScheduler) -> None:
    async def forever() -> None:
        get_worker().begun.set()
        await asyncio.Event().wait()

    async with worker(scheduler, nthreads=1) as only:
        only.begun = asyncio.Event()  # type: ignore[attr-defined]
        scheduler.send(1, *call(1, 1, forever))
        await only.begun.wait()  # type: ignore[attr-defined]
        scheduler.send(1, CancelAttempts((1,)), value(2, 2, "next"))
        assert (await scheduler.hears(1, Done)).aid == 2
        assert only.runner.coroutines == {}


async def test_errors_come_with_their_traceback(scheduler: ScriptedScheduler) -> None:
    async with worker(scheduler):
        scheduler.send(1, *call(1, 1, operator.neg, (9, (), 8, dumps("x"))))
        failed = await scheduler.hears(1, Failed)
        assert failed.text.startswith("TypeError: bad operand")
        assert isinstance(load_exception(failed.error), TypeError)


async def test_the_pid_and_threads_of_tasks(scheduler: ScriptedScheduler) -> None:
    async with worker(scheduler):
        scheduler.send(1, *call(1, 1, threading.get_ident))
        done = await scheduler.hears(1, Done)
        assert done.frames is not None
        assert loads(done.frames) != threading.get_ident()


# Data of others


async def test_inputs_are_fetched_from_the_worker_that_has_them(
    scheduler: ScriptedScheduler,
) -> None:
    big = np.arange(100_000)
    async with worker(scheduler) as a, worker(scheduler) as b:
        scheduler.send(1, value(1, 1, big), value(2, 2, "small"))
        await scheduler.hears(1, Done)
        await scheduler.hears(1, Done)
        scheduler.send(2, *call(3, 3, np.add, (1, (1,)), (1, (1,))))
        assert (await scheduler.hears(2, Stored)).items == ((1, 1),)
        assert (await scheduler.hears(2, Done)).nbytes == big.nbytes
        (result,) = [e.value for t, e in b.machine.data.stored.items() if t == 3]
        assert (result == 2 * big).all()
        # A replica does not share the memory of the original.
        replica = b.runner.unpacked(b.machine.data.stored[1].value)
        assert not np.shares_memory(replica, a.machine.data.stored[1].value)
        scheduler.send(1, DropData(1, (1,)), Confirm(1))
        await scheduler.hears(1, Absent)
        assert len(replica) == 100_000


async def test_a_replica_is_passed_on(scheduler: ScriptedScheduler) -> None:
    async with worker(scheduler), worker(scheduler), worker(scheduler):
        scheduler.send(1, value(1, 1, {"a": "x" * 2000}))
        await scheduler.hears(1, Done)
        # The second loads it, the third gets it from the second.
        for wid in (2, 3):
            scheduler.send(wid, *call(wid, wid, len, (1, (wid - 1,))))
            assert (await scheduler.hears(wid, Stored)).items == ((1, 1),)
            await scheduler.hears(wid, Done)


async def test_an_input_that_cannot_be_pickled_fails_the_task(
    scheduler: ScriptedScheduler,
) -> None:
    async with worker(scheduler), worker(scheduler):
        scheduler.send(1, *call(1, 1, threading.Lock))
        assert (await scheduler.hears(1, Done)).frames is None
        scheduler.send(2, *call(2, 2, str, (1, (1,))))
        failed = await scheduler.hears(2, Failed)
        error = load_exception(failed.error)
        assert isinstance(error, SerializationError)
        assert "lock" in str(error)
        # The connection serves on.
        scheduler.send(1, value(3, 3, "x" * 2000))
        await scheduler.hears(1, Done)
        scheduler.send(2, *call(4, 4, len, (3, (1,))))
        await scheduler.hears(2, Stored)
        await scheduler.hears(2, Done)


async def test_what_is_not_there_is_a_miss(scheduler: ScriptedScheduler) -> None:
    async with worker(scheduler), worker(scheduler):
        scheduler.send(2, *call(1, 1, str, (9, (1,))))
        assert await scheduler.hears(2, Miss) == Miss(9, 1, "not-found")
        scheduler.send(1, value(2, 9, "x" * 2000))
        await scheduler.hears(1, Done)
        scheduler.send(2, Holders(9, (1,)))
        await scheduler.hears(2, Stored)
        await scheduler.hears(2, Done)


async def test_a_peer_out_of_reach_is_a_miss_each_time_it_is_tried(
    scheduler: ScriptedScheduler, protocol: str
) -> None:
    nowhere = {"tcp": "tcp://127.0.0.1:1", "inproc": "inproc://nowhere"}[protocol]
    async with worker(scheduler):
        scheduler.send(1, Peers(((8, nowhere),)), *call(1, 1, str, (9, (8,))))
        for _ in range(3):
            assert await scheduler.hears(1, Miss) == Miss(9, 8, "unreachable")
            scheduler.send(1, Holders(9, (8,)))
        scheduler.send(1, PeersLeft((8,)), CancelAttempts((1,)), Confirm(9))
        said: Any = await scheduler.hears(1, object)
        while isinstance(said, Miss):
            said = await scheduler.hears(1, object)
        assert said == Absent(9, 0)


async def test_a_peer_that_dies_while_asked_is_a_miss(
    scheduler: ScriptedScheduler,
) -> None:
    begun, gate = threading.Event(), threading.Event()

    class Slow:
        def __reduce__(self) -> Any:
            begun.set()
            gate.wait(WITHIN)
            return str, ()

        def __sizeof__(self) -> int:
            return 2**30

    async with worker(scheduler):
        other = worker(scheduler)
        slow = await other.__aenter__()
        scheduler.send(2, value(1, 1, "replaced"))
        await scheduler.hears(2, Done)
        slow.machine.data.stored[1].value = Slow()
        slow.machine.data.stored[1].nbytes = 2**30
        scheduler.send(1, *call(2, 2, str, (1, (2,))))
        await eventually_async(begun.is_set)
        closing = asyncio.create_task(other.__aexit__(None, None, None))
        assert await scheduler.hears(1, Miss) == Miss(1, 2, "unreachable")
        gate.set()
        await closing


async def test_200_mb_travel_between_workers() -> None:
    big = np.ones(25_000_000)
    async with (
        ScriptedScheduler() as scheduler,
        worker(scheduler) as a,
        worker(scheduler),
    ):
        scheduler.send(1, value(1, 1, 0))
        await scheduler.hears(1, Done)
        a.machine.data.stored[1].value = big
        a.machine.data.stored[1].nbytes = big.nbytes
        scheduler.send(2, *call(2, 2, np.sum, (1, (1,), big.nbytes)))
        await scheduler.hears(2, Stored)
        done = await scheduler.hears(2, Done)
        assert done.frames is not None
        assert loads(done.frames) == 25_000_000


# Its data address


async def test_data_is_given_out_and_taken_in(scheduler: ScriptedScheduler) -> None:
    async with worker(scheduler) as only:
        scheduler.send(1, value(5, 1, "value"))
        await scheduler.hears(1, Done)
        async with data_link(only.address) as (link, answers):
            link.send(Get(1, (1, 2)))
            answer: Data = await answers.get()
            (tid, origin, frames), missing = answer.items
            assert (tid, origin, loads(frames or ())) == (1, 5, "value")
            assert missing == (2, 0, None)
            link.send(Put(2, ((b"u1", dumps("put")), (b"u2", dumps("left")))))
            assert await answers.get() == PutDone(2, None)
            scheduler.send(1, Claim(((b"u1", 7),)), Confirm(7))
            await scheduler.hears(1, Present)
            link.send(Get(3, (7,)))
            ((_, origin, frames),) = (await answers.get()).items
            assert origin == 0
            assert loads(frames) == "put"
        # What was not claimed while its connection stood is gone.
        assert not only.machine.data.unclaimed
        scheduler.send(1, Claim(((b"u2", 8),)), Confirm(7))
        assert (await scheduler.hears(1, Absent)).tid == 8
        await scheduler.hears(1, Present)


async def test_big_answers_wait_for_their_reader(scheduler: ScriptedScheduler) -> None:
    big = np.ones(500_000)
    count = 20
    async with worker(scheduler) as only:
        scheduler.send(1, value(1, 1, 0))
        await scheduler.hears(1, Done)
        only.machine.data.stored[1].value = big
        only.machine.data.stored[1].nbytes = big.nbytes
        async with data_link(only.address) as (link, answers):
            link.send_many(Get(n, (1,)) for n in range(count))
            for n in range(count):
                answer = await answers.get()
                assert answer.request == n
                ((_, _, frames),) = answer.items
                assert (loads(frames) == big).all()
            # One that goes away takes its questions along.
            link.send_many(Get(n, (1,)) for n in range(count))
        async with data_link(only.address) as (link, answers):
            link.send(Get(99, (2,)))
            assert (await answers.get()).request == 99


async def test_only_peers_are_served(scheduler: ScriptedScheduler) -> None:
    async with worker(scheduler) as only:
        with pytest.raises(HandshakeError, match="worker's data address"):
            await connect(
                only.address,
                Hello("client", {}),
                secret=None,
                timeout=WITHIN,
                on_batch=print,
                on_close=print,
            )
        async with data_link(only.address) as (link, answers):
            link.send(PutDone(1, None))
            assert "takes no PutDone" in await answers.get()


# Calls outside of tasks


def fails() -> None:
    raise SystemExit(3)


async def ask(dask_worker: Worker, extra: int) -> tuple[str, int, bool]:
    await asyncio.sleep(0)
    return dask_worker.name, extra, get_worker() is dask_worker


def blocks(dask_worker: Worker) -> bool:
    task = current_task.get()
    assert task is not None
    with task.blocked():
        task.secede()
        task.rejoin()
    return get_worker() is dask_worker


async def test_functions_are_called_outside_of_tasks(
    scheduler: ScriptedScheduler,
) -> None:
    async with worker(scheduler, name="anna"):
        calls: list[tuple[Any, ...]] = [
            (operator.add, (1, 2), {}),
            (ask, (), {"extra": 1}),
            (blocks, (), {}),
            (fails, (), {}),
            (threading.Lock, (), {}),
            (dict, (), {"a": 1}),
        ]
        scheduler.send(1, *[Run(n, dumps(c)) for n, c in enumerate(calls)])
        scheduler.send(1, Run(6, (b"rubbish",)))
        found = {(r := await scheduler.hears(1, RunResult)).call: r for _ in range(7)}
        values = [loads(found[n].frames or ()) for n in (0, 1, 2, 5)]
        assert values == [3, ("anna", 1, True), True, {"a": 1}]
        errors = [load_exception(found[n].error or ("", ())) for n in (3, 4, 6)]
        assert "SystemExit(3)" in str(errors[0])
        assert isinstance(errors[1], SerializationError)
        assert isinstance(errors[2], SerializationError)
        scheduler.send(1, value(1, 1, 1))
        await scheduler.hears(1, Done)


# How a broken rule is answered


async def test_an_error_of_its_own_ends_the_worker(
    scheduler: ScriptedScheduler, internal_errors: list[str]
) -> None:
    async with Worker(scheduler.address, nthreads=1, validate=True) as only:
        only.machine.attempts[1] = value(1, 1, 1)  # type: ignore[assignment]
        scheduler.send(1, Confirm(1))
        await only.finished()
    (error,) = internal_errors
    assert "internal error at FromScheduler" in error
    internal_errors.clear()
    scheduler.said[1].clear()
    with pytest.raises(CommClosedError):
        await connect(
            only.address,
            Hello("peer", {}),
            secret=None,
            timeout=WITHIN,
            on_batch=print,
            on_close=print,
        )
