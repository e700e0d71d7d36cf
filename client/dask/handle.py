"""How dask collections find the client: one callable in dask's configuration.

dask's configuration is one for the whole process, so what stands there is not a
client but :class:`Handle`, which looks for the client each time: the one chosen
with ``as_current``, inside a task that of its worker, else the default one. Without
any, it does what dask would have done; likewise where values are asked for and the
client could only be awaited (persisting does not wait, so any client will do).

The handle, and the settings that fit a cluster of many machines, are there while a
default client or a worker that runs tasks in this process wants them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import dask
import dask.config

from ..current import find_client

_MISSING = object()

_lock = threading.Lock()
_owners: list[object] = []
_before: dict[str, Any] = {}


class Handle:
    """What dask calls as its scheduler."""

    def __call__(self, dsk: Any, keys: Any, **kwargs: Any) -> Any:
        """Compute the keys of a graph."""
        client = _usable_client()
        if client is not None:
            return client.get(dsk, keys, **kwargs)
        return _default_get(dsk)(dsk, keys, **kwargs)

    def persist(
        self, collections: Sequence[Any], optimize_graph: bool = True, **kwargs: Any
    ) -> Any:
        """Collections on futures; on values where there is no client."""
        client = find_client()
        if client is not None:
            return client.persist(collections, optimize_graph=optimize_graph, **kwargs)
        schedule = collections[0].__dask_scheduler__
        return list(
            dask.persist(
                *collections,
                traverse=False,
                optimize_graph=optimize_graph,
                scheduler=schedule,
                **kwargs,
            )
        )

    def __repr__(self) -> str:
        return f"<raddle's scheduler for dask: {_usable_client() or 'no client'}>"


handle = Handle()

SETTINGS: dict[str, Any] = {
    "scheduler": handle,
    "dataframe.shuffle.method": "tasks",
    "array.rechunk.method": "tasks",
}


def install(owner: object) -> None:
    """Let dask find the client, as long as ``owner`` wants it."""
    with _lock:
        if not _owners:
            for name, value in SETTINGS.items():
                _before[name] = dask.config.get(name, _MISSING)
                dask.config.set({name: value})
        _owners.append(owner)


def uninstall(owner: object) -> None:
    """``owner`` wants it no more; the last one restores what was there before.

    A setting that somebody else has changed meanwhile stays.
    """
    with _lock:
        if owner not in _owners:
            return
        _owners.remove(owner)
        if _owners:
            return
        for name, value in SETTINGS.items():
            if dask.config.get(name, _MISSING) is value:
                _restore(name, _before.pop(name))


def _restore(name: str, value: Any) -> None:
    if value is not _MISSING:
        dask.config.set({name: value})
        return
    *path, last = name.split(".")
    section: Any = dask.config.config
    for part in path:
        section = section.get(part, {})
    section.pop(last, None)


def _usable_client() -> Any | None:
    """The client that is meant here, unless it could only be awaited."""
    client = find_client()
    return None if client is None or client.asynchronous else client


def _default_get(dsk: Any) -> Any:
    """What dask uses for this kind of graph when nothing is configured."""
    return getattr(dsk, "__dask_scheduler__", None) or dask.threaded.get
