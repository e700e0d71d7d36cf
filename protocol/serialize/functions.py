"""When a function's bytes may be reused: an importable one is pickled once.

A function that travels by value takes its globals and closure with it as they are
at that moment, hence it is pickled anew on each call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from ..core.messages.base import Frames
from .pickles import dumps, goes_by_value

CACHE_MAX = 2_000
"""Functions remembered; each entry costs some 300 bytes and keeps its function."""

# How a pickle ends that is nothing but a module and a name:
# STACK_GLOBAL, MEMOIZE, STOP.
_REFERENCE = b"\x93\x94."

Dumped = tuple[bytes, Frames]

# By identity, least recently used first; an entry holds its function, so that
# the identity is not given to another one.
_cache: dict[int, tuple[Callable[..., Any], Dumped]] = {}
_lock = threading.Lock()


def dumps_function(func: Callable[..., Any]) -> Dumped:
    """The 16-byte digest of a function's definition, and the definition's frames.

    Equal digests mean equal definitions.

    Raises:
        SerializationError: it cannot be pickled; the error names it.

    """
    entry = _cache.pop(id(func), None)
    if entry is not None and not goes_by_value(entry[1][1][0]):
        _cache[id(func)] = entry
        return entry[1]
    name = getattr(func, "__qualname__", None) or repr(func)
    frames = dumps(func, f"function {name}")
    digest = blake2b(digest_size=16)
    for frame in frames:
        digest.update(frame)
    dumped = digest.digest(), frames
    data = frames[0]
    if data.endswith(_REFERENCE) and not goes_by_value(data):
        _remember(func, dumped)
    return dumped


def _remember(func: Callable[..., Any], dumped: Dumped) -> None:
    with _lock:
        while len(_cache) >= CACHE_MAX:
            _cache.pop(next(iter(_cache)), None)
        _cache[id(func)] = func, dumped
