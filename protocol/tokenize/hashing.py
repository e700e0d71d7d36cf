"""How bytes become digests: tags, lengths, the two hashes, the identity of keys.

A *piece* is the encoding of one value inside its parent: a short leaf stands for
itself, everything else is ``D`` and a 16-byte digest. Tags and length prefixes
make pieces self-delimiting, so joining them is injective and only the hash could
collide. Nothing here knows about objects beyond str, int, float, bytes and tuple.
"""

from __future__ import annotations

import numbers
import struct
import sys
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import xxhash

from ..core.ids import Key
from ..errors import ConfigError

ENCODING = 1
"""Version of this encoding. It is hashed into every token; any change of a rule
of this package must raise it."""

STRUCTURE_HASH = b"blake2b-128"
BULK_HASHES = ("xxh3-128", "blake2b")
FUNCTION_CODES = ("own", "none")

INLINE_MAX = 64
"""Leaves of fewer bytes than this are put into the parent as they stand."""

BULK_MIN = 64 * 1024
"""Buffers of at least this many bytes go through the bulk hash."""


class Digest(NamedTuple):
    """16 bytes that name a value; ``skeleton`` is None when they are deterministic.

    Otherwise ``skeleton`` is the digest of the same value with each leaf that has
    no reproducible content replaced by its type.
    """

    digest: bytes
    skeleton: bytes | None


_digest: Callable[[type[Digest], tuple[bytes, None]], Digest] = tuple.__new__


def deterministic(digest: bytes) -> Digest:
    """A digest without a skeleton, at half the price of the constructor."""
    return _digest(Digest, (digest, None))


class Mode(NamedTuple):
    """What two walkers must have in common for their digests to be comparable."""

    function_code: str
    hasher: Callable[[], Hasher]
    tag: bytes


class Hasher(Protocol):
    """What a bulk hash must do."""

    def update(self, data: Any, /) -> None:
        """Take in a contiguous buffer."""

    def digest(self) -> bytes:
        """The digest of all that was taken in."""


_U64 = tuple(n.to_bytes(8, "little") for n in range(1024))
_blank = blake2b(digest_size=16)


def u64(n: int) -> bytes:
    """``n`` as 8 little-endian bytes: the form of every length and count."""
    return _U64[n] if n < 1024 else n.to_bytes(8, "little")


def blake(data: bytes) -> bytes:
    """The structure hash: 16 bytes of BLAKE2b."""
    state = _blank.copy()  # a third cheaper than the constructor with its keyword
    state.update(data)
    return state.digest()


def digest_piece(data: bytes) -> bytes:
    """The piece of a node whose whole encoding is ``data``."""
    state = _blank.copy()
    state.update(data)
    return b"D" + state.digest()


def _blake2b_128() -> Hasher:
    return blake2b(digest_size=16)


def bulk_hasher(name: str) -> Callable[[], Hasher]:
    """The constructor of the bulk hash called ``name``.

    Never decided by what is installed. Raises :class:`ConfigError` for an unknown
    name.
    """
    if name == "xxh3-128":
        return xxhash.xxh3_128
    if name == "blake2b":
        return _blake2b_128
    msg = f"unknown bulk hash {name!r}: choose one of {', '.join(BULK_HASHES)}"
    raise ConfigError(msg)


@lru_cache(maxsize=16)
def mode_of(function_code: str, bulk_hash: str) -> Mode:
    """The mode of these settings; raises :class:`ConfigError` for unknown ones."""
    check_function_code(function_code)
    tag = u64(len(bulk_hash)) + bulk_hash.encode()
    return Mode(function_code, bulk_hasher(bulk_hash), tag)


def check_function_code(mode: str) -> str:
    """``mode`` itself if it is a function-code mode; else :class:`ConfigError`."""
    if mode not in FUNCTION_CODES:
        msg = f"unknown function-code mode {mode!r}: choose one of own, none"
        raise ConfigError(msg)
    return mode


def encoding_id(function_code: str = "own", bulk_hash: str = "xxh3-128") -> int:
    """A u32 that names encoding version, bulk hash, function-code mode and Python.

    Tokens computed under different ids prove nothing about each other.
    """
    if bulk_hash not in BULK_HASHES:
        bulk_hasher(bulk_hash)
    mode = FUNCTION_CODES.index(check_function_code(function_code))
    version = sys.version_info
    python = (version.major & 0xF) << 8 | version.minor
    return ENCODING << 24 | BULK_HASHES.index(bulk_hash) << 20 | mode << 16 | python


# --- leaves ------------------------------------------------------------------

NONE, TRUE, FALSE, ELLIPSIS, NOT_IMPLEMENTED = b"N", b"+", b"-", b".", b"!"
NAN = struct.pack("<d", float("nan"))

_STR_HEADS = tuple(b"s" + u64(n) for n in range(INLINE_MAX))
_INT_HEADS = tuple(b"i" + u64(n) for n in range(INLINE_MAX))
_TWO_BYTES = _INT_HEADS[2]
_pack_float = struct.Struct("<d").pack
_pack_short = struct.Struct("<h").pack


def _int_piece(value: int) -> bytes:
    if -0x8000 < value <= -0x80 or 0x80 <= value < 0x8000:
        return _TWO_BYTES + _pack_short(value)
    size = (value.bit_length() >> 3) + 1
    data = value.to_bytes(size, "little", signed=True)
    if size < INLINE_MAX:
        return _INT_HEADS[size] + data
    return digest_piece(b"i" + u64(size) + data)


_SMALL_INTS = tuple(_int_piece(n) for n in range(1024))


def int_piece(value: int) -> bytes:
    """An int as minimal signed two's complement: no decimal text, no digit limit."""
    if 0 <= value < 1024:
        return _SMALL_INTS[value]
    return _int_piece(value)


def float_bytes(value: float) -> bytes:
    """Its 8 bytes; every nan is the same nan, -0.0 is not 0.0."""
    return NAN if value != value else _pack_float(value)  # noqa: PLR0124


def utf8(text: str) -> bytes:
    """UTF-8 that also carries lone surrogates; no Unicode normalization."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def str_piece(text: str) -> bytes:
    """A str, hashed by the structure hash whatever its length."""
    data = utf8(text)
    size = len(data)
    if size < INLINE_MAX:
        return _STR_HEADS[size] + data
    return digest_piece(b"s" + u64(size) + data)


def bytes_piece(data: bytes) -> bytes:
    """A bytes object, hashed by the structure hash whatever its length."""
    piece = b"b" + u64(len(data)) + data
    return piece if len(data) < INLINE_MAX else digest_piece(piece)


# --- keys --------------------------------------------------------------------


def _odd_key(key: Any) -> bytes:  # noqa: PLR0911 (one per type)
    """Keys of other types: a subclass names what its plain value names."""
    if key is None:
        return NONE
    if isinstance(key, bool):
        return TRUE if key else FALSE
    if isinstance(key, str):
        return str_piece(str.__str__(key))
    if isinstance(key, int):
        return int_piece(int.__pos__(key))
    if isinstance(key, float):
        return b"f" + float_bytes(float.__pos__(key))
    if isinstance(key, bytes):
        return bytes_piece(bytes.__getitem__(key, slice(None)))
    if isinstance(key, tuple):
        return key_piece(tuple(tuple.__iter__(key)))
    if isinstance(key, numbers.Integral):  # a numpy int as a chunk number
        return int_piece(int(key))
    kind = type(key)
    msg = (
        f"a {kind.__module__}.{kind.__qualname__} cannot be (part of) a key: keys are "
        "str, int, float, bytes and tuples of these"
    )
    raise TypeError(msg)


def key_piece(key: Key) -> bytes:
    """A key, always inline: injective, and the same in every process.

    Raises TypeError for what cannot be a key.
    """
    kind = type(key)
    if kind is str:
        return str_piece(key)  # type: ignore[arg-type]
    if kind is tuple:
        parts = [b"t" + u64(len(key))]  # type: ignore[arg-type]
        for part in key:  # type: ignore[union-attr]
            kind = type(part)
            if kind is int:
                small = 0 <= part < 1024  # type: ignore[operator]
                parts.append(_SMALL_INTS[part] if small else _int_piece(part))  # type: ignore[index, arg-type]
            elif kind is str:
                parts.append(str_piece(part))  # type: ignore[arg-type]
            else:
                parts.append(key_piece(part))
        return b"".join(parts)
    if kind is int:
        return int_piece(key)  # type: ignore[arg-type]
    if kind is bytes:
        return bytes_piece(key)  # type: ignore[arg-type]
    if kind is float:
        return b"f" + float_bytes(key)  # type: ignore[arg-type]
    return _odd_key(key)


# --- roots -------------------------------------------------------------------

_ROOT = bytes([ENCODING]) + u64(len(STRUCTURE_HASH)) + STRUCTURE_HASH
ROOT_VALUE, ROOT_CALL, ROOT_ARGS = _ROOT + b"V", _ROOT + b"C", _ROOT + b"A"
_ROOT_SPEC, _ROOT_MINTED = _ROOT + b"K", _ROOT + b"M"


def run_spec_token(key: Key, body: Digest) -> Digest:
    """The token of a task: the digest of its key and of what it runs."""
    head = _ROOT_SPEC + key_piece(key)
    skeleton = body.skeleton
    if skeleton is None:
        return deterministic(blake(head + body.digest))
    return Digest(blake(head + body.digest), blake(head + skeleton))


def minted_token(key: Key, client_id: str) -> Digest:
    """The token of a task whose key this client has minted as unique: no walk."""
    return Digest(blake(_ROOT_MINTED + key_piece(key) + str_piece(client_id)), None)
