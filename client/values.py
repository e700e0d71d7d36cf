"""What a decided future has to offer: its value, or what went wrong."""

from __future__ import annotations

from typing import Any

from raddle.protocol.core.messages.base import Frames
from raddle.protocol.serialize import load_exception, loads

from .core.futures import FINISHED, Record


def is_remote(record: Record) -> bool:
    """Whether the value exists but has to be fetched from a worker."""
    return record.state == FINISHED and record.value is None


def load(record: Record, frames: Frames) -> Any:
    """The value of a finished future, anew each time, so that nobody shares it."""
    return loads(frames, f"the result of {record.key!r}")


def error_of(record: Record) -> BaseException:
    """The exception of an erred or cancelled future, with its remote traceback."""
    value = record.value
    if isinstance(value, BaseException):
        return value.with_traceback(None)
    error = load_exception(value)
    if record.blamed is not None and record.blamed != record.key:
        error.add_note(f"raised by task {record.blamed!r}, which {record.key!r} needs")
    return error
