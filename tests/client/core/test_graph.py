"""Reference names, the table of annotations, and keys that travel."""

from typing import Any

import numpy as np
import pytest

from raddle.client.core.futures import FutureTable
from raddle.client.core.graph import NO_ANNOTATION, Annotations, References, annotation
from raddle.client.core.keys import as_key
from raddle.protocol.errors import ConfigError


def test_a_future_is_referred_to_by_its_key() -> None:
    record = FutureTable().bind("x")
    references = References(())
    assert references.of(record) == references.of(record) == "x"
    assert references.embedded == {"x": record.fid}


def test_two_futures_of_one_key_have_two_references() -> None:
    table = FutureTable()
    a, b = table.bind("x"), table.bind("x")
    references = References(())
    names = references.of(a), references.of(b)
    assert names[0] != names[1]
    assert references.embedded == dict(zip(names, (a.fid, b.fid), strict=True))


def test_a_future_is_not_taken_for_a_task_of_the_graph() -> None:
    record = FutureTable().bind("x")
    tricky = ("future", record.fid, "x")
    references = References({"x", tricky})
    assert references.of(record) not in ("x", tricky)


def test_equal_annotations_share_a_place() -> None:
    annotations = Annotations()
    assert annotations.index(None) == annotations.index({}) == NO_ANNOTATION
    first = annotations.index({"priority": 1, "retries": 2})
    assert annotations.index({"retries": 2, "priority": 1}) == first == 0
    assert annotations.index({"priority": 2}) == 1
    assert annotations.table == [{"priority": 1, "retries": 2}, {"priority": 2}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"priority": None, "span": "mine"}, {}),
        ({"priority": 2}, {"priority": 2}),
        ({"priority": np.float64(1.5)}, {"priority": 1.5}),
        ({"retries": 3}, {"retries": 3}),
        ({"workers": "tcp://a:1"}, {"workers": ("tcp://a:1",)}),
        ({"workers": ["a", 3]}, {"workers": ("a", "3")}),
        ({"workers": 3}, {"workers": ("3",)}),
        ({"allow_other_workers": 1}, {"allow_other_workers": True}),
        ({"resources": {"GPU": 1}}, {"resources": {"GPU": 1.0}}),
    ],
)
def test_annotations_in_the_schedulers_form(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert annotation(given) == expected


@pytest.mark.parametrize(
    "given",
    [
        {"priority": "high"},
        {"priority": [1]},
        {"retries": -1},
        {"retries": 1.5},
        {"workers": 1.5},
        {"resources": "GPU"},
        {"resources": {"GPU": "one"}},
    ],
)
def test_an_annotation_that_cannot_be(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(ConfigError, match=name):
        annotation(given)


@pytest.mark.parametrize(
    "key", ["x", b"x", 3, 1.5, -(2**63), 2**64 - 1, (), ("x", 0, ("y", 1.5))]
)
def test_keys_that_travel_as_they_are(key: Any) -> None:
    assert as_key(key) == key
    assert type(as_key(key)) is type(key)


def test_numpy_numbers_in_keys_become_python_numbers() -> None:
    key = as_key(("x", np.int64(3)))
    assert key == ("x", 3)
    assert isinstance(key, tuple)
    assert type(key[1]) is int


@pytest.mark.parametrize("key", [None, ["x"], {"x"}, ("x", None), 2**64, object()])
def test_what_cannot_be_a_key(key: Any) -> None:
    with pytest.raises(TypeError, match="cannot be a key"):
        as_key(key)
