"""The invariants of the scheduler's state (S1 to S14 of the design's states page)."""

from __future__ import annotations

from .state import SchedulerState


def check(s: SchedulerState) -> None:
    """Raise AssertionError with the name of the invariant that does not hold."""
    assert not s.work, "work-list not worked off"
