"""Functions are pickled once where that is safe, and their digest tells them apart."""

import functools
import json
import math
import operator
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle
import numpy as np
import pytest

from raddle.protocol.errors import SerializationError
from raddle.protocol.serialize import dumps_function, functions, loads, nbytes_of


def twice(x: int) -> int:
    return 2 * x


class Space:
    @staticmethod
    def static(x: int) -> int:
        return x

    @classmethod
    def made(cls) -> "Space":
        return cls()

    def method(self) -> int:
        return 1


class Adder:
    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, x: int) -> int:
        return x + self.n


IMPORTABLE: list[Callable[..., Any]] = [
    twice, Space.static, Space.method, Space, json.dumps, math.sin, len, dict.get,
    operator.add, np.add, np.linalg.norm,
]  # fmt: skip


@pytest.mark.parametrize("func", IMPORTABLE, ids=lambda f: f.__name__)
def test_importable_functions_travel_by_name(func: Any) -> None:
    digest, frames = dumps_function(func)
    assert len(digest) == 16
    assert nbytes_of(frames) < 120
    assert loads(frames) is func


@pytest.mark.parametrize("func", [twice, Space, json.dumps, np.add, math.sin])
def test_importable_functions_are_pickled_once(func: Any) -> None:
    assert dumps_function(func)[1] is dumps_function(func)[1]


def test_state_is_pickled_as_it_is_now() -> None:
    adder, items = Adder(1), [1]
    partial = functools.partial(operator.add, items)
    before = dumps_function(adder)[0], dumps_function(partial)[0]
    adder.n = 2
    items.append(2)
    (adder_now, frames), partial_now = dumps_function(adder), dumps_function(partial)[0]
    assert adder_now != before[0]
    assert partial_now != before[1]
    assert loads(frames)(1) == 3


def test_a_bound_method_of_a_builtin_is_not_remembered() -> None:
    items = [3]
    first = dumps_function(items.count)[0]
    items.append(3)
    assert dumps_function(items.count)[0] != first


@pytest.mark.parametrize(
    "func",
    [
        lambda x: x + 1,
        functools.partial(twice, 1),
        Adder(1),
        Space().method,
        Space.made,
    ],
)
def test_equal_definitions_have_equal_digests(func: Any) -> None:
    assert dumps_function(func) == dumps_function(func)


def test_different_definitions_have_different_digests() -> None:
    funcs: list[Any] = [
        *IMPORTABLE,
        lambda x: x + 1,
        lambda x: x + 2,
        Adder(1),
        Adder(2),
    ]
    assert len({dumps_function(f)[0] for f in funcs}) == len(funcs)


def test_the_digest_covers_long_buffers() -> None:
    def make(last: int) -> Callable[[], Any]:
        array = np.zeros(100_000, "u1")
        array[-1] = last
        return lambda: array

    (one, frames), (other, _) = (dumps_function(make(i)) for i in (1, 2))
    assert len(frames) == 2
    assert one != other


def test_a_later_registration_by_value_counts() -> None:
    by_name = dumps_function(json.dumps)
    cloudpickle.register_pickle_by_value(json)
    try:
        by_value = dumps_function(json.dumps)
    finally:
        cloudpickle.unregister_pickle_by_value(json)
    assert nbytes_of(by_value[1]) > 500 > nbytes_of(by_name[1])
    assert dumps_function(json.dumps) == by_name


def test_the_memory_is_bounded_and_forgets_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "CACHE_MAX", 3)
    monkeypatch.setattr(functions, "_cache", {})
    used: list[Any] = [math.sin, math.cos, math.tan]
    for func in used:
        dumps_function(func)
    dumps_function(math.sin)  # used last
    dumps_function(math.exp)
    kept = [func for func, _ in functions._cache.values()]
    assert kept == [math.tan, math.sin, math.exp]


def test_many_threads_may_ask() -> None:
    funcs = [getattr(math, name) for name in dir(math) if not name.startswith("_")]
    funcs = [f for f in funcs if callable(f)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(dumps_function, funcs * 50))
    for func, (_, frames) in zip(funcs * 50, results, strict=True):
        assert loads(frames) is func


def test_an_unpicklable_function_is_named() -> None:
    lock = threading.Lock()

    def holds() -> Any:
        return lock

    with pytest.raises(SerializationError, match=r"function .*holds .*lock"):
        dumps_function(holds)


def test_a_callable_without_a_name_is_named_by_its_repr() -> None:
    class Busy:
        lock = threading.Lock()

        def __call__(self) -> None: ...

        def __repr__(self) -> str:
            return "<Busy bee>"

    with pytest.raises(SerializationError, match="function <Busy bee>"):
        dumps_function(Busy())
