"""What clients do with futures: release, cancel, retry, bind, detach; and leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raddle.protocol.core.ids import Fid
from raddle.protocol.core.messages.client import (
    Bind,
    Cancel,
    Cancelled,
    Detach,
    Erred,
    Release,
    Retry,
)
from raddle.protocol.errors import ProtocolError

from . import functions
from .entities import (
    ERRED,
    FINISHED,
    MEMORY,
    NEWS,
    PENDING,
    RELEASED,
    WAITING,
    ClientState,
    Lost,
    TaskState,
    Want,
)
from .state import SchedulerState
from .table import move


def add(s: SchedulerState, client: ClientState, fid: Fid, task: TaskState) -> None:
    """Bind a future to an instance; the instance is needed from now on."""
    client.futures[fid] = task
    if task.wants is None:
        task.told = PENDING
    task.add_want(client, fid)
    if task.state == RELEASED:
        s.work.append((task, WAITING, None))
    elif task.state >= MEMORY:
        s.new_wants.append((client, fid, task))
        s.changed.append(task)


def check_new(client: ClientState, fid: Fid) -> None:
    """A client counts its futures; none is used twice."""
    if fid in client.futures or fid in client.lost:
        raise ProtocolError(f"future {fid} of {client.cid} is already in use")


def drop(s: SchedulerState, client: ClientState, fid: Fid) -> TaskState | None:
    """Unbind a future; the garbage pass looks at what it was bound to."""
    task = client.futures.pop(fid, None)
    if task is not None:
        task.drop_want(client, fid)
        if task.wants is None and not task.n_waiters:
            s.touched.append(task)
    return task


def lose(client: ClientState, fids: Iterable[Fid], lost: Lost) -> None:
    """Remember why these futures have no task, for graphs that will name them."""
    for fid in fids:
        client.lost[fid] = lost


def release(s: SchedulerState, client: ClientState, message: Release) -> None:
    """Futures that the client dropped; unknown ones were lost before."""
    for fid in message.fids:
        if drop(s, client, fid) is None:
            client.lost.pop(fid, None)


def cancel(s: SchedulerState, client: ClientState, message: Cancel) -> None:
    """The client's own futures, or with ``force`` everybody's of the same tasks.

    Where nobody wants such a task any more, what was to be made of it goes as well.
    """
    told: dict[tuple[ClientState, str], list[Fid]] = {}
    inputs: list[TaskState] = []
    for fid in message.fids:
        task = client.futures.get(fid)
        if task is not None:
            wants = task.each_want() if message.force else ((client, fid),)
            _unbind(s, wants, message.why, told)
            inputs.append(task)
    seen: set[TaskState] = set()
    for task in inputs:
        why = f"its input {task.key!r} was cancelled"
        for dependent in _pointless(client, task, message.force, seen):
            _unbind(s, dependent.each_want(), why, told)
    for (owner, why), fids in told.items():
        lose(owner, fids, Lost(None, client.cid, why))
        s.to_client(owner, Cancelled(tuple(fids), client.cid, why))


def _unbind(
    s: SchedulerState,
    wants: Iterable[Want],
    why: str,
    told: dict[tuple[ClientState, str], list[Fid]],
) -> None:
    for owner, fid in wants:
        drop(s, owner, fid)
        if owner is not s.nobody:
            told.setdefault((owner, why), []).append(fid)


def _pointless(
    client: ClientState, cancelled: TaskState, force: bool, seen: set[TaskState]
) -> Iterator[TaskState]:
    """Unfinished tasks that need a cancelled one, unless others want what is between."""
    stack = [] if cancelled.wants is not None else [cancelled]
    while stack:
        for task in stack.pop().each_dependent():
            if task in seen or NEWS[task.state] >= FINISHED:
                continue
            seen.add(task)
            if force or all(owner is client for owner, _ in task.each_want()):
                yield task
                stack.append(task)


def retry(s: SchedulerState, client: ClientState, message: Retry) -> None:
    """Compute erred tasks again: these, what they failed for, and what failed for them."""
    found: dict[TaskState, None] = {}
    stack = [client.futures[fid] for fid in message.fids if fid in client.futures]
    while stack:
        task = stack.pop()
        if task.state != ERRED or task.is_data or task in found:
            continue
        found[task] = None
        stack.extend(task.deps)
        stack.extend(task.each_dependent())
    for task in found:
        task.suspicious = 0
        move(s, task, RELEASED)
        s.touched.append(task)
    for task in found:
        s.work.append((task, WAITING, None))


def bind(s: SchedulerState, client: ClientState, message: Bind) -> None:
    """A future that came by pickle (from an owner's future), or by name alone."""
    fid = message.fid
    check_new(client, fid)
    if message.owner:
        owner = s.clients.get(message.owner)
        task = owner.futures.get(message.owner_fid) if owner else None
        lost = owner.lost.get(message.owner_fid) if owner else None
        why = "the future it was sent from was released before this one arrived"
    else:
        task, lost = s.primary(message.key), None
        why = f"the scheduler knows no task named {message.key!r}"
    if task is not None:
        add(s, client, fid, task)
        return
    lost = lost or Lost(None, "scheduler", why)
    lose(client, (fid,), lost)
    if lost.error is not None:
        s.to_client(client, Erred(((fid, lost.error, message.key),)))
    else:
        s.to_client(client, Cancelled((fid,), lost.who, lost.why))


def detach(s: SchedulerState, client: ClientState, message: Detach) -> None:
    """Let these run to their end even if no future is left."""
    nobody = s.nobody
    for fid in message.fids:
        task = client.futures.get(fid)
        if task is None or NEWS[task.state] >= FINISHED or task.tid in nobody.futures:
            continue
        add(s, nobody, task.tid, task)


def leave(s: SchedulerState, client: ClientState) -> None:
    """The client is gone: release all it wanted."""
    del s.clients[client.cid]
    for fid in list(client.futures):
        drop(s, client, fid)
    functions.forget(s, client, list(client.functions))
    client.lost.clear()
