"""What the worker's core remembers."""

from __future__ import annotations

from typing import NamedTuple

from raddle.protocol.core.ids import Aid, Fn, Wid

from .admission import Admission
from .attempts import Attempt, Definition
from .data import Data
from .fetches import REQUEST_BYTES_MAX, Fetches


class Settings(NamedTuple):
    """What does not change while the worker lives.

    ``resources`` are the amounts the worker has, ``request_bytes_max`` bounds one
    request to a peer (bytes); ``validate`` checks all invariants after every event.
    """

    nthreads: int
    resources: dict[str, float]
    request_bytes_max: int = REQUEST_BYTES_MAX
    validate: bool = False


class State:
    """The state of one worker incarnation; it is changed by ``Machine`` only.

    ``attempts`` are alive, ``zombies`` were cancelled while a thread had them (or
    may have had): their results go nowhere. ``ready`` is sorted by priority and
    holds attempts that wait for resources only. ``seen`` is the number of the last
    DropData that was handled. ``wid`` is the number that the scheduler gave.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.wid: Wid = 0
        self.attempts: dict[Aid, Attempt] = {}
        self.zombies: dict[Aid, Attempt] = {}
        self.ready: list[tuple[tuple[int, ...], Aid]] = []
        self.admission = Admission(settings.resources)
        self.data = Data()
        self.fetches = Fetches(settings.request_bytes_max)
        self.functions: dict[Fn, Definition] = {}
        self.seen = 0
