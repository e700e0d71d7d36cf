"""Random schedules of the real cores: no invariant breaks, and rest is rest."""

import pytest

from testkit.core_world import World

ACTIONS = 60


@pytest.mark.parametrize("seed", range(150))
def test_random_schedule(seed: int) -> None:
    World(seed).run(ACTIONS)


@pytest.mark.parametrize("seed", range(50))
def test_random_schedule_that_refuses_collisions(seed: int) -> None:
    World(seed, policy="raise").run(ACTIONS)
