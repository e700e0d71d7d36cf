"""Where settings come from, which there are, and how their values are read.

``dask.config`` is the store, so files, environment and ``dask.config.set`` work as
for the rest of dask; ours live under ``raddle``, with defaults and their meaning in
``config.yaml`` beside this file. Values are read when something starts, never on a
hot path.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import dask.config

from .errors import ConfigError

ROOT: Final = "raddle"

# Ours -> the key outside of raddle that is read while ours has its default.
ALIASES: Mapping[str, str] = {
    "scheduler-address": "scheduler-address",
    "comm.timeouts.connect": "distributed.comm.timeouts.connect",
    "scheduler.allowed-failures": "distributed.scheduler.allowed-failures",
    "scheduler.idle-timeout": "distributed.scheduler.idle-timeout",
    "scheduler.unknown-task-duration": "distributed.scheduler.unknown-task-duration",
    "scheduler.validate": "distributed.scheduler.validate",
}

_MISSING: Final = object()


class ConfigWarning(UserWarning):
    """A setting has no effect: raddle knows no key of that name."""


def _leaves(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys, with hyphens as in ``config.yaml``, and their values."""
    for name, value in tree.items():
        key = f"{prefix}{name}".replace("_", "-")
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def _load_defaults() -> dict[str, Any]:
    path = Path(__file__).with_name("config.yaml")
    (tree,) = dask.config.collect_yaml([str(path)])
    dask.config.update_defaults(tree)
    return dict(_leaves(tree[ROOT]))


DEFAULTS: Mapping[str, Any] = _load_defaults()
"""Every key (without the leading ``raddle.``) and its default."""


def get(key: str, default: Any = _MISSING) -> Any:
    """The value of ``key``, which is written without the leading ``raddle.``.

    Booleans and numbers have the type that their default has; other values are as
    the user wrote them (see :func:`get_seconds`, :func:`get_bytes`). ``default`` is
    for keys that ``config.yaml`` does not list.

    Raises:
        ConfigError: the value's type is wrong, or there is no such key.

    """
    return _look_up(key, default)[0]


def get_seconds(key: str) -> float:
    """The value of ``key`` as a duration; ConfigError if it is none."""
    return parse_seconds(*_look_up(key))


def get_bytes(key: str) -> int:
    """The value of ``key`` as a size; ConfigError if it is none."""
    return parse_bytes(*_look_up(key))


def get_text(key: str) -> str | None:
    """The value of ``key`` as the user wrote it, for secrets and names.

    dask reads the environment as Python literals: a secret of digits would come
    back as a number, and ``0x10`` as 16.
    """
    value = get(key)
    if value is None or isinstance(value, str):
        return value
    text = os.environ.get(_variable(key))
    if text is not None:
        return text
    msg = (
        f"{ROOT}.{key}: put the value in quotes, it was read as {type(value).__name__}"
    )
    raise ConfigError(msg)


def _look_up(key: str, default: Any = _MISSING) -> tuple[Any, str]:
    """The value of ``key``, and the full name of the key that it came from."""
    _warn_of_unknown_keys()
    own_default = DEFAULTS.get(key, default)
    name = f"{ROOT}.{key}"
    if own_default is _MISSING:
        msg = f"{name}: there is no such setting{_nearest(key)}"
        raise ConfigError(msg)
    value = dask.config.get(name, own_default)
    if value == own_default:
        theirs = _set_by_user(ALIASES[key]) if key in ALIASES else _MISSING
        if theirs is _MISSING:
            return value, name
        name, value = ALIASES[key], theirs
    return _checked(value, own_default, name), name


def _set_by_user(name: str) -> Any:
    """The value of a key of somebody else, unless it is just their default."""
    value = dask.config.get(name, _MISSING)
    for defaults in dask.config.defaults:
        if dask.config.get(name, _MISSING, config=dict(defaults)) == value:
            return _MISSING
    return _MISSING if value is None else value


def _checked(value: Any, default: Any, name: str) -> Any:
    kind = type(default)
    if kind is bool or (kind in (int, float) and isinstance(value, bool)):
        fits = type(value) is kind
    elif kind in (int, float):
        fits = isinstance(value, int if kind is int else int | float)
    else:
        return value
    if not fits:
        msg = f"{name}: {value!r} should be of type {kind.__name__}, like {default!r}"
        raise ConfigError(msg)
    return value


# Warnings about keys that do nothing.

_SECTIONS = sorted({tuple(key.split(".")[:-1]) for key in DEFAULTS} - {()})
_warned: set[str] = set()
_last_count = -1


def _count(tree: dict[Any, Any]) -> int:
    """How many keys there are beside each other in the sections that exist."""
    total = len(tree)
    for path in _SECTIONS:
        section: Any = tree
        for name in path:
            section = section.get(name) if type(section) is dict else None
        if type(section) is dict:
            total += len(section)
    return total


def _warn_of_unknown_keys() -> None:
    """Warn of each unknown key once; cheap while the number of keys stays."""
    global _last_count
    tree = dask.config.config.get(ROOT, {})
    if not isinstance(tree, dict):
        msg = f"{ROOT}: should hold settings by name, not {tree!r}"
        raise ConfigError(msg)
    count = _count(tree)
    if count == _last_count:
        return
    _last_count = count
    for key, _ in _leaves(tree):
        if key not in DEFAULTS and key not in _warned:
            _warned.add(key)
            msg = f"{ROOT}.{key}{_origin(key)}: there is no such setting{_nearest(key)}"
            warnings.warn(msg, ConfigWarning, stacklevel=4)


def _nearest(key: str) -> str:
    """A suggestion: by the whole key, else by its last word."""
    found = get_close_matches(key, DEFAULTS, n=1, cutoff=0.75)
    if not found:
        tails = {known.rsplit(".", 1)[-1]: known for known in DEFAULTS}
        close = get_close_matches(key.rsplit(".", 1)[-1], tails, n=1, cutoff=0.75)
        found = [tails[tail] for tail in close]
    return f"; did you mean {ROOT}.{found[0]}?" if found else ""


def _variable(key: str) -> str:
    name = f"{ROOT}.{key}".upper()
    return "DASK_" + name.replace(".", "__").replace("-", "_")


def _origin(key: str) -> str:
    """Where the key was set, as far as that can be found."""
    if _variable(key) in os.environ:
        return f" (environment variable {_variable(key)})"
    for path in dask.config.paths_containing_key(f"{ROOT}.{key}"):
        return f" (in {path})"
    return ""


# Durations and sizes.

_QUANTITY = re.compile(
    r"\s*(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)\s*([a-zµ]*)\s*", re.IGNORECASE
)

_SECONDS = {
    "": 1.0, "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3,
    "millisecond": 1e-3, "milliseconds": 1e-3,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
    "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
}  # fmt: skip

_BYTES = {"": 1, "b": 1, "byte": 1, "bytes": 1} | {
    prefix + tail: base**power
    for power, prefix in enumerate("kmgtp", 1)
    for base, tails in ((1000, ("", "b")), (1024, ("i", "ib")))
    for tail in tails
}


def parse_seconds(value: Any, name: str = "duration") -> float:
    """Seconds in ``5``, ``"5s"``, ``"500 ms"``, ``"1.5 hours"`` or a timedelta.

    Raises:
        ConfigError: it is not a duration; ``name`` says which value of the user.

    """
    if isinstance(value, timedelta) and value >= timedelta(0):
        return value.total_seconds()
    return _quantity(value, _SECONDS, name, "a duration such as '5s' or '500 ms'")


def parse_bytes(value: Any, name: str = "size") -> int:
    """Bytes in ``100``, ``"4 KiB"``, ``"2GB"`` (10**9) or ``"1.5 GiB"`` (2**30).

    Raises:
        ConfigError: it is not a size; ``name`` says which value of the user.

    """
    return int(_quantity(value, _BYTES, name, "a size such as '4KiB' or '2GB'"))


def _quantity(
    value: Any, units: Mapping[str, float], name: str, expected: str
) -> float:
    number: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
        unit = units.get(match[2].lower())
        number = None if unit is None else float(match[1]) * unit
    if number is None or not 0 <= number < math.inf:
        msg = f"{name}: {value!r} is not {expected}"
        raise ConfigError(msg)
    return number
