"""Workers that are killed: every result is right, and nothing waits for the dead."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from dask._task_spec import Task, TaskRef

from raddle import Client, KilledWorker
from testkit.cluster import process_cluster
from testkit.polling import eventually
from testkit.tasks import combine, touch_and_combine

pytestmark = pytest.mark.process

N_TASKS = 10_000
PER_LAYER = 500


def layered(seed: int) -> tuple[dict[str, Any], list[str], list[int]]:
    """Layers of tasks, each on one to three of the layer before; the last one's keys
    and values."""
    chance = random.Random(seed)
    graph: dict[str, Any] = {}
    keys: list[str] = []
    values: list[int] = []
    for layer in range(N_TASKS // PER_LAYER):
        next_keys, next_values = [], []
        for i in range(PER_LAYER):
            key = f"x{seed}-{layer}-{i}"
            count = chance.randint(1, 3)
            chosen = chance.sample(range(len(keys)), count) if keys else []
            graph[key] = Task(key, combine, i, *(TaskRef(keys[c]) for c in chosen))
            next_keys.append(key)
            next_values.append(combine(i, *(values[c] for c in chosen)))
        keys, values = next_keys, next_values
    return graph, keys, values


def kill_one_of_three(folder: Path, seed: int) -> None:
    """Kill one of three workers at a moment that chance chooses.

    With odd seeds no value rides along with a message: workers fetch them all.
    """
    environment = {"DASK_RADDLE__WORKER__INLINE_BYTES": "0"} if seed % 2 else {}
    chance = random.Random(seed)
    graph, keys, values = layered(seed)
    with (
        process_cluster(folder, 3, environment=environment) as made,
        Client(scheduler_file=made.scheduler_file) as client,
    ):
        client.wait_for_workers(3, timeout=30)
        reached = folder / "reached"
        mark = chance.choice(list(graph))
        task = graph[mark]
        graph[mark] = Task(mark, touch_and_combine, str(reached), *task.args)
        futures = client.get(graph, keys, sync=False)
        victim = made.workers[f"w{chance.randrange(3)}"]
        eventually(reached.exists)
        victim.popen.kill()
        assert client.gather(futures) == values
        assert len(client.nthreads()) == 2
        assert client.submit(combine, 1, 2).result() == combine(1, 2)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_one_of_three_workers_is_killed(tmp_path: Path) -> None:
    kill_one_of_three(tmp_path, 1)


@pytest.mark.soak
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(2, 12))
def test_one_of_three_workers_is_killed_again(tmp_path: Path, seed: int) -> None:
    kill_one_of_three(tmp_path, seed)


def test_a_task_that_kills_its_workers_is_given_up(tmp_path: Path) -> None:
    """Others that ran beside it are not."""
    environment = {"DASK_RADDLE__SCHEDULER__ALLOWED_FAILURES": "1"}
    with (
        process_cluster(tmp_path, 3, environment=environment) as made,
        Client(scheduler_file=made.scheduler_file) as client,
    ):
        client.wait_for_workers(3, timeout=30)
        deadly = client.submit(os._exit, 1, key="deadly")
        with pytest.raises(KilledWorker) as caught:
            deadly.result(timeout=30)
        error = caught.value
        assert error.key == "deadly"
        assert (error.deaths, error.allowed) == (2, 1)
        assert error.worker
        assert "deadly" in error.tasks
        assert error.pid in {worker.pid for worker in made.workers.values()}
        assert client.submit(combine, 1, 2).result() == combine(1, 2)
        assert len(client.nthreads()) == 1


def test_data_of_a_killed_worker_is_computed_again(tmp_path: Path) -> None:
    with (
        process_cluster(tmp_path, 2) as made,
        Client(scheduler_file=made.scheduler_file) as client,
    ):
        client.wait_for_workers(2, timeout=30)
        # Too big to ride along with the report.
        first = client.submit(bytes, 100_000, workers="w0", allow_other_workers=True)
        second = client.submit(len, first, workers="w0", allow_other_workers=True)
        assert second.result() == 100_000
        (holder,) = client.who_has([first]).values()
        names = {a: w["name"] for a, w in client.scheduler_info()["workers"].items()}
        made.workers[names[holder[0]]].popen.kill()
        assert client.submit(len, first, key="again").result(timeout=30) == 100_000
        assert first.result(timeout=30) == bytes(100_000)


def test_work_waits_for_the_first_worker(tmp_path: Path) -> None:
    with (
        process_cluster(tmp_path, 0) as made,
        Client(scheduler_file=made.scheduler_file) as client,
    ):
        futures = client.map(combine, range(10))
        made.start_worker("late")
        assert client.gather(futures) == [combine(i) for i in range(10)]
