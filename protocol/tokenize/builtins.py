"""How the built-in data types are encoded: leaves, containers, dates, paths.

Exact types only: a subclass is an object with a class and state of its own.
"""

from __future__ import annotations

import datetime as dt
import pathlib
import struct
import types
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from .hashing import (
    BULK_MIN,
    ELLIPSIS,
    FALSE,
    INLINE_MAX,
    NONE,
    NOT_IMPLEMENTED,
    TRUE,
    digest_piece,
    float_bytes,
    int_piece,
    key_piece,
    str_piece,
    u64,
    utf8,
)
from .node import ORDERED, PAIRS, UNORDERED, Buffer, Chunks, Node, Piece, Raw, Same
from .registry import Encoder, composite, leaf

LIST, TUPLE, DICT, SET, FROZENSET = b"l", b"t", b"d", b"S", b"Z"
PACKED_MIN = 32
"""A list or tuple of at least this many plain ints, floats or strs is packed."""

_NAN_VALUE = float("nan")


# --- leaves ------------------------------------------------------------------


def take_str(walker: Any, text: str) -> bytes:
    """A str as UTF-8."""
    if len(text) < BULK_MIN // 4:
        return str_piece(text)
    piece: bytes = walker.big_leaf(text, b"s", utf8(text))
    return piece


def _bytes_like(tag: bytes) -> Callable[[Any, Any], bytes]:
    def take(walker: Any, data: bytes | bytearray) -> bytes:
        size = len(data)
        if size < INLINE_MAX:
            return tag + u64(size) + data
        piece: bytes = walker.big_leaf(data, tag, data)
        return piece

    return take


def _take_float(_: Any, value: float) -> bytes:
    return b"f" + float_bytes(value)


def _take_complex(_: Any, value: complex) -> bytes:
    return b"c" + float_bytes(value.real) + float_bytes(value.imag)


def _take_decimal(_: Any, value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    # The exponent of an infinity or nan is a letter.
    power = (
        str_piece(exponent) if isinstance(exponent, str) else int_piece(int(exponent))
    )
    body = bytes(digits)
    piece = b"m" + bytes([sign]) + power + u64(len(body)) + body
    return piece if len(piece) < INLINE_MAX else digest_piece(piece)


def _take_fraction(_: Any, value: Fraction) -> bytes:
    return b"q" + int_piece(value.numerator) + int_piece(value.denominator)


def _take_date(_: Any, day: dt.date) -> bytes:
    return b"OD" + struct.pack("<HBB", day.year, day.month, day.day)


def _take_timedelta(_: Any, span: dt.timedelta) -> bytes:
    return b"OT" + struct.pack("<iii", span.days, span.seconds, span.microseconds)


def _take_uuid(_: Any, value: uuid.UUID) -> bytes:
    return b"OU" + value.bytes


def _take_path(_: Any, path: pathlib.PurePath) -> bytes:
    return b"OP" + str_piece(type(path).__name__) + str_piece(path.__fspath__())


def _take_memoryview(walker: Any, view: memoryview) -> Piece | Node:
    try:
        shape, layout = view.shape, view.format
    except ValueError:  # released: nothing can be read from it any more
        identity: Node = walker.identity(view)
        return identity
    head = b"v" + str_piece(layout) + key_piece(tuple(shape or ()))
    piece: bytes = walker.buffer(head, view if view.c_contiguous else view.tobytes())
    return piece


def _take_buffer(walker: Any, wrapped: Buffer) -> bytes:
    view = memoryview(wrapped.data)
    data = view if view.c_contiguous else view.tobytes()
    piece: bytes = walker.big_leaf(wrapped, b"u", data)
    return piece


def _take_chunks(walker: Any, wrapped: Chunks) -> bytes:
    piece: bytes = walker.remembered_chunks(wrapped)
    return piece


def _take_range(_: Any, value: range) -> bytes:
    parts = (value.start, value.stop, value.step)
    return b"OZ" + b"".join(map(int_piece, parts))


# --- containers --------------------------------------------------------------


def packed(walker: Any, items: Any, tag: bytes) -> bytes | None:
    """The piece of a long list or tuple of one plain type; None if it is not one.

    Decided by the content alone, so equal sequences are packed alike.
    """
    kind = type(items[0])
    pack: Callable[[Any, Any, bytes], bytes]
    if kind is str:
        pack = _pack_strs
    elif kind is int:
        pack = _pack_ints
    elif kind is float:
        pack = _pack_floats
    else:
        return None
    if type(items[-1]) is not kind:
        return None
    try:
        # Identity decides; only a metaclass with an __eq__ of its own is asked more.
        if list(map(type, items)).count(kind) != len(items):
            return None
        return pack(walker, items, b"P" + tag)
    except Exception:  # noqa: BLE001 (an int beyond 64 bits, or such a metaclass)
        return None


def _pack_ints(walker: Any, items: Any, head: bytes) -> bytes:
    piece: bytes = walker.buffer(head + b"q", struct.pack(f"<{len(items)}q", *items))
    return piece


def _pack_floats(walker: Any, items: Any, head: bytes) -> bytes:
    total = sum(items)
    if total != total:  # noqa: PLR0124 (a nan, or infinities of both signs)
        items = [_NAN_VALUE if x != x else x for x in items]  # noqa: PLR0124
    piece: bytes = walker.buffer(head + b"d", struct.pack(f"<{len(items)}d", *items))
    return piece


def _pack_strs(walker: Any, items: Any, head: bytes) -> bytes:
    text = "\0".join(items)
    if text.count("\0") == len(items) - 1:
        head += b"s"
    else:
        text = "".join(items)
        lengths = struct.pack(f"<{len(items)}Q", *map(len, items))
        head += b"n" + walker.buffer(b"u", lengths)
    piece: bytes = walker.buffer(head, utf8(text))
    return piece


def _sequence(tag: bytes) -> Encoder:
    def take(walker: Any, items: Any) -> Node | Piece:
        if len(items) >= PACKED_MIN:
            piece = packed(walker, items, tag)
            if piece is not None:
                return piece
        return Node(tag, items)

    def fast(walker: Any, items: Any) -> Piece:
        piece: Piece = walker.sequence(items, tag)
        return piece

    return Encoder(take, fast)


def _take_dict(_: Any, mapping: dict[Any, Any]) -> Node:
    return pairs(mapping)


def _fast_dict(walker: Any, mapping: dict[Any, Any]) -> Piece:
    piece: Piece = walker.mapping(mapping)
    return piece


def pairs(mapping: dict[Any, Any], head: bytes = DICT) -> Node:
    """A dict taken apart; its order does not count."""
    children: list[Any] = []
    for item in list(mapping.items()):  # another thread may change it meanwhile
        children += item
    return Node(head, children, PAIRS)


def _take_set(_: Any, items: set[Any]) -> Node:
    return Node(SET, list(items), UNORDERED)


def _take_frozenset(_: Any, items: frozenset[Any]) -> Node:
    return Node(FROZENSET, list(items), UNORDERED)


def _take_slice(_: Any, value: slice) -> Node:
    ends = (value.start, value.stop, value.step)
    return Node(b"Os", ends, labels=(".start", ".stop", ".step"))


def _take_mappingproxy(_: Any, proxy: types.MappingProxyType[Any, Any]) -> Node:
    return pairs(dict(proxy.items()), b"Oy")


def _take_datetime(_: Any, when: dt.datetime) -> Node:
    fields = struct.pack(
        "<HBBBBBIB",
        *(when.year, when.month, when.day, when.hour, when.minute, when.second),
        *(when.microsecond, when.fold),
    )
    return Node(b"Od" + fields, (when.tzinfo,), labels=(".tzinfo",))


def _take_time(_: Any, when: dt.time) -> Node:
    fields = struct.pack(
        "<BBBIB", when.hour, when.minute, when.second, when.microsecond, when.fold
    )
    return Node(b"Ot" + fields, (when.tzinfo,), labels=(".tzinfo",))


def _view(tag: bytes, shape: int) -> Encoder:
    def take(_: Any, view: Any) -> Node:
        return Node(tag, list(view), shape)

    return composite(take)


def _constant(piece: bytes) -> Encoder:
    return leaf(lambda _walker, _value: piece)


LEAVES: dict[type, Encoder] = {
    str: leaf(take_str),
    int: leaf(lambda _, value: int_piece(value)),
    float: leaf(_take_float),
    bool: leaf(lambda _, value: TRUE if value else FALSE),
    type(None): _constant(NONE),
    bytes: leaf(_bytes_like(b"b")),
    complex: leaf(_take_complex),
    type(Ellipsis): _constant(ELLIPSIS),
    type(NotImplemented): _constant(NOT_IMPLEMENTED),
    bytearray: leaf(_bytes_like(b"a")),
    Raw: leaf(lambda _, known: known.piece),
    Same: composite(lambda _, same: same),
    Buffer: leaf(_take_buffer),
    Chunks: leaf(_take_chunks),
}
"""Exact types whose encoding nobody can override."""

CONTAINERS: dict[type, Encoder] = {
    list: _sequence(LIST),
    tuple: _sequence(TUPLE),
    dict: Encoder(_take_dict, _fast_dict),
    set: composite(_take_set),
    frozenset: composite(_take_frozenset),
    range: leaf(_take_range),
    slice: composite(_take_slice),
    memoryview: composite(_take_memoryview),
    types.MappingProxyType: composite(_take_mappingproxy),
    type({}.keys()): _view(b"Ok", UNORDERED),
    type({}.values()): _view(b"Ov", ORDERED),
    type({}.items()): _view(b"Oi", UNORDERED),
    Decimal: leaf(_take_decimal),
    Fraction: leaf(_take_fraction),
    dt.date: leaf(_take_date),
    dt.datetime: composite(_take_datetime),
    dt.time: composite(_take_time),
    dt.timedelta: leaf(_take_timedelta),
    uuid.UUID: leaf(_take_uuid),
    pathlib.PurePosixPath: leaf(_take_path),
    pathlib.PureWindowsPath: leaf(_take_path),
    type(pathlib.Path()): leaf(_take_path),
}
"""Exact types with an encoding of their own, which a registration may override."""
