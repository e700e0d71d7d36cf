"""What the worker's arguments mean: sizes, threads, and where to serve data."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import psutil

from raddle.protocol import config, security
from raddle.protocol.comm import (
    Listener,
    format_tcp,
    host_of_interface,
    listen,
    parse,
    resolve,
)
from raddle.protocol.comm.link import Accept
from raddle.protocol.core.ids import Address
from raddle.protocol.errors import ConfigError, StartError
from raddle.protocol.node.cores import cpu_count
from raddle.protocol.node.hosts import LOOPBACK


def parse_nthreads(nthreads: int | None) -> int:
    """Threads: as given, or the cores this process may use. Raises ConfigError."""
    if not nthreads:
        return cpu_count()
    if nthreads < 0:
        msg = f"nthreads: {nthreads!r} is not a positive number of threads"
        raise ConfigError(msg)
    return nthreads


CONFIGURED = "configured"
"""In place of a memory limit: the one of the setting ``worker.memory-limit``."""


def parse_memory_limit(limit: str | float | None, nthreads: int) -> int:
    """Bytes; 0 for no limit.

    ``"configured"`` is what ``raddle.worker.memory-limit`` says; ``"auto"`` is the machine's memory times the worker's share of the cores. A
    number up to 1 is a fraction of the machine's memory, any other a number of
    bytes; texts such as ``"4GB"`` are sizes. None, 0 and ``"0"`` mean no limit.
    Raises ConfigError.
    """
    if limit == CONFIGURED:
        limit = config.get("worker.memory-limit")
    if limit is None or limit in {0, "0", "none", "None"}:
        return 0
    total = int(psutil.virtual_memory().total)
    if limit == "auto":
        return int(total * min(1.0, nthreads / cpu_count()))
    fraction = _fraction(limit)
    if fraction is not None:
        return int(total * fraction)
    return min(config.parse_bytes(limit, "memory-limit"), total)


def _fraction(limit: str | float) -> float | None:
    """The share of the machine that is meant, if one is meant: 0.5, "0.5", 1.0."""
    if isinstance(limit, str):
        try:
            number = float(limit)
        except ValueError:
            return None
        whole = "." not in limit
    else:
        number, whole = float(limit), isinstance(limit, int)
    return number if 0 < number <= 1 and not whole else None


def parse_resources(resources: dict[str, Any] | None) -> dict[str, float]:
    """Amounts by name, checked. Raises ConfigError."""
    amounts = {}
    for name, amount in (resources or {}).items():
        if (
            not isinstance(amount, int | float)
            or isinstance(amount, bool)
            or not amount >= 0
        ):
            msg = f"resources: {name}={amount!r} is not an amount"
            raise ConfigError(msg)
        amounts[str(name)] = float(amount)
    return amounts


async def listen_for_data(
    scheduler_address: Address,
    accept: Accept,
    *,
    host: str | None,
    interface: str | None,
    ports: int | Sequence[int],
    secret: bytes | None,
    insecure: bool,
) -> Listener:
    """Serve data where others can reach it; the first free port is taken.

    Without host and interface, that is the address by which this machine reaches
    the scheduler. Raises StartError: no port is free, the host is unknown, or it is
    not loopback and there is no secret.
    """
    if parse(scheduler_address).scheme == "inproc":
        return await listen("inproc://", secret=secret, accept=accept)
    if host and interface:
        msg = f"give a host or an interface, not both: {host!r}, {interface!r}"
        raise ConfigError(msg)
    if interface:
        host = host_of_interface(interface)
    elif host and "://" in host:
        host = parse(host).host
    bound = host or await _host_towards(scheduler_address)
    security.check_bind(bound, secret, insecure)
    choices = [ports] if isinstance(ports, int) else list(ports)
    for port in choices[:-1]:
        try:
            address = format_tcp(bound, port)
            return await listen(address, secret=secret, accept=accept)
        except StartError:
            continue
    return await listen(format_tcp(bound, choices[-1]), secret=secret, accept=accept)


async def _host_towards(address: Address) -> str:
    """The address of this machine on the route to another; nothing is sent."""
    parsed = parse(address)
    if not parsed.host or not parsed.port:
        msg = f"scheduler address {address!r}: write tcp://host:port"
        raise ConfigError(msg)
    (host, port), *_ = await resolve(parsed.host, parsed.port)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


def contact_address(given: str | None, listening: Address) -> Address:
    """What others are told to connect to; a missing port is the one listened on."""
    if given is None:
        return listening
    parsed, actual = parse(given), parse(listening)
    if parsed.scheme == "inproc":
        return given
    return format_tcp(parsed.host, parsed.port or actual.port or 0)
