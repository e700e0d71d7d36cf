"""How one worker lives in a process of its own, from options to exit code.

Exit code 0: somebody wanted it to end. 1: it could not start, or its scheduler
vanished.
"""

from __future__ import annotations

import asyncio
import gc
import io
import random
import signal
import sys
from typing import Any

from raddle.protocol.errors import CommClosedError
from raddle.protocol.log import setup_logging
from raddle.protocol.node import lifecycle

from .server import Worker

NAME = "raddle worker"
CHILD_SIGNALS = (signal.SIGTERM,)
"""What ends a child. Its parent gets Ctrl-C from the terminal too, and decides."""


def run(options: dict[str, Any], log_level: str | int | None = None) -> int:
    """Run a worker in this process until it ends; returns the exit code.

    ``options`` are the arguments of :class:`Worker`.
    """
    _prepare(log_level)
    # What was imported is not looked at by the garbage collector again.
    gc.freeze()
    return lifecycle.run(_main(options), name=NAME)


def run_child(
    options: dict[str, Any],
    log_level: str | int | None,
    lifeline: int,
    *,
    minded: bool = False,
) -> int:
    """As :func:`run`, in a process just forked, which ends when ``lifeline`` does.

    ``minded`` says that the scheduler is in the program that minds this process:
    when that is gone, nobody need be told.
    """
    # The children must not all draw the same numbers.
    random.seed()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prepare(log_level)
    main = _main(options, minded=minded)
    return lifecycle.run(main, name=NAME, signals=CHILD_SIGNALS, lifeline=lifeline)


def _prepare(log_level: str | int | None) -> None:
    """What tasks print is seen at once, also in a file or a pipe."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    setup_logging(log_level)


def _main(options: dict[str, Any], *, minded: bool = False) -> lifecycle.Main:
    async def main(stop: asyncio.Event) -> int:
        worker = Worker(**options)
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await _first(stopped, worker.start())
            if not stop.is_set():
                await _first(stopped, worker.finished())
        except CommClosedError:
            # At the start it is an error, whoever minds this process.
            if not (minded and worker.why_closed):
                raise
            return 1
        finally:
            stopped.cancel()
            await worker.close()
        return 0

    return main


async def _first(stopped: asyncio.Future[Any], work: Any) -> None:
    """Wait for ``work``, or give it up when ``stopped``; raises what it raised."""
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    else:
        task.cancel()
        await asyncio.wait((task,))
