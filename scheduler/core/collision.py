"""Whether a submitted spec and a known instance of its key claim different things.

``compare`` is the first half of the rule (what can be told from the spec alone);
the second half, whether equal specs also have the same inputs, needs the resolved
dependencies: :func:`same_inputs`. Neither looks at the payload: tokens come with
the graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from raddle.protocol.core.collisions import Kind
from raddle.protocol.core.ids import Key
from raddle.protocol.core.messages.client import GraphTask

from .entities import TaskState

Finding = Kind | Literal["equal"]


def compare(
    old: TaskState, new: GraphTask, new_deps: Iterable[Key], enc: int
) -> Finding:
    """``equal``, or how a computed spec collides with the instance.

    ``new_deps`` are public keys; ``enc`` says what the new token is comparable with.
    """
    if old.is_data:
        return "kind"
    if not _same_names(old, new_deps):
        return "deps"
    if old.enc != enc:
        return "undetermined"
    if old.run_spec_token == new.token:
        return "equal"
    return _tokens_differ(old, new)


def compare_data(old: TaskState, new: GraphTask, enc: int) -> Finding:
    """The same for data that is scattered under the key."""
    if not old.is_data:
        return "kind"
    if old.enc != enc:
        return "undetermined"
    if old.run_spec_token == new.token:
        return "equal"
    return "data" if _tokens_differ(old, new) == "spec" else "undetermined"


def same_inputs(old: tuple[TaskState, ...], new: tuple[TaskState | None, ...]) -> bool:
    """The names of an equal spec mean exactly the old instances.

    In order; or in any order where no two inputs share a name. None stands for an
    instance that is yet to be created.
    """
    if old == new:
        return True
    if len(old) != len(new) or None in new or set(old) != set(new):
        return False
    return len({dep.key for dep in old}) == len(old)


def _same_names(old: TaskState, new_deps: Iterable[Key]) -> bool:
    if not old.deps:
        return not new_deps
    return {dep.key for dep in old.deps} == set(new_deps)


def _tokens_differ(old: TaskState, new: GraphTask) -> Finding:
    """A token without a skeleton is its own: it stands for no chance at all."""
    old_skeleton = old.run_spec_token if old.skeleton is None else old.skeleton
    new_skeleton = new.token if new.skeleton is None else new.skeleton
    return "spec" if old_skeleton != new_skeleton else "undetermined"
