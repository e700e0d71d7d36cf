"""What leaves a client, in which order, and what it makes of what comes."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from operator import add, mul
from typing import Any

import pytest

from raddle.client.client import Client
from raddle.client.future import record_of
from raddle.protocol.core.collisions import CollisionRecord
from raddle.protocol.core.messages.client import (
    FORM_ARGS,
    FORM_INPUTS,
    Answer,
    Ask,
    Bind,
    Cancel,
    Cancelled,
    CollisionNotice,
    Erred,
    Finished,
    ForgetFunctions,
    Goodbye,
    Graph,
    GraphAck,
    PendingAgain,
    Release,
    Retry,
)
from raddle.protocol.errors import (
    CancelledError,
    CommClosedError,
    LostDependency,
    RaddleError,
    RunSpecCollisionWarning,
    SerializationError,
)
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError
from raddle.protocol.serialize import dump_exception, dumps, loads
from raddle.protocol.spec import bound
from testkit.scripted import ScriptedScheduler


async def test_the_hello_says_who_the_client_is(scripted: ScriptedScheduler) -> None:
    async with Client(
        scripted.address, name="etl", collision_policy="raise", asynchronous=True
    ) as client:
        (hello,) = scripted.hellos
        assert hello.role == "client"
        assert hello.info["id"] == client.id
        assert client.id.startswith("etl-")
        assert hello.info["policy"] == "raise"
        assert isinstance(hello.info["enc"], int)


async def test_a_task_as_the_scheduler_sees_it(
    client: Client, scripted: ScriptedScheduler
) -> None:
    future = client.submit(mul, 6, 7)
    graph = await scripted.next(Graph)
    (task,) = graph.tasks
    key, token, skeleton, form, fn, payload, deps, annotation, order = task
    assert key == future.key
    assert future.key.startswith("mul-")
    assert (len(token), skeleton) == (16, None)
    assert (form, deps, annotation, order) == (FORM_ARGS, (), -1, 0)
    assert loads(payload) == ((6, 7), {})
    ((number, definition),) = graph.functions
    assert number == fn
    assert loads(definition) is mul
    assert graph.wants == ((key, record_of(future).fid),)
    assert (graph.embedded, graph.annotations, graph.policy) == ((), (), None)
    assert future.status == "pending"
    scripted.finish(graph, 42)
    assert await future == 42
    assert (future.status, future.type) == ("finished", "int")


async def test_futures_in_arguments_are_references(
    client: Client, scripted: ScriptedScheduler
) -> None:
    x, y = client.submit(abs, -1, key="x"), client.submit(abs, -2, key="y")
    client.submit(add, x, y)
    client.submit(add, x, 3)
    client.submit(sum, [x, y, x])
    both, mixed, nested = [(await scripted.next(Graph, i)).tasks[0] for i in (3, 4, 5)]
    assert (both[3], both[5], both[6]) == (FORM_INPUTS, (), ("x", "y"))
    assert (mixed[3], mixed[6]) == (FORM_ARGS, ("x",))
    with bound((10,)):
        assert loads(mixed[5]) == ((10, 3), {})
    with bound((10, 20)):
        assert loads(nested[5]) == (([10, 20, 10],), {})
    graph = await scripted.next(Graph, 3)
    assert graph.embedded == (("x", record_of(x).fid), ("y", record_of(y).fid))


async def test_a_function_is_sent_once(
    client: Client, scripted: ScriptedScheduler
) -> None:
    futures = [client.submit(abs, -1), client.submit(abs, -2)]
    futures += client.map(abs, range(3))
    assert len((await scripted.next(Graph, 1)).functions) == 1
    assert (await scripted.next(Graph, 2)).functions == ()
    assert (await scripted.next(Graph, 3)).functions == ()


async def test_functions_beyond_the_limit_are_forgotten_and_sent_again(
    client: Client, scripted: ScriptedScheduler
) -> None:
    client.session.functions._bytes_max = 40
    futures = [client.submit(f, 1) for f in (abs, bool, abs)]
    assert len(futures) == 3
    first, second, third = [await scripted.next(Graph, i) for i in (1, 2, 3)]
    numbers = [g.functions[0][0] for g in (first, second, third)]
    forgotten = [fn for m in scripted.of(ForgetFunctions) for fn in m.fns]
    assert numbers[0] == numbers[2]
    assert forgotten == numbers[:2]


# Order


async def test_a_release_leaves_before_a_later_graph(
    client: Client, scripted: ScriptedScheduler
) -> None:
    old = client.submit(abs, -1, key="k")
    fid = record_of(old).fid
    del old
    new = client.submit(abs, -2, key="k")
    old_and_new = client.submit(abs, new)
    await scripted.next(Graph, 3)
    kinds = [type(m) for m in scripted.messages]
    assert kinds == [Graph, Release, Graph, Graph]
    assert scripted.of(Release) == [Release((fid,))]
    assert old_and_new.key


async def test_releases_side_by_side_are_one_message(
    client: Client, scripted: ScriptedScheduler
) -> None:
    futures = client.map(abs, range(100))
    fids = tuple(record_of(f).fid for f in futures)
    await scripted.next(Graph)
    del futures
    assert sorted((await scripted.next(Release)).fids) == sorted(fids)
    assert client.session.table.records == {}


async def test_a_release_in_a_garbage_collection_inside_a_locked_region(
    client: Client, scripted: ScriptedScheduler
) -> None:
    cycle: list[Any] = [client.submit(abs, -1)]
    cycle.append(cycle)
    del cycle
    with client.session._lock:
        gc.collect()
    await scripted.next(Release)


async def test_a_release_from_another_thread(
    client: Client, scripted: ScriptedScheduler
) -> None:
    holder = [client.submit(abs, -1)]
    thread = threading.Thread(target=holder.clear)
    thread.start()
    await scripted.next(Release)
    thread.join()


async def test_releasing_by_hand(client: Client, scripted: ScriptedScheduler) -> None:
    future = client.submit(abs, -1)
    future.release()
    future.release()
    assert future.cancelled()
    with pytest.raises(CancelledError, match="released"):
        await future
    await scripted.next(Release)
    del future
    client.submit(abs, -2)
    await scripted.next(Graph, 2)
    assert len(scripted.of(Release)) <= 2
    fids = [fid for m in scripted.of(Release) for fid in m.fids]
    assert len(fids) == len(set(fids))


async def test_everything_waits_for_the_connection(scripted: ScriptedScheduler) -> None:
    client = Client(scripted.address, asynchronous=True)
    future = client.submit(abs, -1)
    assert scripted.links == []
    async with client:
        scripted.finish(await scripted.next(Graph), 1)
        assert await future == 1


# Errors while encoding


async def test_what_cannot_be_pickled_leaves_nothing_behind(
    client: Client, scripted: ScriptedScheduler
) -> None:
    lock = threading.Lock()
    with pytest.raises(SerializationError, match=r"arguments of 'k'.*lock"):
        client.submit(id, [lock], key="k")
    with pytest.raises(SerializationError, match="lock"):
        client.submit(lambda: lock)
    with pytest.raises(SerializationError, match="lock"):
        client.map(id, [1, lock])
    with pytest.raises(SerializationError, match="lock"):
        client.get({"a": (abs, 1), "b": (id, "a", lock)}, "b", sync=False)
    table = client.session.table
    assert (table.records, table.calls) == ({}, {})
    future = client.submit(abs, -1)
    scripted.finish(await scripted.next(Graph), 1)
    assert await future == 1
    assert len(scripted.messages) == 1


async def test_later_changes_of_an_argument_do_not_reach_the_task(
    client: Client, scripted: ScriptedScheduler
) -> None:
    data = bytearray(100_000)
    client.submit(len, data)
    data[:] = b"x" * 100_000
    payload = (await scripted.next(Graph)).tasks[0][5]
    assert loads(payload)[0][0] == bytes(100_000)


# What comes


async def test_an_error_names_the_task_to_blame(
    client: Client, scripted: ScriptedScheduler
) -> None:
    future = client.submit(abs, -1)
    await scripted.next(Graph)
    pair = dump_exception(ZeroDivisionError("nothing left"))
    scripted.say(Erred(((record_of(future).fid, pair, "other"),)))
    with pytest.raises(ZeroDivisionError, match="nothing left") as caught:
        await future
    assert future.status == "error"
    assert any("'other'" in note for note in caught.value.__notes__)
    error = await future.exception()
    assert isinstance(error, ZeroDivisionError)


async def test_a_refused_graph(client: Client, scripted: ScriptedScheduler) -> None:
    future = client.submit(abs, -1)
    graph = await scripted.next(Graph)
    scripted.say(GraphAck(graph.call, ("LostDependency", (future.key, ("gone",)))))
    with pytest.raises(LostDependency, match="'gone'"):
        await future


async def test_a_lost_value_is_awaited_anew(
    client: Client, scripted: ScriptedScheduler
) -> None:
    future = client.submit(abs, -1)
    graph = await scripted.next(Graph)
    scripted.finish(graph, 1)
    await future
    scripted.say(PendingAgain((record_of(future).fid,)))
    asking = asyncio.ensure_future(client.who_has([future]))
    ask = await scripted.next(Ask)
    assert future.status == "pending"
    scripted.finish(graph, 2)
    assert await future == 2
    scripted.say(Answer(ask.call, True, ()))
    await asking


async def test_cancel_counts_at_once(
    client: Client, scripted: ScriptedScheduler
) -> None:
    futures = client.map(abs, range(2))
    await client.cancel(futures, force=True, reason="changed my mind")
    assert all(f.cancelled() for f in futures)
    with pytest.raises(CancelledError, match="changed my mind"):
        await futures[0]
    assert (await scripted.next(Cancel)) == Cancel(
        tuple(record_of(f).fid for f in futures), True, "changed my mind"
    )


async def test_another_client_may_cancel(
    client: Client, scripted: ScriptedScheduler
) -> None:
    future = client.submit(abs, -1)
    await scripted.next(Graph)
    scripted.say(Cancelled((record_of(future).fid,), "Client-other", "forced"))
    with pytest.raises(CancelledError, match="by Client-other: forced"):
        await future


async def test_retry_waits_for_a_new_result(
    client: Client, scripted: ScriptedScheduler
) -> None:
    future = client.submit(abs, -1)
    graph = await scripted.next(Graph)
    fid = record_of(future).fid
    scripted.say(Erred(((fid, dump_exception(ValueError()), future.key),)))
    assert isinstance(await future.exception(), ValueError)
    await client.retry(future)
    assert future.status == "pending"
    assert await scripted.next(Retry) == Retry((fid,))
    scripted.finish(graph, 5)
    assert await future == 5


async def test_questions_get_their_own_answers(
    client: Client, scripted: ScriptedScheduler
) -> None:
    first = asyncio.ensure_future(client.nthreads())
    second = asyncio.ensure_future(client.nthreads(["w"]))
    asks = [await scripted.next(Ask, i) for i in (1, 2)]
    assert [a.argument for a in asks] == [None, ("w",)]
    scripted.say(
        Answer(99, True, ()),
        Answer(asks[1].call, False, "no worker named w"),
        Answer(asks[0].call, True, (("tcp://a:1", 2),)),
    )
    assert await first == {"tcp://a:1": 2}
    with pytest.raises(RaddleError, match="no worker named w"):
        await second


# Collisions


def record_for(key: Any, *, kind: Any = "spec") -> CollisionRecord:
    return CollisionRecord(
        key, "k", kind, "60dfef54", "6d2d7e33", (), ("y",), "memory", ("Client-1",),
        "Client-1", "warn", "kept",
    )  # fmt: skip


async def test_a_collision_is_a_warning_where_the_call_was_made(
    client: Client, scripted: ScriptedScheduler
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        future = client.submit(abs, -1, key="k")
        graph = await scripted.next(Graph)
        scripted.say(CollisionNotice(graph.call, (tuple(record_for("k")),), 3))
        scripted.finish(graph, 1)
        assert await future == 1
    (warning,) = caught
    assert warning.category is RunSpecCollisionWarning
    text = str(warning.message)
    assert "60dfef54 -> 6d2d7e33" in text
    assert "2 more" in text
    assert warning.filename == __file__


async def test_a_warning_made_an_error_is_the_calls_error(
    client: Client, scripted: ScriptedScheduler
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RunSpecCollisionWarning)
        future, other = client.submit(abs, -1, key="k"), client.submit(abs, -2)
        graph, next_graph = [await scripted.next(Graph, i) for i in (1, 2)]
        scripted.say(
            GraphAck(graph.call, None),
            CollisionNotice(graph.call, (tuple(record_for("k")),), 1),
        )
        scripted.finish(graph, 1)
        scripted.finish(next_graph, 2)
        with pytest.raises(RunSpecCollisionWarning, match="60dfef54"):
            await future
        assert await other == 2
        assert future.status == "error"


# The end


async def test_closing_says_goodbye(scripted: ScriptedScheduler) -> None:
    client = Client(scripted.address, asynchronous=True)
    async with client:
        future = client.submit(abs, -1)
    assert [type(m) for m in scripted.messages] == [Graph, Goodbye]
    assert await scripted.until_closed()
    assert client.status == "closed"
    await client.close()
    with pytest.raises(CancelledError, match="the client closed"):
        await future
    with pytest.raises(CommClosedError, match="closed"):
        client.submit(abs, -1)


async def test_a_vanished_scheduler_cancels_and_releases_all_who_wait(
    client: Client, scripted: ScriptedScheduler
) -> None:
    finished, pending = client.map(abs, range(2), key=["a", "b"])
    scripted.say(Finished(((record_of(finished).fid, 28, "int", dumps(0)),)))
    assert await finished == 0
    waiting = [
        asyncio.ensure_future(pending.result()),
        asyncio.ensure_future(client.gather([finished, pending])),
        asyncio.to_thread(pending.result),
    ]
    await scripted.next(Graph)
    asking = asyncio.ensure_future(client.nthreads())
    await scripted.next(Ask)
    scripted.links[0].abort("killed")
    for waiter in waiting:
        with pytest.raises(CancelledError, match="scheduler gone"):
            await waiter
    with pytest.raises(CommClosedError, match="scheduler gone"):
        await asking
    assert await finished == 0
    assert client.status == "closed"
    with pytest.raises(CommClosedError, match="scheduler gone"):
        client.submit(abs, -1)


async def test_a_timeout_leaves_the_future_alone(
    client: Client, scripted: ScriptedScheduler
) -> None:
    future = client.submit(abs, -1)
    with pytest.raises(RaddleTimeoutError, match="within 0 s;"):
        await future.result(timeout=0)
    with pytest.raises(RaddleTimeoutError, match=r"within 0\.001 s;"):
        await asyncio.to_thread(future.result, "1 ms")
    assert record_of(future).observers is None
    scripted.finish(await scripted.next(Graph), 1)
    assert await future == 1


async def test_futures_by_name_and_of_other_clients_are_bound(
    client: Client, scripted: ScriptedScheduler
) -> None:
    from raddle.client.future import Future

    named = Future("known", client)
    bind = await scripted.next(Bind)
    assert bind == Bind(record_of(named).fid, "known", "", 0)
    scripted.say(Finished(((bind.fid, 28, "int", dumps(3)),)))
    assert await named == 3
    async with Client(scripted.address, asynchronous=True) as other:
        theirs = Future("theirs", other)
        client.submit(abs, theirs)
        bind = await scripted.next(Bind, 2)
        assert (bind.owner, bind.owner_fid) == (other.id, record_of(theirs).fid)
        graph = await scripted.next(Graph)
        assert graph.embedded == (("theirs", bind.fid),)
        await scripted.next(Release)
