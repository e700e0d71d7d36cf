"""How a value becomes frames: what is copied, what is not, and when cloudpickle helps.

pickle is several times faster than cloudpickle and enough for most values, so it
goes first. What it cannot pickle, and what it would pickle as a name that means
nothing elsewhere (``__main__``, modules registered by value), goes to cloudpickle.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle
from cloudpickle.cloudpickle import _PICKLE_BY_VALUE_MODULES as _BY_VALUE

from ..core.frames import allocate
from ..core.messages.base import Frames
from ..errors import SerializationError
from .blame import blame, message_of, remedy

PROTOCOL = 5
INBAND_MAX = 32 * 1024
"""Buffers up to this many bytes are copied into the pickle; longer ones are frames.

A small array inside the pickle loads into fresh, writable memory; as a frame of its
own it would cost more than the copy.
"""

_pickle = pickle.dumps
_unpickle = pickle.loads


class Buffers(list[memoryview]):
    """Called by pickle with each buffer: keeps the long ones, declines the short."""

    __slots__ = ()

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether pickle should copy ``buffer`` into the pickle itself."""
        view = buffer.raw()
        if view.nbytes <= INBAND_MAX:
            return True
        self.append(view)
        return False


class _Bulk:
    """Stands for a long bytes or bytearray, to pickle it without copying it."""

    __slots__ = ("value",)

    def __init__(self, value: bytes | bytearray) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self.value), (pickle.PickleBuffer(self.value),)


def goes_by_value(data: bytes) -> bool:
    """Whether a pickle may name something that only this process can import.

    A mere look at the bytes: data that happens to contain such a name costs a
    second pickling, nothing else.
    """
    if b"__main__" in data:
        return True
    # A copy, since another thread may register a module meanwhile.
    return bool(_BY_VALUE) and any(n.encode() in data for n in tuple(_BY_VALUE))


def dumps(obj: Any, what: str = "") -> Frames:
    """``obj`` as frames: the pickle, then its long buffers (views, not copies).

    The views keep the buffers' owners alive and show later changes of them: see
    :func:`copy_frames`. ``what`` says in an error what was being pickled.

    Raises:
        SerializationError: neither pickle nor cloudpickle can; names the type and
            where inside ``obj`` the culprit sits.

    """
    if type(obj) in (bytes, bytearray) and len(obj) > INBAND_MAX:
        obj = _Bulk(obj)
    buffers = Buffers()
    try:
        data = _pickle(obj, PROTOCOL, buffer_callback=buffers)
    except Exception as error:  # noqa: BLE001 (whatever a __reduce__ raises)
        return _dumps_by_value(obj, what, error)
    if b"__main__" in data or (_BY_VALUE and goes_by_value(data)):
        return _dumps_by_value(obj, what, None)
    return (data, *buffers) if buffers else (data,)


def _dumps_by_value(obj: Any, what: str, first: Exception | None) -> Frames:
    """What plain pickle could not do; ``first`` is what it said."""
    buffers = Buffers()
    with io.BytesIO() as file:
        try:
            cloudpickle.Pickler(file, PROTOCOL, buffer_callback=buffers).dump(obj)
        except Exception as error:
            if first is not None:
                error.__context__ = first
            raise SerializationError(blame(obj, what, error)) from error
        return file.getvalue(), *buffers


def loads(frames: Frames, what: str = "") -> Any:
    """The value of ``frames``, using their memory where the value can.

    Arrays are writable where the frames' memory is. ``what`` says in an error what
    was being unpickled.

    Raises:
        SerializationError: with the original exception as its cause.

    """
    try:
        if len(frames) == 1:
            return _unpickle(frames[0])
        return _unpickle(frames[0], buffers=frames[1:])
    except Exception as error:
        said = f"{type(error).__name__}: {message_of(error)}"
        msg = f"cannot unpickle {what or 'a value'}: {said}{remedy(error)}"
        raise SerializationError(msg) from error


def nbytes_of(frames: Frames) -> int:
    """Bytes that ``frames`` hold altogether."""
    return sum(f.nbytes if type(f) is memoryview else len(f) for f in frames)


def copy_frames(frames: Frames) -> Frames:
    """The same frames in writable memory of their own; only bytes objects are shared.

    For frames that stay in this process: a value loaded from them must not share
    memory with the value they were dumped from, nor change when that one does.
    """
    if len(frames) == 1 and type(frames[0]) is bytes:
        return frames
    return bytes(frames[0]), *map(_copied, frames[1:])


def _copied(frame: bytes | bytearray | memoryview) -> bytes | memoryview:
    view = memoryview(frame)
    if type(view.obj) is bytes and len(view.obj) == view.nbytes:
        return frame if type(frame) is bytes else view
    copy = allocate(view.nbytes)
    copy[:] = view
    return copy
