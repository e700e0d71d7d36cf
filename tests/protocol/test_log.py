"""Only raddle's own processes print, in one format, and leave the root logger alone."""

import io
import logging
import re
import subprocess
import sys
from collections.abc import Iterator

import dask.config
import pytest

from raddle.protocol import log
from raddle.protocol.errors import ConfigError
from raddle.protocol.log import parse_level, setup_logging


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    logger = logging.getLogger("raddle")
    before = logger.level, logger.propagate, list(logger.handlers)
    monkeypatch.setattr(log, "_handler", None)
    yield
    logger.level, logger.propagate, logger.handlers = before
    logger.manager._clear_cache()  # type: ignore[attr-defined]


def test_records_look_as_documented() -> None:
    stream = io.StringIO()
    setup_logging("info", stream)
    logging.getLogger("raddle.scheduler").warning("run_spec collision: %d key", 1)
    logging.getLogger("raddle.scheduler").debug("unseen")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - raddle\.scheduler - WARNING - "
        r"run_spec collision: 1 key\n",
        stream.getvalue(),
    )


def test_repeated_calls_do_not_repeat_records() -> None:
    first, second = io.StringIO(), io.StringIO()
    setup_logging("info", first)
    setup_logging("debug", second)
    logging.getLogger("raddle.x").debug("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_the_root_logger_is_not_involved(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    setup_logging("info", io.StringIO())
    logging.getLogger("raddle.x").error("ours")
    assert (root.level, list(root.handlers)) == before
    assert caplog.records == []


def test_level_and_format_come_from_the_settings() -> None:
    stream = io.StringIO()
    settings = {"log-level": "error", "log-format": "<%(message)s>"}
    with dask.config.set({f"raddle.admin.{k}": v for k, v in settings.items()}):
        setup_logging(stream=stream)
    logging.getLogger("raddle.x").warning("no")
    logging.getLogger("raddle.x").error("yes")
    assert stream.getvalue() == "<yes>\n"


def test_levels_are_names_or_numbers() -> None:
    for level in ("INFO", "info", 20, "20"):
        assert parse_level(level) == logging.INFO
    assert parse_level("warn") == logging.WARNING
    with pytest.raises(ConfigError, match="True is not one of"):
        parse_level(True)
    with pytest.raises(ConfigError, match=r"--log-level: 'loud' is not one of debug"):
        parse_level("loud", "--log-level")
    with dask.config.set({"raddle.admin.log-level": "loud"}):  # noqa: SIM117
        with pytest.raises(ConfigError, match=r"raddle\.admin\.log-level: 'loud'"):
            setup_logging()


@pytest.mark.process
def test_using_the_library_configures_no_logging() -> None:
    code = (
        "import logging, raddle.protocol.log, raddle.protocol.serialize\n"
        "print(logging.getLogger().handlers, logging.getLogger('raddle').handlers)\n"
        "logging.getLogger('raddle.x').info('silent')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=50
    )
    assert done.stdout.decode().strip() == "[] []"
    assert done.stderr == b""
