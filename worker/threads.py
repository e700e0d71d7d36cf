"""How the event loop has a blocking call made elsewhere: a thread for each.

For rare calls that may take long or never end. The threads are daemons, so that
they delay neither the end of the worker nor that of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from raddle.protocol.errors import RaddleError

T = TypeVar("T")


async def in_thread(call: Callable[..., T], *args: Any) -> T:
    """What ``call(*args)`` returns or raises, called in a new thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def run() -> None:
        value, error = None, None
        try:
            value = call(*args)
        except BaseException as caught:  # noqa: BLE001 (it is raised again)
            error = caught if isinstance(caught, Exception) else _harmless(caught)
        # The loop may be closed when this ends.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="raddle-call", daemon=True).start()
    return await future


def _harmless(error: BaseException) -> RaddleError:
    """What asks for the end of a thread or process must not end the event loop."""
    return RaddleError(f"a call in a thread raised {error!r}")
