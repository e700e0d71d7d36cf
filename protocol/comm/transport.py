"""Decides which transport an address means; the one door for connections."""

from __future__ import annotations

from .. import config
from ..core.frames import Limits
from ..core.handshake import Hello
from .address import parse
from .inproc import InprocListener, connect_inproc
from .link import Accept, Link, Listener, OnBatch, OnClose
from .opening import connect_tcp, listen_tcp


def configured_limits() -> Limits:
    """The limits of ``raddle.comm`` in the configuration."""
    return Limits(
        message=config.get_bytes("comm.limits.message"),
        frames=config.get("comm.limits.frames"),
        preauth=config.get_bytes("comm.preauth-bytes"),
    )


async def connect(
    address: str,
    hello: Hello,
    *,
    secret: bytes | None,
    timeout: float,  # noqa: ASYNC109 (it is raddle's error that is raised)
    on_batch: OnBatch,
    on_close: OnClose,
    limits: Limits | None = None,
) -> Link:
    """Connect to ``address`` and shake hands, within ``timeout`` seconds.

    ``on_batch`` is first called after this has returned to a caller that awaits it
    directly. Neither function is called when this raises:

    - ConfigError: not an address;
    - StartError: the host cannot be resolved;
    - CommClosedError: refused or ended, so that a retry may help;
    - AuthenticationError: the secrets differ, or one side has none;
    - HandshakeError: the versions do not fit, or the other side's reason to refuse;
    - ProtocolError: the other side is not raddle;
    - raddle's TimeoutError.
    """
    parsed = parse(address)
    if parsed.scheme == "inproc":
        return await connect_inproc(
            parsed,
            hello,
            secret=secret,
            timeout=timeout,
            on_batch=on_batch,
            on_close=on_close,
        )
    return await connect_tcp(
        address if "://" in address else f"tcp://{address}",
        parsed,
        hello,
        secret=secret,
        timeout=timeout,
        on_batch=on_batch,
        on_close=on_close,
        limits=limits or configured_limits(),
    )


async def listen(
    address: str,
    *,
    secret: bytes | None,
    accept: Accept,
    limits: Limits | None = None,
    handshake_seconds: float | None = None,
) -> Listener:
    """Take connections at ``address`` (``tcp://host:port`` or ``inproc://name``).

    A missing port or name, or port 0, is chosen. ``accept(link, hello)`` runs on
    the loop: it sets ``on_batch`` and ``on_close`` of the link and returns the
    welcome (a dict for msgpack), or raises HandshakeError with the reason to
    refuse (closing the link refuses too); what it sends follows the welcome. Raises StartError for a busy port or
    an unresolvable host.
    """
    parsed = parse(address)
    if parsed.scheme == "inproc":
        return InprocListener(parsed.host, secret, accept)
    return await listen_tcp(
        parsed,
        secret=secret,
        accept=accept,
        limits=limits or configured_limits(),
        patience=handshake_seconds or config.get_seconds("comm.timeouts.handshake"),
    )
