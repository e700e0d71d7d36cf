"""Adapter registry: name -> (module, class, constructor keywords)."""

from __future__ import annotations

import importlib

REGISTRY = {
    "distributed": ("adapters.dask_distributed", "DistributedAdapter", {"mode": "default"}),
    "distributed-tuned": ("adapters.dask_distributed", "DistributedAdapter", {"mode": "tuned"}),
    "distributed-patched": ("adapters.dask_distributed", "DistributedAdapter", {"mode": "patched"}),
    "processpool": ("adapters.futures_adapter", "ProcessPoolAdapter", {}),
    "product": ("adapters.product", "ProductAdapter", {}),
}


def make(name: str):
    module, cls, kw = REGISTRY[name]
    adapter = getattr(importlib.import_module(module), cls)(**kw)
    adapter.name = name
    return adapter
