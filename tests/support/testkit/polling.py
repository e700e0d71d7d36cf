"""How a test waits for something it gets no event for: by polling, with a deadline.

Prefer an event (a future, a message, ``asyncio.Event``); poll what can only be
looked at: a process table, a log file, another process's state.
"""

import asyncio
import time
from collections.abc import Callable

INTERVAL = 0.01
WITHIN = 30.0


def eventually(condition: Callable[[], object], *, within: float = WITHIN) -> None:
    """Block until `condition()` is true.

    Raises AssertionError when it is still false after `within` seconds; never use
    it where an event loop runs in this thread.
    """
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, _late(condition, within)
        time.sleep(INTERVAL)


async def eventually_async(
    condition: Callable[[], object], *, within: float = WITHIN
) -> None:
    """As `eventually`, while the event loop goes on."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, _late(condition, within)
        await asyncio.sleep(INTERVAL)


def _late(condition: Callable[[], object], within: float) -> str:
    name = getattr(condition, "__qualname__", repr(condition))
    return f"{name} was still false after {within:g} seconds"
