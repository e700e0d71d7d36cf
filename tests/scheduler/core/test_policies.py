"""What a policy may be, and which of the three that apply counts."""

import pytest

from raddle.protocol.core.messages.client import GraphAck
from raddle.protocol.errors import ConfigError
from raddle.scheduler.core.machine import Machine, Settings
from testkit.core import ME, Recorder, task


def test_isolate_is_refused_by_the_scheduler_and_by_a_call() -> None:
    with pytest.raises(ConfigError, match="'isolate' comes with a later version"):
        Machine(Settings(policy="isolate"))
    r = Recorder(n_workers=1)
    message, (fid,) = r.graph(task("y"), policy="isolate")
    r.says(ME, message)
    error = r.to(ME, GraphAck).error
    assert error is not None
    assert error[0] == "InvalidGraph"
    assert "isolate" in error[1][0]
    assert not r.machine.tasks
    assert fid in r.machine.clients[ME].lost


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ConfigError, match="'shout' is no collision policy"):
        Machine(Settings(policy="shout"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scheduler", "client", "call", "rejects"),
    [
        ("warn", None, None, False),
        ("warn", "raise", None, True),
        ("warn", None, "raise", True),
        ("raise", "warn", "warn", True),
        ("warn", "raise", "warn", True),
    ],
)
def test_a_policy_can_only_be_strengthened(
    scheduler: str, client: str | None, call: str | None, rejects: bool
) -> None:
    r = Recorder(policy=scheduler)  # type: ignore[arg-type]
    r.add_client("Client-c", policy=client)
    r.submit(task("y"))
    message, _ = r.graph(task("y", fn="new"), policy=call)
    r.says("Client-c", message)
    assert bool(r.to("Client-c", GraphAck).error) == rejects
    r.unread.clear()
