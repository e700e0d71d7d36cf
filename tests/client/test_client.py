"""How clients begin and end, and which one is meant where none is named."""

from __future__ import annotations

import asyncio
import gc
import pickle
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import dask.config
import pytest

import raddle
from raddle.client.client import Client, default_client, get_client
from raddle.client.future import Future, record_of
from raddle.local import LocalCluster
from raddle.protocol import context
from raddle.protocol.errors import (
    AuthenticationError,
    CancelledError,
    CommClosedError,
    ConfigError,
    RaddleError,
    StartError,
)
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError
from raddle.tokenize import Token, tokenize
from testkit.cluster import cluster as made_cluster
from testkit.polling import eventually_async

NOWHERE = {"nowhere": 1.0}


def threads() -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith("raddle-client")}


# What counts of it


def test_a_function_that_uses_a_global_client_is_itself_with_any_other(
    c: Client, cluster: LocalCluster
) -> None:
    with Client(cluster, timeout=20) as other:
        pairs = [(c, other), (c.session, other.session)]
        tokens = {token_of_a_function_with(thing) for pair in pairs for thing in pair}
    assert len(tokens) == 2
    worker = raddle.Worker("tcp://127.0.0.1:1")
    things: list[Any] = [cluster, cluster.scheduler, worker]
    for thing in things:
        before = token_of_a_function_with(thing)
        thing.surprise = object()
        assert token_of_a_function_with(thing) == before
        del thing.surprise


def token_of_a_function_with(thing: Any) -> Token:
    """Of a function as in a program's main module, with a global."""
    module = {"__name__": "__main__", "thing": thing}
    exec("def function(x):\n    return thing.submit(abs, x)", module)
    token = tokenize(module["function"])
    assert token.deterministic
    return token


# Where to


def test_a_cluster_a_scheduler_and_an_address(cluster: LocalCluster) -> None:
    for target in (cluster, cluster.scheduler, cluster.scheduler_address):
        with Client(target, timeout=20) as client:
            assert client.session.address == cluster.scheduler_address
            assert client.submit(abs, -1).result() == 1
            assert client.status == "running"
            assert cluster.scheduler_address in repr(client)
        assert client.status == "closed"
    assert cluster.status == "running"


def test_the_configured_address(cluster: LocalCluster) -> None:
    with (
        dask.config.set({"scheduler-address": cluster.scheduler_address}),
        Client() as client,
    ):
        assert client.session.address == cluster.scheduler_address


async def test_a_scheduler_file(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    connecting = asyncio.ensure_future(
        _enter(Client(scheduler_file=str(path), asynchronous=True, timeout=20))
    )
    secret = tmp_path / "secret"
    secret.write_text("a secret of some length")
    async with made_cluster(
        1, scheduler_file=str(path), secret_file=str(secret)
    ) as made:
        client = await connecting
        assert client.session.address == made.address
        assert client.session.secret == b"a secret of some length"
        assert await client.submit(abs, -1) == 1
        await client.close()


async def _enter(client: Client) -> Client:
    return await client


def test_a_cluster_of_its_own() -> None:
    with raddle.Client(n_workers=1, threads_per_worker=1, processes=False) as client:
        assert client.ncores().popitem()[1] == 1
        own = client.cluster
    assert own.status == "closed"


async def test_a_cluster_of_its_own_on_the_loop() -> None:
    client = raddle.Client(n_workers=1, processes=False, asynchronous=True)
    assert client.asynchronous
    async with client:
        assert await client.submit(abs, -1) == 1
        own = client.cluster
    assert own.status == "closed"


def test_nowhere_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threads()
    monkeypatch.setattr(context, "cluster_factory", None)
    with pytest.raises(ConfigError, match="needs an address"):
        Client()
    with pytest.raises(ConfigError, match="n_workers: only for a Client"):
        Client("tcp://127.0.0.1:1", n_workers=3)
    with pytest.raises(ConfigError, match="not to int"):
        Client(8786)
    with pytest.raises(StartError, match="no scheduler file"):
        Client(scheduler_file="/nowhere/at.all", timeout="1 ms")
    late = r"127\.0\.0\.1:1 within 0\.1 s: the connection is refused"
    with pytest.raises(RaddleTimeoutError, match=late):
        Client("tcp://127.0.0.1:1", timeout="100 ms")
    with pytest.raises(ConfigError, match="collision_policy"):
        Client("tcp://127.0.0.1:1", collision_policy="ignore")
    with pytest.raises(ConfigError, match="TLS"):
        Client("tcp://127.0.0.1:1", security=True)
    with pytest.raises(RaddleError, match="inside a coroutine"):
        Client("tcp://127.0.0.1:1", asynchronous=True)
    assert threads() == before


async def test_a_wrong_secret() -> None:
    async with made_cluster(0, secret="right and long enough") as made:
        with pytest.raises(AuthenticationError):
            await Client(made.address, secret="wrong", asynchronous=True)
        async with Client(
            made.address, secret="right and long enough", asynchronous=True
        ) as client:
            assert await client.nthreads() == {}


async def test_a_secret_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "right").write_text("right and long enough\n")
    (tmp_path / "wrong").write_text("something else\n")
    path = str(tmp_path / "scheduler.json")
    async with made_cluster(
        0, secret_file=str(tmp_path / "right"), scheduler_file=path
    ) as made:
        right: list[dict[str, Any]] = [
            {"address": made.address, "secret_file": "~/right"},
            {"address": made.scheduler, "secret_file": tmp_path / "right"},
            {"scheduler_file": path, "secret_file": "~/right"},
        ]
        for options in right:
            async with Client(**options, asynchronous=True) as client:
                assert await client.nthreads() == {}
        # What is given counts more than what the file of the scheduler names.
        wrong: list[dict[str, Any]] = [
            {"address": made.address, "secret_file": "~/wrong"},
            {"scheduler_file": path, "secret_file": "~/wrong"},
        ]
        for options in wrong:
            with pytest.raises(AuthenticationError):
                await Client(**options, asynchronous=True)
        with pytest.raises(ConfigError, match="cannot read the secret file"):
            await Client(made.address, secret_file="~/none", asynchronous=True)


def test_a_secret_file_for_a_cluster_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("a secret of some length\n")
    with raddle.Client(n_workers=1, processes=False, secret_file=path) as client:
        assert client.cluster.secret == b"a secret of some length"


async def test_a_scheduler_that_comes_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "raddle.client")
    with socket.socket() as held:
        # Reserves the port, yet lets the scheduler have it.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        early = Client(f"tcp://127.0.0.1:{port}", asynchronous=True, timeout=20)
        connecting = asyncio.ensure_future(_enter(early))
        await eventually_async(lambda: "no scheduler there yet" in caplog.text)
        async with (
            made_cluster(0, host="127.0.0.1", port=port),
            await connecting as client,
        ):
            assert await client.nthreads() == {}


async def test_who_closes_before_connecting_does_not_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "raddle.client")
    client = Client("tcp://127.0.0.1:1", asynchronous=True, timeout=3600)
    connecting = asyncio.ensure_future(_enter(client))
    await eventually_async(lambda: "no scheduler there yet" in caplog.text)
    await client.close()
    with pytest.raises(CommClosedError, match="cannot connect"):
        await connecting


async def test_the_wrong_kind_of_with(cluster: LocalCluster) -> None:
    with (
        pytest.raises(TypeError, match="async with"),
        Client(cluster.scheduler_address, asynchronous=True),
    ):
        pass
    client = await asyncio.to_thread(Client, cluster.scheduler_address)
    with client, pytest.raises(TypeError, match="use `with`"):
        await client


# The end


def test_closing_is_for_good_and_may_be_repeated(cluster: LocalCluster) -> None:
    before = threads()
    client = Client(cluster, timeout=20)
    pending = client.submit(abs, -1, resources=NOWHERE)
    client.close()
    client.close()
    assert threads() == before
    with pytest.raises(CancelledError, match="closed"):
        pending.result()
    with pytest.raises(CommClosedError, match="closed"):
        client.submit(abs, -1)
    del pending
    gc.collect()


def test_results_that_came_stay_readable(cluster: LocalCluster) -> None:
    with Client(cluster, timeout=20) as client:
        future = client.submit(abs, -1)
        assert future.result() == 1
    assert future.result() == 1
    assert client.gather([future]) == [1]


def test_released_futures_are_forgotten_everywhere(c: Client) -> None:
    futures = c.map(abs, range(100), pure=False)
    c.gather(futures)
    before = c.scheduler_info()["tasks"]
    del futures
    assert c.scheduler_info()["tasks"] == before - 100
    assert not c.session.table.records


PROGRAM = """
import sys, warnings
warnings.simplefilter("error")
from raddle.client.client import Client
client = Client(sys.argv[1], secret=sys.argv[2])
future = client.submit(abs, -1)
assert future.result() == 1
pending = client.submit(abs, -1, resources={"nowhere": 1}, pure=False)
print("done", flush=True)
"""


@pytest.mark.process
def test_a_program_that_closes_nothing_ends_quietly() -> None:
    with LocalCluster(
        n_workers=1, processes=False, protocol="tcp", secret="of the test"
    ) as made:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, made.scheduler_address, "of the test"],
            capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# Which one is meant


def test_the_default_client(cluster: LocalCluster) -> None:
    with pytest.raises(ValueError, match="no client is open"):
        get_client()
    with Client(cluster) as first:
        assert get_client() is default_client() is Client.current() is first
        second = Client(cluster)
        assert get_client() is second
        with Client(cluster, set_as_default=False) as third:
            assert get_client() is second
            with third.as_current():
                assert get_client() is third
                assert Client.current(allow_global=False) is third
            assert default_client(third) is third
        with pytest.raises(ValueError, match="no client"):
            Client.current(allow_global=False)
        assert get_client(cluster.scheduler_address) is second
        second.close()
        assert get_client() is first
    with pytest.raises(ValueError, match="no client is open"):
        default_client()


def test_clients_may_be_closed_in_any_order(cluster: LocalCluster) -> None:
    first, second = Client(cluster), Client(cluster)
    first.close()
    assert get_client() is second
    second.close()
    with pytest.raises(ValueError, match="no client"):
        get_client()


# Inside tasks


def fan_out(n: int) -> int:
    client = get_client()
    return int(sum(client.gather(client.map(abs, range(n), pure=False))))


async def fan_out_on_the_loop(n: int) -> int:
    client = get_client()
    assert client.asynchronous
    values = await client.gather(client.map(abs, range(n), pure=False))
    return int(sum(values) + await client.submit(abs, -1))


def fibonacci(n: int) -> int:
    if n < 2:
        return n
    client = get_client()
    a, b = client.submit(fibonacci, n - 1), client.submit(fibonacci, n - 2)
    return int(a.result() + b.result())


def who() -> str:
    return str(get_client().id)


def client_of_task() -> tuple[bool, str]:
    client = get_client()
    return client.asynchronous, client.status


def test_tasks_launch_tasks(c: Client) -> None:
    assert c.gather(c.map(fan_out, [10] * 8, pure=False)) == [45] * 8
    assert c.submit(fan_out_on_the_loop, 10).result() == 46
    assert c.submit(fibonacci, 8).result() == 21


def test_the_tasks_of_a_worker_share_a_client(c: Client) -> None:
    address = min(c.nthreads())
    ids = c.gather(c.map(lambda _: who(), range(10), workers=address, pure=False))
    assert len(set(ids)) == 1
    assert c.id not in ids
    assert c.submit(client_of_task).result()[0] is False


# Futures that travel


def use(box: Any) -> int:
    return int(box.future.result()) + 1


class Box:
    def __init__(self, future: Future) -> None:
        self.future = future


def test_a_future_inside_an_object_belongs_to_the_task_client(c: Client) -> None:
    future = c.submit(abs, -4)
    assert c.submit(use, Box(future)).result() == 5


def test_a_pickled_future_belongs_to_the_client_at_hand(c: Client) -> None:
    future = c.submit(abs, -4, pure=False)
    copy = pickle.loads(pickle.dumps(future))
    assert copy == future
    assert hash(copy) == hash(future)
    assert record_of(copy).fid != record_of(future).fid
    assert copy.result() == 4
    with Client(c.cluster, set_as_default=False) as other, other.as_current():
        theirs = pickle.loads(pickle.dumps(future))
        assert theirs != future
        assert theirs.client is other
        assert theirs.result() == 4
        del future, copy
        assert theirs.result() == 4


def test_a_future_loaded_without_a_client(c: Client) -> None:
    future = c.submit(abs, -4, pure=False)
    data = pickle.dumps(future)
    c.close()
    loaded = pickle.loads(data)
    assert "unbound" in repr(loaded)
    with pytest.raises(RaddleError, match="belongs to no client"):
        loaded.result()
    assert pickle.dumps(loaded) == data


def test_a_future_by_name(c: Client) -> None:
    original = c.submit(abs, -6, key="well-known")
    assert Future("well-known", c).result() == 6
    assert Future("well-known").result() == 6
    with pytest.raises(CancelledError):
        Future("unheard-of", c).result()
    assert original.result() == 6


def test_tokens_of_futures_are_their_own(c: Client) -> None:
    from dask.base import tokenize

    a, b = c.submit(abs, -6), c.submit(abs, -6)
    assert a == b
    assert tokenize(a) != tokenize(b)


# Two faces


async def test_an_asynchronous_client_blocks_other_threads() -> None:
    async with (
        made_cluster(1) as made,
        Client(made.address, asynchronous=True) as client,
    ):
        future = client.submit(abs, -1)
        assert await asyncio.to_thread(future.result) == 1
        assert await asyncio.to_thread(client.gather, [future]) == [1]
        threads = await asyncio.to_thread(client.nthreads)
        assert threads == await client.nthreads()
        assert await client.sync(_double, 4) == 8


async def _double(x: int) -> int:
    return x + x


def test_coroutines_can_be_run_on_the_clients_loop(c: Client) -> None:
    assert c.sync(_double, 4) == 8


async def test_a_future_of_a_blocking_client_can_be_awaited(
    cluster: LocalCluster,
) -> None:
    with await asyncio.to_thread(Client, cluster.scheduler_address) as client:
        assert await client.submit(abs, -3) == 3
        big = client.submit(bytes, 100_000)
        assert len(await big) == 100_000
