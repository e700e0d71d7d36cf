"""How results come together: ``gather``, and what becomes of failed ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from raddle.protocol.core.ids import Fid
from raddle.protocol.errors import ConfigError

from .base import ClientBase
from .core.futures import Record
from .future import Future, record_of
from .session import Found
from .sync import ALL, OR_FAILURE, blocked, wait_in_loop, wait_in_thread
from .values import error_of, is_remote, load

Errors = Literal["raise", "skip"]

_CONTAINERS = (list, tuple, set, frozenset, dict)


class _Skipped:
    """Stands where a failed future was, until its container is rebuilt."""


_SKIPPED = _Skipped()


def futures_in(value: Any) -> Iterator[Future]:
    """The futures in nested lists, tuples, sets and dict values, as they come."""
    if isinstance(value, Future):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from futures_in(item)
    elif isinstance(value, _CONTAINERS):
        for item in value:
            yield from futures_in(item)


def rebuilt(value: Any, values: dict[Fid, Any]) -> Any:  # noqa: PLR0911
    """``value`` with each future replaced by its value, without those that failed."""
    if isinstance(value, Future):
        return values.get(record_of(value).fid, _SKIPPED)
    if isinstance(value, dict):
        pairs = ((k, rebuilt(v, values)) for k, v in value.items())
        return {k: v for k, v in pairs if v is not _SKIPPED}
    if isinstance(value, _CONTAINERS):
        items = [v for v in (rebuilt(v, values) for v in value) if v is not _SKIPPED]
        if isinstance(value, tuple):
            if len(items) == len(value) and hasattr(value, "_make"):
                return value._make(items)
            return tuple(items)
        if isinstance(value, list):
            return items
        return set(items) if isinstance(value, set) else frozenset(items)
    return value


class GatherMixin(ClientBase):
    """``gather``."""

    def gather(
        self,
        futures: Any,
        errors: Errors = "raise",
        direct: bool | None = None,  # noqa: ARG002 (values always come directly)
        asynchronous: bool | None = None,  # noqa: ARG002 (as the peer)
    ) -> Any:
        """The values of futures, in the same order and nesting.

        ``futures`` is a future, or futures in lists, tuples, sets and dict values;
        anything else stays as it is. With ``errors="raise"`` the first failure is
        raised as soon as it is known; with ``"skip"`` what failed is left out.
        Awaitable where the client is asynchronous.

        Raises:
            CancelledError: a future was cancelled, or the scheduler is gone.
            CommClosedError: a value stayed out of reach; names key and worker.
            Exception: what a task raised.

        """
        if errors not in ("raise", "skip"):
            raise ConfigError(f"errors must be 'raise' or 'skip', not {errors!r}")
        if isinstance(futures, Iterator):
            futures = list(futures)
        if self.session.in_loop():
            return self._gather(futures, errors)
        records = _records(futures)
        wait_in_thread(self.session, records, mode=_mode(errors))
        _raise_failure(records, errors)
        found: Found = {}
        remote = [r for r in records if is_remote(r)]
        if remote:
            with blocked():
                found = self.session.run(self.session.fetch(remote))
        return _assembled(futures, records, found, errors)

    async def _gather(self, futures: Any, errors: Errors) -> Any:
        records = _records(futures)
        await wait_in_loop(self.session, records, mode=_mode(errors))
        _raise_failure(records, errors)
        remote = [r for r in records if is_remote(r)]
        found = await self.session.fetch(remote) if remote else {}
        return _assembled(futures, records, found, errors)


def _records(futures: Any) -> list[Record]:
    """The record of each future, once."""
    return list({r.fid: r for r in map(record_of, futures_in(futures))}.values())


def _mode(errors: Errors) -> str:
    return OR_FAILURE if errors == "raise" else ALL


def _raise_failure(records: Iterable[Record], errors: Errors) -> None:
    if errors == "raise":
        for record in records:
            if record.failed:
                raise error_of(record)


def _assembled(
    futures: Any, records: list[Record], found: Found, errors: Errors
) -> Any:
    """Load the values, each once, and put them where their futures were."""
    values: dict[Fid, Any] = {}
    for record in records:
        frames = found.get(record.fid, record.value)
        if isinstance(frames, BaseException):
            if errors == "raise":
                raise frames
        elif record.failed:
            # It was lost or retried while the others were fetched.
            _raise_failure((record,), errors)
        else:
            values[record.fid] = load(record, frames)
    result = rebuilt(futures, values)
    return None if result is _SKIPPED else result
