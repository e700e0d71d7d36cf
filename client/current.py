"""Which client is meant where none is named.

In this order: the one set by ``with client.as_current()``, inside a task the client
of its worker (made when first asked for), the process's default client: the latest
of those that are open and were made with ``set_as_default``.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any

from raddle.protocol.context import WorkerHandle, current_task

chosen: ContextVar[Any | None] = ContextVar("raddle_client", default=None)
"""The client of the enclosing ``with client.as_current()``."""

_defaults: list[Any] = []
_making = threading.Lock()


def push_default(client: Any) -> None:
    """Make ``client`` the process's default."""
    _defaults.append(client)


def remove_default(client: Any) -> None:
    """``client`` closes: the default is again what it was before, if that lives."""
    if client in _defaults:
        _defaults.remove(client)


def find_client() -> Any | None:
    """The client that is meant here; None if there is none."""
    client = chosen.get()
    if client is not None:
        return client
    task = current_task.get()
    if task is not None:
        return client_of_worker(task.worker)
    return _defaults[-1] if _defaults else None


def client_of_worker(worker: WorkerHandle) -> Any:
    """The one client that all tasks of a worker share; it runs on the worker's loop."""
    client = worker.client
    if client is None:
        # A worker whose tasks never ask for a client does not pay for its import.
        from .client import WorkerClient

        with _making:
            client = worker.client
            if client is None:
                client = worker.client = WorkerClient(worker)
    return client
