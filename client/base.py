"""What every part of the client rests on: its session, and its two faces.

A method that waits is written once, as a coroutine. On the client's own event loop
it returns an awaitable, in any other thread it blocks.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable, Mapping
from typing import Any, TypeVar

from raddle.protocol.core.collisions import POLICIES
from raddle.protocol.core.ids import Key
from raddle.protocol.errors import ConfigError

from .core.graph import annotation
from .dask.annotations import active_annotations
from .encode import TokenSettings
from .session import Session
from .sync import blocked

T = TypeVar("T")


class Done:
    """An awaitable that has its value already; nobody needs to await it."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()
        return self._value


class ClientBase:
    """The session and the ways into it; see :class:`raddle.Client`."""

    session: Session
    token_settings: TokenSettings

    @property
    def asynchronous(self) -> bool:
        """Whether calls made here, in this thread, must be awaited."""
        return self.session.in_loop()

    def _face(self, coroutine: Coroutine[Any, Any, T]) -> Any:
        """The coroutine itself on the loop, its result in any other thread."""
        if self.session.in_loop():
            return coroutine
        with blocked():
            return self.session.run(coroutine)

    def _done(self, value: Any) -> Any:
        """A value that is known at once, awaitable where calls must be awaited."""
        return Done(value) if self.session.in_loop() else value


class CallOptions:
    """What is said of all tasks of one call: annotations and collision policy.

    What ``dask.annotate`` says around the call counts where the call itself is
    silent. Callable annotations are asked for each key.
    """

    __slots__ = ("_active", "_callable", "_plain", "policy")

    def __init__(self, given: Mapping[str, Any], active: Mapping[str, Any]) -> None:
        if given.get("allow_other_workers") and not given.get("workers"):
            msg = "Only use allow_other_workers= if using workers="
            raise ValueError(msg)
        self._active = active
        if active:
            merged = dict(active)
            merged.update((k, v) for k, v in given.items() if v)
            given = merged
        self._callable = {k: v for k, v in given.items() if callable(v)}
        self._plain = annotation(
            {k: v for k, v in given.items() if v and k not in self._callable}
        )
        self.policy = checked_policy(given.get("collision_policy"))

    def for_key(
        self, key: Key, own: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        """The annotation of one task; what is said of it alone (``own``) counts more."""
        if own and self._active:
            # dask gives the layers that it adds while computing what is said around
            # the call; that is not said of them alone.
            own = {k: v for k, v in own.items() if self._active.get(k) != v}
        if not self._callable and not own:
            return self._plain or None
        called = annotation({k: v(key) for k, v in self._callable.items()})
        return self._plain | called | annotation(own or {})


def call_options(given: Mapping[str, Any]) -> CallOptions:
    """The options of a call; most calls say nothing and share one answer."""
    active = active_annotations()
    if active or any(given.values()):
        return CallOptions(given, active)
    return _NOTHING_SAID


def checked_policy(policy: str | None) -> str | None:
    """A collision policy as given by the user; ConfigError if there is none such."""
    if policy is not None and policy not in POLICIES:
        msg = f"collision_policy must be one of {', '.join(POLICIES)}, not {policy!r}"
        raise ConfigError(msg)
    return policy


def refuse_actors(*flags: Iterable[Any] | bool | None) -> None:
    """Raises ConfigError where a caller asks for actors."""
    if any(flags):
        msg = "actors are not supported (yet); submit a plain task instead"
        raise ConfigError(msg)


_NOTHING_SAID = CallOptions({}, {})
