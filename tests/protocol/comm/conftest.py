"""Connections are tested on both event loops that raddle runs on."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


@pytest.hookimpl
def pytest_asyncio_loop_factories() -> Mapping[
    str, Callable[[], asyncio.AbstractEventLoop]
]:
    """Each asynchronous test of this folder runs once with each."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
