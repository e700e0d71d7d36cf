"""Decides what an address is, and which one others are told to connect to.

``tcp://host:port`` (IPv6 hosts in brackets) or ``inproc://name``. An address
without a scheme is a TCP address.
"""

from __future__ import annotations

import asyncio
import socket
from typing import NamedTuple

import psutil

from ..errors import ConfigError, StartError

SCHEMES = ("tcp", "inproc")


class Parsed(NamedTuple):
    """The parts of an address; ``port`` is None where none is given.

    For ``inproc`` the name is in ``host``.
    """

    scheme: str
    host: str
    port: int | None


def parse(address: str) -> Parsed:
    """Take an address apart. Raises ConfigError with the remedy."""
    scheme, separator, rest = address.strip().partition("://")
    if not separator:
        scheme, rest = "tcp", scheme
    if scheme not in SCHEMES:
        msg = f"address {address!r}: unknown scheme {scheme!r}; use tcp:// or inproc://"
        raise ConfigError(msg)
    if scheme == "inproc":
        return Parsed(scheme, rest, None)
    host, port = _split(rest)
    if not port:
        return Parsed(scheme, host, None)
    if not port.isdecimal() or int(port) > 65535:
        msg = f"address {address!r}: {port!r} is not a port (0 to 65535)"
        raise ConfigError(msg)
    return Parsed(scheme, host, int(port))


def _split(text: str) -> tuple[str, str]:
    """Host and port, as texts."""
    text = text.rstrip("/")
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":")
    if text.count(":") > 1:  # a bare IPv6 host
        return text, ""
    host, _, port = text.partition(":")
    return host, port


def format_tcp(host: str, port: int) -> str:
    """``tcp://host:port``, with brackets where the host needs them."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


async def resolve(host: str, port: int) -> list[tuple[str, int]]:
    """Numeric ``(host, port)`` pairs, IPv4 first. Raises StartError."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)  # noqa: S104
    except (OSError, UnicodeError) as error:
        msg = f"cannot resolve host {host!r}: {error}"
        raise StartError(msg) from error
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    return list(dict.fromkeys((str(i[4][0]), port) for i in found))


def contact_host(bound: str) -> str:
    """The host that others reach a socket by which is bound to ``bound``."""
    if bound in {"", "0.0.0.0"}:  # noqa: S104
        return _outward(socket.AF_INET, "192.0.2.1") or "127.0.0.1"
    if bound == "::":
        return _outward(socket.AF_INET6, "2001:db8::1") or contact_host("")
    return bound


def _outward(family: socket.AddressFamily, target: str) -> str | None:
    """Our address on the route to the world (nothing is sent)."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return None


def host_of_interface(name: str) -> str:
    """The IPv4 address (else IPv6) of a network interface. Raises StartError."""
    interfaces = psutil.net_if_addrs()
    for family in (socket.AF_INET, socket.AF_INET6):
        for entry in interfaces.get(name, ()):
            if entry.family == family:
                return str(entry.address)
    known = ", ".join(sorted(interfaces))
    raise StartError(f"network interface {name!r} has no address; there are: {known}")
