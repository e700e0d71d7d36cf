"""How a run_spec in normal form becomes a task of a graph message.

What is pickled, what is named by number, and which token a task carries is decided
here. Nothing is registered anywhere until the whole graph is encoded, so an error
leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

from raddle.protocol import config
from raddle.protocol.core.ids import FN_LITERAL, Key
from raddle.protocol.core.messages.base import Frames
from raddle.protocol.core.messages.client import (
    FORM_ARGS,
    FORM_INPUTS,
    FORM_NESTED,
    FORM_VALUE,
    GraphTask,
)
from raddle.protocol.errors import SerializationError
from raddle.protocol.serialize import copy_frames, dumps
from raddle.protocol.spec import Ref
from raddle.protocol.tokenize import (
    Digest,
    Walker,
    encoding_id,
    run_spec_token,
)

from .core.futures import Record, Where
from .core.graph import NO_ANNOTATION, Annotations, References
from .functions import FunctionUse
from .future import Future, make_future, origin_of, record_in
from .session import Session, Submission


class TokenSettings(NamedTuple):
    """How a client tokenizes; read from the configuration once."""

    ensure_deterministic: bool
    function_code: str
    bulk_hash: str

    @classmethod
    def configured(cls) -> TokenSettings:
        """As the configuration says."""
        return cls(
            bool(config.get("tokenize.ensure-deterministic")),
            config.get("tokenize.function-code"),
            config.get("tokenize.bulk-hash"),
        )

    @property
    def encoding(self) -> int:
        """The number under which tokens of these settings can be compared."""
        return encoding_id(self.function_code, self.bulk_hash)


class Inputs:
    """The inputs of one task while its arguments are being converted.

    ``deps`` are reference names in the order of the references' indices. ``nested``
    is set by a converter that puts a ``Call`` into the arguments.
    """

    __slots__ = ("_encoder", "_refs", "deps", "nested")

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._refs: dict[Key, Ref] = {}
        self.deps: list[Key] = []
        self.nested = False

    def future(self, future: Future) -> Ref:
        """The reference to a future of whichever client."""
        record = self._encoder.own_record(future)
        return self.ref(record.key, self._encoder.references.of(record))

    def record(self, record: Record) -> Ref:
        """The reference to a future of this client."""
        return self.ref(record.key, self._encoder.references.of(record))

    def ref(self, key: Key, name: Key) -> Ref:
        """The reference with this name; its public key counts for the token."""
        ref = self._refs.get(name)
        if ref is None:
            ref = self._refs[name] = Ref(key, len(self.deps))
            self.deps.append(name)
        return ref


class Encoder:
    """Encodes the tasks of one graph message; they share one walker.

    ``taken`` are the keys of the message's own tasks, as far as they are given and
    not derived from what is encoded.
    """

    __slots__ = (
        "_kept", "_session", "annotations", "functions", "references", "tasks", "walker",
    )  # fmt: skip

    def __init__(
        self, session: Session, settings: TokenSettings, taken: Container[Key] = ()
    ) -> None:
        self._session = session
        self.walker = Walker(
            ensure_deterministic=settings.ensure_deterministic,
            function_code=settings.function_code,
            bulk_hash=settings.bulk_hash,
        )
        self.functions = FunctionUse(session.functions)
        self.references = References(taken)
        self.annotations = Annotations()
        self.tasks: list[GraphTask] = []
        # The futures that are referred to, until the graph is queued: the release of
        # one that the caller has dropped meanwhile must not come before it.
        self._kept: list[Future] = []

    def own_record(self, future: Future) -> Record:
        """The record of a future in this session; another client's is bound here."""
        record = record_in(future, self._session)
        if record is not None:
            self._kept.append(future)
            return record
        record = self._session.bind(future.key, *origin_of(future))
        self._kept.append(make_future(self._session, record))
        return record

    def body(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Digest:
        """The digest of a run_spec, whatever its key."""
        return self.walker.body(func, args, kwargs)

    def call(  # noqa: PLR0913
        self,
        key: Key,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: Inputs,
        *,
        token: Digest | None = None,
        annotation: int = NO_ANNOTATION,
        order: int = 0,
    ) -> None:
        """Add the task ``key``: ``func(*args, **kwargs)``.

        Raises:
            SerializationError: function or arguments cannot be pickled.
            TokenizationError: the configuration wants deterministic tokens.

        """
        if token is None:
            token = run_spec_token(key, self.walker.body(func, args, kwargs))
        fn = self.functions.number(func)
        deps = inputs.deps
        payload: Frames
        if deps and not kwargs and _exactly_inputs(args, len(deps)):
            form, payload = FORM_INPUTS, ()
        else:
            form = FORM_NESTED if inputs.nested else FORM_ARGS
            payload = pickled((args, kwargs), key)
        self.tasks.append(
            GraphTask(
                key, token.digest, token.skeleton, form, fn, payload, tuple(deps),
                annotation, order,
            )
        )  # fmt: skip

    def value(
        self, key: Key, value: Any, *, annotation: int = NO_ANNOTATION, order: int = 0
    ) -> None:
        """Add a task that is nothing but a value. Raises as :meth:`call` does."""
        token = run_spec_token(key, self.walker.value(value))
        self.tasks.append(
            GraphTask(
                key, token.digest, token.skeleton, FORM_VALUE, FN_LITERAL,
                pickled(value, key), (), annotation, order,
            )
        )  # fmt: skip

    def submission(
        self, wants: Sequence[Key], policy: str | None, where: Where
    ) -> Submission:
        """What has been encoded, asking for the keys ``wants``."""
        return Submission(
            self.tasks,
            wants,
            self.references.embedded,
            self.functions.used,
            self.annotations.table,
            policy,
            where,
        )


def pickled(payload: Any, key: Key) -> Frames:
    """A task's payload as frames that share no memory with the caller's objects.

    What the caller does to an array after submitting it must not change the task.
    """
    try:
        frames = dumps(payload)
    except SerializationError:
        # Said again with the name of the task, which is not worth its time before.
        frames = dumps(payload, f"the arguments of {key!r}")
    return copy_frames(frames)


def _exactly_inputs(args: tuple[Any, ...], count: int) -> bool:
    if len(args) != count:
        return False
    return all(type(a) is Ref and a.index == i for i, a in enumerate(args))
