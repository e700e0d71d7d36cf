"""What dask asks of a client: ``get``, ``compute`` and ``persist``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import dask.config

from raddle.protocol.core.ids import Key
from raddle.protocol.errors import InvalidGraph

from ..base import CallOptions, ClientBase, call_options, refuse_actors
from ..core.futures import Record
from ..core.keys import as_key
from ..core.ordering import depth_first
from ..encode import Encoder
from ..future import Future, make_future
from ..site import call_site
from .convert import Converter, Spec
from .merge import clashing
from .private import (
    Expr,
    ExprSequence,
    FinalizeCompute,
    GraphNode,
    HighLevelGraph,
    HLGExpr,
    TaskRef,
    collections_to_expr,
    flatten,
    is_composite,
    is_dask_collection,
    order,
    rebuild_composite,
    unpack_collections,
)

LayerAnnotations = Mapping[str, Mapping[Key, Any]]
"""Annotation -> key -> value."""

KEYS_SHOWN_MAX = 5
"""Keys of a graph that an error names."""


class CollectionsMixin(ClientBase):
    """``get``, ``compute`` and ``persist``."""

    _policy: str | None

    def get(  # noqa: PLR0913, PLR0917
        self,
        dsk: Any,
        keys: Any,
        workers: str | Iterable[str] | None = None,
        allow_other_workers: bool | None = None,
        resources: dict[str, float] | None = None,
        sync: bool = True,
        asynchronous: bool | None = None,  # noqa: ARG002 (as the peer)
        direct: bool | None = None,  # noqa: ARG002 (values always come directly)
        retries: int | None = None,
        priority: float = 0,
        fifo_timeout: str | float | None = None,  # noqa: ARG002 (as the peer)
        actors: Any = None,
        collision_policy: str | None = None,
        **_: Any,
    ) -> Any:
        """Compute ``keys`` of a graph: their values, or futures unless ``sync``.

        ``dsk`` is a dict, a HighLevelGraph or an expression of dask. Nested lists of
        keys give nested tuples, as dask's own schedulers do; a list of keys gives a
        list. A key of a live future of this client need not be in the graph. Options
        are as for ``submit``; others are ignored, since dask passes on whatever it
        was given. Awaitable where the client is asynchronous, if it waits at all.
        Raises InvalidGraph for a key that is nowhere.
        """
        refuse_actors(actors)
        options = call_options(
            {
                "workers": workers,
                "allow_other_workers": allow_other_workers,
                "resources": resources,
                "retries": retries,
                "priority": priority,
                "collision_policy": collision_policy,
            }
        )
        graph, annotations = materialized(dsk)
        wanted = list(dict.fromkeys(as_key(k) for k in _flat(keys)))
        self._check_known(graph, wanted)
        futures = self._submit_graph(graph, wanted, options, annotations)
        nested = _replaced(keys, futures)
        if not sync:
            return nested
        # dask keeps what the graph refers to alive through `dsk`.
        return self.gather(_nested_tuples(nested))  # type: ignore[attr-defined]

    def _check_known(self, graph: Mapping[Key, Any], wanted: Iterable[Key]) -> None:
        for key in wanted:
            if key not in graph and self.session.named(key) is None:
                some = ", ".join(map(repr, islice(graph, KEYS_SHOWN_MAX)))
                more = ", ..." if len(graph) > KEYS_SHOWN_MAX else ""
                has = f"which has {some}{more}" if some else "which is empty"
                raise InvalidGraph(
                    f"key {key!r} is not in the graph, {has}; nor is it the key of a "
                    "live future of this client"
                )

    def compute(  # noqa: PLR0913, PLR0917
        self,
        collections: Any,
        sync: bool = False,
        optimize_graph: bool = True,
        workers: str | Iterable[str] | None = None,
        allow_other_workers: bool = False,
        resources: dict[str, float] | None = None,
        retries: int | None = 0,
        priority: float = 0,
        fifo_timeout: str | float | None = None,  # noqa: ARG002 (as the peer)
        actors: Any = None,
        traverse: bool = True,
        collision_policy: str | None = None,
        **_: Any,
    ) -> Any:
        """Futures of the finished values of dask collections.

        One collection gives one future, a list or tuple a list of futures, in which
        other things stay as they are. ``traverse`` also looks inside lists, dicts
        and so on. ``sync`` returns values. Options are as for ``submit``.
        """
        refuse_actors(actors)
        options = call_options(
            {
                "workers": workers,
                "allow_other_workers": allow_other_workers,
                "resources": resources,
                "retries": retries,
                "priority": priority,
                "collision_policy": collision_policy,
            }
        )
        single = not isinstance(collections, list | tuple | set | frozenset)
        given = [collections] if single else list(collections)
        if traverse:
            given = [_traversed(item) for item in given]
        chosen = [c for c in given if is_dask_collection(c)]
        found = iter(self._compute(chosen, options, optimize_graph=optimize_graph))
        results = [next(found) if is_dask_collection(c) else c for c in given]
        answer = results[0] if single else results
        return self.gather(answer) if sync else answer  # type: ignore[attr-defined]

    def _compute(
        self, collections: Sequence[Any], options: CallOptions, *, optimize_graph: bool
    ) -> list[Future]:
        """One future for each collection; all of them leave as one graph."""
        merged = _Merged()
        keys: dict[int, Key] = {}
        for group in self._groups(collections, options):
            expr = collections_to_expr(
                [collections[i] for i in group], optimize_graph=optimize_graph
            )
            expr = FinalizeCompute(expr).optimize()
            finished = [as_key(k) for k in flatten(expr.__dask_keys__())]
            keys |= dict(zip(group, finished, strict=True))
            merged.add(expr)
        wanted = list(dict.fromkeys(keys.values()))
        futures = self._submit_graph(merged.graph, wanted, options, merged.annotations)
        return [futures[keys[i]] for i in range(len(collections))]

    def persist(  # noqa: PLR0913, PLR0917
        self,
        collections: Any,
        optimize_graph: bool = True,
        workers: str | Iterable[str] | None = None,
        allow_other_workers: bool | None = None,
        resources: dict[str, float] | None = None,
        retries: int | None = None,
        priority: float = 0,
        fifo_timeout: str | float | None = None,  # noqa: ARG002 (as the peer)
        actors: Any = None,
        collision_policy: str | None = None,
        **_: Any,
    ) -> Any:
        """The same dask collections on futures that are being computed.

        One collection gives one, a list or tuple a list. Options are as for
        ``submit``.
        """
        refuse_actors(actors)
        options = call_options(
            {
                "workers": workers,
                "allow_other_workers": allow_other_workers,
                "resources": resources,
                "retries": retries,
                "priority": priority,
                "collision_policy": collision_policy,
            }
        )
        single = not isinstance(collections, list | tuple | set | frozenset)
        given = [collections] if single else list(collections)
        for item in given:
            if not is_dask_collection(item):
                msg = f"persist takes dask collections, not {type(item).__name__}"
                raise TypeError(msg)
        results = self._persist(given, options, optimize_graph=optimize_graph)
        return results[0] if single else results

    def _persist(
        self, collections: Sequence[Any], options: CallOptions, *, optimize_graph: bool
    ) -> list[Any]:
        merged = _Merged()
        parts: dict[int, tuple[list[Key], Any]] = {}
        for group in self._groups(collections, options):
            members = [collections[i] for i in group]
            expr = collections_to_expr(
                members, optimize_graph=optimize_graph
            ).optimize()
            operands: list[Any] = [None] * len(members)
            if isinstance(expr, ExprSequence) and len(expr.operands) == len(members):
                operands = list(expr.operands)
            for i, operand, keys in zip(
                group, operands, expr.__dask_keys__(), strict=True
            ):
                parts[i] = list(flatten(keys)), operand
            merged.add(expr)
        wanted = [k for keys, _ in parts.values() for k in keys]
        by_key = self._submit_graph(
            merged.graph,
            list(dict.fromkeys(as_key(k) for k in wanted)),
            options,
            merged.annotations,
        )
        return [
            _on_futures(collections[i], *parts[i], by_key)
            for i in range(len(collections))
        ]

    def _groups(
        self, collections: Sequence[Any], options: CallOptions
    ) -> list[list[int]]:
        """Indices of collections whose graphs dask may merge.

        A collection that claims a key of one before it with another run_spec stands
        alone, behind, so that the first one wins.
        """
        policies = {options.policy, self._policy, self.session.scheduler_policy}
        policy = "raise" if "raise" in policies else None
        apart = clashing(
            self.session, self.token_settings, collections, policy, call_site()
        )
        first = [i for i in range(len(collections)) if i not in apart]
        groups = list(_alike([collections[i] for i in first]))
        return [[first[i] for i in g] for g in groups] + [[i] for i in sorted(apart)]

    def _submit_graph(
        self,
        graph: Mapping[Key, Any],
        wanted: Sequence[Key],
        options: CallOptions,
        annotations: LayerAnnotations,
    ) -> dict[Key, Future]:
        """Send what is reachable of a graph; a future for each wanted key."""
        session = self.session
        encoder = Encoder(session, self.token_settings, graph)
        converter = Converter(session, encoder, graph)
        futures: dict[Key, Future] = {}
        known: dict[Key, Record] = {}
        wants: list[Key] = []
        for key in wanted:
            external = converter.external(key)
            record = None
            if external is not None and external.future is None:
                record = session.named(external.key)
            if external is not None and external.future is not None:
                futures[key] = external.future
            elif record is not None:
                known[key] = record
            else:
                wants.append(key)
        self._encode(encoder, converter, [k for k in wants if k in graph], graph, options,
                     annotations)  # fmt: skip
        submission = encoder.submission(wants, options.policy, call_site())
        # A name that leads out of the graph to one of our own futures.
        for key, record in known.items():
            own = session.bind(record.key, session.id, record.fid)
            futures[key] = make_future(session, own)
        if wants:
            records = session.submit(submission)
            futures |= {
                key: make_future(session, record)
                for key, record in zip(wants, records, strict=True)
            }
        return futures

    def _encode(
        self,
        encoder: Encoder,
        converter: Converter,
        roots: Sequence[Key],
        graph: Mapping[Key, Any],
        options: CallOptions,
        annotations: LayerAnnotations,
    ) -> None:
        """Encode what the roots need, each task after its inputs."""
        specs: dict[Key, Spec] = {}

        def expand(key: Key) -> list[Key]:
            spec = specs[key] = converter.spec(key)
            return spec.needs

        reached = depth_first(roots, expand)
        positions = _positions(graph, reached)
        own = _by_key(annotations)
        index = encoder.annotations.index
        for key in reached:
            func, args, kwargs, inputs, _ = specs.pop(key)
            annotation = index(options.for_key(key, own.get(key)))
            position = positions[key]
            if func is None:
                encoder.value(
                    as_key(key), args[0], annotation=annotation, order=position
                )
            else:
                encoder.call(
                    as_key(key), func, args, kwargs, inputs,
                    annotation=annotation, order=position,
                )  # fmt: skip


class _Merged:
    """Several expressions as one graph."""

    def __init__(self) -> None:
        self.graph: dict[Key, Any] = {}
        self.annotations: dict[str, dict[Key, Any]] = {}

    def add(self, expr: Any) -> None:
        graph, annotations = materialized(expr)
        for key, value in graph.items():
            self.graph.setdefault(key, value)
        for name, values in annotations.items():
            self.annotations.setdefault(name, {}).update(values)


def materialized(dsk: Any) -> tuple[Mapping[Key, Any], LayerAnnotations]:
    """A graph as a mapping, and what its layers say of single tasks.

    Low-level fusion drops annotations, so it is switched off for a graph that has
    some.
    """
    graph: Any
    if isinstance(dsk, HighLevelGraph):
        graph = dict(dsk)
        return graph, _of_layers(dsk)
    if not isinstance(dsk, Expr):
        return dsk, {}
    annotated = _has_annotations(dsk)
    quiet: Any = contextlib.nullcontext()
    if annotated:
        quiet = dask.config.set({"optimization.fuse.active": False})
    with quiet:
        graph = dict(dsk.__dask_graph__())
        return graph, dsk.__dask_annotations__() if annotated else {}


def _has_annotations(expr: Any) -> bool:
    return any(
        layer.annotations
        for part in expr.find_operations(HLGExpr)
        for layer in getattr(part.hlg, "layers", {}).values()
    )


def _of_layers(graph: Any) -> LayerAnnotations:
    found: dict[str, dict[Key, Any]] = {}
    for layer in graph.layers.values():
        for name, value in (layer.annotations or {}).items():
            keyed = found.setdefault(name, {})
            for key in layer:
                keyed[key] = value(key) if callable(value) else value
    return found


def _by_key(annotations: LayerAnnotations) -> dict[Key, dict[str, Any]]:
    found: dict[Key, dict[str, Any]] = {}
    for name, values in annotations.items():
        for key, value in values.items():
            found.setdefault(key, {})[name] = value
    return found


def _positions(graph: Mapping[Key, Any], reached: Sequence[Key]) -> dict[Key, int]:
    """The order in which tasks are best run: dask's own for graphs of dask nodes."""
    if reached and all(isinstance(graph[k], GraphNode) for k in reached):
        found: Any = order({k: graph[k] for k in reached})  # type: ignore[misc]
        return dict(found)
    return {key: i for i, key in enumerate(reached)}


def _alike(collections: Sequence[Any]) -> Iterator[list[int]]:
    """Indices of collections that dask optimizes together, in their order.

    dask regroups a mixture of collections by their optimizer and loses the order of
    its results on the way.
    """
    groups: dict[Any, list[int]] = {}
    for i, collection in enumerate(collections):
        expr = getattr(collection, "expr", None)
        composite = getattr(collection, "__dask_exprs__", None) is not None
        if isinstance(expr, Expr) or composite:
            kind: Any = Expr
        else:
            kind = getattr(collection, "__dask_optimize__", None)
        groups.setdefault(kind, []).append(i)
    yield from groups.values()


def _traversed(value: Any) -> Any:
    """A builtin container with collections in it as one collection, else itself."""
    if is_dask_collection(value) or not isinstance(value, list | tuple | set | dict):
        return value
    found, _ = unpack_collections(value)
    if not found:
        return value
    from dask.delayed import delayed

    return delayed(value)


def _on_futures(
    collection: Any, keys: Sequence[Key], operand: Any, futures: Mapping[Key, Future]
) -> Any:
    """A collection on the futures of its keys."""
    by_key = {k: futures[as_key(k)] for k in keys}
    if is_composite(operand):
        return rebuild_composite(collection, operand, by_key, cull_to_child_keys=True)
    rebuild, state = collection.__dask_postpersist__()
    return rebuild(by_key, *state)


def _flat(keys: Any) -> Iterator[Any]:
    """The keys in nested lists, tuples being keys."""
    if isinstance(keys, list | set):
        for key in keys:
            yield from _flat(key)
    elif isinstance(keys, Future):
        return
    elif isinstance(keys, TaskRef):
        yield keys.key
    else:
        yield keys


def _replaced(keys: Any, futures: Mapping[Key, Future]) -> Any:
    if isinstance(keys, list | set):
        return [_replaced(key, futures) for key in keys]
    if isinstance(keys, Future):
        return keys
    return futures[as_key(keys.key if isinstance(keys, TaskRef) else keys)]


def _nested_tuples(nested: Any, depth: int = 0) -> Any:
    """Lists as dask's own schedulers return them: a list of tuples of tuples."""
    if not isinstance(nested, list):
        return nested
    items = [_nested_tuples(item, depth + 1) for item in nested]
    return tuple(items) if depth else items
