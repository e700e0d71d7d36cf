"""Data that clients put on workers become instances of their own.

A scatter never changes an instance that is there: data is not written onto a
computed task, and nobody is handed someone else's bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from raddle.protocol.core.collisions import Action, Kind
from raddle.protocol.core.ids import Fid, Key, Wid
from raddle.protocol.core.messages.client import GraphAck, GraphTask, Scatter
from raddle.protocol.core.messages.worker import Claim
from raddle.protocol.errors import ProtocolError, WireError, to_wire

from . import wants
from .collision import compare_data
from .entities import (
    ERRED,
    FORM_DATA,
    MEMORY,
    RELEASED,
    ClientState,
    Lost,
    TaskState,
    WorkerState,
)
from .graph import check_wants, new_task, policy_for, refuse, reject
from .records import Collision, report_collisions
from .replicas import add_replica
from .state import SchedulerState
from .table import move
from .transitions import erred
from .transitions.memory import Value


class Item(NamedTuple):
    """One value of a :class:`Scatter`."""

    fid: Fid
    key: Key
    token: bytes
    skeleton: bytes | None
    uuid: bytes
    nbytes: int
    type_name: str
    wids: tuple[Wid, ...]


def scatter(s: SchedulerState, client: ClientState, message: Scatter) -> None:
    """Take in data; under ``raise`` and a collision, nothing of it."""
    try:
        items = [Item._make(raw) for raw in message.items]
    except TypeError as error:
        raise ProtocolError(f"malformed scatter: {error}") from error
    fids = tuple(item.fid for item in items)
    check_wants(client, fids)
    try:
        policy = policy_for(s, client, message.policy)
    except WireError as error:
        refuse(s, client, message.call, fids, Lost(to_wire(error)))
        return
    found: list[Collision] = []
    known = [_known(s, client, i, found, raises=policy == "raise") for i in items]
    rejected = [f for f in found if f.action == "rejected"]
    if rejected:
        reject(s, client, message.call, fids, policy, rejected)
        return
    s.to_client(client, GraphAck(message.call, None))
    if found:
        report_collisions(s, client, message.call, policy, found)
    s.generation += 1
    made: dict[tuple[Key, bytes], TaskState] = {}
    for item, task in zip(items, known, strict=True):
        name = item.key, item.token
        kept = _keep(s, client, item, task or made.get(name))
        if kept.state == MEMORY:
            made[name] = kept


def _spec(item: Item) -> GraphTask:
    return GraphTask(item.key, item.token, item.skeleton, FORM_DATA, 0, (), (), -1, 0)


def _known(
    s: SchedulerState,
    client: ClientState,
    item: Item,
    found: list[Collision],
    *,
    raises: bool,
) -> TaskState | None:
    """The instance that holds equal data, if there is one; else note collisions."""
    spec = _spec(item)
    first: tuple[TaskState, Kind] | None = None
    for old in s.instances(item.key):
        finding = compare_data(old, spec, client.enc)
        if finding == "equal":
            if old.state in (MEMORY, RELEASED):
                return old
        elif first is None:
            first = old, finding
    if first is None:
        return None
    old, kind = first
    action: Action = "superseded" if old.state == ERRED else "new-instance"
    if raises and kind != "undetermined":
        action = "rejected"
    found.append(Collision(old, spec, (), kind, action))
    return None


def _keep(
    s: SchedulerState, client: ClientState, item: Item, task: TaskState | None
) -> TaskState:
    """Make the data an instance (or a replica of one), and bind the future."""
    workers = [s.workers[wid] for wid in item.wids if wid in s.workers]
    if task is None:
        old = {t: None for t in s.instances(item.key) if t.state == ERRED}
        task = new_task(s, _spec(item), (), s.default_queue, old)
        task.enc = client.enc
    _place(s, item, task, workers)
    wants.add(s, client, item.fid, task)
    return task


def _place(
    s: SchedulerState, item: Item, task: TaskState, workers: list[WorkerState]
) -> None:
    """The workers hold the value, and know it by its number from now on."""
    for worker in workers:
        s.to_worker(worker, Claim(((item.uuid, task.tid),)))
    if task.state == MEMORY:
        for worker in workers:
            add_replica(task, worker)
    elif workers:
        value = Value(tuple(workers), 0, item.nbytes, item.type_name, None)
        move(s, task, MEMORY, value)
    else:
        why = "the workers it was sent to were gone before the scheduler heard of it"
        move(s, task, ERRED, erred.data_gone(task, why))
