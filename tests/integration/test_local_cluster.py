"""LocalCluster and Client(): what they start, and that nothing of it is left."""

import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest

from raddle import (
    AuthenticationError,
    Client,
    CommClosedError,
    ConfigError,
    KilledWorker,
    LocalCluster,
    StartError,
    get_worker,
)
from raddle.local import sizes
from testkit.polling import eventually
from testkit.tasks import worker_of_a_collection

pytestmark = pytest.mark.process


def worker_pids(client: Client) -> list[int]:
    return [w["pid"] for w in client.scheduler_info()["workers"].values()]


def gone(*pids: int) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


def test_processes() -> None:
    with LocalCluster(2, 3, memory_limit="1GB", resources={"GPU": 1}) as cluster:
        with Client(cluster) as client:
            assert client.submit(pow, 2, 5).result() == 32
            workers = client.scheduler_info()["workers"].values()
            pids = worker_pids(client)
            assert os.getpid() not in pids
            assert len(set(pids)) == 2
            for worker in workers:
                assert worker["nthreads"] == 3
                assert worker["memory_limit"] == 10**9
                assert worker["resources"] == {"GPU": 1}
        assert set(cluster.workers) == {"worker-0", "worker-1"}
        assert cluster.scheduler_address in repr(cluster)
        assert "2 workers, 6 threads" in repr(cluster)
    assert cluster.status == "closed"
    assert gone(*pids)


def test_objects() -> None:
    with (
        LocalCluster(processes=False, threads_per_worker=2, name="w") as cluster,
        Client(cluster) as client,
    ):
        assert cluster.scheduler_address.startswith("inproc://")
        assert client.submit(os.getpid).result() == os.getpid()
        assert client.submit(lambda: get_worker().name).result() == "w-0"


def test_objects_over_tcp() -> None:
    with (
        LocalCluster(2, 1, processes=False, protocol="tcp") as cluster,
        Client(cluster) as client,
    ):
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")
        assert sorted(client.run(os.getpid).values()) == [os.getpid()] * 2


@pytest.mark.parametrize("processes", [True, False])
async def test_asynchronous(processes: bool) -> None:
    async with (
        LocalCluster(1, 1, processes=processes, asynchronous=True) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        assert await client.submit(pow, 2, 5) == 32
        assert len(cluster.workers) == 1
    assert cluster.status == "closed"


async def test_awaited() -> None:
    cluster = await LocalCluster(1, 1, processes=False, asynchronous=True)
    assert cluster.status == "running"
    await cluster.close()


async def test_the_wrong_kind_of_with() -> None:
    cluster = LocalCluster(1, 1, processes=False, asynchronous=True)
    with pytest.raises(TypeError, match="async with"), cluster:
        pass


def test_a_client_makes_its_own() -> None:
    with Client(n_workers=1, threads_per_worker=2) as client:
        (pid,) = worker_pids(client)
        assert pid != os.getpid()
        assert client.submit(pow, 2, 5).result() == 32
    assert gone(pid)


async def test_an_asynchronous_client_makes_its_own() -> None:
    async with Client(asynchronous=True, processes=False) as client:
        assert await client.submit(pow, 2, 5) == 32


def test_a_client_joins_the_cluster_s_loop() -> None:
    """One thread less to wake, twice per task; others still connect by TCP."""
    with (
        LocalCluster(1, 1) as cluster,
        Client(cluster) as near,
        Client(cluster.scheduler_address, secret=cluster.secret) as far,
    ):
        assert cluster.loop_thread is not None
        assert near.loop is cluster.loop_thread.loop
        assert far.loop is not near.loop
        future = near.submit(pow, 2, 5)
        assert far.submit(pow, 2, 5).result() == future.result() == 32
        assert near.scheduler_info()["address"] == cluster.scheduler_address


def test_a_cluster_may_close_before_its_client() -> None:
    cluster = LocalCluster(1, 1)
    client = Client(cluster)
    done, never = client.submit(pow, 2, 5), client.submit(time.sleep, 1000)
    assert done.result() == 32
    cluster.close()
    assert never.cancelled()
    with pytest.raises(CommClosedError):
        client.submit(pow, 2, 6)
    client.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"memory_limit": "much"}, "memory-limit: 'much'"),
        ({"resources": {"GPU": "two"}}, "GPU='two'"),
        ({"death_timeout": "soon"}, "death_timeout: 'soon'"),
        ({"collision_policy": "ignore"}, "collision policy"),
        ({"n_workers": -1}, "n_workers: -1"),
        ({"threads_per_worker": 0}, "threads_per_worker: 0"),
        ({"silence_logs": "loud"}, "silence_logs: 'loud'"),
        ({"security": object()}, "TLS"),
    ],
)
@pytest.mark.parametrize("processes", [True, False])
def test_options_that_make_no_sense(
    options: dict[str, Any], says: str, processes: bool
) -> None:
    """They are told before any process is started."""
    with pytest.raises(ConfigError, match=says):
        LocalCluster(processes=processes, **options)


def test_options_that_there_are_not() -> None:
    with pytest.raises(TypeError, match=r"n_wrkers= \(did you mean n_workers=\?\) is"):
        Client(n_wrkers=1)
    with pytest.raises(TypeError, match=r"zzz=, qqq= are not supported \(yet\)"):
        LocalCluster(zzz=1, qqq=2)


@pytest.mark.parametrize("silence_logs", [30, logging.ERROR, "WARN", True, False, None])
def test_options_that_scripts_of_the_field_pass(
    silence_logs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, "raddle.local"),
        LocalCluster(
            1,
            1,
            silence_logs=silence_logs,
            dashboard_address=":0",
            worker_dashboard_address=None,
            scheduler_port=0,
            security=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        assert client.submit(pow, 2, 5).result() == 32
    told = [r for r in caplog.records if "dashboard" in r.getMessage()]
    assert [record.levelno for record in told] == [logging.INFO]


def test_the_memory_limit_is_a_setting() -> None:
    with (
        dask.config.set({"raddle.worker.memory-limit": "1MB"}),
        Client(processes=False) as client,
    ):
        (worker,) = client.scheduler_info()["workers"].values()
        assert worker["memory_limit"] == 10**6


def test_the_scheduler_file_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    with LocalCluster(1, 1, scheduler_file=str(file)) as cluster:
        assert cluster.secret is not None
        secret_file = tmp_path / "cluster.json.secret"
        assert secret_file.stat().st_mode & 0o777 == 0o600
        assert cluster.secret.decode() not in file.read_text()
        program = "import raddle, sys; c = raddle.Client(scheduler_file=sys.argv[1])"
        program += "; print(c.submit(pow, 2, 5).result())"
        command = [sys.executable, "-c", program, str(file)]
        output = subprocess.run(command, capture_output=True, text=True, check=False)
        assert output.stdout == "32\n", output.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_cannot_start_leaves_no_secret(tmp_path: Path) -> None:
    file = str(tmp_path / "cluster.json")
    with pytest.raises(StartError):
        LocalCluster(0, host="no.such.host.invalid", scheduler_file=file)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StartError, match="cannot write the secret file"):
        LocalCluster(0, scheduler_file=str(tmp_path / "none" / "cluster.json"))


def test_a_worker_that_is_told_to_end_is_no_death(tmp_path: Path) -> None:
    goes_on = tmp_path / "goes-on"

    def pid_at_last(_: int) -> int:
        eventually(goes_on.exists)
        return os.getpid()

    with (
        dask.config.set({"raddle.scheduler.allowed-failures": 0}),
        Client(n_workers=2, threads_per_worker=1) as client,
    ):
        (first, _) = worker_pids(client)
        begun = client.map(pid_at_last, range(2))
        eventually(lambda: all(client.processing().values()))
        os.kill(first, signal.SIGTERM)
        eventually(lambda: len(worker_pids(client)) == 1)
        goes_on.touch()
        (left,) = worker_pids(client)
        assert client.gather(begun) == [left] * 2


def test_a_worker_process_that_does_not_start(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It says why itself; nothing is left."""
    before = psutil.Process().children(recursive=True)
    with (
        dask.config.set({"raddle.worker.inline-bytes": "much"}),
        pytest.raises(StartError, match=r"did not start.*exit code 1"),
    ):
        LocalCluster(2)
    assert "much" in capfd.readouterr().err
    eventually(lambda: psutil.Process().children(recursive=True) == before)


@pytest.mark.parametrize(
    ("cores", "given", "expected"),
    [
        (2, (None, None, True), (2, 1)),
        (16, (None, None, True), (4, 4)),
        (16, (None, None, False), (1, 16)),
        (16, (8, None, True), (8, 2)),
        (16, (None, 8, True), (2, 8)),
        (16, (None, 8, False), (1, 8)),
        (16, (2, 3, True), (2, 3)),
        (2, (4, None, True), (4, 1)),
        (2, (0, None, True), (0, 2)),
    ],
)
def test_sizes(
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    given: tuple[int | None, int | None, bool],
    expected: tuple[int, int],
) -> None:
    monkeypatch.setattr("raddle.local.cpu_count", lambda: cores)
    assert sizes(*given) == expected


def test_nobody_else_may_connect() -> None:
    """Even on this machine: others may be logged in."""
    with LocalCluster(1, 1) as cluster:
        with pytest.raises(AuthenticationError, match="secret"):
            Client(cluster.scheduler_address)
        with Client(cluster.scheduler_address, secret=cluster.secret) as client:
            assert client.submit(pow, 2, 5).result() == 32
            for process in psutil.Process().children(recursive=True):
                assert cluster.secret is not None
                shown = [*process.cmdline(), *process.environ().values()]
                assert not any(cluster.secret.decode() in text for text in shown)


def test_workers_see_this_program_s_settings_and_path(tmp_path: Path) -> None:
    (tmp_path / "beside_the_script.py").write_text("def answer():\n    return 42\n")
    sys.path.insert(0, str(tmp_path))
    try:
        import beside_the_script  # type: ignore[import-not-found]

        with (
            dask.config.set({"raddle.worker.heartbeat": "17s", "my.own": [1]}),
            Client(n_workers=1) as client,
        ):
            assert client.submit(beside_the_script.answer).result() == 42
            assert client.submit(
                lambda: (dask.config.get("raddle.worker.heartbeat"),
                         dask.config.get("my.own"))
            ).result() == ("17s", [1])  # fmt: skip
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("beside_the_script", None)


def test_a_task_may_compute_a_collection() -> None:
    """Without asking for a client; the only thread is free meanwhile."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, name="ann") as cluster,
        Client(cluster) as client,
    ):
        assert client.submit(worker_of_a_collection).result(30) == "ann-0"


def test_workers_do_not_draw_the_same_numbers() -> None:
    with Client(n_workers=2, threads_per_worker=1) as client:

        def draw() -> float:
            import random

            return random.random()

        drawn = client.run(draw)
        assert len(set(drawn.values())) == 2


def test_a_client_shuts_it_down() -> None:
    cluster = LocalCluster(1, 1)
    client = Client(cluster)
    (pid,) = worker_pids(client)
    client.shutdown()
    eventually(lambda: cluster.status == "closed")
    # It waits for what the client has set in motion.
    cluster.close()
    assert gone(pid)


def test_the_exit_code_of_a_worker_is_known() -> None:
    with (
        dask.config.set({"raddle.scheduler.allowed-failures": 0}),
        Client(n_workers=1, threads_per_worker=1) as client,
    ):
        future = client.submit(os._exit, 23, key="exits")
        with pytest.raises(KilledWorker, match="exit code 23"):
            future.result(timeout=30)


# The end of the program itself

PROGRAM = """
import os, sys, time
from raddle import Client, LocalCluster

{body}
"""


def run(body: str, *, code: int = 0) -> tuple[list[int], str]:
    """Run a program that prints pids; they must be gone soon after its end."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=textwrap.dedent(body))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=50)
    assert process.returncode == code, err
    pids = [int(word) for word in out.split()]
    assert pids
    eventually(lambda: gone(*pids))
    return pids, err


def test_no_main_guard_is_needed_and_nothing_must_be_closed() -> None:
    body = """
    client = Client(n_workers=2)
    print(*client.run(os.getpid).values())
    """
    _, err = run(body)
    assert err == ""


def test_a_shutdown_says_nothing() -> None:
    body = """
    cluster = LocalCluster(2, 1)
    client = Client(cluster)
    print(*client.run(os.getpid).values(), flush=True)
    client.shutdown()
    """
    _, err = run(body)
    assert err == ""


def test_workers_end_in_silence_with_a_program_that_is_told_to_end() -> None:
    body = """
    client = Client(n_workers=2)
    print(*client.run(os.getpid).values(), flush=True)
    future = client.submit(time.sleep, 1000)
    os.kill(os.getpid(), 15)
    """
    _, err = run(body, code=-signal.SIGTERM)
    assert err == ""


LINE = r"[\d-]+ [\d:,]+ - raddle\.{} - WARNING - {}"


def test_a_worker_that_dies_is_told_where_nobody_configures_logging() -> None:
    body = """
    client = Client(n_workers=1, threads_per_worker=1)
    (pid,) = client.run(os.getpid).values()
    print(pid, flush=True)
    future = client.submit(time.sleep, 1000)
    os.kill(pid, 9)
    while client.scheduler_info()["workers"]:
        time.sleep(0.01)
    """
    (pid,), err = run(body)
    died, waits = err.splitlines()
    what = rf"worker 'worker-0' .*pid {pid}, killed by signal 9.*1 tasks are computed"
    assert re.match(LINE.format("scheduler", what), died)
    what = "1 tasks wait and no worker is connected"
    assert re.match(LINE.format("scheduler", what), waits)


def test_a_program_may_end_while_a_worker_dies() -> None:
    body = """
    client = Client(n_workers=1, threads_per_worker=1)
    (pid,) = client.run(os.getpid).values()
    print(pid, flush=True)
    os.kill(pid, 9)
    """
    run(body)


@pytest.mark.parametrize("processes", [True, False])
def test_tasks_that_fail_are_logged_with_their_traceback(processes: bool) -> None:
    body = f"""
    client = Client(n_workers=1, processes={processes})
    print(*client.run(os.getpid).values(), flush=True)
    client.submit(divmod, 1, 0, key="fails").exception()
    """
    _, err = run(body)
    what = "Compute Failed: task 'fails', function divmod: ZeroDivisionError"
    assert re.match(LINE.format("worker", what), err)
    assert "Traceback" in err


def test_a_program_that_configures_logging_gets_the_records() -> None:
    body = """
    import logging
    cluster = LocalCluster(1, processes=False)
    logging.basicConfig(format="<%(message)s>")
    logging.getLogger("raddle.scheduler").warning("mine")
    print(os.getpid() + 10**8)
    """
    _, err = run(body)
    assert err == "<mine>\n"


def test_workers_end_with_a_program_that_is_killed() -> None:
    body = """
    client = Client(n_workers=2)
    print(*client.run(os.getpid).values(), flush=True)
    os.kill(os.getpid(), 9)
    """
    run(body, code=-signal.SIGKILL)


@pytest.mark.slow
def test_even_workers_that_hold_the_gil(tmp_path: Path) -> None:
    """They cannot hear that the program is gone, and are killed."""
    begun = tmp_path / "begun"
    body = f"""
    def holds():
        import ctypes
        open({str(begun)!r}, "w").close()
        # A C function called with the GIL held.
        ctypes.PyDLL(None).sleep(1000)

    client = Client(n_workers=1)
    print(*client.run(os.getpid).values(), flush=True)
    future = client.submit(holds)
    while not os.path.exists({str(begun)!r}):
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
    """
    run(body, code=-signal.SIGKILL)


def test_ctrl_c_is_the_program_s() -> None:
    """The whole process group gets the signal; workers must go on."""
    body = """
    import signal
    os.setpgrp()
    client = Client(n_workers=1)
    print(*client.run(os.getpid).values(), flush=True)
    try:
        os.killpg(0, signal.SIGINT)
        time.sleep(10)
    except KeyboardInterrupt:
        assert client.submit(pow, 2, 5).result() == 32
    """
    run(body)
