"""Where a client connects to: an address, a file, a cluster, the configuration."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from raddle.protocol import config, context
from raddle.protocol.errors import ConfigError, StartError
from raddle.protocol.node import scheduler_file
from raddle.protocol.node.scheduler_file import SchedulerFile
from raddle.protocol.security import load_secret

POLL_SECONDS = 0.05
"""Between looks for a scheduler file."""


class Target(NamedTuple):
    """What to connect to; ``owned`` is a cluster that ends with the client."""

    address: str
    secret: bytes | None
    cluster: Any
    owned: bool


class Wanted(NamedTuple):
    """What the user said about it."""

    address: Any
    scheduler_file: str | None
    secret: str | bytes | None
    secret_file: str | None
    options: dict[str, Any]


def make_cluster(wanted: Wanted, *, asynchronous: bool) -> Any:
    """The cluster of a client that was given no address; None if it was given one.

    Called in the user's thread: a cluster may block while it starts.

    Raises:
        ConfigError: there is nothing to connect to and no way to make a cluster, or
            options for a cluster were given along with an address.

    """
    given = wanted.address is not None or wanted.scheduler_file is not None
    if given or config.get("scheduler-address") is not None:
        if wanted.options:
            names = ", ".join(wanted.options)
            msg = f"{names}: only for a Client() that makes its own cluster"
            raise ConfigError(msg)
        return None
    factory: Callable[..., Any] | None = context.cluster_factory
    if factory is None:
        msg = (
            "Client() needs an address here, or raddle.scheduler-address in the "
            "configuration (DASK_SCHEDULER_ADDRESS)"
        )
        raise ConfigError(msg)
    options = dict(wanted.options)
    if _says_secret(wanted):
        options["secret"] = load_secret(wanted.secret, wanted.secret_file)
    if asynchronous:
        options["asynchronous"] = True
    return factory(**options)


async def find_target(wanted: Wanted, made: Any, patience: float) -> Target:
    """The address to connect to, waiting for a file or a cluster to be there."""
    if made is not None:
        return await _of_cluster(made, wanted, owned=True)
    if isinstance(wanted.address, str):
        secret = load_secret(wanted.secret, wanted.secret_file)
        return Target(wanted.address, secret, None, owned=False)
    if wanted.address is not None:
        return await _of_cluster(wanted.address, wanted, owned=False)
    if wanted.scheduler_file is not None:
        content = await _read_file(wanted.scheduler_file, patience)
        file = wanted.secret_file or content.secret_file
        secret = load_secret(wanted.secret, file)
        return Target(content.address, secret, None, owned=False)
    address = str(config.get("scheduler-address"))
    secret = load_secret(wanted.secret, wanted.secret_file)
    return Target(address, secret, None, owned=False)


def _says_secret(wanted: Wanted) -> bool:
    return wanted.secret is not None or wanted.secret_file is not None


async def _read_file(path: str, patience: float) -> SchedulerFile:
    """What the scheduler file says, as soon as there is one."""
    deadline = time.monotonic() + patience
    while not Path(path).exists():  # noqa: ASYNC240 (one stat)
        if time.monotonic() > deadline:
            raise StartError(
                f"there is no scheduler file {path!r} after {patience:g} s"
            )
        await asyncio.sleep(POLL_SECONDS)
    return scheduler_file.read(path)


async def _of_cluster(cluster: Any, wanted: Wanted, *, owned: bool) -> Target:
    """A cluster or a scheduler: anything with an address, started if need be."""
    if inspect.isawaitable(cluster) and not _address(cluster):
        cluster = await cluster
    address = _address(cluster)
    if not address:
        msg = (
            "a client connects to an address (a str) or to a cluster that has one, "
            f"not to {type(cluster).__name__}"
        )
        raise ConfigError(msg)
    secret = wanted.secret
    if not _says_secret(wanted):
        secret = getattr(cluster, "secret", None)
    return Target(address, load_secret(secret, wanted.secret_file), cluster, owned)


def _address(cluster: Any) -> str | None:
    """Where it is reached from this process, else from anywhere."""
    names = ("client_address", "scheduler_address", "address")
    return next((a for n in names if (a := getattr(cluster, n, None))), None)
