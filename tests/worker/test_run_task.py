"""One attempt in one thread: forms, inputs, functions, results and all that fails."""

import asyncio
import functools
import threading
from datetime import date
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from raddle.protocol.context import current_task
from raddle.protocol.core.messages.client import (
    FORM_ARGS,
    FORM_INPUTS,
    FORM_NESTED,
    FORM_VALUE,
)
from raddle.protocol.errors import RaddleError, RemoteError, SerializationError
from raddle.protocol.serialize import dumps, load_exception, loads
from raddle.protocol.spec import Call, Ref
from raddle.worker.api import (
    OutsideTaskError,
    get_worker,
    rejoin,
    secede,
)
from raddle.worker.api import current_task as current_task_of_user
from raddle.worker.core.attempts import Attempt, Definition
from raddle.worker.core.data import Packed
from raddle.worker.core.events import Raised, Report, Rescheduled, Returned
from raddle.worker.executor import Executor, RunningTask
from raddle.worker.run_task import Reschedule, Runner, is_cheap

INLINE = 1024


def made(
    function: Any,
    *args: Any,
    form: int = FORM_ARGS,
    inputs: tuple[Any, ...] = (),
    payload: Any = None,
    **kwargs: Any,
) -> Attempt:
    """An attempt at `function(*args, **kwargs)`, or with another payload."""
    given = (args, kwargs) if payload is None else payload
    frames = () if form == FORM_INPUTS else dumps(given)
    definition = function
    if function is not None and not isinstance(function, Definition):
        definition = Definition(dumps(function))
    attempt = Attempt(7, 1, "the-key", form, definition, frames, (), (0,), None)
    attempt.inputs = inputs
    return attempt


class Rig:
    """A runner and the executor that its tasks belong to; nothing is queued."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.runner = Runner(self.loop, INLINE)
        worker: Any = SimpleNamespace(loop=self.loop, name="the-worker")
        self.executor = Executor(1, self.runner, lambda _: None, worker)

    def task(self, attempt: Attempt) -> RunningTask:
        return RunningTask(attempt, self.executor)

    def run(self, attempt: Attempt) -> Report:
        return self.runner(self.task(attempt))

    def value(self, attempt: Attempt) -> Any:
        report = self.run(attempt)
        assert isinstance(report, Returned), report
        return report.value

    def error(self, attempt: Attempt) -> BaseException:
        report = self.run(attempt)
        assert isinstance(report, Raised), report
        return load_exception(report.error)


@pytest.fixture
async def rig() -> Rig:
    return Rig()


# What is called with what


def add(a: int, b: int = 0, *more: int) -> int:
    return a + b + sum(more)


async def test_arguments_come_from_the_payload(rig: Rig) -> None:
    assert rig.value(made(add, 1, b=2)) == 3


async def test_references_load_as_inputs(rig: Rig) -> None:
    attempt = made(add, Ref("y", 1), 10, Ref("x", 0), inputs=(100, 1000))
    assert rig.value(attempt) == 1110
    nested = made(len, [Ref("x", 0), {"a": Ref("x", 0)}], inputs=("x",))
    assert rig.value(nested) == 2


async def test_inputs_alone_need_no_payload(rig: Rig) -> None:
    assert rig.value(made(add, form=FORM_INPUTS, inputs=(1, 2, 3))) == 6


async def test_a_value_is_nothing_but_its_payload(rig: Rig) -> None:
    assert rig.value(made(None, form=FORM_VALUE, payload=[1, 2])) == [1, 2]


async def test_nested_calls_are_made_first(rig: Rig) -> None:
    call = Call(add, (Ref("x", 0), 1), {})
    attempt = made(add, [call], form=FORM_NESTED, inputs=(5,))
    assert rig.value(made(sum, [call, 1], form=FORM_NESTED, inputs=(5,))) == 7
    assert isinstance(rig.error(attempt), TypeError)


async def test_packed_inputs_are_loaded_once(rig: Rig) -> None:
    packed = Packed(dumps({"a": 1}))
    first = rig.value(made(lambda x: x, form=FORM_INPUTS, inputs=(packed,)))
    second = rig.value(made(lambda x: x, form=FORM_INPUTS, inputs=(packed,)))
    assert first == {"a": 1}
    assert first is second
    assert packed.frames is None


async def test_a_function_is_loaded_once(rig: Rig) -> None:
    definition = Definition(dumps(lambda: 1))
    rig.value(made(definition))
    loaded = definition.call
    rig.value(made(definition))
    assert definition.call is loaded
    assert definition.frames == ()


async def test_a_function_that_cannot_be_loaded_fails_each_task(rig: Rig) -> None:
    definition = Definition((b"cno_such_module\nf\n.",))
    for _ in range(2):
        error = rig.error(made(definition))
        assert isinstance(error, SerializationError)
        assert "the function of 'the-key'" in str(error)
        assert "no_such_module" in str(error)


async def test_a_function_that_never_came_fails_the_task(rig: Rig) -> None:
    error = rig.error(made(None, 1))
    assert isinstance(error, RaddleError)
    assert "has not come" in str(error)


async def test_inputs_and_arguments_that_cannot_be_loaded(rig: Rig) -> None:
    broken = (b"cno_such_module\nf\n.",)
    error = rig.error(made(add, form=FORM_INPUTS, inputs=(Packed(broken),)))
    assert isinstance(error, SerializationError)
    attempt = made(add)
    attempt.payload = broken
    error = rig.error(attempt)
    assert isinstance(error, SerializationError)
    assert "the arguments of task 'the-key'" in str(error)


# What comes of it


async def test_a_small_result_rides_along(rig: Rig) -> None:
    report = rig.run(made(add, 1, 2))
    assert isinstance(report, Returned)
    assert report.type_name == "int"
    assert report.nbytes == 28
    assert report.seconds >= 0
    assert report.frames is not None
    assert loads(report.frames) == 3


class Point(NamedTuple):
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "rides"),
    [
        ("x" * 100, True),
        ("x" * INLINE, False),
        ([1, (2.0, None), {"a": {b"b"}}], True),
        ([[[[[1]]]]], False),
        (np.float64(1.0), True),
        (np.arange(10), True),
        (np.array([{}], dtype=object), False),
        (np.arange(10_000), False),
        (date(2026, 11, 30), True),
        (Point(1, 2), False),
        (threading.Lock(), False),
        ([threading.Lock()], False),
    ],
    ids=repr,
)
async def test_what_is_small_and_cheap_to_pickle_rides_along(
    rig: Rig, value: Any, rides: bool
) -> None:
    report = rig.run(made(lambda x: x, form=FORM_INPUTS, inputs=(value,)))
    assert isinstance(report, Returned)
    assert (report.frames is not None) == rides


def test_a_list_of_many_small_things_is_not_cheap() -> None:
    assert is_cheap([1] * 100)
    assert not is_cheap([1] * 101)


async def test_an_error_is_reported_with_the_users_part_of_its_traceback(
    rig: Rig,
) -> None:
    def fails() -> None:
        raise ValueError("no\nluck")

    report = rig.run(made(fails))
    assert isinstance(report, Raised)
    assert report.text == "ValueError: no\nluck"
    error = load_exception(report.error)
    assert isinstance(error, ValueError)
    tb = error.__traceback__
    assert tb is not None
    assert tb.tb_frame.f_code.co_name == "fails"
    assert tb.tb_next is None


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


async def test_an_error_that_cannot_be_printed(rig: Rig) -> None:
    def fails() -> None:
        raise Unreadable

    report = rig.run(made(fails))
    assert isinstance(report, Raised)
    assert report.text == "Unreadable"


async def test_an_error_that_cannot_be_pickled(rig: Rig) -> None:
    def fails() -> None:
        raise ValueError(threading.Lock())

    error = rig.error(made(fails))
    assert isinstance(error, RemoteError)
    assert "ValueError" in str(error)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_a_task_cannot_end_its_thread(
    rig: Rig, kind: type[BaseException]
) -> None:
    def fails() -> None:
        raise kind

    assert type(rig.error(made(fails))) is kind


async def test_a_task_may_ask_to_be_run_elsewhere(rig: Rig) -> None:
    def elsewhere() -> None:
        raise Reschedule

    assert rig.run(made(elsewhere)) == Rescheduled(7)


# What a task can ask of its worker


async def test_a_task_knows_itself_and_its_worker(rig: Rig) -> None:
    def asks() -> tuple[Any, ...]:
        task = current_task_of_user()
        return task.key, task.aid, task.cancelled, get_worker().name

    assert rig.value(made(asks)) == ("the-key", 7, False, "the-worker")
    assert current_task.get() is None


@pytest.mark.parametrize("ask", [current_task_of_user, get_worker, secede, rejoin])
def test_outside_of_tasks_there_is_nothing_to_ask(ask: Any) -> None:
    with pytest.raises(OutsideTaskError, match="no task runs here"):
        ask()


# Coroutines


def in_memory(coroutine_function: Any) -> Definition:
    """A definition that is loaded, so that the function may refer to the test."""
    definition = Definition(())
    definition.call, definition.loaded = coroutine_function, True
    definition.asynchronous = True
    return definition


class Callable:
    async def __call__(self, x: int) -> int:
        await asyncio.sleep(0)
        return x + 1


async def plus(x: int, y: int) -> tuple[int, Any, int]:
    await asyncio.sleep(0)
    return x + y, current_task_of_user().key, threading.get_ident()


async def test_coroutine_functions_run_on_the_loop(rig: Rig) -> None:
    for function in (plus, functools.partial(plus, y=2)):
        args = (1, 2) if function is plus else (1,)
        report = await asyncio.to_thread(rig.run, made(function, *args))
        assert isinstance(report, Returned)
        assert report.value == (3, "the-key", threading.get_ident())
    report = await asyncio.to_thread(rig.run, made(Callable(), 1))
    assert isinstance(report, Returned)
    assert report.value == 2
    assert rig.runner.coroutines == {}


async def test_errors_of_coroutines_end_nothing_but_the_task(rig: Rig) -> None:
    async def fails() -> None:
        raise SystemExit

    report = await asyncio.to_thread(rig.run, made(fails))
    assert isinstance(report, Raised)
    assert isinstance(load_exception(report.error), SystemExit)


async def test_a_coroutine_can_be_interrupted(rig: Rig) -> None:
    waiting = asyncio.Event()
    interrupted = []

    async def waits() -> None:
        try:
            waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            interrupted.append(True)
            raise

    running = asyncio.create_task(asyncio.to_thread(rig.run, made(in_memory(waits))))
    await waiting.wait()
    rig.runner.coroutines[7].cancel()
    assert isinstance(await running, Raised)
    assert interrupted


class CancelAtOnce(dict[int, "asyncio.Task[None]"]):
    """Interrupts each coroutine before its first step."""

    def __setitem__(self, aid: int, task: "asyncio.Task[None]") -> None:
        super().__setitem__(aid, task)
        task.cancel()


async def test_a_coroutine_that_is_interrupted_before_it_begins(rig: Rig) -> None:
    began = []

    async def never() -> None:
        began.append(True)

    rig.runner.coroutines = CancelAtOnce()
    report = await asyncio.to_thread(rig.run, made(in_memory(never)))
    assert isinstance(report, Raised)
    assert not began
    assert rig.runner.coroutines == {}
