"""What an object without reproducible content is called: itself, in this process.

The name is random bytes plus a counter, kept as long as the object lives. Two
objects never share one; a forked child starts afresh, because its copies are other
objects than the parent's.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable
from typing import Any

from .hashing import u64


class _Names:
    """The names given in this process; every step is one atomic dict operation."""

    def __init__(self) -> None:
        self.salt = os.urandom(16)
        self.counter = itertools.count()
        self.known: dict[int, tuple[Callable[[], Any], bytes]] = {}

    def name(self, obj: Any) -> bytes:
        ident = id(obj)
        while True:
            entry = self.known.get(ident)
            if entry is None:
                mine = (self._reference(obj), self.salt + u64(next(self.counter)))
                entry = self.known.setdefault(ident, mine)
            if entry[0]() is obj:
                return entry[1]
            # The object that had this id is gone, its callback has yet to run.
            if self.known.get(ident) is entry:
                self.known.pop(ident, None)

    def _reference(self, obj: Any) -> Callable[[], Any]:
        ident = id(obj)

        def forget(gone: object) -> None:
            entry = self.known.get(ident)
            if entry is not None and entry[0] is gone:
                self.known.pop(ident, None)

        try:
            return weakref.ref(obj, forget)
        except TypeError:
            # No weak references: keep the object, so that its id stays its own.
            return lambda: obj


_names = _Names()


def _start_afresh() -> None:
    global _names
    _names = _Names()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)


def identity_of(obj: Any) -> bytes:
    """24 bytes that stand for this very object while it lives, in this process."""
    return _names.name(obj)
