"""The command ``raddle scheduler``: its options, its process, its exit code."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import click

from raddle.protocol.core.collisions import POLICIES
from raddle.protocol.errors import ConfigError, RaddleError
from raddle.protocol.log import parse_level, setup_logging
from raddle.protocol.node import lifecycle

from .server import Scheduler

NAME = "raddle scheduler"
PORT_MAX = 65535

# Objects between two looks of the garbage collector: at a hundred microseconds per
# task its default of 700 shows, and the core leaves no cycles behind.
GC_THRESHOLDS = (50_000, 20, 50)


def _level(_context: Any, _option: Any, level: str | None) -> int | None:
    """A level as a number; a name that is none is a wrong option."""
    try:
        return None if level is None else parse_level(level, "--log-level")
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def _port(_context: Any, _option: Any, text: str) -> int:
    """A port as a number."""
    if not text.isdecimal() or int(text) > PORT_MAX:
        msg = f"{text!r} is not a port number: give one from 0 to {PORT_MAX}"
        raise click.BadParameter(msg)
    return int(text)


@click.command(
    name="scheduler", context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--host",
    help="Name or address to listen on.  [default: loopback without a secret, all interfaces with one]",
)
@click.option(
    "--port",
    callback=_port,
    default="8786",
    show_default=True,
    help="Port to listen on; 0 takes any free one.",
)
@click.option("--interface", help="Network interface to listen on, such as eth0.")
@click.option(
    "--protocol",
    type=click.Choice(["tcp"]),
    default="tcp",
    show_default=True,
    help="How to talk.",
)
@click.option(
    "--scheduler-file",
    type=click.Path(dir_okay=False),
    help="Write where this scheduler is to this file (JSON), for --scheduler-file of workers and Client(scheduler_file=).",
)
@click.option(
    "--secret-file",
    type=click.Path(dir_okay=False),
    help="File with the secret that workers and clients must know.",
)
@click.option(
    "--insecure", is_flag=True, help="Listen beyond loopback without a secret."
)
@click.option(
    "--collision-policy",
    type=click.Choice(POLICIES),
    help="What to do when one key claims two run_specs.  [default: warn]",
)
@click.option(
    "--idle-timeout", help="End after so long without work, such as '10 minutes'."
)
@click.option(
    "--pid-file",
    type=click.Path(dir_okay=False),
    help="Write the process id to this file.",
)
@click.option(
    "--validate", is_flag=True, help="Check all invariants after every event (slow)."
)
@click.option(
    "--log-level",
    callback=_level,
    help="How much to log: debug, info, warning, error, critical, or a number.  [default: info]",
)
@click.version_option(package_name="raddle")
def scheduler(pid_file: str | None, log_level: int | None, **options: Any) -> None:
    """Run a scheduler that workers and clients connect to."""
    if not options["validate"]:
        # The configuration may still ask for it.
        options["validate"] = None

    async def main(stop: asyncio.Event) -> int:
        async with Scheduler(**options) as running:
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            ends = (stop.wait(), running.finished())
            tasks = [asyncio.ensure_future(end) for end in ends]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return 0

    try:
        setup_logging(log_level)
        with lifecycle.pid_file(pid_file):
            code = lifecycle.run(main, name=NAME)
    except RaddleError as error:
        lifecycle.complain(NAME, error)
        code = 1
    lifecycle.leave(code)
