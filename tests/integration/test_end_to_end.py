"""The main job in one process: scheduler, two workers and a client on one loop."""

import pytest

from raddle import Client, Scheduler, Worker
from testkit.cluster import cluster
from testkit.polling import eventually_async
from testkit.tasks import inc

PROTOCOLS = ["tcp", "inproc"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_readme_s_line(protocol: str) -> None:
    async with (
        Scheduler(protocol=protocol) as s,
        Worker(s.address) as a,
        Worker(s.address) as b,
        Client(s.address, asynchronous=True) as c,
    ):
        assert await c.submit(inc, 1) == 2
        assert {w.address for w in (a, b)} == set(await c.nthreads())


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_map_with_dependencies(protocol: str) -> None:
    async with (
        cluster(2, 2, protocol=protocol) as made,
        Client(made.address, asynchronous=True) as client,
    ):
        firsts = client.map(inc, range(100))
        seconds = client.map(lambda x, y: x + y, firsts, firsts[::-1])
        total = client.submit(sum, seconds)
        assert await total == 2 * sum(range(1, 101))
        del firsts, seconds, total
        await eventually_async(lambda: not made.scheduler.machine.tasks)


async def test_what_the_scheduler_answers() -> None:
    async with (
        cluster(2, 3) as made,
        Client(made.address, asynchronous=True) as client,
    ):
        addresses = [w.address for w in made.workers]
        assert await client.nthreads() == dict.fromkeys(addresses, 3)
        assert await client.nthreads("w1") == {addresses[1]: 3}
        info = await client.scheduler_info()
        assert info["type"] == "Scheduler"
        assert info["id"] == made.scheduler.id
        assert info["address"] == made.address
        assert {w["name"] for w in info["workers"].values()} == {"w0", "w1"}
        assert await client.processing() == {address: [] for address in addresses}
        assert await client.collisions() == []
        future = client.submit(inc, 1, key="x", workers="w1")
        assert await future == 2
        assert await client.who_has() == {"x": [addresses[1]]}
        assert (await client.has_what())[addresses[1]] == ["x"]
        with pytest.raises(Exception, match="nonesuch"):
            await client.nthreads(["nonesuch"])
        with pytest.raises(Exception, match="no topic 'nonsense'"):
            await client.session.ask("nonsense")


async def test_functions_run_outside_tasks() -> None:
    async with (
        cluster(2) as made,
        Client(made.address, asynchronous=True) as client,
    ):
        a, b = (w.address for w in made.workers)
        assert await client.run(inc, 1) == {a: 2, b: 2}
        assert await client.run(inc, 1, workers="w1") == {b: 2}
        with pytest.raises(ZeroDivisionError):
            await client.run(lambda: 1 / 0)
        with pytest.raises(Exception, match="nonesuch"):
            await client.run(inc, 1, workers=["nonesuch"])


async def test_two_clients_see_each_other_s_tasks() -> None:
    async with (
        cluster(1) as made,
        Client(made.address, asynchronous=True) as first,
        Client(made.address, asynchronous=True) as second,
    ):
        one = first.submit(inc, 1, key="x")
        assert await one == 2
        two = second.submit(inc, 1, key="x")
        assert await two == 2
        assert len(made.scheduler.machine.tasks) == 1


async def test_a_client_that_closes_releases_its_tasks() -> None:
    async with cluster(1) as made:
        async with Client(made.address, asynchronous=True) as client:
            future = client.submit(inc, 1)
            assert await future == 2
            assert made.scheduler.machine.tasks
        await eventually_async(lambda: not made.scheduler.machine.tasks)
        assert future.done()


async def test_a_worker_that_closes_hands_its_tasks_over() -> None:
    async with (
        cluster(1) as made,
        Client(made.address, asynchronous=True) as client,
    ):
        future = client.submit(inc, 1, pure=False)
        assert await future == 2
        async with Worker(made.address, name="late"):
            await made.workers[0].close()
            assert await client.submit(inc, future) == 3
