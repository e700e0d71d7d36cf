"""A task's surroundings belong to its thread or coroutine."""

import asyncio
import contextvars
import threading
from typing import Any, cast

from raddle.protocol.context import TaskHandle, current_task


def handle(name: str) -> TaskHandle:
    """Something to recognise; nothing here looks inside."""
    return cast("TaskHandle", name)


def test_outside_of_tasks_there_is_none() -> None:
    assert contextvars.Context().run(current_task.get) is None


def test_each_thread_has_its_own() -> None:
    seen: dict[str, Any] = {}
    both = threading.Barrier(2)

    def work(name: str) -> None:
        token = current_task.set(handle(name))
        both.wait(10)
        seen[name] = current_task.get()
        both.wait(10)
        current_task.reset(token)
        seen[f"{name} after"] = current_task.get()

    threads = [threading.Thread(target=work, args=(n,)) for n in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"a": "a", "b": "b", "a after": None, "b after": None}


async def test_each_coroutine_has_its_own() -> None:
    async def work(name: str) -> Any:
        current_task.set(handle(name))
        await asyncio.sleep(0)
        return current_task.get()

    assert list(await asyncio.gather(work("a"), work("b"))) == ["a", "b"]
    assert current_task.get() is None
