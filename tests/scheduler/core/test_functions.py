"""Functions are interned by content, sent once per worker, and forgotten in time."""

from typing import Any

from raddle.protocol.core.messages.client import (
    ForgetFunctions,
    Graph,
    GraphTask,
    Release,
)
from raddle.protocol.core.messages.worker import (
    Compute,
    Done,
    DropFunctions,
    Functions,
)
from raddle.scheduler.core.actions import ToClient, ToWorker
from raddle.scheduler.core.events import (
    ClientJoined,
    ClientLeft,
    FromClient,
    FromWorker,
    WorkerJoined,
)
from raddle.scheduler.core.machine import Machine, Settings


class Cluster:
    """A machine without any function known."""

    def __init__(self, n_workers: int = 1) -> None:
        self.machine = Machine(Settings(validate=True))
        for client in ("A", "B"):
            self.machine.handle(ClientJoined(0.0, client, None, 1, None))
        for wid in range(1, n_workers + 1):
            self.join(wid)
        self.calls = 0

    def join(self, wid: int) -> list[Any]:
        return self.sent(
            WorkerJoined(0.0, wid, f"w{wid}", f"tcp://h:{wid}", "h", 1, 1, 0, {})
        )

    def sent(self, event: Any) -> list[Any]:
        """Messages to workers about functions and attempts, in order."""
        return [
            (action.wid, action.message)
            for action in self.machine.handle(event)
            if isinstance(action, ToWorker)
            and isinstance(action.message, Functions | DropFunctions | Compute)
        ]

    def submit(
        self, client: str, key: str, fn: int, *definitions: tuple[int, tuple[Any, ...]]
    ) -> list[Any]:
        self.calls += 1
        spec = GraphTask(key, key.encode() * 8, None, 2, fn, (), (), -1, 0)
        graph = Graph(
            self.calls, (spec,), ((key, self.calls),), (), definitions, (), None
        )
        return self.sent(FromClient(0.0, client, [graph]))


def test_a_definition_precedes_the_first_attempt_that_needs_it() -> None:
    cluster = Cluster()
    (wid, definition), (_, compute) = cluster.submit("A", "k1", 7, (7, (b"f",)))
    assert wid == 1
    assert definition == Functions(((compute.fn, (b"f",)),))
    cluster.sent(FromWorker(0.0, 1, [Done(compute.aid, 0, 1, "int", 0.1, None)]))
    ((_, second),) = cluster.submit("A", "k2", 7)
    assert second.fn == compute.fn


def test_equal_definitions_of_two_clients_are_one_function() -> None:
    cluster = Cluster(n_workers=1)
    _, (_, first) = cluster.submit("A", "k1", 7, (7, (b"f", bytearray(b"buffer"))))
    cluster.sent(FromWorker(0.0, 1, [Done(first.aid, 0, 1, "int", 0.1, None)]))
    ((_, second),) = cluster.submit("B", "k2", 1, (1, (b"f", memoryview(b"buffer"))))
    assert second.fn == first.fn
    assert len(cluster.machine.functions) == 1


def test_frames_cut_differently_are_different_definitions() -> None:
    cluster = Cluster(n_workers=2)
    cluster.submit("A", "k1", 1, (1, (b"ab", b"c")))
    cluster.submit("A", "k2", 2, (2, (b"a", b"bc")))
    assert len(cluster.machine.functions) == 2


def test_each_worker_is_sent_the_definition_once() -> None:
    cluster = Cluster(n_workers=2)
    first = cluster.submit("A", "k1", 1, (1, (b"f",)))
    second = cluster.submit("A", "k2", 1)
    assert [type(m) for _, m in first + second] == [Functions, Compute] * 2
    assert len({wid for wid, _ in first + second}) == 2


def test_a_function_lives_while_a_client_or_a_task_names_it() -> None:
    cluster = Cluster()
    _, (_, compute) = cluster.submit("A", "k1", 1, (1, (b"f",)))
    assert cluster.sent(FromClient(0.0, "A", [ForgetFunctions((1, 99))])) == []
    assert len(cluster.machine.functions) == 1
    ((wid, dropped),) = cluster.sent(FromClient(0.0, "A", [Release((1,))]))
    assert (wid, dropped) == (1, DropFunctions((compute.fn,)))
    assert not cluster.machine.functions


def test_a_client_that_leaves_forgets_its_functions() -> None:
    cluster = Cluster()
    cluster.submit("A", "k1", 1, (1, (b"f",)))
    cluster.submit("B", "k1", 1, (1, (b"f",)))
    assert cluster.sent(ClientLeft(0.0, "A", "gone")) == []
    assert len(cluster.sent(ClientLeft(0.0, "B", "gone"))) == 1
    assert not cluster.machine.functions


def test_a_function_that_comes_again_is_another_one() -> None:
    cluster = Cluster()
    _, (_, first) = cluster.submit("A", "k1", 1, (1, (b"f",)))
    cluster.sent(FromClient(0.0, "A", [Release((1,)), ForgetFunctions((1,))]))
    _, (_, second) = cluster.submit("A", "k2", 2, (2, (b"f",)))
    assert second.fn > first.fn


def test_a_number_can_be_defined_anew() -> None:
    cluster = Cluster()
    cluster.submit("A", "k1", 1, (1, (b"f",)))
    cluster.submit("A", "k2", 1, (1, (b"g",)))
    function = cluster.machine.instances("k2")[0].function
    assert function is not None
    assert function.frames == (b"g",)


def test_definitions_of_a_refused_graph_are_known_all_the_same() -> None:
    """The client counts them as sent."""
    cluster = Cluster()
    message = Graph(9, (), (("nobody", 9),), (), ((1, (b"f",)),), (), None)
    (ack,) = cluster.machine.handle(FromClient(0.0, "A", [message]))
    assert isinstance(ack, ToClient)
    assert ack.message.error is not None
    assert len(cluster.submit("A", "k1", 1)) == 2
