"""Where worker processes come from: forked from one that has imported everything.

A fork takes a millisecond where a start takes the time of all imports, and the
children share the memory of what was imported. The forking process has one thread
and no event loop; it waits for signals and, as a program of its own
(``python -m raddle.worker.nursery FD``), for orders on a socket.

An order is a line of JSON: ``{"setup": {"path", "config", "log_level", "modules"}}``
first (``modules`` are imported, for what that does), then any number of ``{"start":
{"name", "options", "secret"}}`` (the secret in hex) and ``{"kill": {"pid"}}``.
Reports come back as ``{"started": name, "pid": pid}`` and ``{"ended": pid, "name",
"code"}``. When the socket ends, so do the children: whoever gave the orders is gone,
even if it was killed.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn, Self

from raddle.protocol.node.lifecycle import ORPHAN_SECONDS_MAX, leave

logger = logging.getLogger("raddle.process")

PARENT_SECONDS = 1.0
"""How often to look whether the process that started this one is still there."""

Target = Callable[[int], int]
"""What a child does: from its lifeline (a file descriptor) to its exit code."""


class Signals:
    """While active, SIGCHLD and others are read from a socket instead of acted upon."""

    def __init__(self, *signals: signal.Signals) -> None:
        self._signals = (signal.SIGCHLD, *signals)
        self._reader, self._writer = socket.socketpair()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for signum in self._signals:
            self._before[signum] = signal.signal(signum, _noted)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore what was; a child calls this first."""
        signal.set_wakeup_fd(-1)
        for signum, before in self._before.items():
            signal.signal(signum, before)
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        """What to wait for."""
        return self._reader.fileno()

    def read(self) -> bytes:
        """The numbers of the signals that came."""
        with suppress(BlockingIOError):
            return self._reader.recv(4096)
        return b""


def _noted(_signum: int, _frame: FrameType | None) -> None:
    """The number of the signal is in the wake-up socket already."""


class Nursery:
    """The children of this process; :meth:`start` them, :meth:`reap` the dead.

    A child learns through the end of a pipe, its lifeline, that this process is gone.
    """

    def __init__(self) -> None:
        self.children: dict[int, str] = {}
        self._lifeline, self._end = os.pipe()

    def start(self, name: str, target: Target, *not_for_child: Any) -> int:
        """Fork a child that runs ``target``; returns its pid.

        ``not_for_child`` are context managers, left by the child before it begins.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._be_child(target, not_for_child)
        self.children[pid] = name
        return pid

    def _be_child(self, target: Target, not_for_child: tuple[Any, ...]) -> NoReturn:
        code = 70
        try:
            os.close(self._end)
            for thing in not_for_child:
                thing.__exit__(None, None, None)
            code = target(self._lifeline)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:  # noqa: BLE001 (must not get back into the parent's code)
            traceback.print_exc()
        leave(code)

    def reap(self) -> list[tuple[int, str, int]]:
        """Children that have ended since: pid, name, exit code (-n: by signal n)."""
        ended = []
        for pid in tuple(self.children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                name = self.children.pop(pid)
                ended.append((pid, name, os.waitstatus_to_exitcode(status)))
        return ended

    def signal(self, signum: signal.Signals) -> None:
        """Send a signal to all children."""
        for pid in self.children:
            os.kill(pid, signum)


def freeze() -> None:
    """Call once after the imports and before the first fork.

    What is alive now is not looked at by the children's garbage collectors, and so
    stays shared.
    """
    gc.collect()
    gc.freeze()


def supervise(
    targets: Mapping[str, Target], *, close_seconds_max: float = 2 * ORPHAN_SECONDS_MAX
) -> int:
    """Run a child per target until all have ended; returns the exit code for all.

    SIGINT and SIGTERM end the children by SIGTERM, with exit code 0 if they comply
    within ``close_seconds_max``; what does not, or a second signal, is answered by
    SIGKILL. Without a signal the code is 0 if any child ended well, else the first
    bad one's.
    """
    nursery = Nursery()
    codes: list[int] = []
    stopping = False
    deadline: float | None = None
    stops = (signal.SIGINT, signal.SIGTERM)
    freeze()
    with Signals(*stops) as signals, selectors.DefaultSelector() as selector:
        selector.register(signals, selectors.EVENT_READ)
        for name, target in targets.items():
            nursery.start(name, target, signals, selector)
        while nursery.children:
            left = None if deadline is None else deadline - time.monotonic()
            selector.select(left)
            stop = any(number in stops for number in signals.read())
            late = deadline is not None and time.monotonic() >= deadline
            if (stop and stopping) or late:
                nursery.signal(signal.SIGKILL)
                deadline = None
            elif stop:
                nursery.signal(signal.SIGTERM)
                stopping, deadline = True, time.monotonic() + close_seconds_max
            for pid, name, code in nursery.reap():
                codes.append(code)
                if code:
                    logger.error("worker %s (pid %d): %s", name, pid, told(code))
    if stopping or 0 in codes:
        return 0
    return next((code if code > 0 else 128 - code) for code in codes)


def told(code: int) -> str:
    """An exit code in words."""
    return (
        f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
    )


class _Program:
    """The nursery as a program: orders from a socket, reports back."""

    def __init__(self, orders: socket.socket, signals: Signals) -> None:
        self._orders = orders
        self._signals = signals
        self._nursery = Nursery()
        self._buffer = b""
        self._parent = os.getppid()
        self._log_level: int | None = None
        self._run_child: Callable[..., int]

    def run(self) -> None:
        """Obey until the socket ends; then end the children, by force if need be."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ)
            selector.register(self._orders, selectors.EVENT_READ)
            while os.getppid() == self._parent:
                ready = {key.fileobj for key, _ in selector.select(PARENT_SECONDS)}
                if self._signals in ready and signal.SIGTERM in self._signals.read():
                    break
                self._report_ended()
                if self._orders in ready and not self._obey(selector):
                    break
            self._end(selector)

    def _obey(self, selector: selectors.BaseSelector) -> bool:
        try:
            data = self._orders.recv(65536)
        except ConnectionError:
            # Reports that nobody has read make of the end a reset.
            return False
        if not data:
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            for order, argument in json.loads(line).items():
                match order:
                    case "setup":
                        self._setup(**argument)
                    case "start":
                        self._start(selector, **argument)
                    case "kill":
                        with suppress(ProcessLookupError):
                            os.kill(argument["pid"], signal.SIGKILL)
        return True

    def _setup(
        self,
        path: list[str],
        config: dict[str, Any],
        log_level: int | None,
        modules: list[str],
    ) -> None:
        """Import all that children need, as the process that gives orders would."""
        sys.path[:] = path
        # Only now is the path right.
        import dask.config

        from . import process

        dask.config.update(dask.config.config, config)
        self._log_level = log_level
        self._run_child = process.run_child
        for module in modules:
            import_module(module)
        freeze()

    def _start(
        self,
        selector: selectors.BaseSelector,
        name: str,
        options: dict[str, Any],
        secret: str | None,
    ) -> None:
        run_child, log_level = self._run_child, self._log_level
        options["secret"] = None if secret is None else bytes.fromhex(secret)
        pid = self._nursery.start(
            name,
            lambda lifeline: run_child(options, log_level, lifeline, minded=True),
            self._signals,
            selector,
            self._orders,
        )
        self._report({"started": name, "pid": pid})

    def _report_ended(self) -> None:
        for pid, name, code in self._nursery.reap():
            self._report({"ended": pid, "name": name, "code": code})

    def _report(self, report: dict[str, Any]) -> None:
        # Whoever gave the orders may be gone; the next read from it will tell.
        with suppress(OSError):
            self._orders.sendall(json.dumps(report).encode() + b"\n")

    def _end(self, selector: selectors.BaseSelector) -> None:
        self._nursery.signal(signal.SIGTERM)
        deadline = time.monotonic() + ORPHAN_SECONDS_MAX
        selector.unregister(self._orders)
        while self._nursery.children and time.monotonic() < deadline:
            selector.select(deadline - time.monotonic())
            self._signals.read()
            self._report_ended()
        self._nursery.signal(signal.SIGKILL)


def main(descriptor: int) -> None:
    """Take orders from a socket, given by its file descriptor, until it ends."""
    # Ctrl-C is meant for the program in the foreground, which then closes us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = socket.socket(fileno=descriptor)
    with Signals(signal.SIGTERM) as signals:
        _Program(orders, signals).run()
    leave(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
