"""What the page states.md shows of the scheduler's transition table, from its source.

``python docs/internals/make_states.py`` prints it. ``tests/test_docs.py`` fails when
the page says something else, and writes it anew with ``RADDLE_WRITE_DOCS=1``.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from raddle.scheduler.core import table
from raddle.scheduler.core.entities import STATE_NAMES
from raddle.scheduler.core.table import _ACTIVE, _ENTER, _LEAVE, TRANSITIONS
from raddle.scheduler.core.transitions import links

CORE = "../../scheduler/core/"


class Transition(NamedTuple):
    """One row: names of the states, and the reason that stands beside it."""

    old: str
    new: str
    reason: str


def transitions() -> list[Transition]:
    """The rows in the order of the source, each with its comment there.

    Raises ValueError where the source and the table do not have the same rows.
    """
    source = inspect.getsource(table)
    names = {name.upper(): name for name in STATE_NAMES}
    row = re.compile(r"^ +\(([A-Z]+), ([A-Z]+)\), +# (.+)$", re.MULTILINE)
    found = [
        Transition(names[old], names[new], reason)
        for old, new, reason in row.findall(source)
    ]
    listed = [(STATE_NAMES[old], STATE_NAMES[new]) for old, new in TRANSITIONS]
    if [(t.old, t.new) for t in found] != listed:
        msg = (
            f"{table.__file__}: not every row of TRANSITIONS has its comment beside it"
        )
        raise ValueError(msg)
    return found


def diagram(rows: list[Transition]) -> Iterator[str]:
    """The states and transitions as a mermaid diagram."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> released: submitted or scattered"
    for old, new, _ in rows:
        target = "[*]" if new == "forgotten" else new
        yield f"    {old} --> {target}"
    yield "```"


def rows_of(rows: list[Transition]) -> Iterator[str]:
    """The transitions as a table: when, and which functions run."""
    yield "| from | to | when | runs, in order |"
    yield "|---|---|---|---|"
    for row in rows:
        steps = ", ".join(_link(step) for step in _steps(row))
        yield f"| {row.old} | {row.new} | {row.reason} | {steps} |"


def _steps(row: Transition) -> Iterator[Callable[..., Any]]:
    """The functions of one transition, as ``table._step`` combines them."""
    old, new = STATE_NAMES.index(row.old), STATE_NAMES.index(row.new)
    if old in _LEAVE:
        yield _LEAVE[old]
    if new in _ACTIVE and old not in _ACTIVE:
        yield links.link
    yield _ENTER[new]
    if old in _ACTIVE and new not in _ACTIVE:
        yield links.unlink


def _link(step: Callable[..., Any]) -> str:
    module = step.__module__.rsplit(".", 1)[-1]
    return f"[`{module}.{step.__name__}`]({CORE}transitions/{module}.py)"


def owned() -> Iterator[str]:
    """What each state owns, from the first line of its module."""
    yield "| state | what it means |"
    yield "|---|---|"
    for name in STATE_NAMES[:-1]:
        module = sys.modules[_ENTER[STATE_NAMES.index(name)].__module__]
        text = ast.get_docstring(ast.parse(inspect.getsource(module))) or ""
        _, _, meaning = text.splitlines()[0].partition(": ")
        yield f"| {name} | {meaning} |"


def page() -> str:
    """All of it, as it stands in states.md between its markers."""
    rows = transitions()
    parts = (owned(), diagram(rows), rows_of(rows))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
