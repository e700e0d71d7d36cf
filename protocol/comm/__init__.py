"""Connections: one small interface, over TCP and within a process."""

from ..core.frames import Limits
from ..core.handshake import Hello
from .address import (
    Parsed,
    contact_host,
    format_tcp,
    host_of_interface,
    parse,
    resolve,
)
from .link import Link, Listener
from .transport import connect, listen

__all__ = [
    "Hello",
    "Limits",
    "Link",
    "Listener",
    "Parsed",
    "connect",
    "contact_host",
    "format_tcp",
    "host_of_interface",
    "listen",
    "parse",
    "resolve",
]
