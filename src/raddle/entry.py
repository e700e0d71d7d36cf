"""What `Client()` without an address does: it makes a cluster on this machine."""

from __future__ import annotations

from typing import Any

from raddle.client.client import Client
from raddle.protocol import context

__all__ = ["Client"]


def _local_cluster(**options: Any) -> Any:
    # Whoever connects to a cluster elsewhere needs nothing of it.
    from .local import LocalCluster

    return LocalCluster(**options)


context.cluster_factory = _local_cluster
