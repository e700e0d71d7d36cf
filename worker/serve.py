"""How the values that are here are given out, and how data of clients comes in.

Small values are pickled on the event loop, big ones in a thread. Who takes what was
sent too slowly waits for the next answer until it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from raddle.protocol.comm import Hello, Link
from raddle.protocol.core.ids import Aid, Tid
from raddle.protocol.core.messages.peer import Data, Get, Put, PutDone
from raddle.protocol.errors import (
    CommClosedError,
    HandshakeError,
    SerializationError,
)
from raddle.protocol.serialize import (
    Frames,
    copy_frames,
    dump_exception,
    dumps,
    nbytes_of,
)

from .core.data import NO_ATTEMPT, Packed, Stored
from .core.data import Data as Table
from .core.events import PutGone, PutHere
from .threads import in_thread

logger = logging.getLogger("raddle.worker")

ON_LOOP_BYTES_MAX = 2**20
"""Bytes of one answer that are pickled on the event loop."""
BACKLOG_MAX = 2**22
"""Bytes that may wait for the kernel on one connection before answers wait."""


class Server:
    """All connections to this worker's data.

    ``table`` is read only; ``post`` takes the core's events.
    """

    def __init__(self, table: Table, post: Callable[[PutHere | PutGone], None]) -> None:
        self.table = table
        self.post = post
        self._connections: set[Connection] = set()

    def accept(self, link: Link, hello: Hello) -> dict[str, Any]:
        """Take in a worker or client that wants data. Raises HandshakeError."""
        if hello.role != "peer":
            msg = f"this is a worker's data address; a {hello.role!r} needs the scheduler's"
            raise HandshakeError(msg)
        connection = Connection(self, link)
        self._connections.add(connection)
        link.on_batch = connection.on_batch
        link.on_close = connection.on_close
        return {}

    def forget(self, connection: Connection) -> None:
        """The connection is closed."""
        self._connections.discard(connection)

    async def close(self) -> None:
        """End all connections."""
        connections = list(self._connections)
        for connection in connections:
            connection.link.close("the worker closed")
        for connection in connections:
            await connection.link.wait_closed()


class Connection:
    """One connection: its questions are answered in order."""

    def __init__(self, server: Server, link: Link) -> None:
        self.link = link
        self._server = server
        self._copies = link.local_address.startswith("inproc:")
        self._waiting: deque[Get] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._put: list[bytes] = []

    def on_batch(self, link: Link, batch: list[Any]) -> None:
        """Take in questions and data."""
        for message in batch:
            kind = type(message)
            if kind is Get:
                self._get(message)
            elif kind is Put:
                self._keep(message)
            else:
                why = f"a worker's data address takes no {kind.__name__}"
                logger.warning("closing the link of %s: %s", link.peer_address, why)
                link.close(why)
                return

    def on_close(self, _link: Link, _reason: str) -> None:
        """Data that the scheduler has not named by now is dropped."""
        if self._answering is not None:
            self._answering.cancel()
        self._server.forget(self)
        if self._put:
            self._server.post(PutGone(self._put))

    # -- giving out

    def _get(self, get: Get) -> None:
        entries = self._look_up(get)
        if (
            self._answering is None
            and self.link.backlog <= BACKLOG_MAX
            and _to_pickle(entries) <= ON_LOOP_BYTES_MAX
        ):
            self.link.send(self._answer(get, entries))
            return
        self._waiting.append(get)
        if self._answering is None:
            self._answering = asyncio.ensure_future(self._answer_in_turn())

    async def _answer_in_turn(self) -> None:
        try:
            while self._waiting:
                await self.link.drain()
                get = self._waiting.popleft()
                entries = self._look_up(get)
                if _to_pickle(entries) > ON_LOOP_BYTES_MAX:
                    answer = await in_thread(self._answer, get, entries)
                else:
                    answer = self._answer(get, entries)
                self.link.send(answer)
        except CommClosedError:
            self._waiting.clear()
        finally:
            self._answering = None

    def _look_up(self, get: Get) -> list[Stored | None]:
        stored = self._server.table.stored
        return [stored.get(tid) for tid in get.tids]

    def _answer(self, get: Get, entries: list[Stored | None]) -> Data:
        """The answer; also called in a thread, so it reads only what it is given."""
        items: list[tuple[Tid, Aid, Frames | None]] = []
        failed: list[tuple[Tid, tuple[str, object]]] = []
        for tid, entry in zip(get.tids, entries, strict=True):
            if entry is None:
                items.append((tid, NO_ATTEMPT, None))
                continue
            try:
                frames = _frames_of(entry)
            except SerializationError as error:
                failed.append((tid, dump_exception(error)))
                continue
            if self._copies:
                frames = copy_frames(frames)
            items.append((tid, entry.origin, frames))
        return Data(get.request, tuple(items), tuple(failed))

    # -- taking in

    def _keep(self, put: Put) -> None:
        here = []
        for uuid, frames in put.items:
            own = copy_frames(frames) if self._copies else frames
            here.append((uuid, Packed(own), nbytes_of(own)))
        unclaimed = self._server.table.unclaimed
        self._put = [uuid for uuid in self._put if uuid in unclaimed]
        self._put += [uuid for uuid, _, _ in here]
        self._server.post(PutHere(here))
        self.link.send(PutDone(put.request, None))


def _to_pickle(entries: list[Stored | None]) -> int:
    """Bytes that answering has to pickle; what came as frames leaves as frames."""
    return sum(
        entry.nbytes
        for entry in entries
        if entry is not None
        and not (type(entry.value) is Packed and entry.value.frames is not None)
    )


def _frames_of(entry: Stored) -> Frames:
    value = entry.value
    if type(value) is Packed:
        # A thread may load it at this moment: then the value is set before the
        # frames are given up.
        frames = value.frames
        if frames is not None:
            return frames
        value = value.value
    return dumps(value, "a result")
