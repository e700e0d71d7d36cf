"""What an operator can set about the core's decisions, and which policy is stronger.

Values only: the shell reads the configuration once and passes them in.
"""

from __future__ import annotations

from typing import NamedTuple

from raddle.protocol.core.collisions import POLICIES, Policy
from raddle.protocol.errors import ConfigError

ISOLATE_LATER = (
    "the collision policy 'isolate' comes with a later version of raddle; "
    "this one knows 'warn' and 'raise'"
)
_STRENGTH = {"warn": 0, "raise": 1}


class Settings(NamedTuple):
    """Limits and policies of one scheduler.

    ``queue_seconds`` bounds the predicted work that waits on a worker per thread,
    ``queue_tasks_max`` the tasks that are with a worker. ``unknown_task_duration`` (seconds) is the
    prediction for a group of which no task has ended yet. A task is given up when
    more than ``allowed_failures`` workers died under it. ``inline_bytes_max``
    bounds the small values kept here, ``records_max`` the collision records.
    ``validate`` checks all invariants after every event (beyond 1000 tasks: as often
    as comes to 1000 tasks per event).
    """

    policy: Policy = "warn"
    allowed_failures: int = 3
    queue_seconds: float = 0.005
    queue_tasks_max: int = 1000
    unknown_task_duration: float = 0.5
    inline_bytes_max: int = 256 * 2**20
    records_max: int = 10_000
    validate: bool = False


def checked_policy(policy: str) -> Policy:
    """``policy`` if this version can follow it; ``ConfigError`` otherwise."""
    if policy == "isolate":
        raise ConfigError(ISOLATE_LATER)
    for known in POLICIES:
        if policy == known:
            return known
    raise ConfigError(f"{policy!r} is no collision policy; choose 'warn' or 'raise'")


def strongest(*policies: str | None) -> Policy:
    """The strongest of the given policies: nobody can weaken what another asked for."""
    asked = [checked_policy(p) for p in policies if p is not None]
    return max(asked, key=_STRENGTH.__getitem__)
