"""What ``dask.annotate`` says at the moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .private import get_annotations


def active_annotations() -> Mapping[str, Any]:
    """The annotations of the enclosing ``with dask.annotate(...)`` blocks."""
    found: Mapping[str, Any] = get_annotations()
    return found
