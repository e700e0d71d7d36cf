"""Functions that tasks call which the client itself has put there."""

from __future__ import annotations

from typing import Any


def identity(value: Any) -> Any:
    """The task that is another one's value under its own name."""
    return value


def run_node(node: Any, values: dict[Any, Any]) -> Any:
    """A graph node of a class that only its authors know."""
    return node(values)
