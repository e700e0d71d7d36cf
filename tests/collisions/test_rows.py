"""Each row of the collision table, over real sockets, under warn and raise.

The old task ``y`` is brought into a status and held there while a second client,
or the same one, submits another spec for ``y``. Then everything runs on.
"""

import asyncio
import logging
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raddle import (
    Client,
    Future,
    RunSpecCollisionError,
    RunSpecCollisionWarning,
    Scheduler,
    Worker,
)
from raddle.scheduler.core.entities import STATE_NAMES
from testkit.polling import eventually_async

GATES: dict[str, threading.Event] = {}


def one() -> int:
    return 1


def two() -> int:
    return 2


def gated(name: str, value: int, *_: Any) -> int:
    """Return ``value`` once the gate is open."""
    assert GATES[name].wait(30)
    return value


def old(*_: Any) -> int:
    return 101


def new_same(*_: Any) -> int:
    return 101


def new_diff(*_: Any) -> int:
    return 900


# Dependencies of the second spec; the first one's are always x1.
DEPS: dict[str, tuple[str, ...]] = {
    "same": ("x1",),
    "fewer": (),
    "more": ("x1", "x2"),
    "disjoint": ("x2",),
}
STATUSES = ("waiting", "ready", "no-worker", "processing", "memory", "released")
OUTPUTS = {"same": new_same, "differs": new_diff}


@pytest.fixture(autouse=True)
def gates() -> Iterator[None]:
    """Fresh gates, all open at the end so that no thread is left waiting."""
    GATES.update({name: threading.Event() for name in ("open-x1", "open-y", "open")})
    yield
    for gate in GATES.values():
        gate.set()


@asynccontextmanager
async def cluster(
    policy: str, *, resources: dict[str, float] | None = None
) -> AsyncIterator[tuple[Scheduler, Client, Client]]:
    async with (
        Scheduler(collision_policy=policy, validate=True) as scheduler,
        Worker(scheduler.address, nthreads=1, resources=resources),
        Client(scheduler.address, asynchronous=True, name="first") as first,
        Client(
            scheduler.address, asynchronous=True, name="second", set_as_default=False
        ) as second,
    ):
        yield scheduler, first, second


def status_of(scheduler: Scheduler, key: str) -> str | None:
    task = scheduler.machine.primary(key)
    return None if task is None else STATE_NAMES[task.state]


async def hold(scheduler: Scheduler, client: Client, status: str) -> list[Future]:
    """Bring ``y`` into ``status``; the last future given back stands for its value."""
    x1: Any = (gated, "open-x1", 1) if status == "waiting" else (one,)
    if status != "waiting":
        GATES["open-x1"].set()
    kept: list[Future] = []
    y: Any = (gated, "open-y", 101, "x1") if status == "processing" else (old, "x1")
    if status in ("ready", "no-worker"):
        kept += client.get({"x1": x1}, ["x1"], sync=False)
        await client.gather(kept)
    if status == "ready":
        kept.append(client.submit(gated, "open", 0, key="busy"))
    if status == "no-worker":
        kept.append(client.submit(old, kept[0], key="y", resources={"R": 1}))
    elif status == "released":
        kept += client.get({"x1": x1, "y": y, "zz": (old, "y")}, ["zz"], sync=False)
        await client.gather(kept)
    else:
        kept += client.get({"x1": x1, "y": y}, ["y"], sync=False)
    if status == "memory":
        await client.gather(kept)
    wanted = "ready" if status == "no-worker" else status
    await eventually_async(lambda: status_of(scheduler, "y") == wanted)
    return kept


async def let_run(scheduler: Scheduler, status: str) -> Worker | None:
    """Open what holds tasks back."""
    for gate in GATES.values():
        gate.set()
    if status == "no-worker":
        return await Worker(scheduler.address, nthreads=1, resources={"R": 1})
    return None


def second_graph(deps: str, output: str) -> dict[str, Any]:
    graph: dict[str, Any] = {"y": (OUTPUTS[output], *DEPS[deps])}
    if "x1" in DEPS[deps]:
        graph["x1"] = (one,)
    if "x2" in DEPS[deps]:
        graph["x2"] = (two,)
    return graph


def collision_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "raddle.scheduler" and record.levelno == logging.WARNING
    ]


@pytest.mark.parametrize("client", ["same-client", "other-client"])
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("deps", DEPS)
@pytest.mark.parametrize("status", STATUSES)
async def test_warn_keeps_old_spec_and_deps(
    status: str, deps: str, output: str, client: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster("warn") as (scheduler, first, second):
        submitter = first if client == "same-client" else second
        held = await hold(scheduler, first, status)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (future,) = submitter.get(second_graph(deps, output), ["y"], sync=False)
            await eventually_async(lambda: bool(caught))
        extra = await let_run(scheduler, status)
        assert await future == 101
        assert await held[-1] == 101
        assert scheduler.machine.primary("x2") is None, (
            "only the rejected spec needs x2"
        )
        (line,) = [x for x in collision_lines(caplog) if "'y'" in x]
        (record,) = [r for r in await first.collisions() if r.key == "y"]
        old_token, new_token = record.old_token, record.new_token
        assert old_token != new_token
        for part in (old_token, new_token, first.id, submitter.id, "'x1'"):
            assert part in line
        assert record.new_dependencies == DEPS[deps]
        assert record.old_dependencies == ("x1",)
        assert record.kind == ("spec" if deps == "same" else "deps")
        assert record.submitter == submitter.id
        assert [w.category for w in caught] == [RunSpecCollisionWarning]
        await release_everything(scheduler, held, [future])
        if extra is not None:
            await extra.close()


@pytest.mark.parametrize("deps", DEPS)
@pytest.mark.parametrize("status", STATUSES)
async def test_raise_changes_nothing_but_the_submitter(
    status: str, deps: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster("raise") as (scheduler, first, second):
        held = await hold(scheduler, first, status)
        (future,) = second.get(second_graph(deps, "differs"), ["y"], sync=False)
        with pytest.raises(RunSpecCollisionError, match="'y'"):
            await future
        assert scheduler.machine.primary("x2") is None
        extra = await let_run(scheduler, status)
        assert await held[-1] == 101
        assert [x for x in collision_lines(caplog) if "'y'" in x]
        await release_everything(scheduler, held, [future])
        if extra is not None:
            await extra.close()


async def release_everything(scheduler: Scheduler, *futures: list[Future]) -> None:
    """After this nothing is left on the scheduler."""
    for some in futures:
        for future in some:
            future.release()
    await eventually_async(lambda: not scheduler.machine.tasks)
    assert not scheduler.machine.names


async def test_submit_of_a_held_key_is_noticed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster("warn") as (_, client, _second):
        first = client.submit(one, key="k")
        second = client.submit(two, key="k")
        with pytest.warns(RunSpecCollisionWarning, match="'k'"):
            assert await second == 1
        assert await first == 1
        assert len(collision_lines(caplog)) == 1


async def test_a_call_may_strengthen_the_policy() -> None:
    async with cluster("warn") as (_, client, _second):
        first = client.submit(one, key="k")
        second = client.submit(two, key="k", collision_policy="raise")
        with pytest.raises(RunSpecCollisionError):
            await second
        assert await first == 1


async def test_a_failed_key_is_superseded() -> None:
    async with cluster("warn") as (_, client, _second):
        failed = client.submit(divide, 1, 0, key="k")
        with pytest.raises(ZeroDivisionError):
            await failed
        mended = client.submit(divide, 1, 1, key="k")
        with pytest.warns(RunSpecCollisionWarning, match="'k'"):
            assert await mended == 1.0
        with pytest.raises(ZeroDivisionError):
            await failed
        assert [r.action for r in await client.collisions()] == ["superseded"]


def divide(a: int, b: int) -> float:
    return a / b


async def test_released_before_submitted_again_is_no_collision(
    recwarn: pytest.WarningsRecorder,
) -> None:
    async with cluster("warn") as (_, client, _second):
        for value, function in ((1, one), (2, two)) * 20:
            future = client.submit(function, key="k")
            assert await future == value
            future.release()
        assert await client.collisions() == []
    assert not recwarn.list


async def test_each_triple_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster("warn") as (_, client, _second):
        first = client.submit(one, key="k")
        await first
        again = [client.submit(two, key="k") for _ in range(5)]
        with pytest.warns(RunSpecCollisionWarning):
            assert await asyncio.gather(*again) == [1] * 5
        assert len(collision_lines(caplog)) == 1


async def test_scatter_of_other_data_under_a_name_gives_each_its_own() -> None:
    async with cluster("warn") as (_, first, second):
        mine = (await first.scatter({"d": 1}))["d"]
        with pytest.warns(RunSpecCollisionWarning, match="'d'"):
            theirs = (await second.scatter({"d": 2}))["d"]
        assert await first.gather(mine) == 1
        assert await second.gather(theirs) == 2
