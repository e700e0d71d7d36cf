"""How a program minds its worker processes: orders to a nursery, reports back.

The nursery (``raddle.worker.nursery``) is a process of its own that has imported what
workers need and forks them. It, and they, end when this program does.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from typing import Any

import dask.config

from raddle.protocol.errors import StartError

END_SECONDS_MAX = 10.0


class WorkerProcesses:
    """Worker processes of this program; the nursery starts at once.

    ``log_level`` is what they log from (None: as configured). ``pids`` and ``codes``
    say, by name, who has been started and who has ended how (-n: by signal n).

    Raises StartError where processes cannot be forked.
    """

    def __init__(self, log_level: int | None) -> None:
        if not hasattr(os, "fork"):
            msg = (
                "worker processes are forked, which this platform cannot do: use "
                "processes=False, or start them with `raddle worker`"
            )
            raise StartError(msg)
        self.pids: dict[str, int] = {}
        self.codes: dict[str, int] = {}
        self._socket, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "raddle.worker.nursery"]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._buffer = b""
        self._changed = asyncio.Event()
        self._over = False
        self._order(
            "setup",
            path=sys.path,
            config=_settings(),
            log_level=log_level,
            # The client too: imported once here, it costs the first task that
            # submits tasks nothing in any of the workers.
            modules=["raddle.inside", "raddle.client.client"],
        )

    def attach(self) -> None:
        """Read reports on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._on_reports)

    def start(self, name: str, options: dict[str, Any], secret: bytes | None) -> None:
        """Start a worker process; ``options`` are the arguments of ``Worker``."""
        # Not on a command line and not in an environment, where others could read it.
        key = None if secret is None else secret.hex()
        self._order("start", name=name, options=options, secret=key)

    async def exit_code(self, pid: int) -> int | None:
        """How the process ended, once it has; None if it is none of ours."""
        while True:
            name = next((n for n, p in self.pids.items() if p == pid), None)
            if name is None or self._over or name in self.codes:
                return None if name is None else self.codes.get(name)
            await self.changed()

    async def any_ended(self) -> None:
        """Wait until a worker process has ended, or the nursery itself."""
        while not self.codes and not self._over:
            await self.changed()

    async def changed(self) -> None:
        """Wait for the next report."""
        self._changed.clear()
        await self._changed.wait()

    async def close(self, seconds_max: float = END_SECONDS_MAX) -> None:
        """Wait until the workers, who know that they shall end, have; then kill."""
        try:
            async with asyncio.timeout(seconds_max):
                while not self._over and set(self.pids) - set(self.codes):
                    await self.changed()
        except TimeoutError:
            for name in set(self.pids) - set(self.codes):
                self._order("kill", pid=self.pids[name])
        self._socket.shutdown(socket.SHUT_WR)
        while not self._over:
            await self.changed()
        self._socket.close()
        self._process.wait()

    def _order(self, order: str, **argument: Any) -> None:
        self._socket.sendall(json.dumps({order: argument}).encode() + b"\n")

    def _on_reports(self) -> None:
        try:
            data = self._socket.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._over = True
            self._loop.remove_reader(self._socket)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            match json.loads(line):
                case {"started": name, "pid": pid}:
                    self.pids[name] = pid
                    self.codes.pop(name, None)
                case {"ended": _, "name": name, "code": code}:
                    self.codes[name] = code
        self._changed.set()


def told(code: int) -> str:
    """An exit code in words."""
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


def _settings() -> dict[str, Any]:
    """The part of this program's configuration that other processes can have too."""
    kept = {}
    for name, value in dask.config.config.items():
        try:
            kept[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue
    return kept
