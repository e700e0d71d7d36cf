"""A byte stream becomes the batches that were written, however it is cut or spoilt."""

import random
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raddle.protocol.core.codec import RAW_MIN
from raddle.protocol.core.frames import (
    FAREWELL_MAX,
    BatchReader,
    Limits,
    allocate,
    encode_batch,
    encode_farewell,
)
from raddle.protocol.core.messages import MESSAGES, Message
from raddle.protocol.core.messages.client import Ask, Goodbye, Release
from raddle.protocol.core.messages.peer import Data, Put
from raddle.protocol.core.messages.worker import Compute, Done, Functions, Present
from testkit.wire import any_message, as_bytes

CLASSES = frozenset(MESSAGES.values())
BIG = bytes(range(256)) * (3 * RAW_MIN // 256)


def data(*buffers: bytes) -> Data:
    return Data(1, ((2, 3, buffers),), ())


def header(*lengths: int, count: int | None = None) -> bytes:
    count = len(lengths) if count is None else count
    return struct.pack(f"<I{len(lengths)}Q", count, *lengths)


@settings(max_examples=50, deadline=None)
@given(
    batches=st.lists(st.lists(any_message(), max_size=4), max_size=4),
    cuts=st.lists(st.integers(1, 50_000), min_size=1, max_size=5),
)
def test_any_cut_gives_the_same_batches(
    batches: list[list[Message]], cuts: list[int]
) -> None:
    stream = as_bytes(*batches) + encode_farewell("that is all")
    reader, arrived, at = BatchReader(), [], 0
    while at < len(stream):
        for cut in cuts:
            arrived += reader.feed(stream[at : at + cut])
            at += cut
    assert arrived == batches
    assert reader.farewell == "that is all"
    assert reader.error is None


def test_byte_by_byte() -> None:
    batches: list[list[Message]] = [
        [Release((1,)), Goodbye()],
        [],
        [data(b"", BIG)],
        [Present(1, 2)],
    ]
    reader = BatchReader()
    arrived = [b for byte in as_bytes(*batches) for b in reader.feed(bytes([byte]))]
    assert arrived == batches


def test_more_small_batches_than_the_buffer_holds() -> None:
    batch = [Ask(i, "topic", "x" * 1000) for i in range(100)]
    reader = BatchReader()
    arrived = reader.feed(as_bytes(*[batch] * 30))
    assert arrived == [batch] * 30


@pytest.mark.parametrize("size", [100_000, 200_000, 300_000, 2_000_000])
def test_long_messages(size: int) -> None:
    """Below and above half of the reader's buffer, alone and with a raw frame."""
    long, more = Ask(1, "topic", "x" * size), data(BIG)
    assert BatchReader().feed(as_bytes([long], [long, more], [long])) == [
        [long], [long, more], [long],
    ]  # fmt: skip


def test_a_big_buffer_is_received_in_place_and_kept() -> None:
    """The rest of a frame is asked for as one piece, and nobody writes to it later."""
    stream = as_bytes([data(BIG)], [data(BIG[::-1])], [data(BIG)])
    reader = BatchReader()
    assert reader.feed(stream[:200]) == []
    room = reader.get_buffer()
    assert len(room) == len(as_bytes([data(BIG)])) - 200
    arrived = reader.feed(stream[200:])
    buffers = [batch[0].items[0][2][0] for batch in arrived]
    assert buffers == [BIG, BIG[::-1], BIG]
    first = buffers[0]
    assert room.obj is first.obj
    assert not first.readonly
    assert first.contiguous
    first[0] = 7
    assert buffers[2] == BIG


def test_huge_memory_is_writable_and_exact() -> None:
    for size in (0, 1, 2**20 - 1, 2**20, 2**20 + 1, 5_000_001):
        area = allocate(size)
        assert area.nbytes == size
        assert (area.format, area.readonly) == ("B", False)
        area[:] = b"x" * size
        assert bytes(area[-1:]) == b"x" * min(size, 1)


def test_empty_raw_frames() -> None:
    body = encode_batch([Put(1, ((b"u", (b"x" * RAW_MIN,)),)), Goodbye()])[1]
    stream = header(len(body), 0, 0) + body
    ((put, goodbye),) = BatchReader().feed(stream)
    assert bytes(put.items[0][1][0]) == b""
    assert goodbye == Goodbye()


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (header(2**62), "a frame of 4611686018427387904 bytes; at most 1000000"),
        (header(1_000_001), "raddle.comm.limits.message"),
        (header(10, 2**40), "a frame of 1099511627776 bytes"),
        (header(count=2**32 - 1), "a batch of 4294967295 frames; at most 100"),
        (header(count=101), "a batch of 101 frames; at most 100"),
        (header(FAREWELL_MAX + 1, count=0), "a frame of 4097 bytes; at most 4096"),
        (b"GET / HTTP/1.1\r\n\r\n", "frames; at most 100"),
        (header(0), "not msgpack"),
    ],
)
def test_claims_are_refused_before_anything_is_allocated(
    stream: bytes, reason: str
) -> None:
    reader = BatchReader(Limits(message=1_000_000, frames=100))
    tracemalloc.start()
    try:
        assert reader.feed(stream) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reason in str(reader.error)
    assert peak < 20_000


def test_what_came_before_the_fault_counts() -> None:
    good, more = [Present(1, 2)], [Release((3,))]
    reader = BatchReader()
    assert reader.feed(as_bytes(good) + header(2**60) + as_bytes(more)) == [good]
    assert reader.error is not None
    assert reader.feed(as_bytes(more) * 10_000) == []
    assert "a frame of" in str(reader.error)


def test_nothing_follows_a_farewell() -> None:
    reader = BatchReader()
    batch = [Present(1, 2)]
    assert reader.feed(as_bytes(batch) + encode_farewell("bye") + b"\xff" * 99) == [
        batch
    ]
    assert (reader.farewell, reader.error) == ("bye", None)
    assert reader.feed(as_bytes(batch)) == []


@pytest.mark.parametrize("reason", ["", "x" * FAREWELL_MAX, "grüße \ud800"])
def test_farewells(reason: str) -> None:
    reader = BatchReader()
    for byte in encode_farewell(reason):
        assert reader.farewell is None
        reader.feed(bytes([byte]))
    assert reader.farewell == reason.encode("utf-8", "replace").decode()


def test_a_farewell_is_cut_rather_than_refused() -> None:
    reader = BatchReader()
    reader.feed(encode_farewell("ü" * FAREWELL_MAX))
    assert reader.farewell == "ü" * (FAREWELL_MAX // 2)


def sessions() -> list[bytes]:
    """A few real byte streams to spoil."""
    tasks = [
        Compute(
            i, i, ("x", i), 2, 1, (b"args",), ((i, (1, 2), 8, (b"p",)),), (0, i), None
        )
        for i in range(20)
    ]
    return [
        as_bytes(tasks[:1], tasks, [Functions(((1, (b"f" * 500,)),))]),
        as_bytes([Done(i, 1, 28, "int", 0.1, (b"x" * 20,)) for i in range(50)]) * 3,
        as_bytes([data(b"p", BIG, BIG)], [Release((1, 2))], [data(BIG)]),
        as_bytes([Ask(1, "topic", {"a": (1, 2.5, None, True, "text")})])
        + encode_farewell("bye"),
    ]


def spoil(stream: bytes, rng: random.Random) -> bytes:
    """Flip, drop, repeat, insert or cut bytes, mostly near the front."""
    spoilt = bytearray(stream)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = int(len(spoilt) * rng.random() ** 3)
        count = rng.choice((1, 1, 2, 4, 8))
        change: Any = rng.choice(("flip", "drop", "repeat", "insert", "cut", "ones"))
        if change == "flip":
            spoilt[at : at + 1] = bytes([rng.randrange(256)])
        elif change == "drop":
            del spoilt[at : at + count]
        elif change == "repeat":
            spoilt[at:at] = spoilt[at : at + count]
        elif change == "insert":
            spoilt[at:at] = rng.randbytes(count)
        elif change == "cut":
            del spoilt[at:]
        else:
            spoilt[at : at + count] = b"\xff" * count
    return bytes(spoilt)


def test_spoilt_sessions_give_messages_or_a_named_error() -> None:
    """2,000 of them: no other exception, and no memory that was only claimed."""
    originals = sessions()
    errors = 0
    tracemalloc.start()
    try:
        for seed in range(2000):
            rng = random.Random(seed)
            stream = spoilt = originals[seed % len(originals)]
            while spoilt == stream:
                spoilt = spoil(stream, rng)
            reader = BatchReader(Limits(message=1_000_000, frames=100))
            at = 0
            while at < len(spoilt):
                size = rng.choice((1, 10, 100, 5_000, 100_000))
                for batch in reader.feed(spoilt[at : at + size]):
                    assert {type(message) for message in batch} <= CLASSES, seed
                at += size
            if reader.error is not None:
                errors += 1
                assert str(reader.error), seed
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert errors > 500
    assert peak < 30_000_000
