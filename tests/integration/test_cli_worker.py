"""``raddle worker``: how it finds its scheduler, how many there are, how it ends."""

import re
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from raddle import Client
from testkit.cluster import Process, ProcessCluster, process_cluster
from testkit.polling import eventually
from testkit.tasks import worker_of_a_collection

pytestmark = pytest.mark.process

Start = Callable[..., Process]


def names(cluster: ProcessCluster, count: int) -> set[str]:
    """Wait for so many workers; their names."""
    with Client(scheduler_file=cluster.scheduler_file) as client:
        client.wait_for_workers(count, timeout=30)
        return {w["name"] for w in client.scheduler_info()["workers"].values()}


# Finding the scheduler


@pytest.mark.parametrize("nworkers", ["1", "2"])
def test_a_task_may_compute_a_collection(lone: ProcessCluster, nworkers: str) -> None:
    lone.start_worker("ann", "--nthreads", "1", "--nworkers", nworkers)
    with Client(lone.address) as client:
        name = client.submit(worker_of_a_collection).result(30)
        assert name in {"ann", "ann-0", "ann-1"}


def test_by_its_address(lone: ProcessCluster, start: Start) -> None:
    worker = start("worker", lone.address, "--name", "ann", "--nthreads", "2")
    assert names(lone, 1) == {"ann"}
    assert worker.end() == 0


def test_by_its_file_even_before_there_is_one(tmp_path: Path, start: Start) -> None:
    worker = start("worker", "--scheduler-file", str(tmp_path / "scheduler.json"))
    with process_cluster(tmp_path, n_workers=0) as cluster:
        assert len(names(cluster, 1)) == 1
        assert worker.end() == 0


def test_two_machines_share_a_file_and_a_secret(tmp_path: Path) -> None:
    """All that the second machine needs is in the files."""
    secret = tmp_path / "secret"
    secret.write_text("a secret that is long enough\n")
    with process_cluster(tmp_path, 2, 1, "--secret-file", str(secret)) as cluster:
        assert names(cluster, 2) == {"w0", "w1"}
        with Client(scheduler_file=cluster.scheduler_file) as client:
            assert client.submit(pow, 2, 5).result() == 32
            info = client.scheduler_info()
        # Not on loopback: others could reach it.
        assert not info["address"].startswith("tcp://127.") or not outward()
        for worker in cluster.workers.values():
            assert worker.end() == 0


def outward() -> bool:
    """Whether this machine has an address beyond loopback."""
    found = [a.address for n in psutil.net_if_addrs().values() for a in n]
    return any(re.fullmatch(r"(?!127\.)\d+(\.\d+){3}", a) for a in found)


def test_none_is_named(start: Start) -> None:
    start("worker").complains(1, "which scheduler", "--scheduler-file")


def test_two_are_named(start: Start) -> None:
    process = start("worker", "tcp://127.0.0.1:1", "--scheduler-file", "x")
    process.complains(1, "not both")


@pytest.mark.parametrize(
    ("address", "pattern"),
    [
        ("tcp://nonesuch.invalid:1", "cannot resolve"),
        ("ftp://127.0.0.1:1", "unknown scheme"),
        ("tcp://127.0.0.1:x", "not a port"),
        ("tcp://127.0.0.1", "port"),
    ],
)
def test_an_address_that_leads_nowhere(
    start: Start, address: str, pattern: str
) -> None:
    start("worker", address).complains(1, pattern)


def test_nobody_is_there(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "tcp://{}:{}".format(*server.getsockname())
    process = start("worker", address, "--death-timeout", "0.3 s")
    process.complains(1, re.escape(address))


def test_a_signal_while_it_waits_for_the_scheduler(start: Start) -> None:
    process = start("worker", "--scheduler-file", "/nonesuch", "--log-level", "debug")
    # It has no words for waiting; that it catches signals shows it is under way.
    status = Path(f"/proc/{process.pid}/status")
    caught = 1 << (signal.SIGTERM - 1)
    eventually(lambda: int(_field(status.read_text(), "SigCgt"), 16) & caught)
    assert process.end() == 0


def _field(text: str, name: str) -> str:
    (found,) = re.findall(rf"^{name}:\s*(\S+)", text, re.MULTILINE)
    return str(found)


def test_the_wrong_secret(tmp_path: Path, start: Start) -> None:
    secret, wrong = tmp_path / "secret", tmp_path / "wrong"
    secret.write_text("a secret that is long enough")
    wrong.write_text("another one of that length")
    options = ("--secret-file", str(secret), "--host", "127.0.0.1")
    with process_cluster(tmp_path, 1, 1, *options) as cluster:
        without = start("worker", cluster.address)
        without.complains(1, "secret")
        differs = start("worker", cluster.address, "--secret-file", str(wrong))
        differs.complains(1, "secret")
        assert names(cluster, 1) == {"w0"}


def test_another_protocol_version(start: Start) -> None:
    """A scheduler of the far future, as far as its greeting goes."""
    with socket.create_server(("127.0.0.1", 0)) as future:
        address = "tcp://{}:{}".format(*future.getsockname())
        worker = start("worker", address)
        peer, _ = future.accept()
        with peer:
            peer.sendall(struct.pack("<4sHHB32s", b"RDL\x01", 900, 901, 0, bytes(32)))
            worker.complains(1, "versions do not fit", "901")


# How many


def test_several_processes_have_numbered_names(
    lone: ProcessCluster, start: Start
) -> None:
    worker = start("worker", lone.address, "--nworkers", "3", "--name", "ann")
    assert names(lone, 3) == {"ann-0", "ann-1", "ann-2"}
    assert len(psutil.Process(worker.pid).children()) == 3
    assert worker.end(signal.SIGINT) == 0
    assert "ERROR" not in worker.log


def test_one_of_several_may_die(lone: ProcessCluster, start: Start) -> None:
    worker = start("worker", lone.address, "--nworkers", "2", "--name", "ann")
    assert names(lone, 2)
    victim, other = psutil.Process(worker.pid).children()
    victim.kill()
    worker.says(r"ann-\d \(pid \d+\): killed by SIGKILL")
    assert other.is_running()
    other.kill()
    assert worker.wait() == 128 + signal.SIGKILL


def test_ports_are_shared_out(lone: ProcessCluster, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        # The first is busy as long as the server lives.
        ports = f"{port},{port - 1},{port + 1},{port + 2}"
        start("worker", lone.address, "--nworkers", "2", "--worker-port", ports)
        assert len(names(lone, 2)) == 2


def test_a_port_that_is_busy(lone: ProcessCluster, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        start("worker", lone.address, "--worker-port", port).complains(1, port)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        (["--nworkers", "none"], "--nworkers"),
        (["--worker-port", "x"], "--worker-port"),
        (["--resources", "GPU"], "NAME=NUMBER"),
        (["--memory-limit", "much"], "much"),
        (["--death-timeout", "soon"], "soon"),
        (["--nworkers", "2", "--contact-address", "tcp://1.2.3.4:5"], "--nworkers 1"),
    ],
)
def test_an_option_s_value_that_makes_no_sense(
    start: Start, options: list[str], pattern: str
) -> None:
    start("worker", "tcp://127.0.0.1:1", *options).complains(1, pattern)


def test_what_it_tells_of_itself(lone: ProcessCluster, start: Start) -> None:
    options = ("--nthreads", "3", "--memory-limit", "1GB", "--resources", "GPU=2")
    start("worker", lone.address, "--name", "ann", *options)
    assert names(lone, 1)
    with Client(lone.address) as client:
        (info,) = client.scheduler_info()["workers"].values()
        assert client.submit(pow, 2, 3, resources={"GPU": 1}).result() == 8
    assert (info["nthreads"], info["memory_limit"]) == (3, 10**9)
    assert info["resources"] == {"GPU": 2.0}


def test_what_tasks_print_is_seen_at_once(lone: ProcessCluster, start: Start) -> None:
    worker = start("worker", lone.address, "--nworkers", "2", PYTHONUNBUFFERED="")
    with Client(lone.address) as client:
        client.submit(print, "hello from a task").result()
        worker.says("hello from a task\n")


# The end


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(
    lone: ProcessCluster, start: Start, tmp_path: Path, signum: signal.Signals
) -> None:
    pid = tmp_path / "pid"
    worker = start("worker", lone.address, "--pid-file", str(pid))
    assert names(lone, 1)
    assert int(pid.read_text()) == worker.pid
    assert worker.end(signum) == 0
    assert not pid.exists()
    assert "WARNING" not in lone.scheduler.log


def test_a_scheduler_that_vanishes(lone: ProcessCluster, start: Start) -> None:
    options = ("--death-timeout", "0.3 s")
    one = start("worker", lone.address, *options)
    several = start("worker", lone.address, "--nworkers", "2", *options)
    assert names(lone, 3)
    lone.scheduler.end(signal.SIGKILL)
    one.complains(1, "scheduler")
    assert several.wait() == 1


def test_a_scheduler_that_closes_takes_its_workers_along(
    lone: ProcessCluster, start: Start
) -> None:
    worker = start("worker", lone.address)
    assert names(lone, 1)
    assert lone.scheduler.end() == 0
    assert worker.wait() == 0


def test_two_of_one_name(lone: ProcessCluster, start: Start) -> None:
    first = start("worker", lone.address, "--name", "ann")
    assert names(lone, 1)
    start("worker", lone.address, "--name", "ann").complains(1, "'ann'", "another name")
    with Client(lone.address) as client:
        assert client.submit(pow, 2, 3).result() == 8
    first.end(signal.SIGKILL)
    start("worker", lone.address, "--name", "ann")
    with Client(lone.address) as client:
        assert client.submit(pow, 3, 3).result() == 27
