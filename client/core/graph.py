"""How futures and annotations are named inside one graph message.

Bytes and the compute message use *references*, tokens use public keys: two futures
of one key, or a future and a task of one key, need two references.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from raddle.protocol.core.ids import Fid, Key
from raddle.protocol.errors import ConfigError

from .futures import Record

NO_ANNOTATION = -1
"""The index of a task that has none."""


class References:
    """Reference names for the futures that the tasks of one message depend on.

    ``taken`` are the keys of the message's own tasks. ``embedded`` maps each name
    to its future.
    """

    __slots__ = ("_names", "embedded", "taken")

    def __init__(self, taken: Container[Key]) -> None:
        self.taken = taken
        self.embedded: dict[Key, Fid] = {}
        self._names: dict[Fid, Key] = {}

    def of(self, record: Record) -> Key:
        """The name for a future: its key, unless something else has that name."""
        fid = record.fid
        name = self._names.get(fid)
        if name is None:
            name = record.key
            while name in self.taken or name in self.embedded:
                name = ("future", fid, name)
            self._names[fid] = name
            self.embedded[name] = fid
        return name


class Annotations:
    """The table of different annotations of one message."""

    __slots__ = ("_known", "table")

    def __init__(self) -> None:
        self.table: list[dict[str, Any]] = []
        self._known: dict[str, int] = {}

    def index(self, annotation: Mapping[str, Any] | None) -> int:
        """Where ``annotation`` is in the table; it is added if it is new."""
        if not annotation:
            return NO_ANNOTATION
        text = repr(sorted(annotation.items()))
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = len(self.table)
            self.table.append(dict(annotation))
        return found


def annotation(given: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations that the scheduler knows among ``given``, in its own form.

    None counts as not given; unknown names are ignored, as dask lets libraries
    annotate for themselves.

    Raises:
        ConfigError: a value that cannot be what its name says.

    """
    return {
        name: form(value)
        for name, form in _FORMS.items()
        if (value := given.get(name)) is not None
    }


def _priority(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ConfigError(f"priority must be a number, not {value!r}") from None
    return value


def _retries(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ConfigError(f"retries must be an int of at least 0, not {value!r}")
    return int(value)


def _workers(value: Any) -> tuple[str, ...]:
    """Addresses, names or hosts; a single one may stand for itself."""
    if isinstance(value, str | int):
        value = (value,)
    if not isinstance(value, Iterable):
        raise ConfigError(f"workers must name workers, not {value!r}")
    return tuple(str(v) for v in value)


def _resources(value: Any) -> dict[str, float]:
    try:
        return {str(name): float(amount) for name, amount in dict(value).items()}
    except (TypeError, ValueError):
        msg = f"resources must map names to amounts, not {value!r}"
        raise ConfigError(msg) from None


_FORMS: dict[str, Callable[[Any], Any]] = {
    "priority": _priority,
    "retries": _retries,
    "workers": _workers,
    "allow_other_workers": bool,
    "resources": _resources,
}
