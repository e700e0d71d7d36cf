"""Polling ends when the condition holds, and says so when it never does."""

import threading

import pytest

from testkit.polling import eventually, eventually_async


def never() -> bool:
    return False


def test_eventually_sees_another_thread() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.set)
    thread.start()
    eventually(done.is_set)
    thread.join()


def test_eventually_gives_up() -> None:
    with pytest.raises(AssertionError, match="never was still false after"):
        eventually(never, within=0.01)


async def test_eventually_async_lets_the_loop_run() -> None:
    looks = iter([False, False, True])
    await eventually_async(lambda: next(looks))
    assert list(looks) == []


async def test_eventually_async_gives_up() -> None:
    with pytest.raises(AssertionError, match="never was still false after"):
        await eventually_async(never, within=0.01)
