"""What a worker's log says of tasks that raise."""

import asyncio
import logging

import pytest

from raddle.worker import failures
from raddle.worker.failures import Failures
from testkit.polling import eventually_async


def raised(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


async def test_a_failure_is_one_warning_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Failures(asyncio.get_running_loop())
    log.log("inc-1", "inc", "ValueError: no", raised("no"))
    log.close()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    text = record.getMessage()
    assert text.startswith("Compute Failed: task 'inc-1', function inc: ValueError")
    assert "in raised" in text


async def test_many_of_a_group_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "COUNT_SECONDS", 0.001)
    log = Failures(asyncio.get_running_loop())
    for i in range(1000):
        log.log(("inc-abc", i), "inc", "ValueError: no", raised("no"))
    log.log("dec-1", "dec", "ValueError: no", raised("no"))
    await eventually_async(lambda: "more" in caplog.text)
    log.close()
    texts = caplog.messages
    assert sum("group 'inc" not in t and "inc-abc" in t for t in texts) == 10
    assert [t for t in texts if "more" in t] == [
        "Compute Failed: 990 more tasks of group 'inc-abc'"
    ]
    assert any("'dec-1'" in t for t in texts)
