"""What a running task can find out about where it runs.

Only the shapes are known here: the worker fills them in, the client reads them.
That spares client and worker from importing each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol

from .core.ids import Address, Aid, Key


class WorkerHandle(Protocol):
    """The worker that runs a task, as far as the task's own client needs it.

    ``client`` is where ``get_client()`` keeps the one client of this worker, which
    the worker closes when it ends.
    """

    address: Address
    name: str
    scheduler_address: Address
    secret: bytes | None
    loop: asyncio.AbstractEventLoop
    client: Any


class TaskHandle(Protocol):
    """The task attempt that runs in this thread or coroutine."""

    key: Key
    aid: Aid
    worker: WorkerHandle

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the result any more: a long task may look, and stop."""

    def blocked(self) -> AbstractContextManager[None]:
        """Give the execution slot back while the block waits for other tasks."""

    def secede(self) -> None:
        """Give the execution slot back until :meth:`rejoin`, or for good."""

    def rejoin(self) -> None:
        """Wait for an execution slot and hold it again."""


current_task: ContextVar[TaskHandle | None] = ContextVar(
    "raddle_current_task", default=None
)
"""The task that runs here; None outside of tasks."""

cluster_factory: Callable[..., Any] | None = None
"""Makes the cluster of a ``Client()`` without an address; set by the facade."""
