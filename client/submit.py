"""How functions and arguments become tasks: ``submit`` and ``map``."""

from __future__ import annotations

import functools
import itertools
import secrets
from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller
from typing import Any

from raddle.protocol.core.ids import Key
from raddle.protocol.serialize import sizeof
from raddle.protocol.tokenize import Digest, minted_token, run_spec_token

from .arguments import has_futures, replaced, with_references
from .base import CallOptions, ClientBase, call_options, refuse_actors
from .core.keys import as_key
from .encode import Encoder, Inputs
from .future import Future, make_future
from .site import call_site

NAME_MAX = 50
SHARED_MIN = 100_000
"""Bytes from which a keyword argument of ``map`` is a task of its own, sent once."""


class SubmitMixin(ClientBase):
    """``submit`` and ``map``."""

    def __init__(self) -> None:
        super().__init__()
        self._unique = secrets.token_hex(8)
        self._minted = itertools.count()

    def submit(  # noqa: PLR0913
        self,
        func: Callable[..., Any],
        *args: Any,
        key: Key | None = None,
        workers: str | Iterable[str] | None = None,
        resources: dict[str, float] | None = None,
        retries: int | None = None,
        priority: float = 0,
        fifo_timeout: str | float | None = None,  # noqa: ARG002 (as the peer)
        allow_other_workers: bool = False,
        actor: bool = False,
        actors: bool = False,
        pure: bool = True,
        collision_policy: str | None = None,
        **kwargs: Any,
    ) -> Future:
        """Run ``func(*args, **kwargs)`` on the cluster.

        Futures among the arguments, also in lists, tuples, sets and dict values,
        are replaced by their values there. ``key`` names the task; else the name
        comes from the function and from what is called (``pure``), so that equal
        calls share one result, or is unique (``pure=False``). ``workers`` are
        addresses or names, ``resources`` map names to amounts, ``retries`` counts
        further attempts after a failure, a higher ``priority`` runs earlier.
        ``collision_policy`` (``warn``, ``raise``) may strengthen the scheduler's.

        Raises:
            SerializationError: function or arguments cannot be pickled.
            ConfigError, TypeError, ValueError: an option has no such value.
            CommClosedError: the client is closed.

        """
        _check_function(func)
        refuse_actors(actor, actors)
        options = call_options(
            {
                "workers": workers,
                "resources": resources,
                "retries": retries,
                "priority": priority,
                "allow_other_workers": allow_other_workers,
                "collision_policy": collision_policy,
            }
        )
        if key is not None:
            key = as_key(key)
        taken = () if key is None else (key,)
        encoder = Encoder(self.session, self.token_settings, taken)
        inputs = Inputs(encoder)
        args = replaced(args, inputs)
        if kwargs:
            kwargs = {k: with_references(v, inputs) for k, v in kwargs.items()}
        token: Digest | None = None
        if key is None and pure:
            body = encoder.body(func, args, kwargs)
            key = f"{name_of(func)}-{body.digest.hex()}"
            token = run_spec_token(key, body)
        elif key is None:
            key = f"{name_of(func)}-{self._mint()}"
            token = minted_token(key, self.session.id)
        annotation = encoder.annotations.index(options.for_key(key))
        encoder.call(
            key, func, args, kwargs, inputs, token=token, annotation=annotation
        )
        submission = encoder.submission((key,), options.policy, call_site())
        (record,) = self.session.submit(submission)
        return make_future(self.session, record)

    def map(  # noqa: PLR0913
        self,
        func: Callable[..., Any],
        *iterables: Iterable[Any],
        key: str | Sequence[Key] | None = None,
        workers: str | Iterable[str] | None = None,
        retries: int | None = None,
        resources: dict[str, float] | None = None,
        priority: float = 0,
        allow_other_workers: bool = False,
        fifo_timeout: str | float | None = None,  # noqa: ARG002 (as the peer)
        actor: bool = False,
        actors: bool = False,
        pure: bool = True,
        batch_size: int | None = None,
        collision_policy: str | None = None,
        **kwargs: Any,
    ) -> list[Future]:
        """Run ``func`` on each of the elements of ``iterables``; a list of futures.

        The shortest iterable counts. ``key`` is a name for all, to which what makes
        them different is appended, or a sequence with one key for each. All tasks
        leave as one graph, or in graphs of ``batch_size`` tasks. Other arguments and
        errors are as for :meth:`submit`; a ValueError says that the number of keys
        is not the number of calls, or that a key occurs twice.
        """
        _check_function(func)
        refuse_actors(actor, actors)
        options = call_options(
            {
                "workers": workers,
                "resources": resources,
                "retries": retries,
                "priority": priority,
                "allow_other_workers": allow_other_workers,
                "collision_policy": collision_policy,
            }
        )
        calls = list(zip(*iterables, strict=False))
        keys = None if key is None or isinstance(key, str) else _own_keys(key, calls)
        prefix = key if isinstance(key, str) else name_of(func)
        if keys is None and not pure:
            unique = self._mint()
            keys = [f"{prefix}-{unique}-{i}" for i in range(len(calls))]
            minted = True
        else:
            minted = False
        futures: list[Future] = []
        size = batch_size or len(calls) or 1
        for start in range(0, len(calls), size):
            some_keys = None if keys is None else keys[start : start + size]
            batch = _MapBatch(self, func, kwargs, options, prefix)
            batch.encode(calls[start : start + size], some_keys, minted=minted)
            futures += batch.submit()
        return futures

    def _mint(self) -> str:
        """Something that no other key contains."""
        return f"{self._unique}{next(self._minted):08x}"


class _MapBatch:
    """One graph of a map: the function and its keywords are encoded once."""

    def __init__(
        self,
        client: SubmitMixin,
        func: Callable[..., Any],
        kwargs: dict[str, Any],
        options: CallOptions,
        prefix: str,
    ) -> None:
        self._session = client.session
        self._func = func
        self._options = options
        self._prefix = prefix
        self._encoder = Encoder(client.session, client.token_settings)
        self._shared: dict[str, Key] = {}
        self._kwargs = kwargs
        self._keys: list[Key] = []
        for name, value in kwargs.items():
            if sizeof(value) >= SHARED_MIN and not has_futures(value):
                self._share(name, value)
        self._searched = any(has_futures(v) for v in kwargs.values())

    def _share(self, name: str, value: Any) -> None:
        """Make a big keyword argument a task of its own."""
        digest = self._encoder.walker.value(value).digest
        key = f"{type(value).__name__}-{digest.hex()}"
        if key not in self._shared.values():
            self._encoder.value(key, value)
        self._shared[name] = key

    def encode(
        self, calls: Sequence[tuple[Any, ...]], keys: list[Key] | None, *, minted: bool
    ) -> None:
        """Add a task for each call; a key that is derived twice gets one task."""
        encoder, func, session_id = self._encoder, self._func, self._session.id
        options, index = self._options, self._encoder.annotations.index
        if keys is not None:
            encoder.references.taken = set(keys)
        seen: set[Key] = set()
        for order, call in enumerate(calls):
            inputs = Inputs(encoder)
            args = replaced(call, inputs)
            kwargs = self._kwargs
            if self._shared or self._searched:
                kwargs = self._own_kwargs(inputs)
            if keys is None:
                body = encoder.body(func, args, kwargs)
                key: Key = f"{self._prefix}-{body.digest.hex()}"
                token: Digest | None = run_spec_token(key, body)
            else:
                key = keys[order]
                token = minted_token(key, session_id) if minted else None
            self._keys.append(key)
            if keys is None:
                if key in seen:
                    continue
                seen.add(key)
            annotation = index(options.for_key(key))
            encoder.call(
                key, func, args, kwargs, inputs,
                token=token, annotation=annotation, order=order,
            )  # fmt: skip

    def _own_kwargs(self, inputs: Inputs) -> dict[str, Any]:
        return {
            name: inputs.ref(self._shared[name], self._shared[name])
            if name in self._shared
            else with_references(value, inputs)
            for name, value in self._kwargs.items()
        }

    def submit(self) -> list[Future]:
        """Queue the graph."""
        session = self._session
        submission = self._encoder.submission(
            self._keys, self._options.policy, call_site()
        )
        return [make_future(session, record) for record in session.submit(submission)]


def name_of(func: Callable[..., Any]) -> str:
    """How a task that calls ``func`` is called, before its token."""
    if isinstance(func, functools.partial):
        return name_of(func.func)
    if isinstance(func, methodcaller):
        return str(func.__reduce__()[1][0])[:NAME_MAX]
    name = getattr(func, "__name__", None) or type(func).__name__
    return "lambda" if name == "<lambda>" else str(name)[:NAME_MAX]


def _check_function(func: Any) -> None:
    if not callable(func):
        msg = f"the first argument must be a function, not {type(func).__name__}"
        raise TypeError(msg)


def _own_keys(given: Sequence[Key], calls: Sequence[Any]) -> list[Key]:
    keys = [as_key(k) for k in given]
    if len(keys) != len(calls):
        msg = f"{len(keys)} keys were given for {len(calls)} calls"
        raise ValueError(msg)
    if len(set(keys)) != len(keys):
        twice = next(k for i, k in enumerate(keys) if k in keys[:i])
        raise ValueError(f"key {twice!r} is given to more than one call")
    return keys
