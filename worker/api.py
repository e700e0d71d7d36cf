"""What user code inside a task can ask of its worker."""

from __future__ import annotations

from typing import Any

from raddle.protocol.context import TaskHandle
from raddle.protocol.context import current_task as _current_task
from raddle.protocol.errors import RaddleError


class OutsideTaskError(RaddleError, ValueError):
    """Only a task can be asked for its worker, or give back its slot."""

    fault = "user"


def current_task() -> TaskHandle:
    """The task that runs here: ``key``, ``aid``, ``cancelled``, ``worker``.

    Raises OutsideTaskError when no task does.
    """
    task = _current_task.get()
    if task is None:
        msg = (
            "no task runs here: call this inside a function given to submit, map or "
            "run, in the thread (or with the context) that raddle called it in"
        )
        raise OutsideTaskError(msg)
    return task


def get_worker() -> Any:
    """The ``Worker`` that runs this task. Raises OutsideTaskError."""
    return current_task().worker


def secede() -> None:
    """Give this task's slot to another one; it runs on. Raises OutsideTaskError."""
    current_task().secede()


def rejoin() -> None:
    """Wait for a free slot and hold it again. Raises OutsideTaskError."""
    current_task().rejoin()
