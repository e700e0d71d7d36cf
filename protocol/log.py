"""What raddle prints: one handler on the ``raddle`` logger.

Only commands and processes that raddle starts call :func:`setup_logging`. A program
that uses raddle as a library configures logging as it likes; if it does not at all,
a cluster inside it prints by :func:`setup_last_resort`.
"""

from __future__ import annotations

import logging
from typing import TextIO

from . import config
from .errors import ConfigError

LEVELS = ("debug", "info", "warning", "error", "critical")

_handler: logging.Handler | None = None
_last_resort: logging.Handler | None = None


def setup_logging(
    level: str | int | None = None, stream: TextIO | None = None
) -> logging.Handler:
    """Print records of ``raddle`` loggers, and return the handler that does.

    ``level`` is a name (any case) or a number, by default the setting
    ``raddle.admin.log-level``; ``stream`` is stderr by default. A repeated call
    replaces the handler of the one before.

    Raises:
        ConfigError: there is no such level.

    """
    global _handler
    number = parse_level(config.get("admin.log-level") if level is None else level)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(config.get("admin.log-format")))
    root = logging.getLogger("raddle")
    if _handler is not None:
        root.removeHandler(_handler)
    _handler = handler
    root.addHandler(handler)
    root.setLevel(number)
    # Tasks may configure the root logger, which must not print our records again.
    root.propagate = False
    return handler


def setup_last_resort(level: str | int | None = None) -> None:
    """Print records of ``raddle`` loggers as long as nobody has configured logging.

    ``level`` as for :func:`setup_logging`; a repeated call changes it. A handler of
    the program, on the root logger or on ours, silences this one.

    Raises:
        ConfigError: there is no such level.

    """
    global _last_resort
    number = parse_level(config.get("admin.log-level") if level is None else level)
    logger = logging.getLogger("raddle")
    if _last_resort is None:
        if logger.hasHandlers():
            return
        _last_resort = logging.StreamHandler()
        _last_resort.setFormatter(logging.Formatter(config.get("admin.log-format")))
        _last_resort.addFilter(_is_alone)
        logger.addHandler(_last_resort)
    if _is_alone(None):
        _last_resort.setLevel(number)
        logger.setLevel(number)


def _is_alone(_record: object) -> bool:
    """Nobody has configured logging since."""
    ours = logging.getLogger("raddle").handlers
    return not logging.getLogger().handlers and ours == [_last_resort]


def parse_level(level: str | int, name: str = "raddle.admin.log-level") -> int:
    """The number of a level, given as a number or name (any case).

    Raises ConfigError, which names ``name``, if there is no such level.
    """
    if isinstance(level, int) and not isinstance(level, bool):
        return level
    text = str(level).strip()
    if text.isdecimal():
        return int(text)
    number = logging.getLevelNamesMapping().get(text.upper())
    if not number:
        msg = f"{name}: {level!r} is not one of {', '.join(LEVELS)}, and no number"
        raise ConfigError(msg)
    return number
