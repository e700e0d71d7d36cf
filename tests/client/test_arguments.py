"""Where futures are looked for in arguments, and where they are not."""

from __future__ import annotations

import time
from collections import namedtuple
from typing import Any, NamedTuple

import pytest

from raddle.client.arguments import has_futures, replaced, with_references
from raddle.client.client import Client
from raddle.client.encode import Encoder, Inputs
from raddle.client.future import Future
from raddle.protocol.spec import Ref


class Point(NamedTuple):
    x: Any
    y: Any


Pair = namedtuple("Pair", "a b")  # noqa: PYI024 (both kinds are in use)


@pytest.fixture
def inputs(client: Client) -> Inputs:
    return Inputs(Encoder(client.session, client.token_settings))


@pytest.mark.parametrize("value", [3, "x", None, [1, [2, {"a": 3}]], {1, 2}, object()])
async def test_what_holds_no_future_stays_the_same_object(
    value: Any, inputs: Inputs
) -> None:
    assert not has_futures(value)
    assert with_references(value, inputs) is value
    args = (value, 1)
    assert all(a is b for a, b in zip(replaced(args, inputs), args, strict=True))
    assert inputs.deps == []


async def test_futures_are_found_in_nested_containers(
    client: Client, inputs: Inputs
) -> None:
    x, y = client.submit(abs, 1, key="x"), client.submit(abs, 2, key="y")
    value = [x, (1, {"k": [y, x]}), Point(x, 2), Pair(1, y)]
    got = with_references(value, inputs)
    assert inputs.deps == ["x", "y"]
    first, (one, inner), point, pair = got
    assert type(first) is Ref
    assert (first.key, first.index) == ("x", 0)
    assert one == 1
    assert [r.index for r in inner["k"]] == [1, 0]
    assert type(point) is Point
    assert point.x is first
    assert type(pair) is Pair
    assert pair.b.index == 1
    assert value[0] is x


async def test_futures_in_sets(client: Client, inputs: Inputs) -> None:
    x = client.submit(abs, 1, key="x")
    for kind in (set, frozenset):
        (ref,) = got = with_references(kind([x]), inputs)
        assert type(got) is kind
        assert ref.key == "x"


async def test_a_key_of_a_dict_is_no_dependency(client: Client) -> None:
    assert not has_futures({client.submit(abs, 1): 1})


async def test_a_cyclic_container(client: Client) -> None:
    cycle: list[Any] = [1]
    cycle.append(cycle)
    assert not has_futures(cycle)
    cycle.append(client.submit(abs, 1))
    assert has_futures(cycle)


def test_deep_containers_need_no_stack() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert not has_futures(deep)


def test_a_long_list_is_looked_through_at_a_glance() -> None:
    numbers = list(range(1_000_000))
    begin = time.process_time()
    assert not has_futures(numbers)
    glance = time.process_time() - begin
    begin = time.process_time()
    assert not any(isinstance(n, Future) for n in numbers)
    assert glance < time.process_time() - begin
