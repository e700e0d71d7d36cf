"""Which libraries get encoders of ours, each imported when its first object comes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from .registry import normalize_token

_HOMES = {
    "numpy": ".arrays",
    "pandas": ".frames",
    "pyarrow": ".arrow",
    "dask": ".nodes",
}


def _registration(module: str) -> Callable[[], None]:
    def register() -> None:
        import_module(module, __package__).register()

    return register


def install() -> None:
    """Announce the registrations to the registry."""
    for library, module in _HOMES.items():
        normalize_token.register_lazy(library, _registration(module))
