"""Every name of dask that its authors have not promised, in one place.

Tested against the range of dask that pyproject.toml allows. A name that another
version lacks is reported as what it is: a version that does not fit.
"""

from __future__ import annotations

from typing import Any

import dask
from dask import base

try:
    from dask import _expr
    from dask._expr import Expr, FinalizeCompute, HLGExpr, _ExprSequence
    from dask._task_spec import (
        Alias,
        DataNode,
        Dict,
        GraphNode,
        List,
        NestedContainer,
        Set,
        Task,
        TaskRef,
        Tuple,
        _execute_subgraph,
        _identity_cast,
    )
    from dask.base import (
        collections_to_expr,
        get_annotations,
        is_dask_collection,
        unpack_collections,
    )
    from dask.core import flatten
    from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
    from dask.order import order
except ImportError as error:
    msg = (
        f"dask {dask.__version__} lacks what raddle needs of it ({error}); install a "
        "version of dask that raddle's requirements allow"
    )
    raise ImportError(msg) from error

# Collections of several expressions came to dask in 2026.
_CompositeExpr: Any = getattr(_expr, "CompositeExpr", None)
rebuild_composite: Any = getattr(base, "_rebuild_composite_collection", None)

execute_subgraph = _execute_subgraph
"""The function of a fused task: ``(inner graph, out key, in keys, *inputs)``."""
identity_cast = _identity_cast
"""The function of a task that makes a container: ``(*items, typ=)``."""
ExprSequence = _ExprSequence


def is_composite(expr: Any) -> bool:
    """Whether an expression stands for a collection made of several others."""
    return _CompositeExpr is not None and isinstance(expr, _CompositeExpr)


__all__ = [
    "Alias",
    "DataNode",
    "Dict",
    "Expr",
    "ExprSequence",
    "FinalizeCompute",
    "GraphNode",
    "HLGExpr",
    "HighLevelGraph",
    "List",
    "MaterializedLayer",
    "NestedContainer",
    "Set",
    "Task",
    "TaskRef",
    "Tuple",
    "collections_to_expr",
    "execute_subgraph",
    "flatten",
    "get_annotations",
    "identity_cast",
    "is_composite",
    "is_dask_collection",
    "order",
    "rebuild_composite",
    "unpack_collections",
]
