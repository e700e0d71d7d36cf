"""The normal form of a task, and how its inputs find their way into it.

A run_spec is ``(func, args, kwargs)`` in which a dependency is a :class:`Ref` and
a nested call a :class:`Call`. ``submit``, a tuple in a graph and a dask node all
become this form in the client. Arguments are pickled as they stand: a ``Ref``
pickles to an index, and *unpickling is the substitution*: :func:`bound` makes a
task's input values available to the ``Ref`` indices while its payload is loaded.
"""

from __future__ import annotations

import copyreg
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .core.ids import Key

_inputs = threading.local()


def input_value(index: int) -> Any:
    """The value of input number ``index`` of the payload that is being loaded."""
    values: Sequence[Any] = getattr(_inputs, "values", ())
    try:
        return values[index]
    except IndexError:
        msg = f"input {index} of {len(values)} bound inputs"
        raise IndexError(msg) from None


# Two bytes in each pickled reference instead of a module and function name; the
# codes from 240 on are reserved for private use (PEP 307).
copyreg.add_extension(__name__, "input_value", 240)


@contextmanager
def bound(values: Sequence[Any]) -> Iterator[None]:
    """While active (in this thread), references load as ``values[index]``."""
    before = getattr(_inputs, "values", ())
    _inputs.values = values
    try:
        yield
    finally:
        _inputs.values = before


class Ref:
    """A dependency inside a run_spec: its public key, and its place among the deps."""

    __slots__ = ("index", "key")

    def __init__(self, key: Key, index: int) -> None:
        self.key = key
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return input_value, (self.index,)


class Call:
    """A call inside a run_spec's arguments, made on the worker before the task's own."""

    __slots__ = ("args", "func", "kwargs")

    def __init__(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.func, self.args, self.kwargs)


def evaluate(value: Any) -> Any:
    """``value`` with every :class:`Call` in nested list, tuple, dict or set made."""
    kind = type(value)
    if kind is Call:
        args = [evaluate(a) for a in value.args]
        return value.func(*args, **{k: evaluate(v) for k, v in value.kwargs.items()})
    if kind is list or kind is tuple or kind is set:
        return kind(evaluate(v) for v in value)
    if kind is dict:
        return {evaluate(k): evaluate(v) for k, v in value.items()}
    return value
