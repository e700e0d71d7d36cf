"""Which functions are known, who still needs them, and which worker has them.

Clients number their functions each for themselves; equal definitions of different
clients become one function here, so a worker unpickles each once.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from raddle.protocol.core.ids import Fn
from raddle.protocol.core.messages import Frames
from raddle.protocol.core.messages.worker import DropFunctions, Functions

from .entities import ClientState, Function, WorkerState
from .state import SchedulerState


def _content(frames: Frames) -> bytes:
    """A name for the definition: equal for equal bytes."""
    digest = blake2b(digest_size=16)
    for frame in frames:
        view = memoryview(frame)
        digest.update(view.nbytes.to_bytes(8, "little"))
        digest.update(view)
    return digest.digest()


def define(
    s: SchedulerState, client: ClientState, items: Iterable[tuple[Fn, Frames]]
) -> None:
    """Definitions that the client will name by its own numbers."""
    for number, frames in items:
        content = _content(frames)
        function = s.functions.get(content)
        if function is None:
            s.fn += 1
            function = s.functions[content] = Function(s.fn, frames, content)
        function.users += 1
        before = client.functions.get(number)
        client.functions[number] = function
        if before is not None:
            drop_user(s, before)


def drop_user(s: SchedulerState, function: Function) -> None:
    """One task or client less that names the function; forget it with the last."""
    function.users -= 1
    if function.users:
        return
    del s.functions[function.content]
    for wid in sorted(function.workers):
        worker = s.workers.get(wid)
        if worker is not None:
            s.to_worker(worker, DropFunctions((function.fn,)))


def forget(s: SchedulerState, client: ClientState, numbers: Iterable[Fn]) -> None:
    """The client will define these numbers anew if it needs them again."""
    for number in numbers:
        function = client.functions.pop(number, None)
        if function is not None:
            drop_user(s, function)


def send(s: SchedulerState, worker: WorkerState, function: Function) -> None:
    """The worker is about to be named this function for the first time."""
    function.workers.add(worker.wid)
    s.to_worker(worker, Functions(((function.fn, function.frames),)))
