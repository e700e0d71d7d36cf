"""How tasks, attempts, workers, futures and functions are named.

``tid`` (task instance), ``aid`` (attempt), ``wid`` (worker incarnation) and
``fn`` (function) are ints that one scheduler process hands out, increasing and
never reused; ``fid`` (future) and the client's own ``fn`` numbers are counted by
each client. ``epoch`` is a random 64-bit int of the scheduler process. A key is
only a name: several instances may carry it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Union

Key = Union[str, int, float, bytes, tuple["Key", ...]]  # noqa: UP007 (recursive)
Tid = int
Aid = int
Wid = int
Fid = int
Fn = int
ClientId = str
Address = str

FN_LITERAL: Fn = 0
"""As a task's function: the payload is the value itself, nothing is called."""

_HEX = re.compile(r"[0-9a-f]{8,}\Z")
_NUMBER = re.compile(r"\d+\Z")


@lru_cache(maxsize=10_000)
def _group_of_text(text: str) -> str:
    """The leading words of a key's text, without its token and counters."""
    if text.startswith("("):  # a tuple key as text: its first element counts
        text = text.strip("()'\" ").partition(",")[0]
    words = text.strip("'\" ").split("-")
    kept = [words[0]]
    for word in words[1:]:
        if _HEX.match(word) or _NUMBER.match(word):
            break
        kept.append(word)
    group = "-".join(kept)
    # Keys that people count by hand, x0 ... x9999, are of one kind.
    return group.rstrip("0123456789").rstrip("_-") or group or "task"


def group_of(key: Key) -> str:
    """The task group (prefix) of a key: ``('assign-f0dc4405', 0)`` is of ``assign``.

    Durations are learned, and collisions are reported, per group.
    """
    while isinstance(key, tuple):
        if not key:
            return "task"
        key = key[0]
    if isinstance(key, bytes):
        key = key.decode("utf-8", "replace")
    return _group_of_text(key) if isinstance(key, str) else "task"
