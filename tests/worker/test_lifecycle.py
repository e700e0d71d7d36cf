"""How a worker starts and ends: whom it waits for, what it refuses, what it leaves."""

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from raddle.protocol.core.messages.client import FORM_ARGS
from raddle.protocol.core.messages.worker import (
    CloseWorker,
    Compute,
    Functions,
    Started,
    WorkerClosing,
)
from raddle.protocol.errors import (
    AuthenticationError,
    CommClosedError,
    ConfigError,
    HandshakeError,
    StartError,
)
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError
from raddle.protocol.serialize import dumps
from raddle.worker import options
from raddle.worker.server import Worker
from testkit.scripted_scheduler import ScriptedScheduler

WITHIN = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def runs(aid: int, function: Any) -> tuple[Functions, Compute]:
    payload = dumps(((), {}))
    return (
        Functions(((aid, dumps(function)),)),
        Compute(aid, aid, f"k{aid}", FORM_ARGS, aid, payload, (), (0,), None),
    )


# Start


async def test_it_waits_for_a_scheduler_that_starts_later() -> None:
    port = free_port()
    async with asyncio.timeout(WITHIN):
        worker = Worker(f"127.0.0.1:{port}", nthreads=1)
        starting = asyncio.create_task(worker.start())
        await asyncio.sleep(0)
        async with ScriptedScheduler(f"tcp://127.0.0.1:{port}") as scheduler:
            await starting
            assert worker.status == "running"
            await worker.close()
            await scheduler.hears(1, WorkerClosing)


async def test_it_does_not_wait_longer_than_its_death_timeout(protocol: str) -> None:
    address = {"tcp": f"tcp://127.0.0.1:{free_port()}", "inproc": "inproc://no"}
    worker = Worker(address[protocol], nthreads=1, death_timeout="50 ms")
    with pytest.raises(RaddleTimeoutError, match=r"no scheduler at .* within 0.05 s"):
        await worker.start()
    await worker.close()
    assert worker.status == "closed"


async def test_it_can_be_closed_while_it_starts(protocol: str) -> None:
    address = {"tcp": f"tcp://127.0.0.1:{free_port()}", "inproc": "inproc://no"}
    worker = Worker(address[protocol], nthreads=1)
    starting = asyncio.create_task(worker.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait((starting,))
    await worker.close()
    assert worker.status == "closed"


async def test_a_refusal_is_final(scheduler: ScriptedScheduler) -> None:
    scheduler.refusal = "a worker of that name is connected"
    with pytest.raises(HandshakeError, match="of that name"):
        async with Worker(scheduler.address, nthreads=1):
            pass


async def test_a_wrong_secret_is_final() -> None:
    async with ScriptedScheduler(secret=b"right") as scheduler:
        with pytest.raises(AuthenticationError):
            async with Worker(scheduler.address, nthreads=1, secret="wrong"):
                pass
        async with Worker(scheduler.address, nthreads=1, secret="right") as worker:
            assert worker.secret == b"right"
        await scheduler.hears(1, WorkerClosing)


async def test_an_unknown_host_is_final() -> None:
    with pytest.raises(StartError, match="cannot resolve"):
        await Worker("tcp://no-such-host.invalid:1", nthreads=1).start()


async def test_it_serves_nobody_else_without_a_secret() -> None:
    async with ScriptedScheduler() as scheduler:
        with pytest.raises(StartError, match="secret"):
            async with Worker(scheduler.address, nthreads=1, host="0.0.0.0"):
                pass
        async with Worker(
            scheduler.address,
            nthreads=1,
            host="tcp://localhost",
            contact_address="somewhere",
        ) as worker:
            assert worker.address.startswith("tcp://somewhere:")
            assert not worker.address.endswith(":0")
        await scheduler.hears(1, WorkerClosing)


async def test_the_first_free_port_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy, free = taken.getsockname()[1], free_port()
        async with ScriptedScheduler() as scheduler:
            async with Worker(
                scheduler.address, nthreads=1, ports=[busy, free]
            ) as worker:
                assert worker.address == f"tcp://127.0.0.1:{free}"
            await scheduler.hears(1, WorkerClosing)
            with pytest.raises(StartError, match=f"port {busy} .* is in use"):
                async with Worker(scheduler.address, nthreads=1, ports=busy):
                    pass


# End


async def test_it_ends_when_told_to(scheduler: ScriptedScheduler) -> None:
    async with Worker(scheduler.address, nthreads=1) as worker:
        scheduler.send(1, CloseWorker("enough"))
        await worker.finished()
        assert worker.status == "closed"
        assert worker.why_closed == "enough"
    assert (await scheduler.hears(1, WorkerClosing)).why == "enough"
    assert "enough" in await scheduler.misses(1)


async def test_it_ends_when_its_scheduler_vanishes(
    scheduler: ScriptedScheduler,
) -> None:
    async with Worker(scheduler.address, nthreads=1) as worker:
        await scheduler.vanish()
        with pytest.raises(CommClosedError, match=r"scheduler at .* is gone"):
            await worker.finished()


async def test_a_task_that_never_ends_does_not_hold_it_up(
    scheduler: ScriptedScheduler,
) -> None:
    gates[1] = threading.Event()
    async with Worker(scheduler.address, nthreads=1) as worker:
        scheduler.send(1, *runs(1, never_ends), *runs(2, never_ends))
        await scheduler.hears(1, Started)
        async with asyncio.timeout(WITHIN):
            await worker.close()
        assert worker.executor.running == 1
    await scheduler.hears(1, WorkerClosing)
    gates[1].set()


gates: dict[int, threading.Event] = {}


def never_ends() -> None:
    gates[1].wait(WITHIN)


async def forever() -> None:
    await asyncio.Event().wait()


async def test_coroutines_are_interrupted(scheduler: ScriptedScheduler) -> None:
    async with Worker(scheduler.address, nthreads=1) as worker:
        scheduler.send(1, *runs(1, forever))
        await scheduler.hears(1, Started)
        (task,) = worker.runner.coroutines.values()
    assert task.done()
    # What was interrupted is not reported as a failure.
    await scheduler.hears(1, WorkerClosing)


class Client:
    """What `get_client()` leaves in the worker's slot."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.closed = False

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True
        if self.fails:
            raise RuntimeError


@pytest.mark.parametrize("fails", [False, True])
async def test_the_client_of_its_tasks_is_closed(
    scheduler: ScriptedScheduler, fails: bool
) -> None:
    async with Worker(scheduler.address, nthreads=1) as worker:
        client = worker.client = Client(fails=fails)
    assert client.closed
    assert worker.status == "closed"
    await scheduler.hears(1, WorkerClosing)


async def test_its_folder_is_made_when_needed_and_removed(
    scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    parent = tmp_path / "made"
    async with Worker(
        scheduler.address, nthreads=1, local_directory=str(parent)
    ) as worker:
        assert not parent.exists()
        folder = Path(worker.local_directory)
        assert folder.parent == parent
        assert str(folder) == worker.local_directory
    assert list(parent.iterdir()) == []
    await scheduler.hears(1, WorkerClosing)


# Options


def test_memory_limits() -> None:
    total = options.parse_memory_limit(1.0, 1)
    assert total > 10**8
    assert options.parse_memory_limit("0.5", 1) == total // 2
    assert options.parse_memory_limit("1MB", 1) == 10**6
    assert options.parse_memory_limit(1, 1) == 1
    assert options.parse_memory_limit("1", 1) == 1
    assert options.parse_memory_limit(10**18, 1) == total
    assert options.parse_memory_limit("auto", 10**6) == total
    assert 0 < options.parse_memory_limit("auto", 1) <= total
    for none in (None, 0, "0", "none"):
        assert options.parse_memory_limit(none, 1) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory_limit": "much"},
        {"nthreads": -1},
        {"resources": {"GPU": "two"}},
        {"resources": {"GPU": True}},
        {"resources": {"GPU": float("nan")}},
        {"death_timeout": "soon"},
        {"secret": ""},
    ],
    ids=repr,
)
def test_wrong_options_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Worker("tcp://127.0.0.1:1", **wrong)


async def test_wrong_addresses_are_named() -> None:
    for address in ("tcp://127.0.0.1", "udp://127.0.0.1:1", "tcp://127.0.0.1:x"):
        with pytest.raises(ConfigError, match=address):
            async with Worker(address, nthreads=1):
                pass
    with pytest.raises(ConfigError, match="not both"):
        async with Worker("tcp://127.0.0.1:1", host="localhost", interface="lo"):
            pass


def test_a_name_may_be_a_number() -> None:
    assert Worker("tcp://127.0.0.1:1", name=0, nthreads=1).name == "0"


def test_threads_default_to_cores() -> None:
    assert options.parse_nthreads(None) == options.parse_nthreads(0) >= 1
    assert options.parse_nthreads(3) == 3


@pytest.mark.process
def test_importing_it_imports_nothing_heavy() -> None:
    heavy = ("numpy", "pandas", "distributed", "dask.array", "tornado")
    code = (
        "import sys, raddle.worker.server\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]"
