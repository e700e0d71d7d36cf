"""Workers of a scripted scheduler, over TCP and within the process."""

from collections.abc import AsyncIterator

import pytest

from testkit.scripted_scheduler import ScriptedScheduler

ADDRESSES = {"tcp": "tcp://127.0.0.1:0", "inproc": "inproc://"}


@pytest.fixture(params=ADDRESSES)
def protocol(request: pytest.FixtureRequest) -> str:
    """The transport that the test uses; it runs with each."""
    return str(request.param)


@pytest.fixture
async def scheduler(protocol: str) -> AsyncIterator[ScriptedScheduler]:
    """A scheduler that does what the test says."""
    async with ScriptedScheduler(ADDRESSES[protocol]) as made:
        yield made
