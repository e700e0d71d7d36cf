"""A scheduler that says what the test wants, for a client to talk to."""

from __future__ import annotations

from typing import Any

from raddle.protocol.core.messages.client import Finished, Graph, GraphAck
from raddle.protocol.serialize import dumps
from testkit.links import Server


class ScriptedScheduler(Server):
    """The scheduler's side of one client's link, played by the test."""

    def say(self, *messages: Any) -> None:
        """Send messages to the client."""
        self.links[0].send_many(messages)

    def of(self, kind: type) -> list[Any]:
        """All messages of one class that came, in order."""
        return [m for m in self.messages if type(m) is kind]

    async def next(self, kind: type, number: int = 1) -> Any:
        """The ``number``-th message of a class, once it is there."""
        await self.until(lambda: len(self.of(kind)) >= number)
        return self.of(kind)[number - 1]

    def finish(self, graph: Graph, *values: Any) -> None:
        """Acknowledge a graph and finish its futures with these values."""
        items = tuple(
            (fid, 28, type(value).__name__, dumps(value))
            for (_, fid), value in zip(graph.wants, values, strict=True)
        )
        self.say(GraphAck(graph.call, None), Finished(items))
