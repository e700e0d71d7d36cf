"""How numpy counts: by type, shape and logical content, not by layout in memory.

A view equals its copy, C order equals Fortran order, a memory map equals its
content. Contiguous memory is hashed where it is, anything else in small blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from .functions import find_global
from .hashing import INLINE_MAX, digest_piece, key_piece, str_piece, u64
from .node import Node, Piece, Raw
from .objects import take_object
from .registry import composite, module_of, normalize_token

_BLOCK = 1 << 18  # bytes: fits a cache, and is long enough to hide the loop

# x86 keeps a long double of 10 bytes in 16, of which 6 are chance.
_LONG_DOUBLE_USED = 10
_LONG_DOUBLE_PADS = (
    np.dtype(np.longdouble).itemsize == 16 and np.finfo(np.longdouble).nmant == 63
)


def register() -> None:
    """Register numpy's classes."""
    normalize_token.encode_with(np.ndarray, composite(take_array))
    normalize_token.encode_with(np.generic, composite(_take_scalar))
    normalize_token.encode_with(np.dtype, composite(take_dtype))
    normalize_token.encode_with(np.ufunc, composite(_take_ufunc))


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether its text says all, and its memory is its content."""
    return (
        (dtype.isbuiltin == 1 or module_of(dtype.type) == "numpy")
        and dtype.names is None
        and dtype.subdtype is None
        and dtype.kind not in "OT"
        and not dtype.metadata
    )


def take_dtype(_: Any, dtype: np.dtype[Any]) -> Node | Piece:
    """A dtype in full: text, fields, offsets, alignment, metadata."""
    if _is_plain(dtype):
        return b"e" + str_piece(dtype.str)
    more = dict(dtype.metadata) if dtype.metadata else None
    if dtype.names is not None and dtype.fields is not None:
        fields = [(name, *dtype.fields[name]) for name in dtype.names]
        size = (dtype.itemsize, dtype.isalignedstruct)
        return Node(b"1y", (dtype.type, fields, size, more))
    if dtype.subdtype is not None:
        return Node(b"1u", (*dtype.subdtype, more))
    if dtype.kind == "T":
        return Node(b"1h", (type(dtype), dtype.__reduce__()[1]))
    return Node(b"1H", (dtype.str, dtype.type, more))


def take_array(walker: Any, array: np.ndarray[Any, Any]) -> Node | Piece:
    """Any array: class, dtype, shape, content; a subclass with its attributes."""
    cls = type(array)
    if cls is np.ndarray or issubclass(cls, np.memmap):
        return content(walker, array.view(np.ndarray))
    masked = sys.modules.get("numpy.ma")
    if masked is not None and issubclass(cls, masked.MaskedArray):
        return _take_masked(array)
    return Node(
        b"1x",
        (cls, array.view(np.ndarray), getattr(array, "__dict__", None)),
        labels=(".__class__", "", ""),
    )


def _take_masked(array: Any) -> Node | bytes:
    if array is np.ma.masked:
        return b"1M"
    # Pickling turns "no mask" into a mask of False and fixes the fill value.
    mask = array.mask if np.any(array.mask) else None
    names = (".__class__", ".data", ".mask", ".fill_value")
    data = np.ma.getdata(array, subok=False)
    return Node(b"1k", (type(array), data, mask, array.fill_value), labels=names)


def content(walker: Any, array: np.ndarray[Any, Any]) -> Node | Piece:
    """Dtype, shape and logical content of a plain ndarray."""
    dtype = array.dtype
    if dtype.kind in "OT" or dtype.hasobject:
        # Memory holds addresses: the elements themselves are walked.
        return Node(b"1o", (dtype, array.shape, array.ravel().tolist()))
    if dtype.names is not None and _has_gaps(dtype):
        columns = [array[name] for name in dtype.names]
        return Node(b"1p", (dtype, array.shape, columns))
    text = take_dtype(walker, dtype)
    if type(text) is not bytes:
        memory = Raw(_memory(walker, b"A", array))
        return Node(b"1q", (text, array.shape, memory))
    return _memory(walker, b"A" + text + key_piece(array.shape), array)


def _has_gaps(dtype: np.dtype[Any]) -> bool:
    """Whether bytes of an element belong to no value: their content is chance."""
    if dtype.subdtype is not None:
        return _has_gaps(dtype.subdtype[0])
    if dtype.names is None or dtype.fields is None:
        return _LONG_DOUBLE_PADS and dtype.char in "gG"
    parts = [dtype.fields[name][0] for name in dtype.names]
    used = sum(part.itemsize for part in parts)
    return used != dtype.itemsize or any(map(_has_gaps, parts))


def _memory(walker: Any, head: bytes, array: np.ndarray[Any, Any]) -> bytes:
    """The piece of an array's values in C order."""
    piece: bytes
    if _LONG_DOUBLE_PADS and array.dtype.char in "gG":
        piece = walker.chunks(head, _without_pads(array), array.nbytes)
    elif array.flags.c_contiguous:
        flat = array.reshape(-1)
        piece = walker.buffer(head, flat.view(np.uint8) if flat.itemsize else b"")
    else:
        piece = walker.chunks(head, _blocks(array), array.nbytes)
    return piece


def _blocks(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Contiguous blocks of bytes that make up the array in C order."""
    if not array.nbytes:
        return
    blocks = np.nditer(  # type: ignore[call-overload]
        array,
        flags=["external_loop", "buffered"],
        op_flags=[["readonly", "contig"]],
        order="C",
        buffersize=max(1, _BLOCK // array.itemsize),
    )
    for block in blocks:
        yield block.view(np.uint8)


def _without_pads(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    for block in _blocks(array):
        numbers = block.reshape(-1, 16).copy()
        numbers[:, _LONG_DOUBLE_USED:] = 0
        yield numbers


def _take_scalar(walker: Any, scalar: np.generic) -> Node | Piece:
    cls = type(scalar)
    if module_of(cls) != "numpy":
        return take_object(walker, scalar)
    dtype = scalar.dtype
    if not _is_plain(dtype) or dtype.char in "gG":
        return Node(b"1G", (cls, np.asarray(scalar)))
    data = scalar.tobytes()
    piece = b"n" + str_piece(dtype.str) + u64(len(data)) + data
    return piece if len(piece) < INLINE_MAX else digest_piece(piece)


_UFUNC_HOMES = (
    "numpy",
    "numpy._core.umath",
    "numpy.linalg._umath_linalg",
    "numpy.fft._pocketfft_umath",
    "scipy.special",
    "scipy.special._ufuncs",
    "scipy.special._special_ufuncs",
    "scipy.special._gufuncs",
)


def _take_ufunc(walker: Any, ufunc: np.ufunc) -> Node | Piece:
    """By name where a library has it; one made from a Python function is itself."""
    for module in _UFUNC_HOMES:
        if find_global(module, ufunc.__name__) is ufunc:
            return b"1U" + str_piece(module) + str_piece(ufunc.__name__)
    identity: Node = walker.identity(ufunc)
    return identity
