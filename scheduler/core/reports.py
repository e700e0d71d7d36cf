"""What clients are told at the end of an event, from final states only."""

from __future__ import annotations

from typing import Any

from raddle.protocol.core.ids import ClientId, Fid
from raddle.protocol.core.messages.client import Erred, Finished, PendingAgain

from .actions import ToClient
from .entities import FAILED, FINISHED, NEWS, TaskState
from .state import SchedulerState


def report(s: SchedulerState) -> None:
    """One message per client and kind of news, however many futures it has."""
    finished: dict[ClientId, list[Any]] = {}
    failed: dict[ClientId, list[Any]] = {}
    pending: dict[ClientId, list[Fid]] = {}

    def tell(client: ClientId, fid: Fid, task: TaskState, news: int) -> None:
        if news == FINISHED:
            item = (fid, task.nbytes, task.type_name, task.frames)
            finished.setdefault(client, []).append(item)
        elif news == FAILED:
            assert task.failure is not None
            failed.setdefault(client, []).append((fid, *task.failure))
        else:
            pending.setdefault(client, []).append(fid)

    for client, fid, task in s.new_wants:
        # Where the state changed as well, all futures of the task hear of it below.
        if NEWS[task.state] == task.told and client.futures.get(fid) is task:
            tell(client.cid, fid, task, task.told)
    s.new_wants.clear()
    for task in s.changed:
        news = NEWS[task.state]
        if news != task.told:
            task.told = news
            for client, fid in task.each_want():
                tell(client.cid, fid, task, news)
    s.changed.clear()
    act = s.actions.append
    for cid, fids in pending.items():
        if cid in s.clients:
            act(ToClient(cid, PendingAgain(tuple(fids))))
    for cid, items in finished.items():
        if cid in s.clients:
            act(ToClient(cid, Finished(tuple(items))))
    for cid, items in failed.items():
        if cid in s.clients:
            act(ToClient(cid, Erred(tuple(items))))
