"""What a client can do to tasks, workers and the cluster beside submitting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from raddle.protocol import config
from raddle.protocol.core.messages.client import RunOnWorkers, ShutdownCluster
from raddle.protocol.errors import ConfigError
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError
from raddle.protocol.serialize import copy_frames, dumps, load_exception, loads

from .base import ClientBase
from .future import Future, record_of
from .iterate import futures_of

POLL_SECONDS = 0.02
"""Between looks at the number of workers."""


class ControlMixin(ClientBase):
    """``cancel``, ``retry``, ``run`` and the number of workers."""

    def cancel(
        self,
        futures: Any,
        asynchronous: bool | None = None,  # noqa: ARG002 (as the peer)
        force: bool = False,
        reason: str | None = None,
        msg: str | None = None,
    ) -> Any:
        """Cancel futures: they never get a value.

        Their tasks end if nobody else wants them; ``force`` cancels the futures of
        other clients for them too. ``futures`` is a future, a dask collection on
        futures, or a nest of these.
        ``reason`` and ``msg`` are told to whoever waits. A running function is not
        interrupted; it can see the request in its task. Awaitable where the client
        is asynchronous.
        """
        why = ": ".join(text for text in (reason, msg) if text)
        records = [record_of(f) for f in self._own_futures(futures)]
        self.session.cancel(records, force, why)
        return self._done(None)

    def retry(
        self,
        futures: Any,
        asynchronous: bool | None = None,  # noqa: ARG002 (as the peer)
    ) -> Any:
        """Compute the failed ones among ``futures`` again; they are pending at once."""
        self.session.retry(record_of(f) for f in self._own_futures(futures))
        return self._done(None)

    def _own_futures(self, futures: Any) -> list[Future]:
        return futures_of(futures, client=self)

    def wait_for_workers(
        self, n_workers: int, timeout: str | float | None = None
    ) -> Any:
        """Wait until at least ``n_workers`` are connected; at most ``timeout``.

        Raises raddle's TimeoutError, which says how many there are.
        """
        if n_workers < 1:
            msg = f"n_workers must be at least 1, not {n_workers!r}"
            raise ConfigError(msg)
        seconds = None if timeout is None else config.parse_seconds(timeout, "timeout")
        return self._face(self._wait_for_workers(n_workers, seconds))

    async def _wait_for_workers(
        self,
        count: int,
        timeout: float | None,  # noqa: ASYNC109 (raddle's error)
    ) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (there := len(await self.session.ask("nthreads"))) < count:
            if deadline is not None and time.monotonic() > deadline:
                msg = f"{there} of {count} workers were there after {timeout:g} s"
                raise RaddleTimeoutError(msg)
            await asyncio.sleep(POLL_SECONDS)

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        workers: str | Iterable[str] | None = None,
        wait: bool = True,
        nanny: bool = False,
        on_error: Literal["raise", "return", "ignore"] = "raise",
        **kwargs: Any,
    ) -> Any:
        """Call ``function`` on workers now, outside any task; results by address.

        A parameter named ``dask_worker`` receives the worker. ``workers`` are
        addresses or names (all if None). ``wait=False`` returns None at once. An
        error of a worker is raised, or stands in its place (``"return"``), or is
        left out (``"ignore"``).
        """
        if nanny:
            raise ConfigError("nanny=True: raddle's workers have no nanny to run in")
        if on_error not in ("raise", "return", "ignore"):
            msg = f"on_error must be raise, return or ignore, not {on_error!r}"
            raise ConfigError(msg)
        payload = copy_frames(dumps((function, args, kwargs), "a call for run"))
        names = (workers,) if isinstance(workers, str) else workers
        chosen = None if names is None else tuple(names)
        if not wait:
            self.session.post(RunOnWorkers(self.session.next_call(), payload, chosen))
            return self._done(None)
        return self._face(self._run(payload, chosen, on_error))

    async def _run(
        self, payload: Any, workers: tuple[str, ...] | None, on_error: str
    ) -> dict[str, Any]:
        answer = await self.session.request(
            lambda call: RunOnWorkers(call, payload, workers)
        )
        results: dict[str, Any] = {}
        for address, frames, error in answer:
            if error is None:
                results[address] = loads(frames, f"the result from {address}")
                continue
            exception = load_exception(error)
            if on_error == "raise":
                exception.add_note(f"raised on worker {address}")
                raise exception
            if on_error == "return":
                results[address] = exception
        return results

    async def _shutdown_cluster(self) -> None:
        """Ask the scheduler to end, and wait until it has."""
        self.session.post(ShutdownCluster())
        await self.session.ended.wait()
