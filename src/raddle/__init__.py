"""Which names `import raddle` offers; each is imported when first used.

A worker process imports this package too and must not pay for the client, so
nothing is imported here: `_HOMES` says where each public name lives. What a type
checker reads instead, the imports under TYPE_CHECKING, says the same.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raddle.client.client import default_client, get_client
    from raddle.client.future import Future
    from raddle.client.iterate import as_completed, fire_and_forget, futures_of, wait
    from raddle.protocol.errors import (
        AmbiguousKeyError,
        AuthenticationError,
        CancelledError,
        CommClosedError,
        ConfigError,
        DataLost,
        HandshakeError,
        InvalidGraph,
        KilledWorker,
        LostDependency,
        ProtocolError,
        RaddleError,
        RemoteError,
        RunSpecCollisionError,
        RunSpecCollisionWarning,
        SerializationError,
        StartError,
        TimeoutError,  # noqa: A004
    )
    from raddle.protocol.tokenize import (
        Token,
        TokenizationError,
        normalize_token,
    )
    from raddle.scheduler.server import Scheduler
    from raddle.worker.api import current_task, get_worker, rejoin, secede
    from raddle.worker.run_task import Reschedule
    from raddle.worker.server import Worker

    from . import tokenize as tokenize
    from .entry import Client
    from .local import LocalCluster

__all__ = [
    "AmbiguousKeyError",
    "AuthenticationError",
    "CancelledError",
    "Client",
    "CommClosedError",
    "ConfigError",
    "DataLost",
    "Future",
    "HandshakeError",
    "InvalidGraph",
    "KilledWorker",
    "LocalCluster",
    "LostDependency",
    "ProtocolError",
    "RaddleError",
    "RemoteError",
    "Reschedule",
    "RunSpecCollisionError",
    "RunSpecCollisionWarning",
    "Scheduler",
    "SerializationError",
    "StartError",
    "TimeoutError",
    "Token",
    "TokenizationError",
    "Worker",
    "__version__",
    "as_completed",
    "current_task",
    "default_client",
    "fire_and_forget",
    "futures_of",
    "get_client",
    "get_worker",
    "normalize_token",
    "rejoin",
    "secede",
    "wait",
]

__version__: str

# Public name -> the module that defines it.
_HOMES: dict[str, str] = {
    "Client": "raddle.entry",
    "Future": "raddle.client.future",
    "LocalCluster": "raddle.local",
    "Reschedule": "raddle.worker.run_task",
    "Scheduler": "raddle.scheduler.server",
    "Worker": "raddle.worker.server",
    "default_client": "raddle.client.client",
    "get_client": "raddle.client.client",
    **dict.fromkeys(
        ("as_completed", "fire_and_forget", "futures_of", "wait"),
        "raddle.client.iterate",
    ),
    **dict.fromkeys(
        ("current_task", "get_worker", "rejoin", "secede"), "raddle.worker.api"
    ),
    **dict.fromkeys(
        ("Token", "TokenizationError", "normalize_token"),
        "raddle.protocol.tokenize",
    ),
    **dict.fromkeys(
        (
            "AmbiguousKeyError",
            "AuthenticationError",
            "CancelledError",
            "CommClosedError",
            "ConfigError",
            "DataLost",
            "HandshakeError",
            "InvalidGraph",
            "KilledWorker",
            "LostDependency",
            "ProtocolError",
            "RaddleError",
            "RemoteError",
            "RunSpecCollisionError",
            "RunSpecCollisionWarning",
            "SerializationError",
            "StartError",
            "TimeoutError",
        ),
        "raddle.protocol.errors",
    ),
}

# Hidden from type checkers, to which it would make every misspelt name valid.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """The public name `name`, imported from its home and kept for next time."""
        if name == "__version__":
            from importlib import metadata

            value = metadata.version("raddle")
        elif name == "tokenize":
            # The module, whether or not somebody has imported it before.
            value = import_module("raddle.tokenize")
        elif name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            message = f"module 'raddle' has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[__name__])
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
