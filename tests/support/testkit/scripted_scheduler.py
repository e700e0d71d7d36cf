"""A scheduler that does only what a test tells it, on real connections."""

import asyncio
from collections import deque
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from raddle.protocol.comm import Hello, Link, Listener, listen
from raddle.protocol.core.messages.worker import Heartbeat, Peers, Started
from raddle.protocol.errors import HandshakeError

T = TypeVar("T")


class ScriptedScheduler:
    """Gives workers numbers, introduces them to each other, and keeps what they say.

    `Heartbeat` and `Started` come when they like: they are kept apart.
    """

    def __init__(
        self, address: str = "tcp://127.0.0.1:0", secret: bytes | None = None
    ) -> None:
        self._bind = address
        self._secret = secret
        self._listener: Listener | None = None
        self.links: dict[int, Link] = {}
        self.infos: dict[int, dict[str, Any]] = {}
        self.said: dict[int, deque[Any]] = {}
        self.apart: dict[int, deque[Any]] = {}
        self.left: dict[int, str] = {}
        self.refusal: str | None = None
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        assert self._listener is not None
        return self._listener.address

    async def __aenter__(self) -> Self:
        self._listener = await listen(
            self._bind, secret=self._secret, accept=self._accept
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.vanish()
        if kind is None:
            unread = {wid: list(said) for wid, said in self.said.items() if said}
            assert not unread, f"the test did not look at {unread}"

    async def vanish(self) -> None:
        """Cut all connections, as if the process had been killed."""
        assert self._listener is not None
        self._listener.close()
        for link in self.links.values():
            link.abort("vanished")
        for link in self.links.values():
            await link.wait_closed()
        await self._listener.wait_closed()

    def _accept(self, link: Link, hello: Hello) -> dict[str, Any]:
        if self.refusal is not None:
            raise HandshakeError(self.refusal)
        assert hello.role == "worker"
        wid = len(self.links) + 1
        self.links[wid] = link
        self.infos[wid] = hello.info
        self.said[wid] = deque()
        self.apart[wid] = deque()
        link.on_batch = partial(self._on_batch, wid)
        link.on_close = partial(self._on_close, wid)
        link.send(Peers(tuple((w, i["address"]) for w, i in self.infos.items())))
        for other in self.links:
            if other != wid:
                self.send(other, Peers(((wid, hello.info["address"]),)))
        self._notify()
        return {"epoch": 1, "wid": wid}

    def _on_batch(self, wid: int, _link: Link, batch: list[Any]) -> None:
        for message in batch:
            aside = isinstance(message, Heartbeat | Started)
            (self.apart if aside else self.said)[wid].append(message)
        self._notify()

    def _on_close(self, wid: int, _link: Link, reason: str) -> None:
        self.left[wid] = reason
        self._notify()

    def _notify(self) -> None:
        async def notify() -> None:
            async with self._news:
                self._news.notify_all()

        task = asyncio.get_running_loop().create_task(notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def send(self, wid: int, *messages: Any) -> None:
        """Say something to a worker."""
        self.links[wid].send_many(messages)

    async def hears(self, wid: int, kind: type[T]) -> T:
        """What the worker says next, which must be of this kind."""
        source = self.apart if kind in (Heartbeat, Started) else self.said
        async with self._news:
            await self._news.wait_for(lambda: source[wid] or wid in self.left)
        assert source[wid], f"worker {wid} left: {self.left[wid]}"
        message = source[wid].popleft()
        if source is self.said or isinstance(message, kind):
            assert isinstance(message, kind), f"{message} is no {kind.__name__}"
            return message
        return await self.hears(wid, kind)

    async def misses(self, wid: int) -> str:
        """Wait until the worker has left; the reason."""
        async with self._news:
            await self._news.wait_for(lambda: wid in self.left)
        return self.left[wid]
