"""What the log says of tasks that raise: the first of a group in full, then a number.

Ten thousand tasks that fail for one reason must not hide it, nor cost ten thousand
tracebacks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from contextlib import suppress

from raddle.protocol.core.ids import Key, group_of

logger = logging.getLogger("raddle.worker")

IN_FULL_MAX = 10
"""Failures of a group that are logged with their tracebacks."""
COUNT_SECONDS = 1.0
"""How often the others are counted; a group without any for so long begins anew."""
TRACEBACK_MAX = 10_000
"""Characters of a traceback, the last ones."""


class _Group:
    __slots__ = ("in_full", "more", "quiet")

    def __init__(self) -> None:
        self.in_full = 0
        self.more = 0
        self.quiet = False


class Failures:
    """The failures of one worker's tasks; ``loop`` times the counts."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._groups: dict[str, _Group] = {}
        self._timer: asyncio.TimerHandle | None = None

    def log(self, key: Key, function: str, text: str, error: BaseException) -> None:
        """Log that a task raised, or count it; may be called from any thread."""
        name = group_of(key)
        with self._lock:
            if not self._groups:
                # The loop may be closed at the very end.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._start)
            group = self._groups.setdefault(name, _Group())
            group.quiet = False
            if group.in_full >= IN_FULL_MAX:
                group.more += 1
                return
            group.in_full += 1
        shown = "".join(traceback.format_exception(error)).rstrip()[-TRACEBACK_MAX:]
        logger.warning(
            "Compute Failed: task %r, function %s: %s\n%s", key, function, text, shown
        )

    def close(self) -> None:
        """Log what is still to be counted."""
        if self._timer is not None:
            self._timer.cancel()
        self._count()

    def _start(self) -> None:
        self._timer = self._loop.call_later(COUNT_SECONDS, self._on_time)

    def _on_time(self) -> None:
        if self._count():
            self._start()

    def _count(self) -> bool:
        """Log and reset the counts; true while there is any group."""
        with self._lock:
            groups = self._groups
            counts = [(name, g.more) for name, g in groups.items() if g.more]
            self._groups = {name: g for name, g in groups.items() if not g.quiet}
            for group in self._groups.values():
                group.more, group.quiet = 0, True
            going_on = bool(self._groups)
        for name, more in counts:
            logger.warning("Compute Failed: %d more tasks of group %r", more, name)
        return going_on
