"""How a process of ours runs its event loop and which exit code it ends with.

Exit codes: 0 for an end that was asked for (a signal, a message), 1 for an error,
which is one line on stderr, 2 for a wrong option, 128 + n for a second signal n
that arrives while the first one is still being obeyed.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ..errors import RaddleError, StartError

_new_loop: Callable[[], asyncio.AbstractEventLoop]
try:
    import uvloop
except ImportError:  # not on every platform
    _new_loop = asyncio.new_event_loop
else:
    _new_loop = uvloop.new_event_loop

logger = logging.getLogger("raddle.process")

ORPHAN_SECONDS_MAX = 5.0
"""How long a process may take to close after the process that minds it is gone."""

Main = Callable[[asyncio.Event], Coroutine[Any, Any, int]]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop event loop where uvloop is installed, else asyncio's own."""
    return _new_loop()


def run(
    main: Main,
    *,
    name: str,
    signals: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM),
    lifeline: int | None = None,
) -> int:
    """Run ``main(stop)`` on an event loop of this process; returns its exit code.

    ``stop`` is set by the first of ``signals``, and when ``lifeline`` (the reading
    end of a pipe) ends because the process that minds this one is gone. An error of
    ours becomes one line on stderr that starts with ``name``, and exit code 1. The
    loop is left open: the caller ends the process with :func:`leave`.
    """
    runner = asyncio.Runner(loop_factory=new_event_loop)
    try:
        return runner.run(_main(main, signals, lifeline))
    except RaddleError as error:
        complain(name, error)
        return 1


async def _main(
    main: Main, signals: tuple[signal.Signals, ...], lifeline: int | None
) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(signum: signal.Signals) -> None:
        if stop.is_set():
            leave(128 + signum)
        logger.info("ending on %s", signum.name)
        stop.set()

    def on_orphaned() -> None:
        assert lifeline is not None
        loop.remove_reader(lifeline)
        loop.call_later(ORPHAN_SECONDS_MAX, leave, 1)
        stop.set()

    for signum in signals:
        if sys.platform == "win32":
            signal.signal(
                signum,
                lambda n, _: loop.call_soon_threadsafe(on_signal, signal.Signals(n)),
            )
        else:
            loop.add_signal_handler(signum, on_signal, signum)
    if lifeline is not None:
        loop.add_reader(lifeline, on_orphaned)
    return await main(stop)


def complain(name: str, error: BaseException) -> None:
    """Write an error as one line to stderr."""
    text = " ".join(str(error).split())
    print(f"{name}: {text}", file=sys.stderr, flush=True)  # noqa: T201


def leave(code: int) -> NoReturn:
    """End this process now, without waiting for threads that run user code."""
    atexit._run_exitfuncs()  # noqa: SLF001 (as multiprocessing's children do)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


@contextmanager
def pid_file(path: str | None) -> Iterator[None]:
    """While active, ``path`` (if any) holds this process's pid.

    Raises StartError when it cannot be written.
    """
    if path is None:
        yield
        return
    file = Path(path)
    try:
        file.write_text(f"{os.getpid()}\n")
    except OSError as error:
        msg = f"cannot write the pid file {path}: {error.strerror}"
        raise StartError(msg) from error
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
