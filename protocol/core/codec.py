"""Decides how a batch of messages becomes bytes and back, and what is refused.

A batch is one msgpack array, ``[[OP, *fields], ...]``. Big buffers do not pass
through msgpack: the array holds an ext value with the buffer's number in their
place, and they travel beside it as frames of their own (``frames.py``). Decoding
checks op, arity and the type of every top-level field; what is inside a field is
the business of whoever handles the message. Arrays arrive as tuples, buffers as
``bytes`` (small) or as writable ``memoryview`` (those with a frame of their own).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgpack

from ..errors import ProtocolError
from .messages import MESSAGES, Message

Bytes: TypeAlias = bytes | bytearray | memoryview
"""What can be written to a connection."""

RAW_MIN = 32 * 1024
"""Bytes from which on a buffer travels as a frame of its own, uncopied."""

EXT_RAW = 1
"""Ext code of a reference to a raw frame: its number, u32 little-endian."""
EXT_INT = 2
"""Ext code of an int beyond 64 bits: signed little-endian bytes."""

_SKIP_MIN = 16 * 1024
_SIGNATURES_MAX = 256
_PLAIN = frozenset({str, int, float, bool, NoneType})


class Raw:
    """Marks a bytes-like that travels as a raw frame, whatever its size."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: Bytes) -> None:
        self.buffer = buffer


class Shape(NamedTuple):
    """What decoding demands of one message class.

    ``fields`` pairs each name with the types that it may have (None: any).
    ``carriers`` are the positions that can hold buffers.
    """

    cls: type[Any]
    fields: tuple[tuple[str, frozenset[type] | None], ...]
    carriers: tuple[int, ...]


def _accepted(annotation: Any) -> frozenset[type] | None:
    """The types a decoded field may have; None where the annotation allows any."""
    origin = get_origin(annotation)
    if annotation is Any or annotation is object:
        return None
    if origin is Union or origin is UnionType:
        parts = [_accepted(part) for part in get_args(annotation)]
        return None if None in parts else frozenset().union(*filter(None, parts))
    if origin is Literal:
        return frozenset(type(value) for value in get_args(annotation))
    if annotation is float:
        return frozenset({float, int})
    return frozenset({origin or annotation})


def _may_carry(annotation: Any) -> bool:
    """Whether values of this type can hold buffers (``Frames``, or anything)."""
    if annotation is Any or annotation is object:
        return True
    if get_origin(annotation) is dict:
        return False
    return any(_may_carry(part) for part in get_args(annotation))


def shape_of(cls: type[Any]) -> Shape:
    """Derive the demands on a message class from its annotations."""
    hints = get_type_hints(cls)
    names: tuple[str, ...] = cls._fields
    fields = tuple((name, _accepted(hints[name])) for name in names)
    carriers = tuple(i for i, name in enumerate(names) if _may_carry(hints[name]))
    return Shape(cls, fields, carriers)


SHAPES: dict[int, Shape] = {op: shape_of(cls) for op, cls in MESSAGES.items()}
_CARRIERS = {s.cls: s.carriers for s in SHAPES.values() if s.carriers}
# Signatures (types of op and fields) that passed the check, so that the check of
# the next alike message is one set look-up. The class and how much to keep of it:
_Entry = tuple[type[Any], int, set[tuple[type, ...]]]
_TABLE: dict[int, _Entry] = {
    op: (shape.cls, len(shape.fields) + 1, set()) for op, shape in SHAPES.items()
}


def _holds_big(values: Iterable[Any]) -> bool:
    """Whether any buffer in here, at any depth, is to travel as a raw frame."""
    for value in values:
        kind = type(value)
        if kind is bytes:
            big = len(value) >= RAW_MIN
        elif kind is tuple:
            big = _holds_big(value)
        elif kind in _PLAIN:
            continue
        else:
            big = _is_big(value)
        if big:
            return True
    return False


def _is_big(value: Any) -> bool:
    """As :func:`_holds_big`, for one value of a rarer type."""
    if isinstance(value, memoryview):
        return value.nbytes >= RAW_MIN
    if isinstance(value, bytearray):
        return len(value) >= RAW_MIN
    if isinstance(value, dict):
        return _holds_big(value.values())
    if isinstance(value, tuple | list):
        return _holds_big(value)
    return isinstance(value, Raw)


def _marked(value: Any) -> Any:
    """The same value with every big buffer in it wrapped in :class:`Raw`."""
    if isinstance(value, tuple | list):
        return tuple(map(_marked, value))
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    if isinstance(value, memoryview):
        return Raw(value) if value.nbytes >= RAW_MIN else value
    if isinstance(value, bytes | bytearray):
        return Raw(value) if len(value) >= RAW_MIN else value
    return value


def _array(message: Any) -> Sequence[Any]:
    """``[OP, *fields]`` of one message, its big buffers marked."""
    for i in _CARRIERS.get(type(message), ()):
        field = message[i]
        if field and _holds_big(field if type(field) is tuple else (field,)):
            return (message.OP, *map(_marked, message))
    return (message.OP, *message)


def _flat(buffer: Bytes) -> memoryview:
    """One dimension of bytes over the same memory."""
    view = memoryview(buffer)
    if view.ndim == 1 and view.format == "B":
        return view
    return view.cast("B")


class Encoder:
    """Turns messages into one msgpack array and raw frames. Not re-entrant."""

    __slots__ = ("_pack", "_raws", "_raws_max")

    def __init__(self, raws_max: int = 4096) -> None:
        self._raws: list[memoryview] = []
        self._raws_max = raws_max
        self._pack = msgpack.Packer(
            default=self._default, autoreset=True, unicode_errors="surrogatepass"
        ).pack

    def _default(self, value: Any) -> Any:
        """What msgpack does not know: marked buffers, foreign and big ints."""
        if type(value) is Raw:
            view = _flat(value.buffer)
            raws = self._raws
            if len(raws) >= self._raws_max:
                return view
            raws.append(view)
            return msgpack.ExtType(EXT_RAW, (len(raws) - 1).to_bytes(4, "little"))
        number = index(value)
        if -(2**63) <= number < 2**64:
            return number
        size = number.bit_length() // 8 + 1
        return msgpack.ExtType(EXT_INT, number.to_bytes(size, "little", signed=True))

    def encode(self, messages: Sequence[Message]) -> tuple[bytes, list[memoryview]]:
        """The msgpack frame and the raw frames of a batch.

        Raises ProtocolError naming the message that holds what msgpack cannot
        carry.
        """
        self._raws = []
        try:
            body = self._pack([_array(message) for message in messages])
        except Exception as error:
            raise self._blamed(messages, error) from error
        return body, self._raws

    def _blamed(self, messages: Sequence[Message], error: Exception) -> ProtocolError:
        """Find the message (and field) that made the batch fail."""
        where = "a batch"
        for message in messages:
            for name, value in zip(
                getattr(message, "_fields", ()), _array(message)[1:], strict=False
            ):
                self._raws = []
                try:
                    self._pack(value)
                except Exception:  # noqa: BLE001 (any failure marks the culprit)
                    where = f"{type(message).__name__}.{name}"
        return ProtocolError(f"cannot encode {where}: {error}")


_ENCODER = Encoder()


def encode_messages(messages: Sequence[Message]) -> tuple[bytes, list[memoryview]]:
    """The msgpack frame and the raw frames of a batch.

    Raises ProtocolError naming message and field that msgpack cannot carry.
    """
    return _ENCODER.encode(messages)


def _verify(array: Any) -> None:
    """Check one decoded message, and remember its signature; ProtocolError if wrong."""
    if type(array) is not tuple or not array:
        msg = f"a message is {type(array).__name__}, not a filled array"
        raise ProtocolError(msg)
    op = array[0]
    if type(op) is not int or op not in SHAPES:
        raise ProtocolError(f"unknown op {op!r:.50}")
    cls, fields, _ = SHAPES[op]
    if len(array) <= len(fields):
        msg = f"{cls.__name__} came with {len(array) - 1} of {len(fields)} fields"
        raise ProtocolError(msg)
    for (name, accepted), value in zip(fields, array[1:], strict=False):
        if accepted is not None and type(value) not in accepted:
            wanted = " or ".join(sorted(t.__name__ for t in accepted))
            msg = f"{cls.__name__}.{name} is {type(value).__name__}, not {wanted}"
            raise ProtocolError(msg)
    known = _TABLE[op][2]
    if len(known) < _SIGNATURES_MAX:
        known.add(tuple(map(type, array)))


def _unpack(body: Bytes, raws: Sequence[memoryview]) -> Any:
    """Decode msgpack; any failure is a ProtocolError."""

    def hook(code: int, data: bytes) -> Any:
        if code == EXT_RAW and len(data) == 4:
            return raws[int.from_bytes(data, "little")]
        if code == EXT_INT:
            return int.from_bytes(data, "little", signed=True)
        raise ProtocolError(f"unknown ext code {code}")

    try:
        if len(body) > _SKIP_MIN:
            # An array is allocated as long as it claims to be. Nested claims
            # multiply, so see first that all elements are there.
            scout = msgpack.Unpacker(max_buffer_size=len(body))
            scout.feed(body)
            scout.skip()
        return msgpack.unpackb(
            body,
            use_list=False,
            strict_map_key=False,
            ext_hook=hook,
            unicode_errors="surrogatepass",
        )
    except ProtocolError:
        raise
    except Exception as error:
        msg = f"not msgpack: {type(error).__name__} {error}"
        raise ProtocolError(msg) from error


def decode_messages(body: Bytes, raws: Sequence[memoryview] = ()) -> list[Any]:
    """The messages of a batch. Raises ProtocolError with the first thing wrong."""
    arrays = _unpack(body, raws)
    if type(arrays) is not tuple:
        msg = f"a batch is {type(arrays).__name__}, not an array"
        raise ProtocolError(msg)
    new = tuple.__new__
    table = _TABLE
    messages: list[Any] = []
    append = messages.append
    for array in arrays:
        try:
            cls, end, known = table[array[0]]
            if type(array) is not tuple or tuple(map(type, array)) not in known:
                _verify(array)
        except (LookupError, TypeError):
            _verify(array)
            raise
        append(new(cls, array[1:end]))
    return messages
