"""Decides which secret applies, and who may listen where without one."""

from __future__ import annotations

import ipaddress
import logging
import socket
from pathlib import Path

from . import config
from .errors import ConfigError, StartError

logger = logging.getLogger("raddle.comm")


def load_secret(
    argument: str | bytes | None = None, file: str | None = None
) -> bytes | None:
    """The shared secret: the argument, else the file, else the configuration.

    The configuration's keys are ``raddle.comm.secret`` and
    ``raddle.comm.secret-file``, also as ``DASK_RADDLE__COMM__SECRET`` and
    ``DASK_RADDLE__COMM__SECRET_FILE`` in the environment. White space at the end of
    a file is not part of the secret. None where there is no secret at all.

    Raises ConfigError if a file cannot be read, or a secret is empty.
    """
    if argument is not None:
        return _secret(argument, "the secret given")
    if file is not None:
        return _from_file(file)
    configured = config.get_text("comm.secret")
    if configured is not None:
        return _secret(configured, "raddle.comm.secret")
    named = config.get_text("comm.secret-file")
    return None if named is None else _from_file(named)


def _from_file(name: str) -> bytes:
    path = Path(name).expanduser()
    try:
        content = path.read_bytes()
    except OSError as error:
        msg = f"cannot read the secret file {str(path)!r}: {error.strerror}"
        raise ConfigError(msg) from error
    return _secret(content.rstrip(), f"the secret file {str(path)!r}")


def _secret(value: str | bytes, source: str) -> bytes:
    secret = value.encode() if isinstance(value, str) else bytes(value)
    if not secret:
        raise ConfigError(f"{source} is empty: write at least 16 random characters")
    return secret


def is_loopback(host: str) -> bool:
    """Whether a socket bound to ``host`` is out of other machines' reach.

    Raises StartError where the host cannot be resolved.
    """
    if host in {"", "0.0.0.0", "::"}:  # noqa: S104
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise StartError(f"cannot resolve host {host!r}: {error}") from error
    return all(
        ipaddress.ip_address(str(info[4][0]).partition("%")[0]).is_loopback
        for info in found
    )


def check_bind(host: str, secret: bytes | None, insecure: bool) -> None:
    """Refuse to listen for other machines without a secret.

    Raises StartError with what to do; with ``insecure`` it warns, once, in its
    place.
    """
    if secret is not None or is_loopback(host):
        return
    where = host or "all interfaces"
    if not insecure:
        msg = (
            f"refusing to listen on {where} without a secret: whoever can connect can "
            "run code here. Give a secret (--secret-file, or raddle.comm.secret in the "
            "configuration), listen on 127.0.0.1 only, or override with --insecure"
        )
        raise StartError(msg)
    logger.warning(
        "listening on %s without a secret (insecure): whoever can connect can run "
        "code here",
        where,
    )
