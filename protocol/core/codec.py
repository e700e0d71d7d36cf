"""Decides how a batch of messages becomes bytes and back, and what is refused.

A batch is one msgpack array, ``[[OP, *fields], ...]``. Big buffers do not pass
through msgpack: the array holds an ext value with the buffer's number in their
place, and they travel beside it as frames of their own (``frames.py``). Decoding
checks op, arity and the type of every top-level field; what is inside a field is
the business of whoever handles the message. Arrays arrive as tuples, buffers as
``bytes`` (small) or as writable ``memoryview`` (those with a frame of their own).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from .messages import MESSAGES, Frames, Message
from .messages.client import GraphTask

Bytes: TypeAlias = bytes | bytearray | memoryview
"""What can be written to a connection."""

RAW_MIN = 32 * 1024
"""Bytes from which on a buffer travels as a frame of its own, uncopied."""

EXT_RAW = 1
"""Ext code of a reference to a raw frame: its number, u32 little-endian."""
EXT_INT = 2
"""Ext code of an int beyond 64 bits: signed little-endian bytes."""

_KEPT_MAX = 32 * 1024
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
    """

    cls: type[Any]
    fields: tuple[tuple[str, frozenset[type] | None], ...]


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


def shape_of(cls: type[Any]) -> Shape:
    """Derive the demands on a message class from its annotations."""
    hints = get_type_hints(cls)
    return Shape(cls, tuple((name, _accepted(hints[name])) for name in cls._fields))


SHAPES: dict[int, Shape] = {op: shape_of(cls) for op, cls in MESSAGES.items()}
# Signatures (types of op and fields) that passed the check, so that the check of
# the next alike message is one set look-up. The class and how much to keep of it:
_Entry = tuple[type[Any], int, set[tuple[type, ...]]]
_TABLE: dict[int, _Entry] = {
    op: (shape.cls, len(shape.fields) + 1, set()) for op, shape in SHAPES.items()
}

# Where buffers can be. Most messages are small, and finding that nothing in them
# is big must cost less than packing them, hence one check per field that can hold
# buffers, made from its annotation.
_Check = Callable[[Any], bool]


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
    checks = _CHECKS.get(type(value))
    if checks is not None:
        return any(check(value[i]) for i, check in checks)
    if isinstance(value, memoryview):
        return value.nbytes >= RAW_MIN
    if isinstance(value, bytearray):
        return len(value) >= RAW_MIN
    if isinstance(value, dict):
        return _holds_big(value.values())
    if isinstance(value, tuple | list):
        return _holds_big(value)
    return isinstance(value, Raw)


def _holds_big_at(position: int) -> _Check:
    """The check of ``tuple[tuple[..., Frames, ...], ...]``."""

    def check(items: Any) -> bool:
        for item in items:
            frames = item[position]
            if frames is not None and _holds_big(frames):
                return True
        return False

    return check


def _may_carry(annotation: Any) -> bool:
    """Whether values of this type can hold buffers (``Frames``, or anything)."""
    if annotation is Any or annotation is object:
        return True
    if get_origin(annotation) is dict:
        return False
    return any(_may_carry(part) for part in get_args(annotation))


def _check_of(annotation: Any) -> _Check | None:
    """How to see whether a field of this type holds a big buffer; None: it cannot."""
    if not _may_carry(annotation):
        return None
    if annotation == Frames | None:
        return _holds_big
    if get_origin(annotation) is tuple:
        item, *more = get_args(annotation)
        parts = get_args(item)
        if more == [...] and parts:
            carriers = [i for i, part in enumerate(parts) if _may_carry(part)]
            if len(carriers) == 1 and parts[carriers[0]] in {Frames, Frames | None}:
                return _holds_big_at(carriers[0])
        return _holds_big
    return lambda value: _holds_big((value,))


def _checks_of(cls: type[Any]) -> tuple[tuple[int, _Check], ...]:
    hints = get_type_hints(cls)
    found = ((i, _check_of(hints[name])) for i, name in enumerate(cls._fields))
    return tuple((i, check) for i, check in found if check is not None)


_CHECKS = {cls: _checks_of(cls) for cls in (*MESSAGES.values(), GraphTask)}


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
    for i, check in _CHECKS.get(type(message), ()):
        field = message[i]
        if field and check(field):
            return (message.OP, *map(_marked, message))
    return (message.OP, *message)


def _flat(buffer: Bytes) -> memoryview:
    """One dimension of bytes over the same memory."""
    view = memoryview(buffer)
    if view.ndim == 1 and view.format == "B":
        return view
    return view.cast("B")


class Encoder:
    """Turns messages into one msgpack array and raw frames.

    It keeps msgpack's buffer from batch to batch, so each link (each thread) has
    one of its own.
    """

    __slots__ = ("_pack", "_raws", "_raws_max")

    def __init__(self, raws_max: int = 4096) -> None:
        self._raws: list[memoryview] = []
        self._raws_max = raws_max
        self._pack = self._packer()

    def _packer(self, unicode_errors: str | None = None) -> Callable[[Any], bytes]:
        packer = msgpack.Packer(
            default=self._default, buf_size=_KEPT_MAX, unicode_errors=unicode_errors
        )
        pack: Callable[[Any], bytes] = packer.pack
        return pack

    def _default(self, value: Any) -> Any:
        """What msgpack does not know: marked buffers, foreign and big ints."""
        if type(value) is Raw:
            view = _flat(value.buffer)
            raws = self._raws
            if len(raws) >= self._raws_max:
                return view
            raws.append(view)
            return msgpack.ExtType(EXT_RAW, (len(raws) - 1).to_bytes(4, "little"))
        try:
            number = index(value)
        except TypeError:
            msg = f"a {type(value).__qualname__} cannot travel in a message"
            raise TypeError(msg) from None
        if -(2**63) <= number < 2**64:
            return number
        size = number.bit_length() // 8 + 1
        return msgpack.ExtType(EXT_INT, number.to_bytes(size, "little", signed=True))

    def encode(self, messages: Sequence[Message]) -> tuple[bytes, list[memoryview]]:
        """The msgpack frame and the raw frames of a batch.

        Raises ProtocolError naming message and field that msgpack cannot carry.
        """
        arrays = [_array(message) for message in messages]
        self._raws = []
        try:
            body = self._pack(arrays)
        except UnicodeEncodeError:
            body = self._pack_any_text(arrays)
        except Exception as error:
            raise self._blamed(messages, error) from error
        if len(body) > _KEPT_MAX:
            self._pack = self._packer()
        raws, self._raws = self._raws, []
        return body, raws

    def _pack_any_text(self, value: Any) -> bytes:
        """Also texts with lone surrogates, as undecodable file names have.

        They are rare, and every text would pay for it.
        """
        self._raws = []
        return self._packer("surrogatepass")(value)

    def _blamed(self, messages: Sequence[Message], error: Exception) -> ProtocolError:
        """Find the message (and field) that made the batch fail."""
        for message in messages:
            names = getattr(message, "_fields", ())
            for name, value in zip(names, _array(message)[1:], strict=False):
                try:
                    self._pack_any_text(value)
                except Exception as own:  # noqa: BLE001 (this is the culprit)
                    where = f"{type(message).__name__}.{name}"
                    return ProtocolError(f"cannot encode {where}: {own}")
        return ProtocolError(f"cannot encode a batch: {error}")


def _verify(array: Any) -> None:
    """Check one decoded message, and remember its signature; ProtocolError if wrong."""
    if type(array) is not tuple or not array:
        msg = f"a message is {type(array).__name__}, not a filled array"
        raise ProtocolError(msg)
    op = array[0]
    if type(op) is not int or op not in SHAPES:
        raise ProtocolError(f"unknown op {op!r:.50}")
    cls, fields = SHAPES[op]
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
