"""What users and networks do wrong: a clear error each, and the next task runs."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dask._task_spec import Task, TaskRef

from raddle import (
    AuthenticationError,
    Client,
    CommClosedError,
    LostDependency,
    RemoteError,
    SerializationError,
    wait,
)
from testkit.cluster import SUPPORT, ProcessCluster, process_cluster
from testkit.polling import eventually
from testkit.tasks import Homesick, fail_far_from_home, inc, total

pytestmark = pytest.mark.process

SECRET = "a secret that is long enough"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """A scheduler and two workers that survive all tests of this file."""
    folder = tmp_path_factory.mktemp("faults")
    secret = folder / "secret"
    secret.write_text(SECRET)
    options = ("--secret-file", str(secret), "--host", "127.0.0.1")
    with process_cluster(folder, 2, 2, *options) as made:
        with Client(scheduler_file=made.scheduler_file) as client:
            client.wait_for_workers(2, timeout=30)
        yield made


@pytest.fixture
def client(running: ProcessCluster) -> Iterator[Client]:
    """A client; after the test, the cluster serves it as if nothing had been."""
    with Client(scheduler_file=running.scheduler_file) as client:
        yield client
        assert client.gather(client.map(inc, range(20))) == list(range(1, 21))
        assert len(client.nthreads()) == 2
        for name, process in [
            ("scheduler", running.scheduler),
            *running.workers.items(),
        ]:
            assert process.popen.poll() is None, name


# User code


def test_an_unknown_dependency(client: Client) -> None:
    with pytest.raises(LostDependency, match="nonesuch"):
        client.get(_graph_on("nonesuch"), "y")


def _graph_on(key: str) -> dict[str, Any]:
    return {"y": Task("y", inc, TaskRef(key))}


def test_a_function_that_cannot_be_pickled(client: Client) -> None:
    lock = threading.Lock()
    with pytest.raises(SerializationError, match="lock"):
        client.submit(lambda: lock)


def test_an_argument_that_cannot_be_pickled(client: Client) -> None:
    with pytest.raises(SerializationError, match="lock"):
        client.submit(inc, threading.Lock())


def test_a_result_that_cannot_be_pickled(client: Client) -> None:
    """It lives on its worker, where other tasks may use it."""
    lock = client.submit(threading.Lock, pure=False)
    assert client.submit(lambda x: x.locked(), lock).result() is False
    with pytest.raises(SerializationError, match="lock"):
        lock.result()


def test_an_argument_that_cannot_be_unpickled(client: Client) -> None:
    with pytest.raises(Exception, match="this is not home"):
        client.submit(inc, Homesick()).result()


def test_an_exception_whose_class_cannot_be_unpickled(client: Client) -> None:
    with pytest.raises(RemoteError, match="HomesickError: far from home") as caught:
        client.submit(fail_far_from_home).result()
    assert "in fail_far_from_home" in "".join(caught.value.__notes__)


def test_an_exception_that_cannot_be_pickled(client: Client) -> None:
    def fails() -> None:
        raise ValueError(threading.Lock())

    with pytest.raises(RemoteError, match=r"ValueError.*lock"):
        client.submit(fails).result()


def test_an_exception_arrives_with_its_traceback_and_cause(client: Client) -> None:
    def fails() -> None:
        try:
            inner()
        except ZeroDivisionError as error:
            raise KeyError("outer") from error

    def inner() -> None:
        _ = 1 / 0

    with pytest.raises(KeyError, match="outer") as caught:
        client.submit(fails).result()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    names = [entry.name for entry in caught.traceback]
    assert names[-1] == "fails"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_that_would_end_a_program(
    client: Client, error: type[BaseException]
) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        client.submit(fails, pure=False).result()
    assert error.__name__ in repr(caught.value)


@pytest.mark.slow
def test_a_result_of_a_gigabyte(client: Client) -> None:
    size = 10**9
    future = client.submit(bytes, size)
    wait(future)
    # Both ways that a value can take: to another worker, and here.
    assert client.submit(len, future, workers=_other(client, future)).result() == size
    value = future.result()
    assert len(value) == size
    assert not any(value[:: size // 10])


def _other(client: Client, future: Any) -> str:
    (holders,) = client.who_has([future]).values()
    (other,) = set(client.nthreads()) - set(holders)
    return str(other)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_hundred_thousand_tasks_in_one_graph(tmp_path: Path) -> None:
    """The graph is one message, and the task at its end needs all the others."""
    count = 100_000
    graph = {f"x-{i}": Task(f"x-{i}", inc, i) for i in range(count)}
    layer = list(graph)
    while len(layer) > 1:
        groups = [layer[i : i + 100] for i in range(0, len(layer), 100)]
        layer = [f"s-{len(graph) + i}" for i in range(len(groups))]
        for key, group in zip(layer, groups, strict=True):
            graph[key] = Task(key, total, *map(TaskRef, group))
    # To look at every task after every event would take an hour.
    fast = {"DASK_RADDLE__SCHEDULER__VALIDATE": "false"}
    with (
        process_cluster(tmp_path, 2, environment=fast) as made,
        Client(scheduler_file=made.scheduler_file) as client,
    ):
        assert client.get(graph, layer[0]) == count * (count + 1) // 2
        assert client.submit(inc, 1).result() == 2


# Clients that vanish


def test_a_client_that_is_killed(running: ProcessCluster, client: Client) -> None:
    """What only it wanted is released; what another one wants goes on."""
    ours = client.submit(inc, 41, key="shared")
    program = """
import os, sys
from raddle import Client
client = Client(scheduler_file=sys.argv[1])
from testkit.tasks import inc
kept = client.map(inc, range(100), key="theirs")
print(client.gather(kept)[-1], flush=True)
import time
unfinished = client.map(time.sleep, [0.2] * 5, pure=False)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, running.scheduler_file],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout == "100\n"
    assert ours.result() == 42
    eventually(lambda: client.scheduler_info()["tasks"] == 1)


# Strangers at the scheduler's port


def _address(running: ProcessCluster) -> tuple[str, int]:
    host, port = running.address.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)


def _is_hung_up_on(running: ProcessCluster, data: bytes) -> bytes:
    """Send data as a stranger; what came back until the end."""
    with socket.create_connection(_address(running)) as stranger:
        stranger.settimeout(20)
        stranger.sendall(data)
        received = b""
        try:
            while chunk := stranger.recv(4096):
                received += chunk
        except ConnectionError:
            return received
        return received


PRELUDE = struct.pack("<4sHHB32s", b"RDL\x01", 1, 1, 1, os.urandom(32))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00" + os.urandom(512),
        os.urandom(5000),
        bytes(5000),
        PRELUDE + struct.pack("<BI", 1, 2**32 - 1),
        PRELUDE + struct.pack("<BI", 1, 4000) + os.urandom(4000),
        PRELUDE + os.urandom(200),
    ],
    ids=["http", "tls", "random", "zeros", "long", "forged", "noise"],
)
@pytest.mark.usefixtures("client")
def test_a_stranger_is_hung_up_on(running: ProcessCluster, data: bytes) -> None:
    """It costs one line of the log, and nobody else anything."""
    before = len(running.scheduler.lines)
    _is_hung_up_on(running, data)
    eventually(lambda: len(running.scheduler.lines) > before)
    (line,) = running.scheduler.lines[before:]
    assert "raddle.comm" in line
    assert "Traceback" not in running.scheduler.log


def test_an_oversized_batch_of_one_who_knows_the_secret(
    running: ProcessCluster, client: Client
) -> None:
    """Even then, nothing of the announced length is allocated."""
    import asyncio

    from raddle.protocol.comm import Hello, connect

    async def speak() -> str:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        link = await connect(
            running.address,
            Hello(
                "client", {"id": "Client-bad", "name": None, "enc": 1, "policy": None}
            ),
            secret=SECRET.encode(),
            timeout=20,
            on_batch=lambda _link, _batch: None,
            on_close=lambda _link, why: ended.set_result(why),
        )
        # One frame of an exabyte.
        link.transport.write(struct.pack("<IQ", 1, 2**60))  # type: ignore[attr-defined]
        return await asyncio.wait_for(ended, 20)

    assert asyncio.run(speak())
    assert "Client-bad" not in client.scheduler_info()["clients"]


@pytest.mark.parametrize("secret", [None, "the wrong one of that length"])
@pytest.mark.usefixtures("client")
def test_a_client_with_a_wrong_or_missing_secret(
    running: ProcessCluster, secret: str | None
) -> None:
    with pytest.raises(AuthenticationError, match="secret"):
        Client(running.address, secret=secret)


def test_a_scheduler_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises((CommClosedError, TimeoutError), match=str(port)):
        Client(f"tcp://127.0.0.1:{port}", timeout="0.5s")


def test_a_worker_takes_strangers_as_calmly(client: Client) -> None:
    address = next(iter(client.nthreads()))
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    with socket.create_connection((host, int(port))) as stranger:
        stranger.settimeout(20)
        stranger.sendall(os.urandom(5000))
        try:
            while stranger.recv(4096):
                pass
        except ConnectionError:
            return


def test_nothing_was_warned_of_in_vain(tmp_path: Path) -> None:
    """A clean run leaves no warning in any log."""
    with process_cluster(tmp_path, 2) as made:
        with Client(scheduler_file=made.scheduler_file) as client:
            client.wait_for_workers(2, timeout=30)
            assert client.submit(sum, client.map(inc, range(100))).result() == 5050
        for process in (*made.workers.values(), made.scheduler):
            assert process.end() == 0
            assert "WARNING" not in process.log
            assert "ERROR" not in process.log
