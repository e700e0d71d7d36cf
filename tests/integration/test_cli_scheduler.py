"""``raddle scheduler``: what it says, where it listens, how it ends."""

import json
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import raddle
from testkit.cluster import Process
from testkit.polling import eventually

pytestmark = pytest.mark.process

Start = Callable[..., Process]


# Words


@pytest.mark.parametrize("command", [[], ["scheduler"], ["worker"]])
def test_version(start: Start, command: list[str]) -> None:
    process = start(*command, "--version")
    assert process.wait() == 0
    assert process.log.endswith(f"version {raddle.__version__}\n")


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], ["scheduler", "worker"]),
        (["scheduler"], ["--secret-file", "--collision-policy", "8786"]),
        (["worker"], ["--nworkers", "--death-timeout", "SCHEDULER"]),
    ],
)
def test_help(start: Start, command: list[str], words: list[str], option: str) -> None:
    process = start(*command, option)
    assert process.wait() == 0
    assert all(word in process.log for word in words)


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["schedular"], "schedular"),
        (["scheduler", "--prot", "1"], r"raddle scheduler: .*--prot"),
        (["scheduler", "--port", "many"], "--port.*'many' is not a port number"),
        (["scheduler", "--log-level", "loud"], "--log-level.*'loud'"),
        (["scheduler", "--port", "70000"], "--port"),
        (["scheduler", "--collision-policy", "ignore"], "--collision-policy"),
        (["worker", "--nanny-port", "1"], r"raddle worker: .*--nanny-port"),
        (["worker", "--nthreads", "-1", "tcp://127.0.0.1:1"], "--nthreads"),
    ],
)
def test_a_wrong_option(start: Start, arguments: list[str], pattern: str) -> None:
    start(*arguments).complains(2, pattern, "--help")


def test_no_command_shows_which_there_are(start: Start) -> None:
    process = start()
    assert process.wait() == 2
    assert "scheduler" in process.log


# Where it listens


def test_its_first_lines(start: Start) -> None:
    process = start("scheduler", "--port", "0")
    process.says("listening on")
    first, second = process.lines[:2]
    assert re.search(
        r"raddle.scheduler - INFO - scheduler at tcp://127.0.0.1:\d+", first
    )
    assert re.search(r"loopback.*no secret is set", second)


def test_with_a_secret_it_is_open_to_all(start: Start, secret_file: str) -> None:
    process = start("scheduler", "--port", "0", "--secret-file", secret_file)
    process.says("listening on all interfaces.*a secret is set")
    assert "long enough" not in process.log


def test_the_secret_may_come_from_the_environment(start: Start) -> None:
    environment = {"DASK_RADDLE__COMM__SECRET": "a secret that is long enough"}
    process = start("scheduler", "--port", "0", **environment)
    process.says("all interfaces.*a secret is set")


def test_beyond_loopback_it_wants_a_secret(start: Start) -> None:
    process = start("scheduler", "--port", "0", "--host", "0.0.0.0")
    process.complains(1, "without a secret", "--secret-file", "--insecure")


def test_insecure_is_warned_of_once(start: Start) -> None:
    process = start("scheduler", "--port", "0", "--host", "0.0.0.0", "--insecure")
    process.says("no secret is set")
    assert process.log.count("WARNING") == 1


def test_an_interface(start: Start) -> None:
    process = start("scheduler", "--port", "0", "--interface", "lo")
    process.says(r"scheduler at tcp://127.0.0.1:\d+")


def test_a_busy_port(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        start("scheduler", "--port", port).complains(1, r"^raddle scheduler: ", port)


def test_an_unknown_host(start: Start) -> None:
    process = start("scheduler", "--port", "0", "--host", "nonesuch.invalid")
    process.complains(1, "cannot resolve.*nonesuch.invalid")


def test_an_unknown_interface(start: Start) -> None:
    process = start("scheduler", "--port", "0", "--interface", "nonesuch")
    process.complains(1, "nonesuch", r"\blo\b")


def test_a_secret_file_that_is_missing(start: Start) -> None:
    process = start("scheduler", "--port", "0", "--secret-file", "/nonesuch")
    process.complains(1, "/nonesuch", "No such file")


def test_a_policy_of_a_later_version(start: Start) -> None:
    process = start("scheduler", "--port", "0", "--collision-policy", "isolate")
    process.complains(1, "isolate", "later version")


# Files, and the end


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_its_files(
    start: Start, tmp_path: Path, signum: signal.Signals
) -> None:
    file, pid = tmp_path / "scheduler.json", tmp_path / "pid"
    files = ("--scheduler-file", str(file), "--pid-file", str(pid))
    process = start("scheduler", "--port", "0", *files)
    address = process.says(r"scheduler at (\S+)")[1]
    eventually(file.exists)
    content = json.loads(file.read_text())
    assert content["address"] == address
    assert content["id"].startswith("Scheduler-")
    assert content["type"] == "Scheduler"
    assert int(pid.read_text()) == process.pid
    assert process.end(signum) == 0
    assert not file.exists()
    assert not pid.exists()


def test_the_scheduler_file_names_the_secret_s(
    start: Start, tmp_path: Path, secret_file: str
) -> None:
    file = tmp_path / "scheduler.json"
    options = ("--scheduler-file", str(file), "--secret-file", secret_file)
    start("scheduler", "--port", "0", *options)
    eventually(file.exists)
    assert json.loads(file.read_text())["secret_file"] == secret_file
    assert "long enough" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_scheduler_file_that_cannot_be_written(start: Start) -> None:
    process = start(
        "scheduler", "--port", "0", "--scheduler-file", "/nonesuch/scheduler.json"
    )
    assert process.wait() == 1
    assert re.search("cannot write the scheduler file", process.lines[-1])


def test_idleness_ends_it(start: Start) -> None:
    process = start("scheduler", "--port", "0", "--idle-timeout", "0.2 s")
    assert process.wait() == 0
    assert "nobody used" in process.log
    assert "WARNING" not in process.log


def test_an_idle_timeout_that_is_none(start: Start) -> None:
    process = start("scheduler", "--port", "0", "--idle-timeout", "soon")
    process.complains(1, "idle-timeout", "soon")
