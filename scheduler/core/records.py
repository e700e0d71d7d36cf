"""What is written down about collisions, and who is told.

Every distinct (key, old token, new token, kind) is reported once: a record in the
ring, a share in one WARNING per submission and group, a notice to the submitter.
A repeat counts, and shows at DEBUG.
"""

from __future__ import annotations

from typing import NamedTuple

from raddle.protocol.core.collisions import (
    Action,
    CollisionRecord,
    Kind,
    Policy,
    printed,
)
from raddle.protocol.core.ids import ClientId, Key
from raddle.protocol.core.messages.client import CollisionNotice, GraphTask

from .entities import STATE_NAMES, ClientState, TaskState
from .state import SchedulerState

SHOWN_MAX = 5
"""Collisions that one log line shows in full."""
RECORDS_SENT_MAX = 10
"""Records in a notice or an error."""
OWNERS_WALK_MAX = 1_000
"""Dependents that are looked at for somebody who wants them."""
REPORTED_MAX = 100_000
"""Collisions that are remembered as reported already."""

DEBUG, INFO, WARNING = 10, 20, 30

_OUTCOME: dict[Action, str] = {
    "kept": "kept the old run_spec and dependencies",
    "new-instance": "made a new instance beside the old one",
    "superseded": "replaced the erred instance by a new one",
    "rejected": "refused the submission, nothing of it was created",
    "isolated": "isolated the new instance",
}


class Collision(NamedTuple):
    """A finding of one submission. ``old`` is as it was when the finding was made."""

    old: TaskState
    new: GraphTask
    new_deps: tuple[Key, ...]
    kind: Kind
    action: Action


def record_of(found: Collision, client: ClientState, policy: Policy) -> CollisionRecord:
    """The finding as it is kept, logged and sent."""
    old, new = found.old, found.new
    return CollisionRecord(
        key=new.key,
        group=old.group.name,
        kind=found.kind,
        old_token=printed(old.run_spec_token, old.skeleton),
        new_token=printed(new.token, new.skeleton),
        old_dependencies=tuple(dep.key for dep in old.deps),
        new_dependencies=found.new_deps,
        old_status=STATE_NAMES[old.state],
        owners=_owners(old),
        submitter=client.cid,
        policy=policy,
        action=found.action,
    )


def _owners(task: TaskState) -> tuple[ClientId, ...]:
    """The clients that want the task; if none does, those that want what needs it."""
    level, seen = [task], {task}
    while level and len(seen) <= OWNERS_WALK_MAX:
        owners = dict.fromkeys(c.cid for t in level for c, _ in t.each_want() if c.cid)
        if owners:
            return tuple(owners)
        level = [d for t in level for d in t.each_dependent() if d not in seen]
        seen.update(level)
    return ()


def report_collisions(
    s: SchedulerState,
    client: ClientState,
    call: int,
    policy: Policy,
    findings: list[Collision],
) -> None:
    """Count, keep, log, and notify the submitter (who under ``raise`` gets an error)."""
    fresh: dict[str, list[CollisionRecord]] = {}
    unproven: dict[str, list[CollisionRecord]] = {}
    notice: list[CollisionRecord] = []
    n_noticed = 0
    repeats: dict[str, int] = {}
    for found in findings:
        old = found.old
        s.collisions[found.kind, STATE_NAMES[old.state], found.action] += 1
        triple = hash((old.key, old.run_spec_token, found.new.token, found.kind))
        new_here = _first_time(s.reported, triple)
        new_there = _first_time(client.noticed, triple)
        if not new_here:
            repeats[old.group.name] = repeats.get(old.group.name, 0) + 1
        if not (new_here or new_there):
            continue
        record = record_of(found, client, policy)
        if found.kind == "undetermined":
            # A token of chance differs at each submission: once per group is enough.
            if record.group not in s.unproven_groups:
                s.records.append(record)
                unproven.setdefault(record.group, []).append(record)
            continue
        if new_here:
            s.records.append(record)
            fresh.setdefault(record.group, []).append(record)
        if new_there:
            n_noticed += 1
            if len(notice) < RECORDS_SENT_MAX:
                notice.append(record)
    for group_name, records in fresh.items():
        _log(s, WARNING, "collision", group_name, records)
    for group_name, records in unproven.items():
        s.unproven_groups.add(group_name)
        _log(s, INFO, "difference that cannot be proven", group_name, records)
    for group_name, n in repeats.items():
        text = f"run_spec collision: {_keys(n)} of group {group_name!r} again"
        s.log(DEBUG, f"{text}, from {client.cid}", submitter=client.cid, total=n)
    if notice and policy != "raise":
        s.to_client(client, CollisionNotice(call, tuple(notice), n_noticed))


def _first_time(memory: dict[int, None], triple: int) -> bool:
    """Remember, within bounds, that this one was reported."""
    if triple in memory:
        return False
    if len(memory) >= REPORTED_MAX:
        del memory[next(iter(memory))]
    memory[triple] = None
    return True


def _keys(n: int) -> str:
    return "1 key" if n == 1 else f"{n} keys"


def _log(
    s: SchedulerState,
    level: int,
    what: str,
    group: str,
    records: list[CollisionRecord],
) -> None:
    """One line for one submission and group."""
    first = records[0]
    total = len(records)
    shown = "; ".join(map(str, records[:SHOWN_MAX]))
    more = f"; and {total - SHOWN_MAX} more" if total > SHOWN_MAX else ""
    counts: dict[Action, int] = {}
    for record in records:
        counts[record.action] = counts.get(record.action, 0) + 1
    if len(counts) == 1:
        outcome = _OUTCOME[first.action]
    else:
        outcome = ", ".join(f"{_OUTCOME[a]} ({n})" for a, n in counts.items())
    text = (
        f"run_spec {what}: {_keys(total)} of group {group!r} in update-graph from "
        f"{first.submitter}: {shown}{more}; {outcome} (policy {first.policy})"
    )
    s.log(
        level,
        text,
        group=group,
        total=total,
        submitter=first.submitter,
        policy=first.policy,
        records=tuple(records[:SHOWN_MAX]),
    )
