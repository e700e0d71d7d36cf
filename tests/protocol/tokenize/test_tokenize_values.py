"""Equal values get equal tokens, different values different ones: the big table.

Each group lists ways to make one value. Within a group all tokens are equal, also
after any pickling; between groups all differ; all of them are deterministic.
"""

import collections
import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import math
import operator
import pathlib
import types
import typing
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toolz  # type: ignore[import-untyped]

from raddle.tokenize import Token, tokenize
from testkit.token_groups import Group, changed_by, confused, flagged, unequal


class MyInt(int):
    pass


class MyList(list[Any]):
    pass


class MyStr(str):
    __slots__ = ()


class MyTuple(tuple[Any, ...]):
    __slots__ = ()


class MyDict(dict[Any, Any]):
    pass


class MySet(set[Any]):
    pass


class Plain:
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)

    def method(self) -> None:
        pass


class Other(Plain):
    pass


class Slotted:
    __slots__ = ("a", "b")


class Zone(dt.tzinfo):
    def __init__(self, hours: int) -> None:
        self.hours = hours

    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        del when
        return dt.timedelta(hours=self.hours)

    def dst(self, when: dt.datetime | None) -> None:
        del when

    def tzname(self, when: dt.datetime | None) -> None:
        del when

    def __reduce__(self) -> tuple[Any, ...]:
        return Zone, (self.hours,)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Shade(enum.Enum):
    RED = 1


class Perm(enum.Flag):
    R = 1
    W = 2


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: object
    y: object = 0


@dataclasses.dataclass(frozen=True, slots=True)
class SlottedPoint:
    x: object
    y: object = 0


@dataclasses.dataclass
class Place:
    x: object
    y: object = 0


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024
Couple = collections.namedtuple("Couple", "b a")  # noqa: PYI024


class Typed(typing.NamedTuple):
    a: int
    b: int


class Mine:
    """Counts by what its hook says."""

    def __init__(self, what: object) -> None:
        self.what = what

    def __dask_tokenize__(self) -> object:
        return self.what


def twice(value: object) -> Plain:
    return Plain(a=value, b=value)


def slotted(*_: object, **values: object) -> Any:
    made = Slotted()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def with_extra(point: Point) -> Point:
    point.extra = 1  # type: ignore[attr-defined]
    return point


def list_of(*items: object) -> MyList:
    return MyList(items)


def unset_point() -> Point:
    point = Point(1)
    del point.y
    return point


def built(text: str) -> tuple[str, str]:
    return (text, "".join(list(text)))


def shuffled(items: list[object], by: int) -> list[object]:
    return items[by:] + items[:by]


LONG = np.arange(10_000)
LONG_CHANGED = LONG.copy()
LONG_CHANGED[5_000] = -1
DAY = dt.datetime(2026, 3, 4, 5, 6, 7, 8)  # noqa: DTZ001
UTC = dt.UTC


def numbers() -> list[Group]:
    return [
        (None,),
        (...,),
        (NotImplemented,),
        (True,),
        (False,),
        (0,),
        (1,),
        (-1,),
        (127,),
        (128,),
        (-128,),
        (-129,),
        (255,),
        (256,),
        (32767,),
        (32768,),
        (-32768,),
        (-32769,),
        (2**63,),
        (10**5000, 10**4999 * 10),
        (10**5000 + 1,),
        (MyInt(1),),
        (0.0,),
        (-0.0,),
        (1.0,),
        (math.inf,),
        (math.nan, float("nan"), -math.nan, math.inf - math.inf),
        (1j, complex(0, 1)),
        (complex(0.0, -0.0),),
        (0j,),
        (decimal.Decimal("1.0"),),
        (decimal.Decimal("1.00"),),
        (decimal.Decimal("NaN"),),
        (decimal.Decimal("-Infinity"),),
        (fractions.Fraction(1, 3), fractions.Fraction(2, 6)),
    ]


def texts_and_times() -> list[Group]:
    return [
        ("",),
        ("1",),
        ("a",),
        (MyStr("a"),),
        ("a" * 63,),
        ("a" * 64, "a" * 32 * 2),
        ("a" * 70_000,),
        ("a" * 70_001,),
        ("\ud800",),
        ("é",),
        ("e\u0301",),
        (b"",),
        (b"a",),
        (b"a" * 70_000,),
        (bytearray(b"a"),),
        (memoryview(b"a"), memoryview(bytearray(b"a"))),
        (memoryview(b"abcd")[::2], memoryview(b"ac")),
        (memoryview(b"abcd").cast("H"),),
        (dt.date(2026, 3, 4),),
        (DAY,),
        (DAY.replace(fold=1),),
        (DAY.replace(tzinfo=UTC),),
        (DAY.replace(tzinfo=dt.timezone(dt.timedelta(hours=1))),),
        (DAY.replace(tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),),
        (DAY.replace(tzinfo=Zone(1)), DAY.replace(tzinfo=Zone(1))),
        (DAY.replace(tzinfo=Zone(2)),),
        (dt.datetime(2026, 3, 4),),  # noqa: DTZ001
        (dt.time(1, 2, 3, 4),),
        (dt.timedelta(1), dt.timedelta(hours=24)),
        (uuid.UUID(int=5),),
        (pathlib.PurePosixPath("a/b"), pathlib.PurePosixPath("a//b")),
        (pathlib.Path("a/b"),),
        (range(3),),
        (range(0, 3, 2),),
        (slice(1), slice(None, 1, None)),
        (slice(None, None, 1),),
    ]


def containers() -> list[Group]:
    abc = ["a", "b", "c"]
    numbers = list(range(100))
    return [
        ([],),
        ((),),
        ({},),
        (set(),),
        (frozenset(),),
        ([1],),
        ((1,),),
        ([[1]],),
        ([1, 2], [1, *[2]]),
        ([2, 1],),
        ([1, [2]],),
        ([[1], 2],),
        (["a-b", "c"],),
        (["a", "b-c"],),
        ([True],),
        ([1.0],),
        (numbers, numbers[::-1][::-1]),
        (tuple(numbers),),
        ([float(n) for n in numbers],),
        ([True, *numbers[1:]],),
        ([*numbers[:-1], 99.0],),
        ([*numbers[:-1], True],),
        ([*numbers[:-1], 2**70],),
        ([str(n) for n in numbers],),
        (["".join(map(str, numbers)), *[""] * 99],),
        ([math.nan] * 40, [math.inf - math.inf] * 40),
        ([math.inf, -math.inf] * 20,),
        ([MyInt(1)] * 40,),
        ([1] * 40,),
        ([1] * 41,),
        ([0.0] * 40,),
        ([-0.0] * 40,),
        (set(abc), set("cba")),
        (frozenset(abc),),
        ({frozenset(abc)}, {frozenset(reversed(abc))}),
        ({1, "1"},),
        ({1.5, "1"},),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 2, "b": 1},),
        ({"a": {"b": 1}},),
        ([("a", 1), ("b", 2)],),
        (collections.OrderedDict(a=1, b=2),),
        (collections.OrderedDict(b=2, a=1),),
        (collections.defaultdict(int, a=1, b=2),),
        (collections.defaultdict(list, a=1, b=2),),
        (collections.Counter(a=1, b=2), collections.Counter("abb")),
        (collections.deque([1, 2]),),
        (collections.deque([1, 2], maxlen=3),),
        (collections.ChainMap({"a": 1}),),
    ]


def other_containers() -> list[Group]:
    abc = ["a", "b", "c"]
    return [
        (types.MappingProxyType({"a": 1, "b": 2}),),
        (types.SimpleNamespace(a=1, b=2), types.SimpleNamespace(b=2, a=1)),
        (list_of(1, 2), MyList([1, 2])),
        (MyTuple([1, 2]),),
        (MyDict(a=1, b=2), MyDict(b=2, a=1)),
        (MySet(abc), MySet(reversed(abc))),
        (built("hello world"),),
        ([abc, abc], [abc, list(abc)]),
        ({"a": 1}.keys(),),
        ({"a": 1}.values(),),
        ({"a": 1}.items(),),
    ]


def objects() -> list[Group]:
    return [
        (Plain(a=1, b=2), Plain(b=2, a=1)),
        (Plain(a=1, b=3),),
        (Plain(),),
        (Other(a=1, b=2),),
        (Plain(a=[1, 2], b=[1, 2]), twice([1, 2])),
        (Plain(s=frozenset("abcdef")), Plain(s=frozenset("fedcba"))),
        (slotted(a=1),),
        (slotted(b=1),),
        (slotted(a=1, b=None),),
        (Point(1), Point(1, 0)),
        (Place(1),),
        (with_extra(Point(1)),),
        (unset_point(),),
        (SlottedPoint(1),),
        (SlottedPoint(0, 1),),
        (Pair(1, 2),),
        (Couple(1, 2),),
        (Typed(1, 2),),
        (Color.RED, Color(1)),
        (Color.BLUE,),
        (Shade.RED,),
        (Level.LOW,),
        (Perm.R,),
        (Perm.R | Perm.W, Perm.W | Perm.R),
        (Mine(LONG), Mine(LONG.copy())),
        (Mine(LONG_CHANGED),),
        (Mine(("Mine", 1)),),
        (ValueError("a", 1),),
        (ValueError("a", 2),),
        (KeyError("a", 1),),
        (tokenize(1), Token(str(tokenize(1)))),
        (str(tokenize(1)),),
    ]


def named_functions() -> list[Group]:
    return [
        (math.sin,),
        (math.cos,),
        (operator.add,),
        (len,),
        ([1].append,),
        ("a".upper,),
        (str.upper,),
        (dict.fromkeys,),
        (int,),
        (list[int],),
        (int | str,),
        (typing.Any,),
        (json_dumps(),),
        (slotted,),
        (Plain,),
        (Color,),
        (Point,),
        (math,),
        (operator,),
        (collections.abc,),
        (types.MappingProxyType,),
        (operator.itemgetter(1),),
        (operator.itemgetter(2),),
        (operator.attrgetter("a"),),
        (np.sum,),
        (np.sin,),
        (np.float64,),
        (np.random.default_rng,),
        (np.linalg.norm,),
        (pd.DataFrame.sum,),
        (pd.concat,),
    ]


def functions() -> list[Group]:
    k, m = 1, 2
    return [
        (lambda x: x + 1, lambda x: x + 1),
        (lambda x: x + 1.0,),
        (lambda x: x + True,),
        (lambda x: x - 1,),
        (lambda x, y=1: x + 1,),  # noqa: ARG005
        (lambda x, y=2: x + 1,),  # noqa: ARG005
        (lambda x, *, y=2: x + 1,),  # noqa: ARG005
        (lambda y: y + 1,),
        (lambda x: x + k,),
        (lambda x: x + m,),
        (lambda x: x in {"a", "b", "c"}, lambda x: x in {"c", "b", "a"}),
        (lambda x: x in ("a", "b", "c"),),
        (lambda x: lambda y: x + y,),
        (lambda x: lambda y: x - y,),
        (functools.partial(slotted, 1),),
        (functools.partial(slotted, 1, a=1),),
        (functools.partial(slotted, a=1),),
        (toolz.curry(slotted, a=1),),
        (functools.partial(functools.partial(slotted, 1), 2),),
        (Plain(a=1).method,),
        (Plain.__init__,),
        (property(slotted),),
        (staticmethod(slotted),),
        (classmethod(slotted),),
        (functools.lru_cache(maxsize=3)(slotted),),
        (functools.lru_cache(maxsize=4)(slotted),),
    ]


def json_dumps() -> object:
    import json

    return json.dumps


FAMILIES: dict[str, Callable[[], list[Group]]] = {
    f.__name__: f
    for f in (
        numbers,
        texts_and_times,
        containers,
        other_containers,
        objects,
        named_functions,
        functions,
    )
}


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_within_a_group(family: str) -> None:
    assert unequal(FAMILIES[family]()) == []


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": x}])
def test_different_between_groups(wrap: Callable[[Any], object]) -> None:
    groups = [group for family in FAMILIES.values() for group in family()]
    assert confused(groups, wrap) == []
    assert len(groups) > 170


@pytest.mark.parametrize("family", FAMILIES)
def test_deterministic(family: str) -> None:
    assert flagged(FAMILIES[family]()) == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("how", ["pickle", "cloudpickle", "deepcopy"])
def test_round_trip(family: str, how: str) -> None:
    changed, kept = changed_by(how, FAMILIES[family]())
    assert changed == []
    assert kept > len(FAMILIES[family]()) / 4
