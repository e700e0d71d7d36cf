"""numpy, pandas and pyarrow: content counts, layout does not.

As in test_tokenize_values: within a group all tokens are equal, between groups all
differ, all of them are deterministic and survive pickling.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from raddle.tokenize import tokenize
from testkit.token_groups import Group, changed_by, confused, flagged, unequal

SQUARE = np.arange(9.0).reshape(3, 3)
BIG = np.arange(60_000).reshape(300, 200)


STRUCT = [("a", "i4"), ("b", "f8")]


class Sub(pd.DataFrame):
    @property
    def _constructor(self) -> Any:
        return Sub


def arrays() -> list[Group]:
    a, ro = np.array, np.array([1.0, 2.0])
    ro.flags.writeable = False
    return [
        (SQUARE, SQUARE.copy(), np.asfortranarray(SQUARE), SQUARE[:, :], SQUARE.T.T),
        (SQUARE.T, SQUARE.T.copy(), np.asfortranarray(SQUARE.T)),
        (SQUARE[::-1], SQUARE[::-1].copy()),
        (SQUARE.reshape(9),),
        (SQUARE.reshape(1, 9),),
        (SQUARE.astype("f4"),),
        (SQUARE.astype(">f8"),),
        (SQUARE.astype("i8"),),
        (SQUARE.tolist(),),
        (BIG, BIG.copy(), np.asfortranarray(BIG)),
        (BIG.T, BIG.T.copy()),
        (BIG[::2, ::-1], BIG[::2, ::-1].copy()),
        (
            np.broadcast_to(np.arange(200), (300, 200)),
            np.tile(np.arange(200), (300, 1)),
        ),
        (ro, a([1.0, 2.0])),
        (np.zeros((0, 3)),),
        (np.zeros((3, 0)),),
        (np.zeros(0),),
        (a(1.0),),
        (a([1.0]),),
        (np.float64(1), a(1.0)[()]),
        (np.float32(1),),
        (np.int64(1),),
        (np.bool_(True),),
        (np.str_("a"),),
        (np.bytes_(b"a"),),
        (np.datetime64("2026-01-01"),),
        (np.datetime64("2026-01-01", "s"),),
        (np.timedelta64(1, "D"),),
        (a(["2026-01-01"], "M8[D]"),),
        (a(["2026-01-01"], "M8[s]"),),
        (a([1], "m8[D]"),),
    ]


def arrays_of_other_things() -> list[Group]:
    a = np.array
    padded = np.zeros(3, np.dtype(STRUCT, align=True))
    dirty = np.full(padded.nbytes, 255, np.uint8).view(padded.dtype)
    dirty["a"], dirty["b"] = 0, 0
    strings = np.dtypes.StringDType()
    struct = STRUCT
    return [
        (a(["a-b", "c"], object),),
        (a(["a", "b-c"], object),),
        (a(["a", "b"], object), a(["x", "a", "b"], object)[1:]),
        (a(["a", None], object),),
        (a(["a"] * 50, object), a([*["a"] * 50, 1], object)[:50]),
        (a([["a"], ["b"]], object),),
        (a([[1, 2], [3]], object),),
        (a(["a", "b"]),),
        (a([b"a", b"b"]),),
        (a(["a", "b"], strings), a(["a", "b", "c"], strings)[:2]),
        (a(["a" * 40, "b"], strings),),
        (a([(1, 2.0)], struct),),
        (a([(1, 2.0)], [("a", "i4"), ("c", "f8")]),),
        (a([(2, 1.0)], [("b", "i4"), ("a", "f8")]),),
        (padded, dirty),
        (np.zeros(3, struct),),
        (a([(1, "x")], [("a", "i4"), ("b", "O")]),),
        (np.arange(4, dtype=np.longdouble), np.arange(8, dtype=np.longdouble)[:4]),
        (np.rec.array([(1, 2.0)], dtype=struct),),
        (np.ma.array([1, 2, 3]), np.ma.array([1, 2, 3], mask=[False] * 3)),
        (np.ma.array([1, 2, 3], mask=[False, True, False]),),
        (np.ma.masked,),
        (np.ma.array([1, 2, 3], mask=[False, True, False], fill_value=7),),
        (a([1, 2, 3]),),
    ]


def around_numpy() -> list[Group]:
    struct = STRUCT
    return [
        (np.dtype("f8"),),
        (np.dtype(">f8"),),
        (np.dtype(struct),),
        (np.dtype(struct, align=True),),
        (np.dtype([("a", "i4"), ("c", "f8")]),),
        (np.dtype(("i4", (2,))),),
        (np.dtype("f8", metadata={"a": 1}),),
        (np.random.default_rng(1),),
        (np.random.default_rng(2),),
        (np.random.RandomState(1),),
        (np.random.SeedSequence(3),),
        (np.poly1d([1, 2]),),
        (slice(np.array([1]), None),),
    ]


def frames() -> list[Group]:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [1, 2]})
    parts = pd.concat([frame[["a"]], frame[["b"]], frame[["c"]]], axis=1)
    return [
        (frame, parts, frame.copy(), frame.iloc[::1]),
        (frame[["b", "a", "c"]],),
        (frame.rename(columns={"a": "b", "b": "a"}),),
        (frame.astype({"c": "i4"}),),
        (frame.set_index("c"),),
        (frame.set_axis(pd.Index([5, 6]), axis=0),),
        (pd.DataFrame({"a": [3.0, 4.0], "b": [1.0, 2.0], "c": [1, 2]}),),
        (pd.DataFrame(index=[0, 1]),),
        (pd.DataFrame(columns=["a"]),),
        (frame["a"], frame.a.copy()),
        (frame["a"].rename("b"),),
        (frame["a"].rename(None),),
        (Sub({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [1, 2]}),),
    ]


def columns() -> list[Group]:
    nulls = pd.array([1, None, 3], dtype="Int64")
    dirty = pd.array([1, 77, 3], dtype="Int64")
    dirty[1] = pd.NA
    text = pd.Series(["abc", "def", "ghi", None], dtype="string[pyarrow]")
    days = pd.date_range("2026-01-01", periods=3)
    return [
        (pd.Series([1, 2, 3]),),
        (pd.Series([1, 2, 3], dtype="i4"),),
        (pd.Series(nulls), pd.Series(dirty)),
        (pd.Series(nulls.astype("Int32")),),
        (pd.Series(nulls.astype("Float64")),),
        (pd.Series([True, None], dtype="boolean"),),
        (text[:2].reset_index(drop=True), pd.Series(["abc", "def"], dtype=text.dtype)),
        (text[1:3].reset_index(drop=True), pd.Series(["def", "ghi"], dtype=text.dtype)),
        (text,),
        (pd.Series(["abc", "def"], dtype=object),),
        (pd.Series(["a", "b", "a"], dtype="category"),),
        (pd.Series(pd.Categorical(["a", "b", "a"], ["b", "a"])),),
        (pd.Series(pd.Categorical(["a", "b", "a"], ordered=True)),),
        (pd.Series(days),),
        (pd.Series(days.tz_localize("UTC")),),
        (pd.Series(days.tz_localize("Europe/Berlin")),),
        (pd.Series(days.astype("M8[s]")),),
        (pd.Series(days - days[0]),),
        (pd.Series(days.to_period("D")),),
        (pd.Series(days.to_period("M")),),
        (pd.Series(pd.arrays.SparseArray([0, 0, 1])),),
        (pd.Series(pd.arrays.SparseArray([0, 0, 1], fill_value=1)),),
        (pd.Series(pd.interval_range(0, 3)),),
        (pd.Series(pd.interval_range(0, 3, closed="left")),),
        (pd.Series([1, 2], dtype=pd.ArrowDtype(pa.int64())),),
        (pd.Series([[1], [2, 3]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),),
    ]


def around_pandas() -> list[Group]:
    days = pd.date_range("2026-01-01", periods=3)
    return [
        (pd.RangeIndex(3), pd.RangeIndex(0, 3, 1)),
        (pd.RangeIndex(3, name="a"),),
        (pd.Index([0, 1, 2]),),
        (days,),
        (pd.DatetimeIndex(days.to_numpy()),),
        (pd.MultiIndex.from_product([[1, 2], ["a", "b"]]),),
        (pd.MultiIndex.from_product([[1, 2], ["a", "c"]]),),
        (pd.MultiIndex.from_product([[1, 2], ["a", "b"]], names=["x", "y"]),),
        (pd.NA,),
        (pd.NaT,),
        (pd.Timestamp("2026-01-01"),),
        (pd.Timestamp("2026-01-01", tz="UTC"),),
        (pd.Timedelta("1D"),),
        (pd.Period("2026-01", "M"),),
        (pd.Interval(0, 1),),
        (pd.offsets.CustomBusinessDay(holidays=["2026-01-01"]),),
        (pd.offsets.CustomBusinessDay(holidays=["2026-01-02"]),),
        (pd.offsets.BDay(2),),
        (pd.CategoricalDtype(["a", "b"]),),
        (pd.CategoricalDtype(["b", "a"]),),
        (pd.DatetimeTZDtype("ns", "UTC"),),
        (pd.Int64Dtype(),),
        (pd.StringDtype("pyarrow"),),
    ]


def arrow() -> list[Group]:
    numbers = pa.array([1, None, 3, 4])
    under = pa.Array.from_buffers(
        pa.int64(),
        2,
        [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([99, 3]).tobytes())],
    )
    bits = pa.array([True, False, True, True, False, True, True, True, None])
    texts = pa.array(["ab", None, "cd", "ef"])
    coded = pa.array(["x", "y", "x"]).dictionary_encode()
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    struct = pa.array([{"a": 1}, {"a": 2}])
    return [
        (numbers,),
        (numbers[1:3], pa.array([None, 3]), under),
        (pa.array([1, 3]),),
        (pa.array([1, 3], pa.int32()),),
        (bits[1:4], pa.array([False, True, True])),
        (bits,),
        (texts[2:], pa.array(["cd", "ef"])),
        (texts,),
        (coded,),
        (pa.array(["x", "z", "x"]).dictionary_encode(),),
        (pa.array(["x", "y", "x"]),),
        (struct[1:], pa.array([{"a": 2}])),
        (
            pa.chunked_array([[1, 2], [3]]),
            pa.chunked_array([[1], [2, 3]]),
            pa.chunked_array([[1, 2, 3]]),
        ),
        (pa.array([1, 2, 3]),),
        (table, pa.concat_tables([table[:1], table[1:]])),
        (table.replace_schema_metadata({"k": "v"}),),
        (table.rename_columns(["b", "a"]),),
        (table.to_batches()[0],),
        (table.schema,),
        (pa.int64(),),
        (pa.timestamp("ns", "UTC"),),
        (pa.array([None, None]),),
        (
            pa.array(["a" * 30, "b"], pa.string_view()),
            pa.array(["z", "a" * 30, "b"], pa.string_view())[1:],
        ),
    ]


FAMILIES: dict[str, Callable[[], list[Group]]] = {
    f.__name__: f
    for f in (
        arrays,
        arrays_of_other_things,
        around_numpy,
        frames,
        columns,
        around_pandas,
        arrow,
    )
}


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_within_a_group(family: str) -> None:
    assert unequal(FAMILIES[family]()) == []


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": x}])
def test_different_between_groups(wrap: Callable[[Any], object]) -> None:
    groups = [group for family in FAMILIES.values() for group in family()]
    assert confused(groups, wrap) == []
    assert len(groups) > 120


@pytest.mark.parametrize("family", FAMILIES)
def test_deterministic(family: str) -> None:
    assert flagged(FAMILIES[family]()) == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("how", ["pickle", "cloudpickle", "deepcopy"])
def test_round_trip(family: str, how: str) -> None:
    changed, kept = changed_by(how, FAMILIES[family]())
    assert changed == []
    assert kept > len(FAMILIES[family]()) / 2


def test_a_memory_map_is_its_content(tmp_path: Path) -> None:
    data = np.arange(24.0)
    data.tofile(tmp_path / "data")
    flat = np.memmap(tmp_path / "data", "f8", "r")
    assert tokenize(flat) == tokenize(data)
    square = np.memmap(tmp_path / "data", "f8", "r", shape=(4, 6))
    assert tokenize(square) == tokenize(data.reshape(4, 6)) != tokenize(flat)
    assert tokenize(np.memmap(tmp_path / "data", "i8", "r")) != tokenize(flat)
    part = np.memmap(tmp_path / "data", "f8", "r", offset=80)
    assert tokenize(part) == tokenize(data[10:])


def test_state_that_is_not_content() -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    before = tokenize(frame)
    frame.attrs["note"] = 1
    assert tokenize(frame) == before
    generator = np.random.default_rng(1)
    drawn = tokenize(generator)
    generator.random()
    assert tokenize(generator) != drawn


def test_the_peers_wrong_answers() -> None:
    """Pairs that dask.tokenize confuses, so that the second got the first's result."""
    series = pd.Series(["abc", "def"], dtype="string[pyarrow]")
    pairs: list[tuple[Any, Any]] = [
        (SQUARE, SQUARE.T),
        (series[:1].array, series[1:].array),
        (pa.array(["abc", "def"])[:1], pa.array(["abc", "def"])[1:]),
    ]
    for first, second in pairs:
        assert tokenize(first) != tokenize(second)
