"""Who a connecting client or worker says it is, checked field by field.

What is wrong here is told to the peer before it is taken in (HandshakeError).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from raddle.protocol.core.ids import Address, ClientId
from raddle.protocol.errors import ConfigError, HandshakeError

from .core.settings import checked_policy

T = TypeVar("T")


class ClientHello(NamedTuple):
    """The fields of ``ClientJoined`` after its time."""

    id: ClientId
    name: str
    enc: int
    policy: str | None
    nested: bool


class WorkerHello(NamedTuple):
    """The fields of ``WorkerJoined`` after its time and wid."""

    name: str
    address: Address
    host: str
    pid: int
    nthreads: int
    memory_limit: int
    resources: dict[str, float]


def read_client(info: dict[str, Any]) -> ClientHello:
    """What a client says of itself; HandshakeError names a bad field."""
    policy = _optional(info, "policy", str)
    if policy is not None:
        try:
            checked_policy(policy)
        except ConfigError as error:
            raise HandshakeError(str(error)) from error
    return ClientHello(
        _field(info, "id", str),
        _optional(info, "name", str) or "",
        _field(info, "enc", int),
        policy,
        _optional(info, "nested", bool) or False,
    )


def read_worker(info: dict[str, Any]) -> WorkerHello:
    """What a worker says of itself; HandshakeError names a bad field."""
    resources = _field(info, "resources", dict)
    for name, amount in resources.items():
        if not isinstance(name, str) or not isinstance(amount, int | float):
            msg = f"resource {name!r}={amount!r} is not a name with a number"
            raise HandshakeError(msg)
    nthreads = _field(info, "nthreads", int)
    if nthreads < 1:
        msg = f"a worker needs at least one thread, not {nthreads}"
        raise HandshakeError(msg)
    return WorkerHello(
        _field(info, "name", str),
        _field(info, "address", str),
        _field(info, "host", str),
        _field(info, "pid", int),
        nthreads,
        _field(info, "memory_limit", int),
        resources,
    )


def _optional(info: dict[str, Any], name: str, kind: type[T]) -> T | None:
    return None if info.get(name) is None else _field(info, name, kind)


def _field(info: dict[str, Any], name: str, kind: type[T]) -> T:
    value = info.get(name)
    if not isinstance(value, kind):
        msg = f"the hello's field {name!r} must be {kind.__name__}, not {value!r:.100}"
        raise HandshakeError(msg)
    return value
