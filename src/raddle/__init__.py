"""Which names `import raddle` offers; each is imported when first used.

A worker process imports this package too and must not pay for the client, so
nothing is imported here: `_HOMES` says where each public name lives. What a type
checker reads instead, the imports under TYPE_CHECKING, says the same.
"""

import sys
from importlib import import_module, metadata
from typing import TYPE_CHECKING

__all__ = ["__version__"]

__version__: str

# Public name -> the module that defines it.
_HOMES: dict[str, str] = {}

# Hidden from type checkers, to which it would make every misspelt name valid.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """The public name `name`, imported from its home and kept for next time."""
        if name == "__version__":
            value = metadata.version("raddle")
        elif name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            message = f"module 'raddle' has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[__name__])
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
