"""Every message survives the wire, and what is not a message is refused by name."""

import tracemalloc
import weakref
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raddle.protocol.core.codec import (
    EXT_RAW,
    RAW_MIN,
    Encoder,
    Raw,
    decode_messages,
)
from raddle.protocol.core.messages import MESSAGES, Message
from raddle.protocol.core.messages.client import Ask, Graph, GraphTask, Release
from raddle.protocol.core.messages.peer import Data, Put
from raddle.protocol.core.messages.worker import Compute, Done, Present
from raddle.protocol.errors import ProtocolError
from testkit.wire import any_message, messages_of

OP = {cls.__name__: op for op, cls in MESSAGES.items()}


def there_and_back(*messages: Message) -> list[Any]:
    return decode_messages(*Encoder().encode(messages))


def packed(*arrays: object) -> bytes:
    body: bytes = msgpack.packb(arrays)
    return body


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=lambda cls: cls.__name__)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_message_round_trips(cls: type[Any], data: st.DataObject) -> None:
    message = data.draw(messages_of(cls))
    (arrived,) = there_and_back(message)
    assert type(arrived) is cls
    assert arrived == message


@settings(max_examples=50, deadline=None)
@given(batch=st.lists(any_message(), max_size=20))
def test_a_batch_keeps_its_order(batch: list[Message]) -> None:
    assert there_and_back(*batch) == batch


def test_the_table_has_no_holes() -> None:
    """The classes of the messages modules are the classes of the table."""
    for op, cls in MESSAGES.items():
        assert op == cls.OP
        assert op > 0, "0 would read as nothing"


@pytest.mark.parametrize(
    "make", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, "f8").data]
)
def test_big_buffers_are_not_copied(make: Any) -> None:
    buffer = make(b"12345678" * (RAW_MIN // 8))
    message = Data(1, ((7, 8, (b"pickle", buffer)),), ())
    body, raws = Encoder().encode([message])
    assert len(body) < 100
    (raw,) = raws
    assert raw.nbytes == len(raw) == RAW_MIN
    owner = buffer.obj if isinstance(buffer, memoryview) else buffer
    assert raw.obj is owner
    (arrived,) = decode_messages(body, raws)
    assert arrived.items[0][2][0] == b"pickle"
    assert arrived.items[0][2][1] is raw


@pytest.mark.parametrize(
    "message",
    [
        Compute(1, 2, "k", 2, 3, (b"", b"x" * RAW_MIN), (), (0,), None),
        Compute(1, 2, "k", 2, 3, (), ((1, (1,), 9, (b"x" * RAW_MIN,)),), (0,), None),
        Done(1, 2, 3, "bytes", 0.1, (b"", memoryview(b"x" * RAW_MIN))),
        Put(1, ((b"uuid", (b"", b"x" * RAW_MIN)),)),
        Graph(
            1,
            (GraphTask("k", b"t", None, 2, 1, (b"x" * RAW_MIN,), (), -1, 0),),
            (), (), (), (), None,
        ),
        Graph(
            1,
            (("k", b"t", None, 2, 1, (b"x" * RAW_MIN,), (), -1, 0),),
            (), (), (), (), None,
        ),
        Graph(1, (), (), (), ((1, (b"x" * RAW_MIN,)),), (), None),
        Ask(1, "topic", {"deep": [("er", bytearray(RAW_MIN))]}),
        Ask(1, "topic", b"x" * RAW_MIN),
        Ask(1, "topic", (Raw(b"small, but marked"),)),
    ],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_big_buffers_are_found_wherever_they_are(message: Message) -> None:
    _, raws = Encoder().encode([message])
    assert len(raws) == 1


def test_small_buffers_stay_in_the_message() -> None:
    small = b"x" * (RAW_MIN - 1)
    body, raws = Encoder().encode([Done(1, 2, 3, "bytes", 0.1, (small,))])
    assert not raws
    assert decode_messages(body) == [Done(1, 2, 3, "bytes", 0.1, (small,))]


def test_too_many_buffers_go_inline() -> None:
    frames = tuple(bytes([i]) * RAW_MIN for i in range(5))
    message = Data(1, ((1, 2, frames),), ())
    body, raws = Encoder(raws_max=3).encode([message])
    assert len(raws) == 3
    assert decode_messages(body, raws) == [message]


def test_numbers_of_numpy_and_of_any_size() -> None:
    key = ("x", np.int64(3), np.uint8(4), 2**100, -(2**63) - 1, 2**64 - 1)
    (arrived,) = there_and_back(Ask(1, "t", key))
    assert arrived.argument == key
    assert [type(part) for part in arrived.argument] == [str, *[int] * 5]


def test_texts_of_undecodable_file_names() -> None:
    name = b"caf\xe9 \xff".decode("utf-8", "surrogateescape")
    big = b"x" * RAW_MIN
    (arrived,) = there_and_back(Ask(1, name, (name, big)))
    assert arrived == Ask(1, name, (name, big))


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Opaque(), "a Opaque cannot travel in a message"),
        ({1, 2}, "a set cannot travel in a message"),
        (np.zeros((4, 4)).T[1:, 1:].data, "contiguous"),
    ],
)
def test_what_cannot_travel_is_named(value: object, words: str) -> None:
    good = Release((1,))
    encoder = Encoder()
    with pytest.raises(ProtocolError, match=r"cannot encode Ask\.argument: ") as info:
        encoder.encode([good, Ask(1, "topic", (1, value)), good])
    assert words in str(info.value)
    # The failure leaves nothing behind.
    assert decode_messages(*encoder.encode([good])) == [good]


def test_a_failed_batch_leaves_no_buffers_behind() -> None:
    encoder = Encoder()
    with pytest.raises(ProtocolError):
        encoder.encode([Ask(1, "", b"x" * RAW_MIN), Ask(1, "", Opaque())])
    big = b"y" * RAW_MIN
    body, raws = encoder.encode([Ask(1, "", big)])
    assert len(raws) == 1
    assert decode_messages(body, raws) == [Ask(1, "", big)]


def test_an_encoder_does_not_keep_the_buffers() -> None:
    value = np.zeros(RAW_MIN, "u1")
    gone = weakref.ref(value)
    encoder = Encoder()
    encoder.encode([Ask(1, "", value.data)])
    del value
    assert gone() is None


def test_extra_trailing_fields_are_ignored() -> None:
    array = (OP["Present"], 1, 2, "from a newer peer", None)
    # Twice: the second one finds the signature known.
    assert decode_messages(packed(array, array)) == [Present(1, 2)] * 2
    assert len(decode_messages(packed(array))[0]) == 2


def test_whole_seconds_are_floats_too() -> None:
    array = (OP["Done"], 1, 2, 3, "int", 1, None)
    assert decode_messages(packed(array)) == [Done(1, 2, 3, "int", 1, None)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (packed([99, 1]), "unknown op 99"),
        (packed([-1]), "unknown op -1"),
        (packed(["1", 1]), "unknown op '1'"),
        (packed([True, 1]), "unknown op True"),
        (packed([2.0, [1]]), "unknown op 2.0"),
        (packed([[1], 1]), r"unknown op \(1,\)"),
        (packed([{}, 1]), "unknown op {}"),
        (packed([]), "a message is tuple, not a filled array"),
        (packed(7), "a message is int, not a filled array"),
        (packed(None), "a message is NoneType, not a filled array"),
        (packed("ab"), "a message is str, not a filled array"),
        (
            packed(bytes([OP["Present"], 1, 2])),
            "a message is bytes, not a filled array",
        ),
        (packed({0: OP["Present"]}), "a message is dict, not a filled array"),
        (packed([OP["Present"]]), "Present came with 0 of 2 fields"),
        (packed([OP["Present"], 1]), "Present came with 1 of 2 fields"),
        (packed([OP["Present"], 1, "2"]), r"Present\.seen is str, not int"),
        (packed([OP["Present"], 1, True]), r"Present\.seen is bool, not int"),
        (packed([OP["Present"], 1, 2.0]), r"Present\.seen is float, not int"),
        (packed([OP["Release"], 5]), r"Release\.fids is int, not tuple"),
        (packed([OP["Release"], b"\x01"]), r"Release\.fids is bytes, not tuple"),
        (packed([OP["Heartbeat"], []]), r"Heartbeat\.metrics is tuple, not dict"),
        (
            packed([OP["Done"], 1, 2, 3, "t", "x", None]),
            r"Done\.seconds is str, not float or int",
        ),
        (
            packed([OP["Done"], 1, 2, 3, "t", 1.0, 0]),
            r"Done\.frames is int, not NoneType or tuple",
        ),
        (msgpack.packb({}), "a batch is dict, not an array"),
        (msgpack.packb(7), "a batch is int, not an array"),
        (b"", "not msgpack"),
        (b"\xc1", "not msgpack"),
        (b"\x92\x01", "not msgpack"),
        (packed([OP["Present"], 1, 2]) + b"\x00", "not msgpack: ExtraData"),
        (packed([OP["Ask"], 1, "t", {}])[:-1] + b"\x81\x80\x01", "not msgpack"),
        (packed([OP["Ask"], 1, "t", msgpack.ExtType(9, b"")]), "unknown ext code 9"),
        (
            packed([OP["Ask"], 1, "t", msgpack.ExtType(EXT_RAW, b"")]),
            "unknown ext code",
        ),
        (packed([OP["Ask"], 1, "t", msgpack.ExtType(EXT_RAW, bytes(4))]), "IndexError"),
        (b"\xdd\xff\xff\xff\xff", "not msgpack"),
        (b"\x91" * 3000, "not msgpack"),
    ],
)
def test_what_is_not_a_batch_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode_messages(body)


def test_a_wrong_type_is_refused_after_many_right_ones() -> None:
    right = [OP["Retry"], [1, 2]]
    with pytest.raises(ProtocolError, match=r"Retry\.fids is str"):
        decode_messages(packed(*[right] * 50, [OP["Retry"], "12"]))


def test_nested_claims_do_not_multiply() -> None:
    """1,000 arrays in each other, each claiming as many elements as there are bytes."""
    claim = b"\xdd" + (20_000).to_bytes(4, "big")
    body = claim * 1000 + b"\xc0" * 15_000
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="not msgpack"):
            decode_messages(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
