"""Whether the collections of one call claim one key with two run_specs.

dask merges the graphs of a call by key, and the last entry wins without a word. Here
they are compared before that: the first entry is to win, and the user is told, or,
under policy ``raise``, nothing is submitted. (What ``dask.compute`` is given, dask
has merged before we see it.)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from raddle.protocol.core.collisions import Action, CollisionRecord, printed
from raddle.protocol.core.ids import Key, group_of
from raddle.protocol.errors import RunSpecCollisionError, RunSpecCollisionWarning
from raddle.protocol.tokenize import run_spec_token

from ..core.futures import Where, collision_text
from ..core.keys import as_key
from ..encode import Encoder, TokenSettings
from ..session import Session
from .convert import Converter, Spec
from .private import Expr, HighLevelGraph, MaterializedLayer

RECORDS_MAX = 10


class MergeCheck:
    """Compares the entries of several graphs that carry one key."""

    def __init__(self, session: Session, settings: TokenSettings) -> None:
        self._session = session
        self._settings = settings
        self._entries: dict[Key, Any] = {}
        # Layers that were compared, by identity, and whether one of theirs clashed.
        self._layers: dict[int, bool] = {}
        self.records: list[CollisionRecord] = []
        self.total = 0

    def add(self, collection: Any, action: Action) -> bool:
        """Compare a collection with those before it; whether it claims a key of theirs."""
        clashes = False
        for layer in _layers_of(collection):
            known = self._layers.get(id(layer))
            if known is None:
                before = self.total
                for key, value in layer.items():
                    other = self._entries.setdefault(key, value)
                    if other is not value:
                        self._compare(key, other, value, action)
                known = self._layers[id(layer)] = self.total > before
            clashes = clashes or known
        return clashes

    def _compare(self, key: Key, old: Any, new: Any, action: Action) -> None:
        encoder = Encoder(self._session, self._settings)
        specs = [self._spec(encoder, key, value) for value in (old, new)]
        bodies = []
        for spec in specs:
            if spec.func is None:
                bodies.append(encoder.walker.value(spec.args[0]))
            else:
                bodies.append(encoder.body(spec.func, spec.args, spec.kwargs))
        tokens = [run_spec_token(key, body) for body in bodies]
        # A token that is not deterministic proves nothing, unless its skeleton does.
        bare = [t.skeleton or t.digest for t in tokens]
        if tokens[0] == tokens[1] or bare[0] == bare[1]:
            return
        self.total += 1
        if len(self.records) >= RECORDS_MAX:
            return
        own = self._session.id
        self.records.append(
            CollisionRecord(
                as_key(key), group_of(key), "spec", printed(*tokens[0]),
                printed(*tokens[1]), tuple(specs[0].inputs.deps),
                tuple(specs[1].inputs.deps), "submitted in the same call", (own,), own,
                "raise" if action == "rejected" else "warn", action,
            )
        )  # fmt: skip

    def _spec(self, encoder: Encoder, key: Key, value: Any) -> Spec:
        return Converter(self._session, encoder, {key: value}).spec(key)


def clashing(
    session: Session,
    settings: TokenSettings,
    collections: Sequence[Any],
    policy: str | None,
    where: Where,
) -> set[int]:
    """Indices of collections that claim a key of one before them otherwise.

    Warns of them at ``where``.

    Raises:
        RunSpecCollisionError: there are such, and the policy is ``raise``.

    """
    if len(collections) < 2:
        return set()
    action: Action = "rejected" if policy == "raise" else "kept"
    check = MergeCheck(session, settings)
    found = {i for i, c in enumerate(collections) if check.add(c, action)}
    if not found:
        return found
    if policy == "raise":
        raise RunSpecCollisionError(tuple(check.records), check.total)
    text = collision_text(check.records, check.total)
    warnings.warn_explicit(text, RunSpecCollisionWarning, *where)
    return found


def _layers_of(collection: Any) -> Iterator[Mapping[Key, Any]]:
    """The layers of a collection whose tasks exist already."""
    if isinstance(getattr(collection, "expr", None), Expr):
        return
    graph = getattr(collection, "dask", None)
    if isinstance(graph, HighLevelGraph):
        for layer in graph.layers.values():
            if isinstance(layer, MaterializedLayer):
                yield layer.mapping
    elif type(graph) is dict:
        yield graph
