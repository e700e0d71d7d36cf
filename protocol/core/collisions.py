"""What is written down when one key was claimed by two run_specs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from .ids import ClientId, Key

Policy = Literal["warn", "raise", "isolate"]
POLICIES: tuple[Policy, ...] = ("warn", "raise", "isolate")

Kind = Literal["spec", "deps", "inputs", "data", "kind", "undetermined"]
Action = Literal["kept", "new-instance", "superseded", "rejected", "isolated"]


class CollisionRecord(NamedTuple):
    """One key, two claims.

    ``kind`` says what differs: the run_spec, the names of its dependencies, the
    dependency instances behind equal names (``inputs``), scattered data, data
    against a computed task (``kind``), or nothing that could be proven
    (``undetermined``). Tokens are the printed form: 8 hex digits, followed by
    ``?`` where not deterministic. ``old_status`` is the old instance's state at
    that moment, ``owners`` the clients that wanted it or, where none did directly, the
    nearest tasks that depend on it.
    """

    key: Key
    group: str
    kind: Kind
    old_token: str
    new_token: str
    old_dependencies: tuple[Key, ...]
    new_dependencies: tuple[Key, ...]
    old_status: str
    owners: tuple[ClientId, ...]
    submitter: ClientId
    policy: Policy
    action: Action

    def __str__(self) -> str:
        owners = ", ".join(self.owners) or "no client"
        return (
            f"key {self.key!r}: {self.kind} differs, token {self.old_token} -> "
            f"{self.new_token}, dependencies {_names(self.old_dependencies)} -> "
            f"{_names(self.new_dependencies)}, was {self.old_status}, owned by {owners}"
        )


def _names(keys: tuple[Key, ...], shown: int = 5) -> str:
    listed = ", ".join(repr(k) for k in keys[:shown])
    more = f", ... {len(keys) - shown} more" if len(keys) > shown else ""
    return f"{{{listed}{more}}}"


def printed(token: bytes, skeleton: bytes | None) -> str:
    """The form of a token that people read: ``60dfef54``, or ``60dfef54?``."""
    return token[:4].hex() + ("" if skeleton is None else "?")
