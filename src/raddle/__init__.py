"""Which names `import raddle` offers; each is imported when first used.

A worker process imports this package too and must not pay for the client, so
nothing is imported here: `_HOMES` says where each public name lives.
"""

from importlib import import_module, metadata

# Public name -> the module that defines it.
_HOMES: dict[str, str] = {}

__all__ = ["__version__"]


def __getattr__(name: str) -> object:
    """The public name `name`, imported from its home and kept for next time."""
    if name == "__version__":
        value: object = metadata.version("raddle")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        message = f"module 'raddle' has no attribute {name!r}"
        raise AttributeError(message)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
