"""What ties a client to its scheduler: one link, one table of futures, one outbox.

Any thread may submit, release and look; only the loop touches the link. Whatever
leaves goes through the one outbox in the order in which it happened: a release
counts at the moment the last holder lets go, also inside a garbage collection,
which is why :meth:`Session.release` takes no lock.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from raddle.protocol import config
from raddle.protocol.comm import Hello, Link
from raddle.protocol.core.ids import Fid, Fn, Key
from raddle.protocol.core.messages.base import Frames, Message
from raddle.protocol.core.messages.client import (
    Answer,
    Ask,
    Bind,
    Cancel,
    Goodbye,
    Graph,
    Release,
    Retry,
    Scatter,
)
from raddle.protocol.errors import (
    CommClosedError,
    RaddleError,
    RunSpecCollisionWarning,
)

from .core.futures import Changed, Collided, FutureTable, Record, Where
from .functions import Functions
from .patience import reach

logger = logging.getLogger("raddle.client")

T = TypeVar("T")

Found = dict[Fid, Frames | BaseException]
Fetch = Callable[[Sequence[Record]], Coroutine[Any, Any, Found]]


class Observer(Protocol):
    """Is told, under the session's lock, of each observed future that is decided."""

    def select(self, records: Sequence[Record]) -> list[Record]:
        """Which of these to observe."""

    def __call__(self, record: Record) -> None:
        """It is decided. Must not block."""


class Submission:
    """A graph as encoded: everything of a ``Graph`` message but its numbers."""

    __slots__ = (
        "annotations", "embedded", "functions", "policy", "tasks", "wants", "where",
    )  # fmt: skip

    def __init__(
        self,
        tasks: Sequence[tuple[Any, ...]],
        wants: Sequence[Key],
        embedded: dict[Key, Fid],
        functions: dict[Fn, Frames],
        annotations: Sequence[dict[str, Any]],
        policy: str | None,
        where: Where,
    ) -> None:
        self.tasks = tasks
        self.wants = wants
        self.embedded = embedded
        self.functions = functions
        self.annotations = annotations
        self.policy = policy
        self.where = where


class Session:
    """One client's connection to one scheduler; made for one event loop.

    What is submitted before :meth:`connect` has succeeded waits in the outbox.
    """

    def __init__(
        self, id: str, name: str | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.id = id
        self.name = name
        self.loop = loop
        self.table = FutureTable()
        self.functions = Functions(
            config.parse_bytes(config.get("client.function-cache-bytes"))
        )
        self.address = ""
        self.secret: bytes | None = None
        self.nested = False
        """Whether it serves the tasks of a worker: these wait for what it submits."""
        self.scheduler_policy: str | None = None
        """The collision policy of the scheduler, once connected."""
        self.client: Any = None
        """The client that this session belongs to."""
        self.fetch: Fetch
        """Gets values from workers; called on the loop."""
        self.closed: str | None = None
        """Why nothing can be sent any more."""
        self._link: Link | None = None
        # Messages, and the numbers of released futures.
        self._outbox: deque[Message | Fid] = deque()
        self._flush_pending = False
        # Reentrant: a garbage collection may run user code that comes back to us.
        self._lock = threading.RLock()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._closing = False
        self.ended = asyncio.Event()
        """Set, on the loop, when the session is over."""

    def __dask_tokenize__(self) -> str:
        """As that of the client."""
        return type(self).__name__

    # The link

    async def connect(
        self,
        address: str,
        secret: bytes | None,
        policy: str | None,
        enc: int,
        patience: float,
    ) -> None:
        """Connect within ``patience`` seconds, and send what has gathered.

        Raises what :func:`~raddle.client.patience.reach` raises; the session is lost
        then.
        """
        self.address, self.secret = address, secret
        about = {"id": self.id, "name": self.name, "enc": enc, "policy": policy}
        hello = Hello("client", {**about, "nested": self.nested})
        try:
            link = await reach(
                address,
                hello,
                secret,
                patience,
                given_up=lambda: self._closing,
                on_batch=self._on_batch,
                on_close=self._on_close,
            )
        except BaseException as error:
            self._lost(f"no connection to the scheduler at {address}: {error}")
            raise
        if self._closing:
            link.close("the client closed")
            raise self._closed_error()
        self._link = link
        self.scheduler_policy = link.welcome.get("policy")
        self._flush()

    async def close(self, why: str) -> None:
        """Say goodbye and close the link; undecided futures are cancelled."""
        if self._closing:
            return
        self._closing = True
        link = self._link
        if link is not None and not link.closed:
            self._outbox.append(Goodbye())
            self._flush()
            link.close(why)
            await link.wait_closed()
        self._lost(why)

    def _on_close(self, _link: Link, reason: str) -> None:
        if not self._closing:
            self._lost(f"scheduler gone: {reason}")

    def _lost(self, why: str) -> None:
        with self._lock:
            if self.closed is not None:
                return
            self.closed = why
            self._notify(self.table.lose(why))
            self._outbox.clear()
        error = CommClosedError(why)
        answers, self._answers = self._answers, {}
        for future in answers.values():
            if not future.done():
                future.set_exception(error)
                # Whoever asked may have been cancelled and never look.
                future.exception()
        self.ended.set()

    # Outgoing, from any thread

    def submit(self, submission: Submission) -> list[Record]:
        """Queue a graph; its futures, in the order of its wants.

        Raises CommClosedError if the session is over.
        """
        with self._lock:
            self._check_open()
            call, records = self.table.open(submission.wants, submission.where)
            definitions = self.functions.definitions(submission.functions)
            wants = tuple(zip(submission.wants, call.fids, strict=True))
            self._outbox.append(
                Graph(
                    call.number,
                    tuple(submission.tasks),
                    wants,
                    tuple(submission.embedded.items()),
                    definitions,
                    tuple(submission.annotations),
                    submission.policy,
                )
            )
            excess = self.functions.excess(submission.functions)
            if excess is not None:
                self._outbox.append(excess)
        self._wake()
        return records

    def scatter(
        self, keys: Sequence[Key], items: Sequence[tuple[Any, ...]], policy: str | None,
        where: Where,
    ) -> list[Record]:  # fmt: skip
        """Queue the announcement of data that lies on workers.

        Each item is that of a ``Scatter`` message without its fid.
        """
        with self._lock:
            self._check_open()
            call, records = self.table.open(keys, where)
            numbered = zip(call.fids, items, strict=True)
            complete = tuple((fid, *item) for fid, item in numbered)
            self._outbox.append(Scatter(call.number, complete, policy))
        self._wake()
        return records

    def bind(self, key: Key, owner: str, owner_fid: Fid) -> Record:
        """A future of our own for another one, or for a key (``owner`` empty)."""
        with self._lock:
            self._check_open()
            record = self.table.bind(key)
            self._outbox.append(Bind(record.fid, key, owner, owner_fid))
        self._wake()
        return record

    def release(self, record: Record) -> None:
        """Nobody holds this future any more. Safe inside a garbage collection."""
        record.released = True
        if self.closed is None:
            self._outbox.append(record.fid)
            self._wake()

    def abandon(self, record: Record) -> None:
        """A future that is released by hand counts as cancelled from now on."""
        with self._lock:
            self._notify(self.table.cancel((record.fid,), self.id, "it was released"))

    def post(self, message: Message) -> None:
        """Queue a message that has no futures."""
        with self._lock:
            self._check_open()
            self._outbox.append(message)
        self._wake()

    def cancel(self, records: Iterable[Record], force: bool, why: str) -> None:
        """Cancel futures: here at once, then on the scheduler."""
        fids = tuple(r.fid for r in records)
        with self._lock:
            self._check_open()
            self._notify(self.table.cancel(fids, self.id, why))
            self._outbox.append(Cancel(fids, force, why))
        self._wake()

    def retry(self, records: Iterable[Record]) -> None:
        """Have the erred ones computed again; they are pending at once."""
        with self._lock:
            self._check_open()
            erred = self.table.retry(r.fid for r in records)
            if erred:
                self._outbox.append(Retry(tuple(r.fid for r in erred)))
        self._wake()

    def named(self, key: Key) -> Record | None:
        """The live future that ``key`` names, if any."""
        with self._lock:
            return self.table.named(key)

    def watch(self, records: Sequence[Record], observer: Observer) -> bool:
        """Tell ``observer`` of decisions about what it selects; False if nothing."""
        with self._lock:
            selected = observer.select(records)
            for record in selected:
                if record.observers is None:
                    record.observers = observer
                elif type(record.observers) is list:
                    record.observers.append(observer)
                else:
                    record.observers = [record.observers, observer]
            return bool(selected)

    def unwatch(self, records: Sequence[Record], observer: Observer) -> None:
        """``observer`` is not interested any more."""
        with self._lock:
            for record in records:
                if record.observers is observer:
                    record.observers = None
                elif type(record.observers) is list:
                    with suppress(ValueError):
                        record.observers.remove(observer)

    def next_call(self) -> int:
        """A number for a message whose answer nobody waits for."""
        with self._lock:
            return self.table.next_call()

    def _check_open(self) -> None:
        if self.closed is not None:
            raise self._closed_error()

    def _closed_error(self) -> CommClosedError:
        return CommClosedError(f"client {self.id} is closed: {self.closed}")

    def _wake(self) -> None:
        if self._flush_pending:
            return
        self._flush_pending = True
        # A loop that is closed has no use for what we wanted to send.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._flush)

    # On the loop

    def _flush(self) -> None:
        """Send everything in the outbox; releases side by side become one message."""
        self._flush_pending = False
        link = self._link
        if link is None or link.closed:
            return
        outbox, table = self._outbox, self.table
        released: list[Fid] = []
        while outbox:
            entry = outbox.popleft()
            if type(entry) is int:
                released.append(entry)
                continue
            if released:
                self._send_released(link, released)
                released = []
            link.send(entry)  # type: ignore[arg-type]
            if type(entry) is Graph or type(entry) is Scatter:
                table.sent(entry.call)
        if released:
            self._send_released(link, released)

    def _send_released(self, link: Link, fids: list[Fid]) -> None:
        with self._lock:
            for fid in fids:
                self.table.drop(fid)
        link.send(Release(tuple(fids)))

    async def ask(self, topic: str, argument: Any = None) -> Any:
        """The scheduler's answer to a question. Called on the loop.

        Raises RaddleError with the scheduler's words if it cannot answer, and
        CommClosedError if it is gone.
        """
        return await self.request(lambda call: Ask(call, topic, argument))

    async def holders(self, fids: tuple[Fid, ...]) -> Any:
        """Where values are: ``(fid, tid, ((wid, address), ...), frames | None)`` each.

        Called on the loop; raises as :meth:`ask` does.
        """
        return await self.ask("holders", fids)

    async def request(self, make: Callable[[int], Message]) -> Any:
        """Send ``make(call number)`` and wait for its answer. Called on the loop."""
        with self._lock:
            self._check_open()
            number = self.table.next_call()
            future: asyncio.Future[Any] = self.loop.create_future()
            self._answers[number] = future
            self._outbox.append(make(number))
        self._wake()
        try:
            return await future
        finally:
            self._answers.pop(number, None)

    def _on_batch(self, _link: Link, batch: list[Any]) -> None:
        collided: list[Collided] = []
        table = self.table
        with self._lock:
            for message in batch:
                if type(message) is Answer:
                    self._answered(message)
                    continue
                for action in table.handle(message):
                    if type(action) is Changed:
                        self._notify(action.records)
                    else:
                        collided.append(action)  # type: ignore[arg-type]
        for collision in collided:
            self._warn(collision)

    def _answered(self, message: Answer) -> None:
        future = self._answers.get(message.call)
        if future is None or future.done():
            return
        if message.ok:
            future.set_result(message.value)
        else:
            future.set_exception(RaddleError(str(message.value)))

    def _notify(self, records: Iterable[Record]) -> None:
        """Tell observers, once (under the lock)."""
        for record in records:
            observers = record.observers
            if observers is None:
                continue
            record.observers = None
            if type(observers) is list:
                for observer in observers:
                    observer(record)
            else:
                observers(record)

    def _warn(self, collision: Collided) -> None:
        """A warning where the call was made; a filter may make it the call's error."""
        call = collision.call
        filename, lineno = call.where
        text = collision.text()
        try:
            warnings.warn_explicit(text, RunSpecCollisionWarning, filename, lineno)
        except RunSpecCollisionWarning as error:
            with self._lock:
                self._notify(self.table.fail(call, error))

    # Between threads and the loop

    def in_loop(self) -> bool:
        """Whether the caller runs on the session's loop, and so must not block."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the loop, for a thread that blocks for it."""
        if self.in_loop():
            coroutine.close()
            msg = (
                "this call would block the event loop that has to answer it; use the "
                "asynchronous form (await) here"
            )
            raise RuntimeError(msg)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:  # the loop has ended with its client
            coroutine.close()
            raise self._closed_error() from None
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            # The loop ended while we waited; a future's own error says who and why.
            if isinstance(error, RaddleError):
                raise
            raise self._closed_error() from None
        except KeyboardInterrupt:
            future.cancel()
            raise
