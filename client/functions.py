"""Which functions the scheduler knows by number, and when it may forget them.

A definition is sent once, with the first graph that needs it. What the client has
sent is bounded by bytes: the least recently used definitions are forgotten on both
sides, and are sent again should they be needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from raddle.protocol.core.ids import Fn
from raddle.protocol.core.messages.base import Frames
from raddle.protocol.core.messages.client import ForgetFunctions
from raddle.protocol.serialize import copy_frames, dumps_function, nbytes_of


class FunctionUse:
    """The functions that one graph uses, while it is being encoded."""

    __slots__ = ("_by_identity", "_registry", "used")

    def __init__(self, registry: Functions) -> None:
        self._registry = registry
        # The function is kept, so that its identity is not given to another one.
        self._by_identity: dict[int, tuple[Callable[..., Any], Fn]] = {}
        self.used: dict[Fn, Frames] = {}

    def number(self, func: Callable[..., Any]) -> Fn:
        """The number of ``func``; a function that occurs often is pickled once.

        Raises:
            SerializationError: it cannot be pickled.

        """
        known = self._by_identity.get(id(func))
        if known is not None:
            return known[1]
        digest, frames = dumps_function(func)
        number = self._registry.number_of(digest)
        self._by_identity[id(func)] = func, number
        self.used[number] = frames
        return number


class Functions:
    """The functions of one client.

    Its methods are called under the session's lock, except :meth:`number_of`.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._numbers: dict[bytes, Fn] = {}
        self._count = count(1)
        # Sent and not forgotten, least recently used first.
        self._sent: dict[Fn, int] = {}
        self._bytes = 0

    def number_of(self, digest: bytes) -> Fn:
        """The number of the function with this digest; never given twice."""
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers.setdefault(digest, next(self._count))
        return number

    def definitions(self, used: dict[Fn, Frames]) -> tuple[tuple[Fn, Frames], ...]:
        """What must go along with a graph that uses these functions."""
        added = []
        for number, frames in used.items():
            size = self._sent.pop(number, None)
            if size is None:
                own = copy_frames(frames)
                size = nbytes_of(own)
                self._bytes += size
                added.append((number, own))
            self._sent[number] = size
        return tuple(added)

    def excess(self, used: Iterable[Fn]) -> ForgetFunctions | None:
        """What to forget, to stay within the limit; never what was just ``used``."""
        if self._bytes <= self._bytes_max:
            return None
        kept = set(used)
        forgotten = []
        for number, size in tuple(self._sent.items()):
            if self._bytes <= self._bytes_max:
                break
            if number not in kept:
                del self._sent[number]
                self._bytes -= size
                forgotten.append(number)
        return ForgetFunctions(tuple(forgotten)) if forgotten else None
