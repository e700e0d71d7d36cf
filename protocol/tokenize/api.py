"""The public function: settings are read here, and nowhere else in the package."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError
from .tokens import Token
from .walk import Walker, strict_mode

_config: dict[str, Any] | None = None


def _load_config() -> dict[str, Any]:
    """The configuration of dask, imported at the first use: one dict for good."""
    global _config
    from dask.config import config

    _config = config
    return _config


def _setting(section: Any, name: str) -> Any:
    # dask accepts both spellings; this is its lookup without its cost per call.
    found = section.get(name)
    return section.get(name.replace("-", "_")) if found is None else found


def _strictness(config: dict[str, Any], ours: Any) -> bool:
    strict = _setting(ours, "ensure-deterministic") if ours else None
    if strict is None:
        theirs = config.get("tokenize")
        strict = _setting(theirs, "ensure-deterministic") if theirs else False
    if strict is None or strict is False:
        return False
    if strict is True:
        return True
    msg = f"tokenize.ensure-deterministic is a boolean, not {strict!r}"
    raise ConfigError(msg)


def _walker(strict: bool | None) -> Walker:
    config = _load_config() if _config is None else _config
    ours = config.get("raddle")
    if ours is not None:
        ours = ours.get("tokenize")
    if strict is None:
        strict = strict_mode.get()
        if strict is None:
            strict = _strictness(config, ours)
    if not ours:
        return Walker(ensure_deterministic=strict)
    return Walker(
        ensure_deterministic=strict,
        function_code=_setting(ours, "function-code") or "own",
        bulk_hash=_setting(ours, "bulk-hash") or "xxh3-128",
    )


def tokenize(
    *args: Any, ensure_deterministic: bool | None = None, **kwargs: Any
) -> Token:
    """The token of some values: equal for equal values, nothing else.

    Keywords count by name, in any order. ``ensure_deterministic``: True raises
    :class:`TokenizationError` for a value that another process could not tokenize
    alike; False never does; None does what the enclosing tokenize() does, or else
    what the config key ``raddle.tokenize.ensure-deterministic`` (or dask's own
    ``tokenize.ensure-deterministic``) says. Exceptions of hooks and handlers pass
    through.
    """
    return Token.of(_walker(ensure_deterministic).arguments(args, kwargs))
