"""Connections are tested on both event loops that raddle runs on."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from raddle.protocol.comm import tcp


@pytest.hookimpl
def pytest_asyncio_loop_factories() -> Mapping[
    str, Callable[[], asyncio.AbstractEventLoop]
]:
    """Each asynchronous test of this folder runs once with each."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def endless_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that would only close because its time is up hangs here."""
    monkeypatch.setattr(tcp, "LINGER_SECONDS", 3600.0)
