"""Functions that tests run as tasks; every process under test can import them."""

import os
from pathlib import Path
from typing import Any

import dask

import raddle


def inc(x: int) -> int:
    return x + 1


def total(*numbers: int) -> int:
    return sum(numbers)


def worker_name() -> str:
    return str(raddle.get_worker().name)


def worker_of_a_collection() -> str:
    """Who computes a collection inside a task. Asks for no client."""
    return str(dask.delayed(worker_name)().compute())


class Homesick:
    """Loads only in the process that made it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _come_home, (type(self), os.getpid())


class HomesickError(Exception):
    """Likewise."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _come_home, (type(self), os.getpid(), *self.args)


def _come_home(kind: type[Any], home: int, *args: Any) -> Any:
    if os.getpid() != home:
        msg = "this is not home"
        raise ValueError(msg)
    return kind(*args)


def fail_far_from_home() -> None:
    msg = "far from home"
    raise HomesickError(msg)


def combine(*numbers: int) -> int:
    """A number in which all others, and their order, can be seen."""
    result = 7
    for number in numbers:
        result = (result * 31 + number) % 1_000_000_007
    return result


def touch_and_combine(path: str, *numbers: int) -> int:
    """The same; and whoever watches sees that it ran."""
    Path(path).touch()
    return combine(*numbers)
