"""The public function: settings are read here, and nowhere else in the package."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ConfigError
from .hashing import ROOT_ARGS, str_piece, u64
from .node import Raw
from .tokens import Token
from .walk import Walker, strict_mode


class _Settings(NamedTuple):
    ensure_deterministic: bool
    function_code: str
    bulk_hash: str


def _section(config: Any, name: str) -> Any:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def _setting(section: Any, name: str) -> Any:
    # dask accepts both spellings; this is its lookup without its cost per call.
    found = section.get(name)
    return section.get(name.replace("-", "_")) if found is None else found


def _settings() -> _Settings:
    import dask.config

    config = dask.config.config
    ours = _section(_section(config, "raddle"), "tokenize")
    strict = _setting(ours, "ensure-deterministic") if ours else None
    if strict is None:
        theirs = _section(config, "tokenize")
        strict = _setting(theirs, "ensure-deterministic") if theirs else False
    if strict not in (None, True, False):
        msg = f"tokenize.ensure-deterministic must be true or false, not {strict!r}"
        raise ConfigError(msg)
    return _Settings(
        bool(strict),
        _setting(ours, "function-code") or "own",
        _setting(ours, "bulk-hash") or "xxh3-128",
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
    settings = _settings()
    strict = ensure_deterministic
    if strict is None:
        strict = strict_mode.get()
        if strict is None:
            strict = settings.ensure_deterministic
    walker = Walker(
        ensure_deterministic=strict,
        function_code=settings.function_code,
        bulk_hash=settings.bulk_hash,
    )
    named: list[tuple[str, Any]] = [("", Raw(u64(len(args))))]
    named += [(f"args[{i}]", arg) for i, arg in enumerate(args)]
    for name in sorted(kwargs):
        named.append(("", Raw(str_piece(name))))
        named.append((f"kwargs[{name!r}]", kwargs[name]))
    return Token.of(walker.root(ROOT_ARGS, named))
