"""The scheduler's shell, spoken to over real links by hand-written peers."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import dask.config
import pytest

from raddle import CommClosedError, ConfigError, HandshakeError, Scheduler, StartError
from raddle.protocol.comm import Hello, Link, connect
from raddle.protocol.core.messages.client import (
    Answer,
    Ask,
    Goodbye,
    Release,
    RunOnWorkers,
    ShutdownCluster,
)
from raddle.protocol.core.messages.worker import (
    CloseWorker,
    Heartbeat,
    Peers,
    PeersLeft,
    Run,
    RunResult,
    WorkerClosing,
)
from raddle.protocol.node import scheduler_file
from raddle.scheduler.core.events import ClientJoined, WorkerJoined
from testkit.polling import eventually_async

WORKER: dict[str, Any] = {
    "name": "ann",
    "address": "tcp://10.0.0.7:4000",
    "host": "far",
    "pid": 7,
    "nthreads": 2,
    "memory_limit": 1000,
    "resources": {"GPU": 1.0},
}
CLIENT = {"id": "Client-1", "name": "one", "enc": 1, "policy": None}


class Peer:
    """One end of a link to the scheduler, and what came over it."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[Any] = asyncio.Queue()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.link: Link

    def on_batch(self, _link: Link, batch: list[Any]) -> None:
        for message in batch:
            self.received.put_nowait(message)

    def send(self, message: Any) -> None:
        self.link.send(message)

    async def expect(self, kind: type[Any]) -> Any:
        """The next message of a kind; others before it are skipped."""
        while True:
            message = await asyncio.wait_for(self.received.get(), 20)
            if type(message) is kind:
                return message

    async def end(self) -> str:
        """Why the link ended."""
        return await asyncio.wait_for(self.ended, 20)


async def join(scheduler: Scheduler, role: str, info: dict[str, Any]) -> Peer:
    peer = Peer()
    peer.link = await connect(
        scheduler.address,
        Hello(role, info),
        secret=scheduler.secret,
        timeout=20,
        on_batch=peer.on_batch,
        on_close=lambda _, why: peer.ended.set_result(why),
    )
    return peer


@pytest.fixture(params=["tcp", "inproc"])
async def scheduler(request: pytest.FixtureRequest) -> AsyncIterator[Scheduler]:
    async with Scheduler(protocol=request.param) as scheduler:
        yield scheduler


@asynccontextmanager
async def worker_and_client(scheduler: Scheduler) -> AsyncIterator[tuple[Peer, Peer]]:
    worker = await join(scheduler, "worker", WORKER)
    client = await join(scheduler, "client", CLIENT)
    yield worker, client
    worker.link.close("the test is over")
    client.link.close("the test is over")


# Who may connect


async def test_what_a_worker_is_told(scheduler: Scheduler) -> None:
    ann = await join(scheduler, "worker", WORKER)
    assert ann.link.welcome["epoch"] == scheduler.epoch
    wid = ann.link.welcome["wid"]
    assert await ann.expect(Peers) == Peers(((wid, WORKER["address"]),))
    ben = await join(scheduler, "worker", WORKER | {"name": "ben", "address": "b"})
    other = ben.link.welcome["wid"]
    assert other != wid
    assert await ann.expect(Peers) == Peers(((other, "b"),))
    assert len((await ben.expect(Peers)).items) == 2
    ben.link.close("enough")
    assert await ann.expect(PeersLeft) == PeersLeft((other,))
    ann.link.close("enough")


async def test_what_a_client_is_told(scheduler: Scheduler) -> None:
    async with worker_and_client(scheduler) as (_, client):
        assert client.link.welcome == {
            "epoch": scheduler.epoch,
            "policy": "warn",
            "worker_count": 1,
        }


@pytest.mark.parametrize(
    ("role", "info", "says"),
    [
        ("peer", {}, "this is a scheduler"),
        ("client", {}, "'id' must be str"),
        ("client", CLIENT | {"enc": "1"}, "'enc' must be int"),
        ("client", CLIENT | {"policy": "ignore"}, "'ignore' is no collision policy"),
        ("client", CLIENT | {"policy": "isolate"}, "later version"),
        ("worker", WORKER | {"name": None}, "'name' must be str"),
        ("worker", WORKER | {"nthreads": 0}, "at least one thread"),
        ("worker", WORKER | {"resources": {"GPU": "2"}}, "resource 'GPU'='2'"),
    ],
)
async def test_who_is_refused(
    scheduler: Scheduler, role: str, info: dict[str, Any], says: str
) -> None:
    with pytest.raises(HandshakeError, match=says):
        await join(scheduler, role, info)
    assert not scheduler.machine.workers
    assert not scheduler.machine.clients


async def test_a_name_is_taken_as_long_as_its_worker_lives(
    scheduler: Scheduler,
) -> None:
    first = await join(scheduler, "worker", WORKER)
    with pytest.raises(HandshakeError, match=r"'ann'.*pid 7 on far.*another name"):
        await join(scheduler, "worker", WORKER)
    first.link.abort("killed")
    await eventually_async(lambda: not scheduler.machine.workers)
    second = await join(scheduler, "worker", WORKER)
    assert list(scheduler.machine.workers) == [second.link.welcome["wid"]]
    second.link.close("enough")


async def test_a_client_s_id_is_taken_too(scheduler: Scheduler) -> None:
    client = await join(scheduler, "client", CLIENT)
    with pytest.raises(HandshakeError, match="connected already"):
        await join(scheduler, "client", CLIENT)
    client.link.close("enough")


async def test_a_client_that_said_goodbye_is_forgotten(scheduler: Scheduler) -> None:
    client = await join(scheduler, "client", CLIENT)
    client.send(Goodbye())
    client.link.close("enough")
    await eventually_async(lambda: not scheduler.machine.clients)
    again = await join(scheduler, "client", CLIENT)
    again.link.close("enough")


# Questions


async def test_identity(scheduler: Scheduler) -> None:
    async with worker_and_client(scheduler) as (worker, client):
        worker.send(Heartbeat({"memory": 123}))
        await eventually_async(lambda: scheduler.metrics)
        client.send(Ask(1, "identity", None))
        answer = await client.expect(Answer)
        assert (answer.call, answer.ok) == (1, True)
        assert answer.value["type"] == "Scheduler"
        assert answer.value["address"] == scheduler.address
        assert answer.value["clients"] == ("Client-1",)
        known = answer.value["workers"][WORKER["address"]]
        assert known["metrics"] == {"memory": 123}
        told = {name: value for name, value in WORKER.items() if name != "address"}
        assert {name: known[name] for name in told} == told


@pytest.mark.parametrize(
    ("topic", "argument", "value"),
    [
        ("nthreads", None, (("tcp://10.0.0.7:4000", 2),)),
        ("nthreads", ("ann",), (("tcp://10.0.0.7:4000", 2),)),
        ("processing", ("tcp://10.0.0.7:4000",), (("tcp://10.0.0.7:4000", ()),)),
        ("has_what", None, (("tcp://10.0.0.7:4000", ()),)),
        ("who_has", ("x",), (("x", ()),)),
        ("who_has", None, ()),
        ("holders", (1, 2), ()),
        ("collisions", None, ()),
    ],
)
async def test_topics(
    scheduler: Scheduler, topic: str, argument: Any, value: Any
) -> None:
    async with worker_and_client(scheduler) as (_, client):
        client.send(Ask(1, topic, argument))
        assert await client.expect(Answer) == Answer(1, True, value)


@pytest.mark.parametrize(
    ("topic", "argument", "says"),
    [
        ("nonsense", None, "no topic 'nonsense'; there are .*identity"),
        ("nthreads", ("ben",), "no worker has the address or name ben"),
        ("nthreads", 5, "topic 'nthreads' failed: TypeError"),
    ],
)
async def test_questions_that_have_no_answer(
    scheduler: Scheduler,
    internal_errors: list[str],
    topic: str,
    argument: Any,
    says: str,
) -> None:
    """The question costs its answer, not the client's link."""
    async with worker_and_client(scheduler) as (_, client):
        client.send(Ask(1, topic, argument))
        answer = await client.expect(Answer)
        assert not answer.ok
        assert re.search(says, answer.value)
        client.send(Ask(2, "tasks", None))
        assert (await client.expect(Answer)).call == 2
    internal_errors.clear()


# Functions outside tasks


async def test_a_function_runs_on_a_worker(scheduler: Scheduler) -> None:
    async with worker_and_client(scheduler) as (worker, client):
        client.send(RunOnWorkers(3, (b"call",), ("ann",)))
        run = await worker.expect(Run)
        assert run.payload == (b"call",)
        worker.send(RunResult(run.call, (b"result",), None))
        value = ((WORKER["address"], (b"result",), None),)
        assert await client.expect(Answer) == Answer(3, True, value)


async def test_a_worker_that_leaves_owes_no_answer(scheduler: Scheduler) -> None:
    async with worker_and_client(scheduler) as (worker, client):
        client.send(RunOnWorkers(3, (b"call",), None))
        await worker.expect(Run)
        worker.link.close("out of memory")
        answer = await client.expect(Answer)
        ((address, frames, error),) = answer.value
        assert (address, frames) == (WORKER["address"], None)
        assert "left before it answered" in error[1][0]


async def test_a_worker_that_nobody_knows(scheduler: Scheduler) -> None:
    async with worker_and_client(scheduler) as (_, client):
        client.send(RunOnWorkers(3, (b"call",), ("ben",)))
        answer = await client.expect(Answer)
        assert not answer.ok
        assert "ben" in answer.value


# Peers that break the rules, and bugs of ours


async def test_a_peer_that_speaks_out_of_turn(scheduler: Scheduler) -> None:
    async with worker_and_client(scheduler) as (worker, client):
        worker.send(ShutdownCluster())
        assert "ShutdownCluster is no worker's message" in await worker.end()
        client.send(Ask(1, "nthreads", None))
        assert await client.expect(Answer) == Answer(1, True, ())


async def test_an_error_in_the_core_costs_the_sender_its_link(
    scheduler: Scheduler, internal_errors: list[str]
) -> None:
    """And nobody else anything."""
    async with worker_and_client(scheduler) as (worker, client):
        handle = scheduler.machine.handle

        def fails_at_goodbye(event: Any) -> Any:
            if Release((666,)) in getattr(event, "messages", ()):
                raise ZeroDivisionError
            return handle(event)

        scheduler.machine.handle = fails_at_goodbye  # type: ignore[method-assign]
        client.send(Release((666,)))
        assert "internal error of the scheduler" in await client.end()
        (told,) = internal_errors
        assert "FromClient" in told
        assert "ZeroDivisionError" in told
        internal_errors.clear()
        other = await join(scheduler, "client", CLIENT | {"id": "Client-2"})
        other.send(RunOnWorkers(1, (), None))
        run = await worker.expect(Run)
        worker.send(RunResult(run.call, (b"x",), None))
        assert (await other.expect(Answer)).ok
        assert list(scheduler.machine.clients) == ["Client-2"]
        other.link.close("enough")


async def test_a_peer_that_the_core_cannot_take_in(
    scheduler: Scheduler, internal_errors: list[str]
) -> None:
    handle = scheduler.machine.handle

    def fails_at_joining(event: Any) -> Any:
        if isinstance(event, ClientJoined | WorkerJoined):
            raise ZeroDivisionError
        return handle(event)

    scheduler.machine.handle = fails_at_joining  # type: ignore[method-assign]
    for role, info in (("worker", WORKER), ("client", CLIENT)) * 2:
        with pytest.raises(HandshakeError, match="internal error"):
            await join(scheduler, role, info)
    assert len(internal_errors) == 4
    internal_errors.clear()


# The end


async def test_workers_are_told_first_and_clients_last(scheduler: Scheduler) -> None:
    async with worker_and_client(scheduler) as (worker, client):
        client.send(ShutdownCluster())
        assert "Client-1" in (await worker.expect(CloseWorker)).why
        assert not client.ended.done()
        worker.send(WorkerClosing("as told"))
        worker.link.close("as told")
        assert "Client-1" in await client.end()
        await asyncio.wait_for(scheduler.finished(), 20)


async def test_who_comes_too_late_is_told_so(scheduler: Scheduler) -> None:
    async with worker_and_client(scheduler) as (worker, client):
        closing = asyncio.ensure_future(scheduler.close())
        await worker.expect(CloseWorker)
        with pytest.raises((CommClosedError, HandshakeError)):
            await join(scheduler, "client", CLIENT | {"id": "Client-2"})
        worker.link.close("as told")
        await closing
        await client.end()


async def test_the_exit_code_of_a_worker_that_just_died_is_not_waited_for(
    scheduler: Scheduler,
) -> None:
    async def never(_pid: int) -> int | None:
        await asyncio.Event().wait()
        return None

    scheduler.exit_code = never
    async with worker_and_client(scheduler) as (worker, _):
        ends = {link: link.wait_closed() for link in scheduler._workers.values()}
        worker.link.abort("killed")
        await asyncio.gather(*ends.values())
        await scheduler.close()
        assert not scheduler.machine.workers


async def test_a_worker_that_does_not_leave_is_cut_off(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raddle.scheduler.server.CLOSE_SECONDS_MAX", 0.05)
    async with worker_and_client(scheduler) as (worker, _):
        await scheduler.close()
        assert await worker.end()


async def test_close_twice_and_at_once(scheduler: Scheduler) -> None:
    await asyncio.gather(scheduler.close(), scheduler.close())
    await scheduler.close()
    await scheduler.finished()


async def test_a_client_that_does_nothing_does_not_keep_it_from_ending() -> None:
    async with Scheduler(idle_timeout=0.2) as scheduler:
        client = await join(scheduler, "client", CLIENT)
        client.send(Ask(1, "tasks", None))
        await client.expect(Answer)
        await asyncio.wait_for(scheduler.finished(), 20)
        assert "idle" in await client.end()


# Settings


async def test_settings_come_from_the_configuration() -> None:
    with dask.config.set(
        {
            "raddle.scheduler.collision-policy": "raise",
            "raddle.scheduler.allowed-failures": 7,
            "raddle.scheduler.queue-seconds": 0.02,
        }
    ):
        scheduler = Scheduler()
    assert scheduler.settings.policy == "raise"
    assert scheduler.settings.allowed_failures == 7
    assert scheduler.settings.queue_seconds == 0.02
    assert scheduler.settings.validate
    assert Scheduler(collision_policy="warn").settings.policy == "warn"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"collision_policy": "isolate"}, "later version"),
        ({"collision_policy": "ignore"}, "no collision policy"),
        ({"idle_timeout": "soon"}, "idle-timeout: 'soon'"),
        ({"secret": ""}, "empty"),
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Scheduler(**options)


async def test_a_file_while_it_runs(tmp_path: Any) -> None:
    path = tmp_path / "scheduler.json"
    async with Scheduler(scheduler_file=str(path)) as scheduler:
        assert scheduler_file.read(str(path)).address == scheduler.address
    assert not path.exists()


async def test_a_start_that_fails_leaves_nothing(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(StartError, match="scheduler fi"):
        async with Scheduler(scheduler_file=str(tmp_path / "none" / "file")):
            pass
    port = int(caplog.messages[0].rsplit(":", 1)[1])
    async with Scheduler(port=port):
        pass
