"""Every message there is, in one table from op to class.

The encoder, the decoder, the round-trip and fuzz tests and the documentation
page are derived from :data:`MESSAGES`.
"""

from __future__ import annotations

from typing import Any

from .base import Frames, Message
from .client import CLIENT_TO_SCHEDULER, SCHEDULER_TO_CLIENT
from .peer import PEER
from .worker import SCHEDULER_TO_WORKER, WORKER_TO_SCHEDULER

_ALL: tuple[type[Any], ...] = (
    *CLIENT_TO_SCHEDULER, *SCHEDULER_TO_CLIENT, *SCHEDULER_TO_WORKER,
    *WORKER_TO_SCHEDULER, *PEER,
)  # fmt: skip

MESSAGES: dict[int, type[Any]] = {cls.OP: cls for cls in _ALL}

__all__ = [
    "CLIENT_TO_SCHEDULER",
    "MESSAGES",
    "PEER",
    "SCHEDULER_TO_CLIENT",
    "SCHEDULER_TO_WORKER",
    "WORKER_TO_SCHEDULER",
    "Frames",
    "Message",
]
