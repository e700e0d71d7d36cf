"""Decides how batches lie in the byte stream, and bounds them before allocating.

    batch    := u32 frame count | u64 length of each | frame 0: msgpack | raw frames
    farewell := u32 zero | u64 length | reason in UTF-8; nothing follows

All numbers are little-endian. :class:`BatchReader` is fed by whoever owns the
connection (it has the shape of ``asyncio.BufferedProtocol``). Frames that do not
fit its own buffer are received into memory of their own, which the values keep.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import ProtocolError
from .codec import Bytes, Encoder, decode_messages
from .messages import Message

FAREWELL_MAX = 4096
"""Bytes of a farewell's reason."""

_BUFFER = 256 * 1024
_HUGE_MIN = 1024 * 1024
_COUNT = struct.Struct("<I")
_SMALL = struct.Struct("<IQ")


class Limits(NamedTuple):
    """What a peer may ask this side to hold.

    ``message`` bytes in one frame, ``frames`` in one batch, ``preauth`` bytes in
    a hello or welcome.
    """

    message: int = 2**31
    frames: int = 16_384
    preauth: int = 4096


def encode_batch(
    messages: Sequence[Message], encoder: Encoder | None = None
) -> list[Bytes]:
    """The buffers that make up a batch, in order; big ones are the sender's own.

    Raises ProtocolError naming message and field that cannot be encoded.
    """
    body, raws = (encoder or Encoder()).encode(messages)
    lengths = (len(body), *map(len, raws))
    head = struct.pack(f"<I{len(lengths)}Q", len(lengths), *lengths)
    return [head, body, *raws]


def encode_farewell(reason: str) -> bytes:
    """The last words on a connection: why it is closed."""
    text = reason.encode("utf-8", "replace")[:FAREWELL_MAX]
    return _SMALL.pack(0, len(text)) + text


def allocate(size: int) -> memoryview:
    """Writable memory for one frame.

    Big frames get pages from the kernel, huge ones where it has them: filling a
    fresh bytearray of that size would cost three times as much.
    """
    if size >= _HUGE_MIN and hasattr(mmap, "MAP_PRIVATE"):
        try:
            area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:  # the process has too many maps
            return memoryview(bytearray(size))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            area.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(area)
    return memoryview(bytearray(size))


class BatchReader:
    """Cuts a byte stream into batches of messages.

    After each ``buffer_updated`` look at ``error`` (what the peer did wrong) and
    ``farewell`` (its last words): once either is set, the rest is ignored.
    """

    __slots__ = (
        "_begin", "_buffer", "_end", "_filled", "_frames", "_lengths", "_limits",
        "_parting", "_target", "_view", "error", "farewell",
    )  # fmt: skip

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        size = max(_BUFFER, 4 + 8 * self._limits.frames)
        self._buffer = bytearray(size)
        self._view = memoryview(self._buffer)
        self._begin = 0
        self._end = 0
        # The batch in progress: its frames' lengths, and those that are here.
        self._lengths: tuple[int, ...] = ()
        self._frames: list[memoryview] = []
        self._parting = False
        # A frame that is received in place, and how much of it is here.
        self._target: memoryview | None = None
        self._filled = 0
        self.error: ProtocolError | None = None
        self.farewell: str | None = None

    def get_buffer(self, _hint: int = -1) -> memoryview:
        """Where to put the next bytes; never empty."""
        if self._target is not None:
            return self._target[self._filled :]
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._begin and len(self._buffer) - self._end < len(self._buffer) // 4:
            kept = self._end - self._begin
            self._view[:kept] = self._view[self._begin : self._end]
            self._begin, self._end = 0, kept
        return self._view[self._end :]

    def buffer_updated(self, count: int) -> list[list[Any]]:
        """Take note of ``count`` bytes more; the batches that are complete now."""
        if self.error is not None or self.farewell is not None:
            self._begin = self._end = 0
            return []
        if self._target is not None:
            self._filled += count
            if self._filled < len(self._target):
                return []
            self._frames.append(self._target)
            self._target = None
        else:
            self._end += count
        batches: list[list[Any]] = []
        try:
            while self._step(batches):
                pass
        except ProtocolError as error:
            self._fail(error)
        except (MemoryError, OverflowError) as error:
            self._fail(ProtocolError(f"no memory for a frame: {error}"))
        return batches

    def feed(self, data: Bytes) -> list[list[Any]]:
        """Take bytes that were received elsewhere."""
        batches: list[list[Any]] = []
        rest = memoryview(data)
        while rest:
            room = self.get_buffer()
            taken = min(len(room), len(rest))
            room[:taken] = rest[:taken]
            batches += self.buffer_updated(taken)
            rest = rest[taken:]
        return batches

    def _fail(self, error: ProtocolError) -> None:
        self.error = error
        self._target = None
        self._lengths = ()
        self._frames = []
        self._begin = self._end = 0

    def _step(self, batches: list[list[Any]]) -> bool:
        """Take one thing (header, frame or batch) off the buffer; False: wait."""
        if not self._lengths:
            return self._take_small(batches) or self._take_header()
        done = len(self._frames)
        if done == len(self._lengths):
            self._complete(batches)
            return self.farewell is None
        need = self._lengths[done]
        here = self._end - self._begin
        if done == 0 and need <= len(self._buffer) // 2:
            if here < need:
                return False
            frame = self._view[self._begin : self._begin + need]
            self._begin += need
            # Decoded where it lies: nothing is read into this buffer before that,
            # as all other frames of the batch have memory of their own.
            self._frames.append(frame)
            return True
        target = allocate(need)
        taken = min(here, need)
        target[:taken] = self._view[self._begin : self._begin + taken]
        self._begin += taken
        if taken == need:
            self._frames.append(target)
            return True
        self._target = target
        self._filled = taken
        return False

    def _take_small(self, batches: list[list[Any]]) -> bool:
        """Take a whole batch of one small frame, as nearly all are, at one go."""
        begin = self._begin + _SMALL.size
        if begin > self._end:
            return False
        count, length = _SMALL.unpack_from(self._buffer, self._begin)
        end = begin + length
        if count != 1 or end > self._end or length > self._limits.message:
            return False
        self._begin = end
        batches.append(decode_messages(self._view[begin:end]))
        return True

    def _take_header(self) -> bool:
        """Read and check a batch's lengths; False while they are not all here."""
        here = self._end - self._begin
        if here < _COUNT.size:
            return False
        (count,) = _COUNT.unpack_from(self._buffer, self._begin)
        limits = self._limits
        if count > limits.frames:
            msg = f"a batch of {count} frames; at most {limits.frames} are taken"
            raise ProtocolError(msg)
        size = 4 + 8 * max(count, 1)
        if here < size:
            return False
        lengths = struct.unpack_from(
            f"<{max(count, 1)}Q", self._buffer, self._begin + 4
        )
        most = limits.message if count else FAREWELL_MAX
        if max(lengths) > most:
            msg = (
                f"a frame of {max(lengths)} bytes; at most {most} are taken "
                "(raddle.comm.limits.message)"
            )
            raise ProtocolError(msg)
        self._begin += size
        self._lengths = lengths
        self._parting = count == 0
        return True

    def _complete(self, batches: list[list[Any]]) -> None:
        """All frames are here: decode them."""
        body, *raws = self._frames
        self._lengths = ()
        self._frames = []
        if self._parting:
            self.farewell = str(body, "utf-8", "replace")
        else:
            batches.append(decode_messages(body, raws))
