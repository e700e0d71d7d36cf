"""Sizes are roughly right, fast for small values, and never an error."""

import logging
import sys
from typing import Any

import dask.sizeof
import numpy as np
import pandas as pd
import pytest

from raddle.protocol.serialize import sizeof


@pytest.mark.parametrize(
    "value",
    [
        0,
        10**100,
        1.5,
        1j,
        True,
        None,
        "text",
        "\u20ac" * 100,
        b"abc",
        bytearray(1000),
        (),
        (1, "a", None),
        [1.0, b"x"],
        [[1, 2], (3, [4])],
        list(range(10)),
        {"a": [1, 2]},
        range(3),
        object(),
        np.zeros(1000),
        memoryview(b"abc"),
    ],
    ids=repr,
)
def test_small_values_measure_as_dask_says(value: Any) -> None:
    assert sizeof(value) == dask.sizeof.sizeof(value)
    assert type(sizeof(value)) is int


def test_big_values_are_about_right() -> None:
    assert sizeof(np.zeros(1_000_000)) == 8_000_000
    assert sizeof(pd.DataFrame({"a": np.zeros(100_000)})) == pytest.approx(8e5, rel=0.1)
    assert sizeof([b"x" * 1000] * 1000) == pytest.approx(1e6, rel=0.1)
    assert sizeof(["text"] * 100_000) > 100_000


class Liar:
    def __sizeof__(self) -> int:
        raise ZeroDivisionError


class Negative:
    pass


class Fraction:
    pass


class Broken:
    pass


@pytest.fixture
def handlers() -> Any:
    """Handlers of the kinds that are found in the wild."""
    dispatch = dask.sizeof.sizeof
    before = dict(dispatch._lookup)
    dispatch.register(Negative, lambda _: -5)
    dispatch.register(Fraction, lambda _: np.float64(10.7))
    dispatch.register(Broken, lambda _: 1 / 0)
    yield
    dispatch._lookup.clear()
    dispatch._lookup.update(before)


@pytest.mark.usefixtures("handlers")
def test_broken_handlers_are_survived_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert sizeof(Fraction()) == 10
    assert sizeof(Negative()) == sys.getsizeof(Negative())
    assert not caplog.records
    for _ in range(3):
        assert sizeof(Broken()) == sys.getsizeof(Broken())
        assert sizeof(Liar()) > 0
    assert [r.levelno for r in caplog.records] == [logging.WARNING] * 2
    assert "Broken" in caplog.records[0].getMessage()
    assert "Liar" in caplog.records[1].getMessage()


def test_a_list_inside_itself_has_a_size() -> None:
    value: list[Any] = []
    value.append(value)
    assert sizeof(value) > 0
