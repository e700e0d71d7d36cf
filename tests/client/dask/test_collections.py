"""get, compute and persist: forms, order, annotations, what cannot be."""

from __future__ import annotations

from operator import add, neg
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.highlevelgraph import HighLevelGraph

from raddle.client.client import Client
from raddle.client.future import Future
from raddle.client.iterate import futures_of, wait
from raddle.local import LocalCluster
from raddle.protocol.core.messages.client import Graph
from raddle.protocol.errors import (
    InvalidGraph,
    LostDependency,
    RunSpecCollisionError,
    RunSpecCollisionWarning,
)
from testkit.scripted import ScriptedScheduler


def test_the_forms_of_get(c: Client) -> None:
    graph: Any = {"x": 1, "y": (add, "x", 2), ("z", 0): (sum, ["x", "y"])}
    assert c.get(graph, "y") == 3
    assert c.get(graph, ["x", ["y", [("z", 0)]], "x"]) == [1, (3, (4,)), 1]
    assert c.get(graph, []) == []
    assert c.get(HighLevelGraph.from_collections("n", graph), ["y"]) == [3]
    x, (y,) = c.get(graph, ["x", ["y"]], sync=False)
    assert isinstance(x, Future)
    assert (x.key, y.result()) == ("x", 3)
    assert c.get({}, [[x, "y"]]) == [(1, 3)]


async def test_a_persisted_collection_is_waited_for(cluster: LocalCluster) -> None:
    address = cluster.scheduler_address
    async with Client(
        address, secret=cluster.secret, asynchronous=True, timeout=20
    ) as client:
        x = client.persist(da.ones(4, chunks=2))
        done, not_done = await wait(x)
        assert (len(done), len(not_done)) == (2, 0)
        assert {future.status for future in done} == {"finished"}


def test_only_what_is_reachable_is_sent(c: Client) -> None:
    graph = {"x": (abs, -1), "y": (neg, "x"), "bad": (neg, "cycle"), "cycle": "bad"}
    assert c.get(graph, "y") == -1
    with pytest.raises(InvalidGraph, match="cycle"):
        c.get(graph, "bad")


def test_unknown_names(c: Client) -> None:
    with pytest.raises(LostDependency, match="'nowhere'"):
        c.get({"x": (abs, _ref("nowhere"))}, "x")
    with pytest.raises(InvalidGraph, match=r"'nowhere' is not in the graph, .* empty"):
        c.get({}, "nowhere")
    with pytest.raises(InvalidGraph, match=r"'nope' .* 3, 4, \.\.\.; nor"):
        c.get({i: i for i in range(9)}, [0, "nope"])
    with pytest.raises(InvalidGraph, match=r"which has 'x'; nor"):
        c.get({"x": 1}, "nope", sync=False)


def _ref(key: str) -> Any:
    from dask.task_spec import TaskRef

    return TaskRef(key)


def test_a_live_future_need_not_be_in_the_graph(c: Client) -> None:
    future = c.submit(abs, -5, key="live")
    assert c.get({"y": (add, "live", 1)}, ["y", "live"]) == [6, 5]
    lazy = dask.delayed(future)
    assert lazy.compute() == 5
    assert (lazy + 1).compute() == 6
    assert dask.delayed(add)(future, 1).compute() == 6
    assert future.status == "finished"


def test_the_forms_of_compute(c: Client) -> None:
    lazy = dask.delayed(add)(1, 2)
    future = c.compute(lazy)
    assert isinstance(future, Future)
    assert future.result() == 3
    one, five, two = c.compute([lazy, 5, lazy])
    assert (one.result(), five, two.result()) == (3, 5, 3)
    assert c.compute((lazy, 5), sync=True) == [3, 5]
    assert c.compute({"a": lazy}).result() == {"a": 3}
    assert c.compute([[lazy], 5], traverse=False) == [[lazy], 5]
    assert c.compute(7) == 7


def test_a_mixture_of_collections_keeps_its_order(c: Client) -> None:
    mixture = [
        da.ones(3, chunks=2).sum(),
        dask.delayed(add)(1, 4),
        db.from_sequence([1, 2, 3]).sum(),
        da.ones(4, chunks=2).sum(),
        dd.from_pandas(pd.DataFrame({"a": [1, 6]}), npartitions=1).a.sum(),
        dask.delayed(add)(1, 7),
    ]
    expected = [3, 5, 6, 4, 7, 8]
    assert c.compute(mixture, sync=True) == expected
    persisted = c.persist(mixture)
    assert [type(p) for p in persisted] == [type(m) for m in mixture]
    assert [p.compute() for p in persisted] == expected


def test_persist(c: Client) -> None:
    x = da.arange(10, chunks=5)
    y = c.persist(x + 1)
    assert isinstance(y, da.Array)
    assert y.name == (x + 1).name
    wait(y)
    assert all(f.status == "finished" for f in futures_of(y))
    again = c.persist(y)
    assert (again.compute() == np.arange(1, 11)).all()
    assert ((y + y).compute() == np.arange(2, 21, 2)).all()
    with pytest.raises(TypeError, match="not list"):
        c.persist([[x]])


@pytest.mark.usefixtures("c")
def test_a_persisted_collection_outlives_the_original() -> None:
    y = (da.arange(10, chunks=5) + 1).persist()
    z = y.sum()
    del y
    assert z.compute() == 55


def test_dataframes(c: Client) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 1] * 10, "b": range(40)})
    df = dd.from_pandas(frame, npartitions=4).persist()
    assert len(futures_of(df)) == 4
    pd.testing.assert_series_equal(
        df.groupby("a").b.sum().compute().sort_index(), frame.groupby("a").b.sum()
    )
    assert df.set_index("b").a.compute().tolist() == frame.a.tolist()
    assert len(df.shuffle("a").compute()) == 40
    assert (c.submit(len, df.partitions[0].to_delayed()[0].persist().key)).result() > 0


def test_the_same_array_in_another_shape_of_graph(c: Client) -> None:
    """What fusion does to a key that is persisted: noticed, and no wrong value."""
    x = da.ones((10, 10), chunks=(2, 2))
    z = x + 1
    persisted = z.persist()
    wait(persisted)
    with pytest.warns(RunSpecCollisionWarning, match="25 keys|24 more|20 more"):
        got_z, got_x = dask.compute(z, x)
    assert (got_z == 2).all()
    assert (got_x == 1).all()
    with pytest.raises(RunSpecCollisionError):
        c.compute([z, x], sync=True, collision_policy="raise")
    assert (persisted.compute() == 2).all()


# Annotations


async def annotations_of(
    client: Client, scripted: ScriptedScheduler, collection: Any, **options: Any
) -> dict[Any, dict[str, Any]]:
    client.compute(collection, **options)
    graph = await scripted.next(Graph)
    return {t[0]: graph.annotations[t[7]] if t[7] >= 0 else {} for t in graph.tasks}


async def test_annotations_of_layers_reach_the_scheduler(
    client: Client, scripted: ScriptedScheduler
) -> None:
    with dask.annotate(priority=3, workers=["w"]):
        x = da.ones(4, chunks=2)
    found = await annotations_of(client, scripted, (x + 1).sum())
    annotated = [a for a in found.values() if a]
    assert annotated == [{"priority": 3, "workers": ("w",)}] * 2  # one for each chunk
    assert len(found) > 2


async def test_annotations_by_key(client: Client, scripted: ScriptedScheduler) -> None:
    with dask.annotate(priority=lambda key: key[1]):
        x = da.ones(6, chunks=2)
    found = await annotations_of(client, scripted, x.sum())
    chunks = {k: a for k, a in found.items() if a}
    assert {k[1]: a.get("priority") for k, a in chunks.items()} == {0: 0, 1: 1, 2: 2}


async def test_annotations_around_the_call_and_of_the_call(
    client: Client, scripted: ScriptedScheduler
) -> None:
    with dask.annotate(retries=5):
        x = da.ones(4, chunks=4)
    y = x.sum()
    with dask.annotate(priority=1, resources={"GPU": 1}, span="mine"):
        found = await annotations_of(client, scripted, y, priority=2, retries=1)
    common = {"priority": 2, "resources": {"GPU": 1.0}}
    for key, annotation in found.items():
        own = len(key) == 2  # the sum of a chunk, into which the layer was fused
        assert annotation == common | {"retries": 5 if own else 1}, key


async def test_keywords_of_dask_that_mean_nothing_here(
    client: Client, scripted: ScriptedScheduler
) -> None:
    x = da.ones(4, chunks=2).sum()
    client.get(
        x.dask, x.__dask_keys__(), sync=False, fifo_timeout="1s", something="else"
    )
    client.persist(x, anything=1)
    client.compute(x, num_workers=3)
    await scripted.next(Graph, 3)


async def test_priorities_follow_dasks_order(
    client: Client, scripted: ScriptedScheduler
) -> None:
    x = da.ones(8, chunks=2)
    client.compute(x.sum(split_every=2))
    graph = await scripted.next(Graph)
    orders = {t[0]: t[8] for t in graph.tasks}
    assert len(set(orders.values())) == len(orders)
    for task in graph.tasks:
        assert all(orders[d] < orders[task[0]] for d in task[6])


# Two run_specs for one key in one call


def two_claims() -> list[Any]:
    return [
        dask.delayed(add)(1, 2, dask_key_name="claimed"),
        dask.delayed(add)(1, 3, dask_key_name="claimed"),
    ]


@pytest.mark.parametrize("verb", ["compute", "persist"])
def test_the_first_of_two_claims_wins_and_the_user_is_told(
    c: Client, verb: str
) -> None:
    a, b = two_claims()
    other = dask.delayed(add)(b, 10)
    with pytest.warns(RunSpecCollisionWarning, match="'claimed'.*same call") as caught:
        got = getattr(c, verb)([a, b, other])
    assert caught[0].filename == __file__
    assert [f.compute() if verb == "persist" else f.result() for f in got] == [3, 3, 13]


def test_two_claims_under_policy_raise(c: Client) -> None:
    with pytest.raises(RunSpecCollisionError, match="'claimed'") as caught:
        c.compute(two_claims(), collision_policy="raise")
    assert caught.value.total == 1
    assert c.session.table.records == {}


def test_equal_claims_are_none(c: Client) -> None:
    a, _ = two_claims()
    same, _ = two_claims()
    futures = c.compute([a, same, dask.delayed(neg)(a), da.ones(3), 5])
    assert c.gather(futures[:3]) == [3, 3, -3]


class Two:
    """A collection of two dataframes, as xarray's are of several arrays."""

    def __init__(self, first: Any, second: Any) -> None:
        self.parts = (first, second)

    def __dask_graph__(self) -> Any:
        return dict(self.parts[0].dask) | dict(self.parts[1].dask)

    def __dask_keys__(self) -> Any:
        return [p.__dask_keys__() for p in self.parts]

    def __dask_exprs__(self) -> Any:
        return [p.expr for p in self.parts]

    def __dask_rebuild_from_exprs__(self, exprs: Any) -> Two:
        from dask._collections import new_collection

        return Two(*map(new_collection, exprs))

    def __dask_postcompute__(self) -> Any:
        return _concatenated, ()

    def __dask_postpersist__(self) -> Any:
        raise AssertionError("not for a collection of expressions")

    __dask_optimize__ = None


def _concatenated(parts: Any) -> list[int]:
    return [int(x) for part in parts for frame in part for x in frame.a]


@pytest.mark.skipif(
    not hasattr(dask.base, "_rebuild_composite_collection"), reason="an older dask"
)
def test_a_collection_made_of_several_expressions(c: Client) -> None:
    frames = [
        dd.from_pandas(pd.DataFrame({"a": [i, i + 1]}), npartitions=2) for i in (1, 5)
    ]
    two = Two(*frames)
    assert c.compute([frames[0].a.sum(), two], sync=True) == [3, [1, 2, 5, 6]]
    persisted = c.persist(two)
    assert type(persisted) is Two
    assert len(futures_of(list(persisted.parts))) == 4
    assert c.compute(persisted).result() == [1, 2, 5, 6]
    lone, again = c.persist([frames[1], two])
    assert lone.a.sum().compute() == 11
    assert c.compute(again).result() == [1, 2, 5, 6]


async def test_a_policy_around_the_call(
    client: Client, scripted: ScriptedScheduler
) -> None:
    with dask.annotate(collision_policy="raise"):
        client.submit(neg, 1)
        client.compute(da.ones(3).sum())
    client.submit(neg, 2, collision_policy="warn")
    client.submit(neg, 3)
    policies = [(await scripted.next(Graph, i)).policy for i in (1, 2, 3, 4)]
    assert policies == ["raise", "raise", "warn", None]
