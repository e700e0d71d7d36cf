"""Which host to bind to: from a host, an interface, or whether there is a secret.

Without either: loopback when there is no secret, all interfaces when there is one.
"""

from __future__ import annotations

from ..comm.address import host_of_interface
from ..errors import ConfigError

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104 (only with a secret)


def bind_host(
    host: str | None, interface: str | None, secret: bytes | None
) -> tuple[str, str]:
    """The host to bind to, and the reason in words for the log.

    Raises StartError when there is no such interface.
    """
    if host and interface:
        msg = f"give a host or an interface, not both: {host!r}, {interface!r}"
        raise ConfigError(msg)
    if host:
        return host, f"host {host}"
    if interface:
        return host_of_interface(interface), f"interface {interface}"
    if secret is None:
        return LOOPBACK, "loopback only"
    return EVERYWHERE, "all interfaces"
