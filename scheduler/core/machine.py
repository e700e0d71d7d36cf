"""The scheduler's core: an event in, actions out.

Each event is worked off in one order: its messages in turn, each with all state
changes that follow from it; the garbage pass (for a client after each message);
then commands that void earlier ones; then ready tasks are handed out; then clients
hear about final states. No clock, no sockets: time is a field of the event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raddle.protocol.core.messages import client as cm
from raddle.protocol.core.messages import worker as wm
from raddle.protocol.errors import ProtocolError

from . import facts, functions, graph, replicas, scatter, wants
from .actions import Action, AskShell, DropPeer, Heard, RunAnswered
from .checks import check
from .entities import ClientState, WorkerState
from .events import (
    ClientJoined,
    ClientLeft,
    Event,
    FromClient,
    FromWorker,
    Tick,
    WorkerJoined,
    WorkerLeft,
)
from .garbage import clean_up
from .groups import forget_idle
from .loss import worker_left
from .queues import worker_came
from .recall import recall
from .reports import report
from .scheduling import schedule
from .settings import Settings
from .state import SchedulerState
from .table import settle

__all__ = ["Machine", "Settings"]


CHECKED_PER_EVENT = 1000
"""Tasks that ``validate`` looks at per event, on average, where there are more."""


class Machine(SchedulerState):
    """One scheduler. Read its state through ``queries``; change it by events only."""

    def handle(self, event: Event) -> list[Action]:
        """React to one event; the actions are to be carried out in order."""
        self.actions = []
        _EVENTS[type(event)](self, event)
        clean_up(self)
        _send_voids(self)
        ticking = type(event) is Tick
        if self.dirty_queues or self.touched_workers or ticking:
            schedule(self)
            if self.idle and self.crowded:
                recall(self, ticking=ticking)
        if self.changed or self.new_wants:
            report(self)
        if self.settings.validate:
            # With more tasks than one event may take to check, not at every event.
            self.unchecked += CHECKED_PER_EVENT
            if self.unchecked >= len(self.tasks):
                self.unchecked = 0
                check(self)
        return self.actions


def _send_voids(s: SchedulerState) -> None:
    """Cancel and drop what this event made void, before anything new is sent."""
    for worker in s.unsent:
        worker.unsent = False
        if worker.wid not in s.workers:
            continue
        if worker.cancels:
            s.to_worker(worker, wm.CancelAttempts(tuple(worker.cancels)))
            worker.cancels.clear()
        if worker.drops:
            worker.drop_number += 1
            drops, worker.drops = worker.drops, {}
            worker.pending_drops.append((worker.drop_number, drops))
            s.to_worker(worker, wm.DropData(worker.drop_number, tuple(drops)))
    s.unsent.clear()


def _client_joined(s: Machine, event: ClientJoined) -> None:
    if event.client in s.clients:
        wants.leave(s, s.clients[event.client])
    client = ClientState(event.client, event.name, event.enc, event.policy)
    client.nested = event.nested
    s.clients[event.client] = client


def _client_left(s: Machine, event: ClientLeft) -> None:
    client = s.clients.get(event.client)
    if client is not None:
        wants.leave(s, client)


def _worker_joined(s: Machine, event: WorkerJoined) -> None:
    worker = WorkerState(event.wid, event.name, event.address, event.nthreads)
    worker.host = event.host
    worker.pid = event.pid
    worker.memory_limit = event.memory_limit
    worker.resources = dict(event.resources)
    worker.available = dict(event.resources)
    worker.queue_limit = s.settings.queue_seconds * event.nthreads
    news = wm.Peers(((worker.wid, worker.address),))
    for other in s.workers.values():
        s.to_worker(other, news)
    s.wid = max(s.wid, event.wid)
    s.workers[event.wid] = worker
    everybody = tuple((w.wid, w.address) for w in s.workers.values())
    s.to_worker(worker, wm.Peers(everybody))
    worker_came(s, worker)
    s.log(
        20,
        f"worker {worker.name!r} at {worker.address} joined with "
        f"{worker.nthreads} threads",
    )


def _from_client(s: Machine, event: FromClient) -> None:
    """One batch: a release that precedes a graph is over before the graph is."""
    for message in event.messages:
        client = s.clients.get(event.client)
        if client is None:
            return
        try:
            handler = _CLIENT.get(type(message))
            if handler is None:
                raise ProtocolError(f"{type(message).__name__} is no client's message")
            handler(s, client, message)
        except ProtocolError as error:
            s.actions.append(DropPeer(event.client, str(error)))
            return
        if s.touched or s.work:
            clean_up(s)


def _from_worker(s: Machine, event: FromWorker) -> None:
    worker = s.workers.get(event.wid)
    if worker is None:
        return
    for message in event.messages:
        try:
            handler = _WORKER.get(type(message))
            if handler is None:
                raise ProtocolError(f"{type(message).__name__} is no worker's message")
            handler(s, worker, message)
        except ProtocolError as error:
            s.actions.append(DropPeer(event.wid, str(error)))
            return
        if s.work:
            settle(s)


def _tick(s: Machine, _event: Tick) -> None:
    forget_idle(s)
    for worker in s.workers.values():
        if worker.unreachable:
            known = {t: w for t, w in worker.unreachable.items() if t in s.tasks}
            worker.unreachable = known


def _ask_shell(s: SchedulerState, client: ClientState, message: Any) -> None:
    s.actions.append(AskShell(client.cid, message))


def _forget_functions(
    s: SchedulerState, client: ClientState, message: cm.ForgetFunctions
) -> None:
    functions.forget(s, client, message.fns)


def _goodbye(s: SchedulerState, client: ClientState, _message: cm.Goodbye) -> None:
    wants.leave(s, client)


def _heartbeat(s: SchedulerState, worker: WorkerState, message: wm.Heartbeat) -> None:
    zombies = message.metrics.get("zombies", 0)
    if zombies != worker.zombies:
        worker.zombies = zombies
        s.touch_worker(worker)
    s.actions.append(Heard(worker.wid, message.metrics))


def _run_result(s: SchedulerState, worker: WorkerState, message: wm.RunResult) -> None:
    s.actions.append(RunAnswered(worker.wid, message))


_EVENTS: dict[type[Any], Callable[[Machine, Any], None]] = {
    ClientJoined: _client_joined,
    ClientLeft: _client_left,
    WorkerJoined: _worker_joined,
    WorkerLeft: worker_left,
    FromClient: _from_client,
    FromWorker: _from_worker,
    Tick: _tick,
}

_CLIENT: dict[type[Any], Callable[[SchedulerState, ClientState, Any], None]] = {
    cm.Graph: graph.update_graph,
    cm.Release: wants.release,
    cm.Cancel: wants.cancel,
    cm.Retry: wants.retry,
    cm.Bind: wants.bind,
    cm.Scatter: scatter.scatter,
    cm.Detach: wants.detach,
    cm.Ask: _ask_shell,
    cm.RunOnWorkers: _ask_shell,
    cm.ForgetFunctions: _forget_functions,
    cm.ShutdownCluster: _ask_shell,
    cm.Goodbye: _goodbye,
}

_WORKER: dict[type[Any], Callable[[SchedulerState, WorkerState, Any], None]] = {
    wm.Started: facts.started,
    wm.LongRunning: facts.long_running,
    wm.Resumed: facts.resumed,
    wm.Done: facts.done,
    wm.Failed: facts.failed,
    wm.Rejected: facts.rejected,
    wm.Stored: replicas.stored,
    wm.Absent: replicas.absent,
    wm.Present: replicas.present,
    wm.Miss: replicas.miss,
    wm.Heartbeat: _heartbeat,
    wm.RunResult: _run_result,
    wm.WorkerClosing: facts.closing,
}
