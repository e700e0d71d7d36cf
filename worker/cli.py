"""The command ``raddle worker``: its options, its processes, its exit code.

One worker runs in the process itself; several are forked from it, and it forwards
signals to them.
"""

from __future__ import annotations

import math
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import click

from raddle.protocol import config, security
from raddle.protocol.errors import ConfigError, RaddleError
from raddle.protocol.log import parse_level, setup_logging
from raddle.protocol.node import lifecycle, scheduler_file
from raddle.protocol.node.cores import cpu_count, parse_nworkers
from raddle.protocol.node.scheduler_file import SchedulerFile

from . import nursery, process

POLL_SECONDS = 0.05


def _level(_context: Any, _option: Any, level: str | None) -> int | None:
    """A level as a number; a name that is none is a wrong option."""
    try:
        return None if level is None else parse_level(level, "--log-level")
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


@click.command(name="worker", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("scheduler", required=False)
@click.option(
    "--scheduler-file",
    type=click.Path(dir_okay=False),
    help="Find the scheduler by the file that it wrote; waits for the file.",
)
@click.option(
    "--host",
    help="Name or address to serve data on.  [default: the one that reaches the scheduler]",
)
@click.option("--interface", help="Network interface to serve data on, such as eth0.")
@click.option(
    "--worker-port",
    default="0",
    help="Port to serve data on: one, a list 9000,9001 or a range 9000:9100.  [default: any]",
)
@click.option(
    "--contact-address",
    help="Address under which others reach this worker, if not the one it listens on.",
)
@click.option(
    "--protocol",
    type=click.Choice(["tcp"]),
    default="tcp",
    show_default=True,
    help="How to talk.",
)
@click.option(
    "--nworkers",
    default="1",
    show_default=True,
    help="Number of processes; -N leaves N - 1 cores free; 'auto' chooses processes and threads by the number of cores.",
)
@click.option(
    "--nthreads",
    type=click.IntRange(0),
    default=0,
    help="Threads per process.  [default: cores / nworkers]",
)
@click.option(
    "--memory-limit",
    help="Memory per process: bytes, '4GB', a fraction of the machine, 'auto', or 0 for no limit.  [default: raddle.worker.memory-limit, which is auto]",
)
@click.option(
    "--resources",
    default="",
    help="What tasks may require of each process: 'GPU=2 MEM=10e9'.",
)
@click.option(
    "--local-directory",
    type=click.Path(file_okay=False),
    help="Folder for the files of this worker.",
)
@click.option(
    "--death-timeout",
    help="End when there is no scheduler for so long, such as '60 s'.",
)
@click.option("--name", help="Unique name; several processes append -0, -1, ...")
@click.option(
    "--pid-file",
    type=click.Path(dir_okay=False),
    help="Write the process id to this file.",
)
@click.option(
    "--secret-file",
    type=click.Path(dir_okay=False),
    help="File with the secret of the cluster.",
)
@click.option(
    "--insecure", is_flag=True, help="Serve data beyond loopback without a secret."
)
@click.option(
    "--log-level",
    callback=_level,
    help="How much to log: debug, info, warning, error, critical, or a number.  [default: info]",
)
@click.version_option(package_name="raddle")
def worker(pid_file: str | None, log_level: int | None, **options: Any) -> None:
    """Run workers for the scheduler at the address SCHEDULER, or --scheduler-file."""
    # Until an event loop takes over, for instance while waiting for a file.
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    try:
        setup_logging(log_level)
        with lifecycle.pid_file(pid_file):
            code = _run(_plan(options), log_level)
    except RaddleError as error:
        lifecycle.complain(process.NAME, error)
        code = 1
    lifecycle.leave(code)


def _end(*_: object) -> None:
    sys.exit(0)


def _run(workers: dict[str, dict[str, Any]], log_level: int | None) -> int:
    if len(workers) == 1:
        (options,) = workers.values()
        return process.run(options, log_level)
    targets = {
        label: partial(process.run_child, options, log_level)
        for label, options in workers.items()
    }
    return nursery.supervise(targets)


def _plan(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The arguments of each :class:`Worker`, by a label for the log."""
    nworkers, nthreads = parse_nworkers(
        options.pop("nworkers"), options.pop("nthreads"), cpu_count()
    )
    name = options.pop("name")
    ports = parse_ports(options.pop("worker_port"), nworkers)
    address, secret_file = _scheduler(options)
    if nworkers > 1 and options["contact_address"] is not None:
        msg = "--contact-address is the address of one worker: use --nworkers 1"
        raise ConfigError(msg)
    common = {
        **{key: value for key, value in options.items() if value is not None},
        "scheduler_address": address,
        "secret": security.load_secret(file=secret_file),
        "nthreads": nthreads,
        "resources": parse_resources(options["resources"]),
    }
    if nworkers == 1:
        return {name or "": {**common, "name": name, "ports": ports}}
    return {
        f"{name}-{i}" if name else str(i): {
            **common,
            "name": None if name is None else f"{name}-{i}",
            # No two of them try the same port.
            "ports": ports[i::nworkers],
        }
        for i in range(nworkers)
    }


def _scheduler(options: dict[str, Any]) -> tuple[str, str | None]:
    """The scheduler's address, and the file with the secret if there is one."""
    address, path = options.pop("scheduler"), options.pop("scheduler_file")
    secret_file = options.pop("secret_file")
    if address and path:
        msg = f"give an address or a scheduler file, not both: {address}, {path}"
        raise ConfigError(msg)
    if path:
        found = _await_file(path, options["death_timeout"])
        return found.address, secret_file or found.secret_file
    address = address or config.get("scheduler-address")
    if not address:
        msg = "which scheduler? Give its address, or --scheduler-file"
        raise ConfigError(msg)
    return str(address), secret_file


def _await_file(path: str, death_timeout: str | None) -> SchedulerFile:
    """Read the scheduler file, which a scheduler elsewhere may yet have to write."""
    seconds = (
        config.get_seconds("worker.death-timeout")
        if death_timeout is None
        else config.parse_seconds(death_timeout, "--death-timeout")
    )
    deadline = time.monotonic() + seconds
    while not Path(path).exists() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return scheduler_file.read(path)


def parse_ports(text: str, nworkers: int) -> list[int]:
    """Ports in ``9000``, ``9000,9001`` or ``9000:9100``, enough for all workers.

    ``0`` is any port. Raises ConfigError.
    """
    ports: list[int] = []
    try:
        for part in text.split(","):
            first, colon, last = part.partition(":")
            ports += range(int(first), int(last if colon else first) + 1)
    except ValueError:
        ports = []
    if ports == [0]:
        ports = [0] * nworkers
    if not ports or not all(0 <= port <= 65535 for port in ports):
        msg = (
            f"--worker-port {text}: not a port number or range: give a port, a list "
            "9000,9001 or a range 9000:9100"
        )
        raise ConfigError(msg)
    if len(ports) < nworkers:
        msg = f"--worker-port {text}: {len(ports)} ports for {nworkers} workers"
        raise ConfigError(msg)
    return ports


def parse_resources(text: str) -> dict[str, float]:
    """Amounts by name in ``"GPU=2 MEM=10e9"``; commas separate as well.

    Raises ConfigError.
    """
    resources = {}
    for item in text.replace(",", " ").split():
        name, _, value = item.partition("=")
        try:
            amount = float(value)
        except ValueError:
            amount = -1.0
        if not name or not 0 <= amount < math.inf:
            msg = f"--resources {item}: write NAME=NUMBER, as in 'GPU=2 MEM=10e9'"
            raise ConfigError(msg)
        resources[name] = amount
    return resources
