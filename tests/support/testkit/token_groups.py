"""Groups of values for the tests of tokens: equal within, different between."""

import copy
import pickle
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle
import numpy as np

from raddle.tokenize import tokenize

Group = tuple[Any, ...]
"""Ways to make one value."""


def unequal(groups: Iterable[Group]) -> list[Group]:
    """The groups whose members have more than one token."""
    return [group for group in groups if len(set(map(tokenize, group))) != 1]


def confused(
    groups: Iterable[Group], wrap: Callable[[Any], object]
) -> list[tuple[Any, Any]]:
    """Pairs of values of different groups that have one token, wrapped alike."""
    seen: dict[str, Any] = {}
    found = []
    for first, *_ in groups:
        token = tokenize(wrap(first))
        if token in seen:
            found.append((seen[token], first))
        seen[token] = first
    return found


def flagged(groups: Iterable[Group]) -> list[Any]:
    """The values whose token is not deterministic."""
    return [v for group in groups for v in group if not tokenize(v).deterministic]


def _changes(value: Any) -> bool:
    """Whether pickle gives back another value: it makes arrays native, and bytes."""
    swapped = type(value) is np.ndarray and not value.dtype.isnative
    return swapped or isinstance(value, memoryview)


def changed_by(how: str, groups: Iterable[Group]) -> tuple[list[Any], int]:
    """What has another token after ``how``, and how many values survived it."""
    kept = 0
    found = []
    for *_, value in groups:
        if _changes(value):
            continue
        try:
            if how == "deepcopy":
                again = copy.deepcopy(value)
            else:
                dumps = {"pickle": pickle, "cloudpickle": cloudpickle}[how].dumps
                again = pickle.loads(dumps(pickle.loads(dumps(value))))
        except (TypeError, AttributeError, pickle.PicklingError):
            continue
        kept += 1
        if tokenize(again) != tokenize(value):
            found.append(value)
    return found, kept
