"""What a thread does with one attempt: from payload and inputs to a report.

Everything that can go wrong here, user code included, becomes a report.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import lru_cache
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from raddle.protocol.context import current_task
from raddle.protocol.core.ids import Aid
from raddle.protocol.core.messages.base import Frames
from raddle.protocol.core.messages.client import FORM_INPUTS, FORM_NESTED, FORM_VALUE
from raddle.protocol.errors import RaddleError, SerializationError
from raddle.protocol.serialize import dump_exception, dumps, loads, nbytes_of, sizeof
from raddle.protocol.spec import bound, evaluate

from .core.attempts import Attempt, Definition
from .core.data import Packed
from .core.events import Raised, Report, Rescheduled, Returned
from .executor import RunningTask
from .failures import Failures

TEXT_MAX = 500
"""Characters of an error's text that go to logs."""
LOCKS = 16


class Reschedule(RaddleError):
    """Raised by a task to be queued again; the same worker may get it once more.

    It is no failure, and no retry is used up.
    """

    fault = "user"
    retry_helps = True


class Runner:
    """Calls tasks. ``inline_bytes`` is the size up to which results ride along.

    ``coroutines`` are the tasks that run on the event loop now, by aid: cancelling
    one ends the attempt.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, inline_bytes: int) -> None:
        self.coroutines: dict[Aid, asyncio.Task[None]] = {}
        self.failures = Failures(loop)
        self._loop = loop
        self._inline_bytes = inline_bytes
        # Striped: one object is loaded by one thread, others meanwhile by others.
        self._locks = tuple(threading.Lock() for _ in range(LOCKS))

    def __call__(self, task: RunningTask) -> Report:
        """Run a task in this thread; never raises."""
        current_task.set(task)
        begun = None
        try:
            attempt = task.attempt
            inputs = [self.unpacked(v) for v in attempt.inputs]
            call, args, kwargs = self._call_of(attempt, inputs)
            begun = perf_counter()
            if attempt.form == FORM_NESTED:
                args, kwargs = evaluate(args), evaluate(kwargs)
            value = call(*args, **kwargs)
            seconds = perf_counter() - begun
            kind: Any = type(value)
            nbytes = sizeof(value)
            frames = self._inlined(value, nbytes)
            return Returned(task.aid, value, nbytes, type_name(kind), seconds, frames)
        except Reschedule:
            return Rescheduled(task.aid)
        except BaseException as error:  # noqa: BLE001 (SystemExit ends the task alone)
            seconds = 0.0 if begun is None else perf_counter() - begun
            report = raised(task.aid, error, seconds)
            if not task.cancelled:
                name = function_name(task.attempt.definition)
                self.failures.log(task.key, name, report.text, error)
            return report
        finally:
            current_task.set(None)

    def _call_of(
        self, attempt: Attempt, inputs: list[Any]
    ) -> tuple[Callable[..., Any], Any, Any]:
        if attempt.form == FORM_VALUE:
            call: Callable[..., Any] = _identity
        else:
            call = self._function(attempt)
        if attempt.form == FORM_INPUTS:
            return call, inputs, {}
        what = f"the arguments of task {attempt.key!r}"
        with bound(inputs):
            loaded = loads(attempt.payload, what)
        if attempt.form == FORM_VALUE:
            return call, (loaded,), {}
        args, kwargs = loaded
        return call, args, kwargs

    def _function(self, attempt: Attempt) -> Callable[..., Any]:
        definition = attempt.definition
        if definition is None:
            msg = f"the function of task {attempt.key!r} has not come to this worker"
            raise RaddleError(msg)
        if not definition.loaded:
            self._load(definition, attempt)
        if definition.error is not None:
            # The threads that raise it must not add to each other's traceback.
            raise definition.error.with_traceback(None)
        if definition.asynchronous:
            return self._on_loop(definition.call)
        return definition.call  # type: ignore[no-any-return]

    def _load(self, definition: Definition, attempt: Attempt) -> None:
        with self._locks[id(definition) % LOCKS]:
            if definition.loaded:
                return
            try:
                call = loads(definition.frames, f"the function of {attempt.key!r}")
                definition.call = call
                definition.asynchronous = is_coroutine_function(call)
            except SerializationError as error:
                definition.error = error
            definition.frames = ()
            definition.loaded = True

    def unpacked(self, value: Any) -> Any:
        """An input as the user knows it: loaded, once, if it came as frames."""
        if type(value) is not Packed:
            return value
        if value.frames is not None:
            with self._locks[id(value) % LOCKS]:
                frames = value.frames
                if frames is not None:
                    value.value = loads(frames, "an input")
                    value.frames = None
        return value.value

    def _inlined(self, value: Any, nbytes: int) -> Frames | None:
        """The value as frames, if it is small and cheap to pickle."""
        if nbytes > self._inline_bytes or not is_cheap(value):
            return None
        frames = dumps(value)
        return frames if nbytes_of(frames) <= self._inline_bytes else None

    def _on_loop(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A coroutine function as one that blocks this thread while it runs."""
        loop, coroutines = self._loop, self.coroutines

        def call(*args: Any, **kwargs: Any) -> Any:
            task = current_task.get()
            assert task is not None
            context = copy_context()
            done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
            outcome: list[tuple[Any, BaseException | None]] = []

            async def run() -> None:
                try:
                    outcome.append((await function(*args, **kwargs), None))
                except BaseException as error:  # noqa: BLE001 (must not end the loop)
                    outcome.append((None, error))

            def start() -> None:
                running = loop.create_task(run(), context=context)
                coroutines[task.aid] = running
                running.add_done_callback(ended)

            def ended(_: Any) -> None:
                del coroutines[task.aid]
                done.put(outcome[0] if outcome else (None, asyncio.CancelledError()))

            loop.call_soon_threadsafe(start)
            value, error = done.get()
            if error is not None:
                raise error
            return value

        return call


def raised(aid: Aid, error: BaseException, seconds: float) -> Raised:
    """The report of an error, without our own part of its traceback."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    if tb is not None:
        error = error.with_traceback(tb)
    try:
        text = f"{type(error).__name__}: {error}"[:TEXT_MAX]
    except Exception:  # noqa: BLE001 (a user's __str__)
        text = type(error).__name__
    return Raised(aid, dump_exception(error), text, seconds)


def function_name(definition: Definition | None) -> str:
    """What the log calls a function."""
    if definition is None or definition.call is None:
        return "unknown"
    # Partials say what they call.
    call = getattr(definition.call, "func", definition.call)
    return str(getattr(call, "__qualname__", type(call).__name__))


def _identity(value: Any) -> Any:
    return value


def is_coroutine_function(call: Any) -> bool:
    """Whether calling it gives a coroutine, also through partials and objects."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 (it is inspected, not called)
    )


@lru_cache(maxsize=1000)
def type_name(kind: Any) -> str:
    """The qualified name of a type, without ``builtins``."""
    if kind.__module__ == "builtins":
        return str(kind.__qualname__)
    return f"{kind.__module__}.{kind.__qualname__}"


_SCALARS = frozenset((int, float, complex, bool, str, bytes, type(None)))
_CONTAINERS = frozenset((tuple, list, set, frozenset))
_CHEAP_MODULES = frozenset(("numpy", "datetime", "decimal", "fractions", "uuid"))
ITEMS_MAX = 100
DEPTH_MAX = 3


def is_cheap(value: Any, depth: int = DEPTH_MAX) -> bool:
    """Whether pickling a value whose estimated size is small cannot be long work.

    The estimate of an unknown type says nothing about what hangs on it.
    """
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind in _CONTAINERS or kind is dict:
        if not depth or len(value) > ITEMS_MAX:
            return False
        items = value if kind is not dict else (*value, *value.values())
        return all(is_cheap(item, depth - 1) for item in items)
    if kind.__module__ not in _CHEAP_MODULES:
        return False
    # An array of objects is small whatever its elements are.
    return not getattr(getattr(value, "dtype", None), "hasobject", False)
