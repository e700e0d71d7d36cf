"""Take in a graph: resolve names, compare, create, want. All of it, or nothing.

Down from the requested keys, comparing each key that is reached, never below one
whose old instance is kept; then up again in topological order, deciding about
equal specs and creating what is new. What nobody requested is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from raddle.protocol.core.collisions import Action, Kind, Policy
from raddle.protocol.core.ids import Fid, Key
from raddle.protocol.core.messages.client import (
    FORM_NESTED,
    FORM_VALUE,
    Cancelled,
    Graph,
    GraphAck,
    GraphTask,
)
from raddle.protocol.errors import (
    ConfigError,
    InvalidGraph,
    LostDependency,
    ProtocolError,
    RaddleError,
    RunSpecCollisionError,
    WireError,
    to_wire,
)

from . import functions, wants
from .collision import compare, same_inputs
from .demands import PLAIN, Demand, demand_of, merge, queue_of
from .entities import ERRED, RELEASED, ClientState, Lost, ReadyQueue, TaskState
from .groups import group_for
from .records import RECORDS_SENT_MAX, Collision, record_of, report_collisions
from .settings import strongest
from .state import SchedulerState
from .table import start

NAMES_SHOWN_MAX = 10
_make_spec = GraphTask._make


class Refused(RaddleError):
    """The submission as a whole is refused, for this reason."""

    def __init__(self, lost: Lost) -> None:
        super().__init__(lost)
        self.lost = lost


def update_graph(s: SchedulerState, client: ClientState, message: Graph) -> None:
    """Take in a graph; the answer says whether it was, and what collided."""
    try:
        fids = tuple([fid for _, fid in message.wants])
        check_wants(client, fids)
        functions.define(s, client, message.functions)
    except (TypeError, ValueError) as error:
        raise _malformed(error) from error
    try:
        # These only read: a graph that is malformed or refused changes nothing.
        submission = Submission(s, client, message)
        submission.descend()
        submission.decide()
    except WireError as error:
        refuse(s, client, message.call, fids, Lost(to_wire(error)))
        return
    except Refused as refusal:
        refuse(s, client, message.call, fids, refusal.lost)
        return
    except (TypeError, ValueError, IndexError) as error:
        raise _malformed(error) from error
    policy, findings = submission.policy, submission.findings
    if submission.rejects:
        rejected = [f for f in findings if f.action == "rejected"]
        reject(s, client, message.call, fids, policy, rejected)
        return
    s.to_client(client, GraphAck(message.call, None))
    if findings:
        report_collisions(s, client, message.call, policy, findings)
    submission.create()
    submission.want()


def _malformed(error: Exception) -> ProtocolError:
    return ProtocolError(f"malformed graph, {type(error).__name__}: {error}")


def check_wants(client: ClientState, fids: tuple[Fid, ...]) -> None:
    """Futures are numbered by the client; a number is used once."""
    futures, lost = client.futures, client.lost
    for fid in fids:
        if fid in futures or fid in lost:
            raise ProtocolError(f"future {fid} of {client.cid} is already in use")
    if len(set(fids)) < len(fids):
        raise ProtocolError(f"{client.cid} wants two tasks as one future")


def refuse(
    s: SchedulerState, client: ClientState, call: int, fids: tuple[Fid, ...], lost: Lost
) -> None:
    """Nothing of the call was created; graphs that name its futures get the same."""
    wants.lose(client, fids, lost)
    s.to_client(client, GraphAck(call, lost.error))
    if lost.error is None:
        s.to_client(client, Cancelled(fids, lost.who, lost.why))


def reject(
    s: SchedulerState,
    client: ClientState,
    call: int,
    fids: tuple[Fid, ...],
    policy: Policy,
    found: list[Collision],
) -> None:
    """Policy ``raise``: an error for every future of the call, and no more."""
    records = [record_of(f, client, policy) for f in found[:RECORDS_SENT_MAX]]
    error = RunSpecCollisionError(records=tuple(records), total=len(found))
    refuse(s, client, call, fids, Lost(to_wire(error)))
    report_collisions(s, client, call, policy, found)


def policy_for(s: SchedulerState, client: ClientState, asked: str | None) -> Policy:
    """The strongest policy of scheduler, client and call."""
    try:
        return strongest(s.policy, client.policy, asked)
    except ConfigError as error:
        raise InvalidGraph(str(error)) from error


class Submission:
    """One graph on its way in. ``bound`` says which instance a name means here."""

    def __init__(self, s: SchedulerState, client: ClientState, message: Graph) -> None:
        self.s = s
        self.client = client
        self.message = message
        self.policy = policy_for(s, client, message.policy)
        self.demands = [demand_of(a) for a in message.annotations]
        self.embedded: dict[Key, Fid] = dict(message.embedded)
        self.index: dict[Key, Any] = {raw[0]: raw for raw in message.tasks}
        if len(self.index) < len(message.tasks):
            raise InvalidGraph("the graph has two tasks of one key")
        for name in self.embedded:
            self.index.pop(name, None)
        self.bound: dict[Key, TaskState] = {}
        self.order: dict[Key, GraphTask] = {}
        self.equal: dict[Key, list[TaskState]] = {}
        self.superseded: dict[TaskState, None] = {}
        self.findings: list[Collision] = []
        self.unknown: dict[Key, None] = {}
        self.rejects = False

    # Down: what is reached, and what is known of it.

    def descend(self) -> None:
        """Visit what the requested keys need, dependencies first in ``order``."""
        names, index, bound, order = self.s.names, self.index, self.bound, self.order
        visiting: dict[Key, GraphTask] = {}
        stack = [key for key, _ in reversed(self.message.wants)]
        while stack:
            key = stack[-1]
            if key in order or key in bound:
                stack.pop()
                continue
            if visiting and key in visiting:
                order[key] = visiting.pop(key)
                stack.pop()
                continue
            raw = index.get(key)
            if raw is None:
                self._outside(key)
                stack.pop()
                continue
            spec = self._checked(raw)
            if key in names and not self._compare(spec):
                stack.pop()
                continue
            fresh = [d for d in spec.deps if d not in order and d not in bound]
            if not fresh:
                order[key] = spec
                stack.pop()
                continue
            visiting[key] = spec
            for dep in fresh:
                if dep in visiting:
                    raise InvalidGraph(_cycle(list(visiting), dep))
            stack.extend(reversed(fresh))
        if self.unknown:
            raise LostDependency(
                key=self.message.wants[0][0],
                names=tuple(self.unknown)[:NAMES_SHOWN_MAX],
            )

    def _checked(self, raw: Any) -> GraphTask:
        """The task as the protocol defines it; anything else ends the connection."""
        spec: GraphTask = raw if type(raw) is GraphTask else _make_spec(raw)
        if not (
            type(spec.token) is bytes
            and type(spec.deps) is tuple
            and type(spec.payload) is tuple
            and type(spec.order) is int
            and FORM_VALUE <= spec.form <= FORM_NESTED
            and -1 <= spec.annotation < len(self.demands)
            and (spec.form == FORM_VALUE or spec.fn in self.client.functions)
        ):
            raise ProtocolError(f"task {spec.key!r} of a graph is malformed")
        return spec

    def _outside(self, name: Key) -> None:
        """Bind a name that is no task of the graph: a future, or a known key."""
        fid = self.embedded.get(name)
        task = self.s.primary(name) if fid is None else self.client.futures.get(fid)
        if task is not None:
            self.bound[name] = task
            return
        lost = None if fid is None else self.client.lost.get(fid)
        if lost is not None:
            # What became of that future never falls through to its name.
            raise Refused(lost)
        self.unknown[name] = None

    def _public(self, deps: Iterable[Key]) -> tuple[Key, ...]:
        """The public keys behind reference names."""
        futures = self.client.futures
        found = []
        for name in deps:
            fid = self.embedded.get(name)
            task = None if fid is None else futures.get(fid)
            found.append(name if task is None else task.key)
        return tuple(found)

    def _compare(self, spec: GraphTask) -> bool:
        """Compare with what carries the name; whether to look at dependencies, too."""
        deps = self._public(spec.deps) if self.embedded else spec.deps
        equal: list[TaskState] = []
        different: tuple[TaskState, Kind] | None = None
        for old in self.s.instances(spec.key):
            finding = compare(old, spec, deps, self.client.enc)
            if finding == "equal":
                equal.append(old)
            elif different is None:
                different = old, finding
        if equal:
            self.equal[spec.key] = equal
            return True
        assert different is not None
        old, kind = different
        proven = kind != "undetermined"
        if self.policy == "raise" and proven:
            self._found(old, spec, deps, kind, "rejected")
        elif old.state == ERRED:
            self.superseded[old] = None
            self._found(old, spec, deps, kind, "superseded")
            return True
        else:
            self._found(old, spec, deps, kind, "kept")
        self.bound[spec.key] = old
        return False

    def _found(
        self,
        old: TaskState,
        new: GraphTask,
        deps: tuple[Key, ...],
        kind: Kind,
        action: Action,
    ) -> None:
        self.findings.append(Collision(old, new, deps, kind, action))
        if action == "rejected":
            self.rejects = True

    # Up: which equal specs also mean the same inputs.

    def decide(self) -> None:
        """Bind each equal spec whose inputs are the known instance's inputs."""
        if not self.equal:
            return
        bound = self.bound
        for key, spec in self.order.items():
            candidates = self.equal.get(key)
            if candidates is None:
                continue
            inputs = tuple([bound.get(dep) for dep in spec.deps])
            for old in candidates:
                if same_inputs(old.inputs, inputs):
                    bound[key] = old
                    break
            else:
                self._other_inputs(candidates[0], spec)

    def _other_inputs(self, old: TaskState, spec: GraphTask) -> None:
        """The same code on other inputs: never kept.

        Where that is because an erred input was superseded, an old instance that
        has no value to protect is superseded with it.
        """
        follows = any(dep in self.superseded for dep in old.deps)
        action: Action = "new-instance"
        if self.policy == "raise" and not follows:
            action = "rejected"
        elif old.state == ERRED or (old.state == RELEASED and follows):
            action = "superseded"
            self.superseded[old] = None
        deps = self._public(spec.deps) if self.embedded else spec.deps
        self._found(old, spec, deps, "inputs", action)

    # Create what is new, and want what was asked for.

    def create(self) -> None:
        """Make an instance of every reached task that no known instance stands for."""
        s, bound = self.s, self.bound
        s.generation += 1
        created: list[TaskState] = []
        for key, spec in self.order.items():
            task = bound.get(key)
            if task is not None:
                merge(s, task, self._demand(spec))
                continue
            deps = spec.deps
            inputs = tuple([bound[dep] for dep in deps]) if deps else ()
            task = bound[key] = self._instance(spec, inputs)
            created.append(task)
        for task in created:
            start(s, task)

    def _demand(self, spec: GraphTask) -> Demand:
        return PLAIN if spec.annotation < 0 else self.demands[spec.annotation]

    def _instance(self, spec: GraphTask, inputs: tuple[TaskState, ...]) -> TaskState:
        s, client = self.s, self.client
        if spec.annotation < 0:
            task = new_task(s, spec, inputs, s.default_queue, self.superseded)
        else:
            demand = self.demands[spec.annotation]
            task = new_task(s, spec, inputs, queue_of(s, demand), self.superseded)
            task.priority = demand.priority
            task.retries = demand.retries
        task.enc = client.enc
        if client.nested:
            # What a task waits for goes before all else, the newest first: else every
            # outer task would start, and hold a thread, before the first inner one.
            task.generation = -s.generation
        if spec.form != FORM_VALUE:
            function = task.function = client.functions[spec.fn]
            function.users += 1
        return task

    def want(self) -> None:
        """Bind the requested futures."""
        s, client, bound = self.s, self.client, self.bound
        for key, fid in self.message.wants:
            wants.add(s, client, fid, bound[key])


def new_task(
    s: SchedulerState,
    spec: GraphTask,
    inputs: tuple[TaskState, ...],
    queue: ReadyQueue,
    superseded: dict[TaskState, None],
) -> TaskState:
    """A new instance, under its name: the primary if it is alone or supersedes one."""
    key = spec.key
    s.tid += 1
    group = group_for(s, key)
    group.n_tasks += 1
    queue.n_tasks += 1
    task = s.tasks[s.tid] = TaskState(s.tid, spec, inputs, group, queue)
    task.generation = s.generation
    if inputs:
        if len(inputs) > 1:
            deps = dict.fromkeys(inputs)
            if len(deps) < len(inputs):
                task.deps = tuple(deps)
        for dep in task.deps:
            dep.add_dependent(task)
    known = s.names.setdefault(key, task)
    if known is not task:
        instances = s.names[key] = s.instances(key)
        if instances[0] in superseded:
            instances.insert(0, task)
        else:
            instances.append(task)
    return task


def _cycle(path: list[Key], closing: Key) -> str:
    """Name the keys that depend on each other in a circle."""
    circle = [*path[path.index(closing) :], closing]
    shown = " -> ".join(repr(key) for key in circle[:NAMES_SHOWN_MAX])
    more = " -> ..." if len(circle) > NAMES_SHOWN_MAX else ""
    return (
        f"the graph has a cycle, {shown}{more}: each depends on the next, so none can "
        "run first"
    )
