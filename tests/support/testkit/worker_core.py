"""A worker's core under test: short builders, checks after every event, no world."""

from typing import Any, NamedTuple

from raddle.protocol.core.messages.client import FORM_INPUTS
from raddle.protocol.core.messages.worker import Compute, Peers
from raddle.worker.core.actions import Hand
from raddle.worker.core.events import FromScheduler, Ran, Registered, Returned
from raddle.worker.core.machine import Machine
from raddle.worker.core.state import Settings

OWN = 1
PEERS = {OWN: "tcp://own:1", 2: "tcp://two:1", 3: "tcp://three:1"}


class Handed(NamedTuple):
    """As `actions.Hand`, by aid only."""

    aids: tuple[int, ...]


def compute(
    aid: int,
    tid: int,
    *deps: tuple[Any, ...],
    priority: tuple[int, ...] = (0,),
    resources: dict[str, float] | None = None,
) -> Compute:
    """A Compute message; each dep is `(tid, wids[, nbytes[, frames]])`."""
    full = tuple((*dep, *(8, None)[len(dep) - 2 :]) for dep in deps)
    key = f"key-{tid}"
    return Compute(aid, tid, key, FORM_INPUTS, 1, (), full, priority, resources)


def returned(aid: int, value: Any = None) -> Returned:
    """A thread's report of a result that is not small."""
    return Returned(aid, value, 8, "int", 0.5, None)


class Core:
    """A machine with `validate` on that knows peers 2 and 3."""

    def __init__(
        self,
        nthreads: int = 2,
        resources: dict[str, float] | None = None,
        request_bytes_max: int = 1000,
    ) -> None:
        settings = Settings(
            nthreads=nthreads,
            resources=resources or {},
            request_bytes_max=request_bytes_max,
            validate=True,
        )
        self.machine = Machine(settings)
        assert self.on(Registered(OWN)) == []
        assert self.says(Peers(tuple(PEERS.items()))) == []

    def on(self, event: Any) -> list[Any]:
        """The actions for an event, `Hand` by aids."""
        return [
            Handed(tuple(a.aid for a in action.attempts))
            if isinstance(action, Hand)
            else action
            for action in self.machine.handle(event)
        ]

    def says(self, *messages: Any) -> list[Any]:
        """The actions for one batch of the scheduler."""
        return self.on(FromScheduler(list(messages)))

    def ran(self, *reports: Any) -> list[Any]:
        """The actions for one burst of reports."""
        return self.on(Ran(list(reports)))

    @property
    def stored(self) -> dict[int, Any]:
        """Values by tid."""
        return {tid: s.value for tid, s in self.machine.data.stored.items()}

    @property
    def wanted(self) -> set[int]:
        """Tids that are needed and not here."""
        return set(self.machine.data.wanted)

    def is_idle(self) -> bool:
        """Nothing is left of attempts, zombies, wants and requests."""
        machine = self.machine
        return not (
            machine.attempts
            or machine.zombies
            or machine.data.wanted
            or machine.fetches.under_way
            or machine.fetches.gathering
            or machine.admission.held
        )
