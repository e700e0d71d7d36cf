"""What an attempt is: one try at one task, from the Compute message to its end."""

from __future__ import annotations

from typing import Any

from raddle.protocol.core.ids import Aid, Key, Tid
from raddle.protocol.core.messages.base import Frames

WAITING = 0
"""Some input is not here yet."""
READY = 1
"""All inputs are here; the resources it needs are not free."""
HANDED = 2
"""With the executor, inputs pinned; a thread may have claimed it already."""
EXECUTING = 3
"""A thread is known to run it."""
LONGRUNNING = 4
"""It runs and has given its slot back."""

STATUS_NAMES = ("waiting", "ready", "handed", "executing", "longrunning")


class Definition:
    """A function as it came: its frames, and what they load to, once.

    The core keeps the frames; the thread that needs the function first fills in
    ``call`` or ``error`` and sets ``loaded``. An attempt refers to its definition,
    so that ``DropFunctions`` cannot take it from attempts in the queue.
    """

    __slots__ = ("asynchronous", "call", "error", "frames", "loaded")

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.loaded = False
        self.call: Any = None
        self.asynchronous = False
        self.error: BaseException | None = None


class Attempt:
    """One attempt. All but ``status``, ``inputs`` and the flags is fixed.

    ``deps`` are ``(tid, frames | None)`` in the order of the payload's indices;
    ``missing`` counts those that are neither stored nor inline. ``inputs`` are the
    pinned values. ``cancelled`` may be read by the thread that runs it.
    ``returned`` says that it was long-running and came back without waiting for a
    slot, so that more attempts than slots may run.
    """

    __slots__ = (
        "aid", "cancelled", "definition", "deps", "form", "inputs", "key", "missing",
        "payload", "priority", "resources", "returned", "status", "tid",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 (the fields of a Compute message)
        self,
        aid: Aid,
        tid: Tid,
        key: Key,
        form: int,
        definition: Definition | None,
        payload: Frames,
        deps: tuple[tuple[Tid, Frames | None], ...],
        priority: tuple[int, ...],
        resources: dict[str, float] | None,
    ) -> None:
        self.aid = aid
        self.tid = tid
        self.key = key
        self.form = form
        self.definition = definition
        self.payload = payload
        self.deps = deps
        self.priority = priority
        self.resources = resources
        self.status = WAITING
        self.missing = 0
        self.inputs: tuple[Any, ...] = ()
        self.cancelled = False
        self.returned = False

    def __repr__(self) -> str:
        flag = " cancelled" if self.cancelled else ""
        status = STATUS_NAMES[self.status]
        return f"<Attempt {self.aid} of {self.key!r} (tid {self.tid}): {status}{flag}>"
