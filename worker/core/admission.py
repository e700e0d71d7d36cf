"""Whether an attempt's resources are free."""

from __future__ import annotations

from math import fsum

from raddle.protocol.core.ids import Aid

ROUNDING = 1e-9
"""What sums of amounts such as 0.1 may be off by."""


class Admission:
    """The worker's resources: ``total`` by name, ``held`` by attempt.

    What is free is always computed from what is held: counters of floats drift.
    """

    def __init__(self, total: dict[str, float]) -> None:
        self.total = dict(total)
        self.held: dict[Aid, dict[str, float]] = {}

    def free(self, name: str) -> float:
        """How much of a resource nobody holds."""
        held = fsum(needs.get(name, 0.0) for needs in self.held.values())
        return self.total.get(name, 0.0) - held

    def fits(self, needs: dict[str, float]) -> bool:
        """Whether all of these amounts are free."""
        return all(n <= self.free(name) + ROUNDING for name, n in needs.items())
