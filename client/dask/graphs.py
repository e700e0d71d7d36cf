"""What is in the graph of a dask collection, as it stands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .private import is_dask_collection


def graph_values(value: Any) -> Iterable[Any]:
    """The values of a collection's graph; nothing for anything else."""
    if not is_dask_collection(value):
        return ()
    return list(dict(value.__dask_graph__()).values())
