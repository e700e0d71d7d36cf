"""The two programs of the report about key re-use in blockwise fusion, 20 times each.

Both submit keys again with other run_specs behind them while the first ones are
under way; on the peer of that time they ended in KeyErrors now and then.
"""

import dask
import dask.dataframe as dd
import pandas as pd
import pytest

from raddle import Client, LocalCluster, Scheduler, Worker
from raddle.scheduler.core.entities import MEMORY
from testkit.polling import eventually_async

TIMES = 20

pytestmark = pytest.mark.filterwarnings(
    "ignore::raddle.RunSpecCollisionWarning", "ignore::DeprecationWarning"
)


def timeseries() -> dd.DataFrame:
    frame: dd.DataFrame = dask.datasets.timeseries(
        start="2000-01-01",
        end="2000-01-10",
        dtypes={"x": float, "y": float},
        freq="100 s",
        seed=42,
    )
    return frame


def some_value(scheduler: Scheduler) -> bool:
    return any(task.state == MEMORY for task in scheduler.machine.tasks.values())


@pytest.mark.timeout(180)
async def test_persisted_shuffle_computed_again_while_it_runs() -> None:
    rows = len(timeseries().compute(scheduler="sync"))
    for _ in range(TIMES):
        async with (
            Scheduler(validate=True) as scheduler,
            Worker(scheduler.address),
            Worker(scheduler.address),
            Client(scheduler.address, asynchronous=True) as client,
        ):
            frame = timeseries()
            shuffled = frame.shuffle("x").persist()
            await eventually_async(lambda: some_value(scheduler))
            del shuffled
            shuffled = frame.shuffle("x")
            futures = client.compute([frame.x.size, shuffled.x.size])
            assert await client.gather(futures) == [rows, rows]


@pytest.mark.timeout(180)
def test_set_index_then_sort_values() -> None:
    frame = pd.DataFrame(
        {"a": [3, 1, 2, 7, 5, 6, 4, 0] * 50, "b": range(400), "c": "x"}
    )
    expected = frame.sort_values("b").set_index("a")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False) as cluster,
        Client(cluster),
    ):
        for _ in range(TIMES):
            ours = dd.from_pandas(frame, npartitions=4)
            result = ours.set_index("a").sort_values("b").compute()
            assert list(result.index) == list(expected.index)
            assert list(result.b) == list(expected.b)
