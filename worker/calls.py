"""How a function is called outside any task, for ``client.run``."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

from raddle.protocol.context import current_task
from raddle.protocol.core.ids import Aid, Key
from raddle.protocol.core.messages.worker import Run, RunResult
from raddle.protocol.serialize import copy_frames, dump_exception, dumps, loads

from .core.data import NO_ATTEMPT
from .run_task import is_coroutine_function
from .threads import in_thread

WORKER_PARAMETER = "dask_worker"
"""A function with a parameter of this name gets the worker by it, as the peer's do."""


class RunHandle:
    """Stands for the task where none runs: it holds no slot, so it gives none back."""

    __slots__ = ("aid", "cancelled", "key", "worker")

    def __init__(self, worker: Any, call: int) -> None:
        self.worker = worker
        self.key: Key = f"run-{call}"
        self.aid: Aid = NO_ATTEMPT
        self.cancelled = False

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Wait; nobody is kept from running by it."""
        yield

    def secede(self) -> None:
        """Nothing to give back."""

    def rejoin(self) -> None:
        """Nothing to wait for."""


async def answer_run(worker: Any, message: Run) -> RunResult:
    """Call the function and say what came of it; user code cannot make this raise.

    A plain function is called in a thread of its own, a coroutine function on the
    event loop.
    """
    current_task.set(RunHandle(worker, message.call))

    def call() -> tuple[RunResult | None, Awaitable[Any] | None]:
        current_task.set(RunHandle(worker, message.call))
        function, args, kwargs = loads(message.payload, "a call for run")
        if _wants_worker(function):
            kwargs = kwargs | {WORKER_PARAMETER: worker}
        if is_coroutine_function(function):
            return None, function(*args, **kwargs)
        return _result(message.call, function(*args, **kwargs)), None

    try:
        result, awaitable = await in_thread(call)
        if awaitable is not None:
            value = await awaitable
            result = await in_thread(_result, message.call, value)
    except BaseException as error:  # noqa: BLE001 (SystemExit must not end the worker)
        return RunResult(message.call, None, dump_exception(error))
    assert result is not None
    return result


def _result(call: int, value: Any) -> RunResult:
    frames = copy_frames(dumps(value, "the result of a call by run"))
    return RunResult(call, frames, None)


def _wants_worker(function: Any) -> bool:
    try:
        return WORKER_PARAMETER in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return False
