"""What can go wrong, whose fault it is, and whether a retry can help.

One tree under :class:`RaddleError`. An error that crosses the wire is a
:class:`WireError`: its data fields travel by name, so the scheduler can create
one without pickling anything and a client rebuilds it (:func:`to_wire`,
:func:`from_wire`). Exceptions of user code never come through here: they travel
as opaque frames (``raddle.protocol.serialize``).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, ClassVar, Literal

from .core.collisions import CollisionRecord

Fault = Literal["user", "peer", "cluster", "bug"]


class RaddleError(Exception):
    """Base of every error that raddle itself raises."""

    fault: ClassVar[Fault] = "bug"
    retry_helps: ClassVar[bool] = False


class ConfigError(RaddleError, ValueError):
    """A setting, option or argument has a value that raddle cannot use."""

    fault = "user"


class StartError(RaddleError, OSError):
    """A process could not start: a busy port, an unresolvable address, no secret."""

    fault = "user"


class ProtocolError(RaddleError):
    """The other side of a connection sent something that is not the protocol."""

    fault: ClassVar[Fault] = "peer"


class HandshakeError(ProtocolError):
    """The two sides could not agree: version, role, or the other side refused."""


class AuthenticationError(HandshakeError):
    """The shared secret is missing on one side, or the two differ."""

    fault = "user"


class CommClosedError(RaddleError, OSError):
    """The connection ended before the operation did."""

    fault = "cluster"
    retry_helps = True


class SerializationError(RaddleError, TypeError):
    """A function, argument or result cannot be pickled or unpickled."""

    fault = "user"


class RemoteError(RaddleError):
    """Stands for a remote exception whose own class cannot be rebuilt here.

    ``type_name`` is the qualified name of the original class, ``text`` its
    message, ``traceback_text`` the formatted remote traceback.
    """

    fault = "user"

    def __init__(self, type_name: str, text: str, traceback_text: str = "") -> None:
        super().__init__(f"{type_name}: {text}")
        self.type_name = type_name
        self.text = text
        self.traceback_text = traceback_text
        if traceback_text:
            self.add_note(f"Remote traceback:\n{traceback_text.rstrip()}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.type_name, self.text, self.traceback_text)


class AmbiguousKeyError(RaddleError, ValueError):
    """Two different futures carry one key and dask merged them before we saw them."""

    fault = "user"


class CancelledError(RaddleError, concurrent.futures.CancelledError):
    """The future was cancelled or its result is out of reach for good.

    ``key`` names the task, ``who`` the client that cancelled (or ``scheduler``)
    and ``why`` says the reason in words.
    """

    fault = "user"

    def __init__(self, key: object, who: str = "", why: str = "") -> None:
        by = f" by {who}" if who else ""
        because = f": {why}" if why else ""
        super().__init__(f"future {key!r} was cancelled{by}{because}")
        self.key = key
        self.who = who
        self.why = why

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.who, self.why)


class TimeoutError(RaddleError, asyncio.TimeoutError):
    """The time that the caller allowed is over; the work itself goes on."""

    fault = "cluster"
    retry_helps = True


class RunSpecCollisionWarning(UserWarning):
    """One key was claimed by two run_specs; the old one was kept."""


class WireError(RaddleError):
    """An error whose data fields cross the wire by name.

    A subclass lists ``fields`` and turns them into one sentence in
    :meth:`describe`. All fields are keyword-capable and may be given in order.
    """

    fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *values: Any, **named: Any) -> None:
        given = [*self.fields[: len(values)], *named]
        if len(values) > len(self.fields) or sorted(given) != sorted(self.fields):
            msg = (
                f"{type(self).__name__} takes {self.fields}, got {len(values)} "
                f"values and {sorted(named)}"
            )
            raise TypeError(msg)
        for name, value in (*zip(self.fields, values, strict=False), *named.items()):
            setattr(self, name, self.kept(name, value))
        super().__init__(self.describe())

    def kept(self, name: str, value: Any) -> Any:  # noqa: ARG002 (for subclasses)
        """What field ``name`` holds of a value that may come from the wire."""
        return value

    def describe(self) -> str:
        """The sentence that ``str(error)`` shows."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.fields)


class RunSpecCollisionError(WireError, RuntimeError):
    """A submission claimed a known key with another run_spec, under policy ``raise``.

    ``records`` holds up to ten of them, ``total`` counts all.
    """

    fault = "user"
    fields = ("records", "total")
    records: tuple[CollisionRecord, ...]
    total: int

    def kept(self, name: str, value: Any) -> Any:
        """Records come from the wire as plain tuples."""
        if name == "records":
            return tuple(CollisionRecord._make(record) for record in value)
        return value

    def describe(self) -> str:
        """Name the first colliding key, how many there are, and the remedies."""
        first = self.records[0].key if self.records else "?"
        more = f" and {self.total - 1} more" if self.total > 1 else ""
        return (
            f"run_spec collision on key {first!r}{more}: the key is known with another "
            "run_spec; nothing of this call was submitted. Use another key, release "
            "the old future first, or use policy warn for scheduler, client and call"
        )


class KilledWorker(WireError):
    """Workers died again and again while they ran this task.

    ``key`` names the task; ``worker``, ``host``, ``pid`` and ``exitcode`` (None
    where unknown) the worker that died last; ``tasks`` the keys that ran on it;
    ``deaths`` how many workers it took, ``allowed`` how many were allowed.
    """

    fault = "user"
    fields = (
        "key", "worker", "host", "pid", "exitcode", "tasks", "deaths", "allowed",
    )  # fmt: skip
    key: Any
    worker: str
    host: str
    pid: int
    exitcode: int | None
    tasks: tuple[Any, ...]
    deaths: int
    allowed: int

    def describe(self) -> str:
        """Name task, worker, process and what else ran there."""
        code = "" if self.exitcode is None else f", exit code {self.exitcode}"
        others = ", ".join(map(repr, self.tasks[:5]))
        return (
            f"task {self.key!r} was running on {self.deaths} workers when they died "
            f"(allowed-failures is {self.allowed}); the last was {self.worker!r} on host "
            f"{self.host}, pid {self.pid}{code}; it was running {others}. The task may "
            "exhaust memory or crash the interpreter: look at that worker's output"
        )


class LostDependency(WireError):
    """A submitted graph names keys that nobody knows.

    ``key`` is the requested key, ``names`` the unknown ones (up to ten).
    """

    fault = "user"
    fields = ("key", "names")
    key: Any
    names: tuple[Any, ...]

    def describe(self) -> str:
        """Name the missing keys and what to do."""
        names = ", ".join(map(repr, self.names))
        return (
            f"{self.key!r} depends on {names}, which the scheduler does not know: it was "
            "released, cancelled, or never submitted. Keep the futures alive or "
            "submit the tasks in the same graph; nothing of this call was created"
        )


class DataLost(WireError):
    """Scattered data was held by workers that are gone; it cannot be recomputed.

    ``key`` names the data, ``why`` says how it was lost.
    """

    fault = "cluster"
    fields = ("key", "why")
    key: Any
    why: str

    def describe(self) -> str:
        """Name the data and say that it must be scattered again."""
        return f"scattered data {self.key!r} is lost: {self.why}; scatter it again"


class InvalidGraph(WireError, ValueError):
    """A submission cannot be run at all: a cycle, a bad annotation, a bad policy.

    ``why`` says what and how to mend it.
    """

    fault = "user"
    fields = ("why",)
    why: str

    def describe(self) -> str:
        """The reason itself."""
        return self.why


_ON_THE_WIRE: tuple[type[WireError], ...] = (
    RunSpecCollisionError,
    KilledWorker,
    LostDependency,
    DataLost,
    InvalidGraph,
)
WIRE_ERRORS: dict[str, type[WireError]] = {cls.__name__: cls for cls in _ON_THE_WIRE}

WirePair = tuple[str, tuple[Any, ...]]


def to_wire(error: WireError) -> WirePair:
    """``(class name, field values)``: what msgpack can carry."""
    return type(error).__name__, tuple(getattr(error, f) for f in error.fields)


def from_wire(pair: WirePair) -> RaddleError:
    """Rebuild what :func:`to_wire` took apart; an unknown class stays readable."""
    name, values = pair
    cls = WIRE_ERRORS.get(name)
    try:
        if cls is not None:
            return cls(*values)
    except (TypeError, ValueError, AttributeError) as error:
        why = f" (unreadable here: {error})"
    else:
        why = ""
    return RemoteError(name, ", ".join(map(repr, values)) + why)
