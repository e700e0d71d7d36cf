"""How pandas counts: by columns, index and dtypes, not by blocks in memory.

What lies under a missing value does not count, nor do ``attrs`` and flags.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from .node import Node, Piece
from .registry import Take, composite, leaf, normalize_token

_ARRAYS = pd.arrays


def register() -> None:
    """Register pandas' containers, arrays and missing values."""
    takes: dict[Any, Take] = {
        pd.DataFrame: _take_frame,
        pd.Series: _take_series,
        pd.Index: _take_index,
        pd.RangeIndex: _take_range,
        pd.MultiIndex: _take_multi,
        pd.Categorical: _take_categorical,
        _ARRAYS.IntervalArray: _take_interval,
        _ARRAYS.SparseArray: _take_sparse,
        _ARRAYS.NumpyExtensionArray: _take_numpy,
        _ARRAYS.ArrowExtensionArray: _take_arrow,
    }
    for cls, take in takes.items():
        normalize_token.encode_with(cls, composite(take))
    normalize_token.encode_with(
        (_ARRAYS.DatetimeArray, _ARRAYS.TimedeltaArray, _ARRAYS.PeriodArray),
        composite(_take_datetimes),
    )
    normalize_token.encode_with(
        (_ARRAYS.IntegerArray, _ARRAYS.FloatingArray, _ARRAYS.BooleanArray),
        composite(_take_masked),
    )
    normalize_token.encode_with(type(pd.NA), leaf(lambda *_: b"2A"))
    normalize_token.encode_with(type(pd.NaT), leaf(lambda *_: b"2a"))


def _own(obj: Any) -> Any:
    """Attributes that a subclass declares beside pandas' own."""
    names = [n for n in getattr(obj, "_metadata", ()) if n not in ("_name", "name")]
    return {name: getattr(obj, name, None) for name in names}


def _take_frame(_: Any, frame: pd.DataFrame) -> Node | Piece:
    columns = [frame.iloc[:, i].array for i in range(frame.shape[1])]
    return Node(
        b"2P",
        (type(frame), frame.columns, frame.index, columns, _own(frame)),
        labels=(".__class__", ".columns", ".index", ".columns", ""),
    )


def _take_series(_: Any, series: Any) -> Node | Piece:
    return Node(
        b"2S",
        (type(series), series.name, series.array, series.index, _own(series)),
        labels=(".__class__", ".name", ".array", ".index", ""),
    )


def _take_index(_: Any, index: Any) -> Node | Piece:
    freq = getattr(index, "freq", None)
    labels = (".__class__", ".name", ".array", ".freq")
    return Node(b"2X", (type(index), index.name, index.array, freq), labels=labels)


def _take_range(_: Any, index: pd.RangeIndex) -> Node | Piece:
    ends = (index.start, index.stop, index.step)
    return Node(b"2R", (type(index), index.name, ends))


def _take_multi(_: Any, index: pd.MultiIndex) -> Node | Piece:
    codes = [np.asarray(code) for code in index.codes]
    labels = (".__class__", ".names", ".levels", ".codes")
    parts = (type(index), list(index.names), list(index.levels), codes)
    return Node(b"2M", parts, labels=labels)


def _take_categorical(_: Any, array: Any) -> Node | Piece:
    return Node(b"2C", (type(array), array.dtype, array.codes))


def _take_datetimes(_: Any, array: Any) -> Node | Piece:
    return Node(b"2D", (type(array), array.dtype, array.asi8))


def _take_interval(_: Any, array: Any) -> Node | Piece:
    return Node(b"2I", (type(array), array.closed, array.left, array.right))


def _take_sparse(_: Any, array: Any) -> Node | Piece:
    places = array.sp_index.indices
    parts = (type(array), array.dtype, len(array), places, array.sp_values)
    return Node(b"2Z", parts)


def _take_numpy(_: Any, array: Any) -> Node | Piece:
    return Node(b"2N", (type(array), array.dtype, array.to_numpy(copy=False)))


def _take_masked(_: Any, array: Any) -> Node | Piece:
    mask = array._mask  # noqa: SLF001 (no public access without a copy)
    data = array._data  # noqa: SLF001
    if mask.any():
        data = data.copy()
        data[mask] = 0
    return Node(b"2K", (type(array), array.dtype, data, mask))


def _take_arrow(walker: Any, array: Any) -> Node | Piece:
    from .arrow import chunks_node

    values = array.__arrow_array__()
    if not hasattr(values, "chunks"):
        import pyarrow as pa

        values = pa.chunked_array([values])
    return Node(b"2W", (type(array), array.dtype, chunks_node(walker, values)))
