"""Values for messages made from their annotations, and batches as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, ForwardRef, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from raddle.protocol.core.codec import RAW_MIN
from raddle.protocol.core.frames import encode_batch
from raddle.protocol.core.messages import MESSAGES, Frames, Message

INTS = st.integers(-(2**70), 2**70)
FLOATS = st.floats(allow_nan=False)
TEXTS = st.text(st.characters(), max_size=20)
BIG = bytes(range(256)) * (RAW_MIN // 256) + b"and more"
BUFFERS = st.one_of(
    st.binary(max_size=20),
    st.binary(max_size=20).map(lambda data: memoryview(data)),  # noqa: PLW0108 (mypy)
    st.just(BIG),
    st.just(memoryview(BIG)),
)
KEYS: SearchStrategy[Any] = st.recursive(
    st.one_of(TEXTS, INTS, FLOATS, st.binary(max_size=10)),
    lambda parts: st.lists(parts, max_size=3).map(tuple),
    max_leaves=4,
)
VALUES: SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), KEYS, BUFFERS),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3).map(tuple),
        st.dictionaries(TEXTS, parts, max_size=3),
    ),
    max_leaves=5,
)
FRAMES: SearchStrategy[Frames] = st.lists(BUFFERS, max_size=3).map(tuple)
SCALARS: dict[Any, SearchStrategy[Any]] = {
    int: INTS,
    float: FLOATS,
    str: TEXTS,
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
    NoneType: st.none(),
    Any: VALUES,
    object: VALUES,
    Frames: FRAMES,
    ForwardRef("Key"): KEYS,
}


def values_of(annotation: Any) -> SearchStrategy[Any]:
    """What a field with this annotation may hold."""
    if annotation in SCALARS:
        return SCALARS[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Union or origin is UnionType:
        return st.one_of(*map(values_of, parts))
    if origin is dict:
        return st.dictionaries(values_of(parts[0]), values_of(parts[1]), max_size=3)
    assert origin is tuple, f"no values for {annotation}"
    if parts[1:] == (...,):
        return st.lists(values_of(parts[0]), max_size=3).map(tuple)
    return st.tuples(*map(values_of, parts))


def messages_of(cls: type[Any]) -> SearchStrategy[Message]:
    """Messages of one class."""
    hints = get_type_hints(cls)
    return st.builds(cls, *(values_of(hints[name]) for name in cls._fields))


def any_message() -> SearchStrategy[Message]:
    """Messages of any class."""
    return st.one_of(*map(messages_of, MESSAGES.values()))


def as_bytes(*batches: Sequence[Message]) -> bytes:
    """What a connection carries for these batches."""
    return b"".join(bytes(b) for batch in batches for b in encode_batch(batch))
