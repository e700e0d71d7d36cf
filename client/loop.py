"""Where a synchronous client's coroutines run: a daemon thread with a loop."""

from __future__ import annotations

import asyncio
import threading

from raddle.protocol.node.lifecycle import new_event_loop


class LoopThread:
    """An event loop that runs in a thread of its own until :meth:`stop`."""

    def __init__(self, name: str) -> None:
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(_cancel_all())
            self.loop.close()

    def stop(self, timeout: float = 5.0) -> None:
        """End the loop and wait for its thread, at most ``timeout`` seconds."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join(timeout)


async def _cancel_all() -> None:
    """Let every task of the loop end before it closes."""
    own = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not own]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
