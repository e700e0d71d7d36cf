"""When a question to several workers (``client.run``) is answered, and with what.

The answer is a tuple with an item ``(address, frames, error)`` per asked worker, in
the order asked: ``frames`` what the function returned, or ``error`` a pair as in
``client.Erred``. A worker that leaves before it answered counts as an error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from raddle.protocol.core.ids import Address, ClientId, Wid
from raddle.protocol.core.messages.worker import RunResult

Reply = tuple[ClientId, int, bool, Any]
"""What to answer whom: client, its call, ok, value."""

_Item = tuple[Address, Any, tuple[str, Any] | None]


class _Run(NamedTuple):
    client: ClientId
    call: int
    items: dict[Wid, _Item | None]
    addresses: dict[Wid, Address]


class Runs:
    """The open questions, by the number that workers repeat in their answers."""

    def __init__(self) -> None:
        self._open: dict[int, _Run] = {}
        self._last = 0

    def start(
        self, client: ClientId, call: int, asked: dict[Wid, Address]
    ) -> tuple[int, list[Reply]]:
        """Open a question; gives its number, and the answer if nobody is asked."""
        self._last += 1
        self._open[self._last] = _Run(client, call, dict.fromkeys(asked), asked)
        return self._last, self._if_complete(self._last)

    def answered(self, wid: Wid, result: RunResult) -> list[Reply]:
        """A worker's answer; gives the client's answer if it was the last one."""
        return self._fill(wid, result.call, result.frames, result.error)

    def worker_left(self, wid: Wid, why: str) -> list[Reply]:
        """Count a worker that is gone as an error wherever it owes an answer."""
        replies = []
        for number, run in tuple(self._open.items()):
            if wid in run.items and run.items[wid] is None:
                text = f"worker {run.addresses[wid]} left before it answered: {why}"
                error = ("CommClosedError", (text,))
                replies += self._fill(wid, number, None, error)
        return replies

    def forget_client(self, client: ClientId) -> None:
        """Nobody waits for this client's questions any more."""
        self._open = {n: run for n, run in self._open.items() if run.client != client}

    def _fill(
        self, wid: Wid, number: int, frames: Any, error: tuple[str, Any] | None
    ) -> list[Reply]:
        run = self._open.get(number)
        if run is None or wid not in run.items:
            return []
        run.items[wid] = (run.addresses[wid], frames, error)
        return self._if_complete(number)

    def _if_complete(self, number: int) -> list[Reply]:
        run = self._open[number]
        if None in run.items.values():
            return []
        del self._open[number]
        return [(run.client, run.call, True, tuple(run.items.values()))]
