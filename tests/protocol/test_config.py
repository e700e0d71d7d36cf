"""Settings come from dask.config, wrong ones are named, unknown ones are noticed."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dask.config
import pytest

from raddle.protocol import config
from raddle.protocol.config import ConfigWarning, parse_bytes, parse_seconds
from raddle.protocol.errors import ConfigError

Environment = Callable[..., None]


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "_warned", set())
    monkeypatch.setattr(config, "_last_count", -1)


@pytest.fixture
def environment() -> Iterator[Environment]:
    """Start over with these environment variables, as a new process would."""
    with pytest.MonkeyPatch.context() as patch:

        def start(**variables: str) -> None:
            for name, value in variables.items():
                patch.setenv(name, value)
            dask.config.refresh()

        yield start
    dask.config.refresh()


def test_defaults_are_in_dask_config_too() -> None:
    assert config.get("scheduler.collision-policy") == "warn"
    assert dask.config.get("raddle.scheduler.collision-policy") == "warn"
    assert config.get("comm.secret") is None


def test_every_default_is_valid() -> None:
    for key in config.DEFAULTS:
        config.get(key)
    for key in (
        "comm.timeouts.connect",
        "comm.timeouts.handshake",
        "scheduler.queue-seconds",
        "scheduler.unknown-task-duration",
        "worker.heartbeat",
        "worker.death-timeout",
    ):
        assert config.get_seconds(key) > 0
    for key in (
        "comm.preauth-bytes",
        "comm.limits.message",
        "scheduler.inline-bytes-max",
        "worker.inline-bytes",
        "client.function-cache-bytes",
    ):
        assert config.get_bytes(key) > 0


def test_values_are_read_when_asked_for() -> None:
    with dask.config.set({"raddle.scheduler.allowed-failures": 7}):
        assert config.get("scheduler.allowed-failures") == 7
    with dask.config.set({"raddle.scheduler.allowed_failures": 8}):
        assert config.get("scheduler.allowed-failures") == 8
    assert config.get("scheduler.allowed-failures") == 3


def test_the_environment_sets_values(environment: Environment) -> None:
    environment(
        DASK_RADDLE__COMM__SECRET="hidden",
        DASK_RADDLE__COMM__SECRET_FILE="/a/b",
        DASK_RADDLE__SCHEDULER__ALLOWED_FAILURES="9",
        DASK_RADDLE__COMM__TIMEOUTS__CONNECT="2 minutes",
        DASK_SCHEDULER_ADDRESS="tcp://there:1",
    )
    assert config.get_text("comm.secret") == "hidden"
    assert config.get("comm.secret-file") == "/a/b"
    assert config.get("scheduler.allowed-failures") == 9
    assert config.get_seconds("comm.timeouts.connect") == 120
    assert config.get("scheduler-address") == "tcp://there:1"


@pytest.mark.parametrize("secret", ["12345", "0x10", "1e5", "(1, 2)", "true"])
def test_a_secret_is_not_taken_for_a_literal(
    environment: Environment, secret: str
) -> None:
    environment(DASK_RADDLE__COMM__SECRET=secret)
    assert config.get_text("comm.secret") == secret


def test_a_secret_in_a_file_must_be_a_text() -> None:
    with dask.config.set({"raddle.comm.secret": 123}):  # noqa: SIM117
        with pytest.raises(ConfigError, match=r"raddle\.comm\.secret: .*quotes.*int"):
            config.get_text("comm.secret")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scheduler.validate", "yes"),
        ("scheduler.validate", 1.5),
        ("scheduler.allowed-failures", "many"),
        ("scheduler.allowed-failures", 2.5),
        ("scheduler.allowed-failures", True),
        ("scheduler.allowed-failures", None),
    ],
)
def test_a_value_of_the_wrong_type_is_named(key: str, value: Any) -> None:
    with dask.config.set({f"raddle.{key}": value}):  # noqa: SIM117
        with pytest.raises(ConfigError, match=f"raddle.{key}: {value!r}"):
            config.get(key)


def test_a_wrong_duration_or_size_is_named() -> None:
    with dask.config.set({"raddle.comm.timeouts.connect": "soon"}):  # noqa: SIM117
        with pytest.raises(ConfigError, match=r"raddle.comm.timeouts.connect: 'soon'"):
            config.get_seconds("comm.timeouts.connect")
    with dask.config.set({"raddle.comm.limits.message": "huge"}):  # noqa: SIM117
        with pytest.raises(ConfigError, match=r"raddle.comm.limits.message: 'huge'"):
            config.get_bytes("comm.limits.message")


def test_a_duration_has_a_unit_or_is_in_seconds() -> None:
    for given in ("10 ms", 0.01):
        with dask.config.set({"raddle.scheduler.queue-seconds": given}):
            assert config.get_seconds("scheduler.queue-seconds") == 0.01


def test_a_key_that_is_not_listed_is_an_error_or_the_default() -> None:
    with pytest.raises(ConfigError, match=r"did you mean raddle\.comm\.secret"):
        config.get("comm.secrets")
    assert config.get("comm.secrets", 5) == 5


def test_a_section_replaced_by_a_value_leaves_the_defaults() -> None:
    with dask.config.set({"raddle.comm": 5}):
        with pytest.warns(ConfigWarning, match=r"raddle\.comm:"):
            assert config.get("comm.secret") is None
        assert config.get_seconds("comm.timeouts.connect") == 30
    with dask.config.set(raddle=5), pytest.raises(ConfigError, match="not 5"):
        config.get("comm.secret")


# Keys of others.


def test_keys_of_distributed_are_read_while_ours_are_defaults() -> None:
    with dask.config.set({"distributed.comm.timeouts.connect": "7s"}):
        assert config.get_seconds("comm.timeouts.connect") == 7
        with dask.config.set({"raddle.comm.timeouts.connect": "8s"}):
            assert config.get_seconds("comm.timeouts.connect") == 8
    assert config.get_seconds("comm.timeouts.connect") == 30


def test_defaults_of_distributed_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {"distributed": {"scheduler": {"allowed-failures": 11}}}
    monkeypatch.setattr(dask.config, "defaults", [*dask.config.defaults, theirs])
    with dask.config.set(theirs):
        assert config.get("scheduler.allowed-failures") == 3
    with dask.config.set({"distributed.scheduler.allowed-failures": 12}):
        assert config.get("scheduler.allowed-failures") == 12


def test_a_wrong_value_is_blamed_on_the_key_it_came_from() -> None:
    with dask.config.set({"distributed.scheduler.allowed-failures": "x"}):  # noqa: SIM117
        with pytest.raises(ConfigError, match=r"^distributed\.scheduler\.allowed"):
            config.get("scheduler.allowed-failures")
    with dask.config.set({"distributed.comm.timeouts.connect": "x"}):  # noqa: SIM117
        with pytest.raises(ConfigError, match=r"^distributed\.comm\.timeouts"):
            config.get_seconds("comm.timeouts.connect")


def test_every_alias_is_of_a_key_that_exists() -> None:
    assert set(config.ALIASES) <= set(config.DEFAULTS)


# Unknown keys.


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("scheduler.colision-policy", "scheduler.collision-policy"),
        ("scheduler.collision_polcy", "scheduler.collision-policy"),
        ("worker.collision-policy", "scheduler.collision-policy"),
        ("allowed-failures", "scheduler.allowed-failures"),
        ("comm.timeouts.conect", "comm.timeouts.connect"),
        ("comm.timeout.connect", "comm.timeouts.connect"),
    ],
)
def test_an_unknown_key_is_told_once(key: str, nearest: str) -> None:
    with dask.config.set({f"raddle.{key}": 1}):
        with pytest.warns(ConfigWarning) as caught:
            config.get("comm.secret")
        config.get("comm.secret")
        with dask.config.set({"raddle.another": 1}):  # noqa: SIM117
            with pytest.warns(ConfigWarning, match=r"^raddle\.another: "):
                config.get("comm.secret")
        config.get("comm.secret")
    (warning,) = caught
    shown = key.replace("_", "-")
    assert str(warning.message) == (
        f"raddle.{shown}: there is no such setting; did you mean raddle.{nearest}?"
    )
    assert warning.filename == __file__


def test_an_unknown_key_like_no_other_gets_no_suggestion() -> None:
    with dask.config.set({"raddle.quux.zork": 1}):  # noqa: SIM117
        with pytest.warns(ConfigWarning, match=r"raddle\.quux\.zork: .*setting$"):
            config.get("comm.secret")


def test_known_keys_in_either_spelling_are_not_told() -> None:
    with dask.config.set({"raddle.scheduler.collision_policy": "raise"}):
        assert config.get("scheduler.collision-policy") == "raise"


def test_the_variable_of_an_unknown_key_is_named(environment: Environment) -> None:
    environment(DASK_RADDLE__SCHEDULER__ALOWED_FAILURES="5")
    with pytest.warns(ConfigWarning) as caught:
        config.get("comm.secret")
    (warning,) = caught
    assert str(warning.message) == (
        "raddle.scheduler.alowed-failures (environment variable "
        "DASK_RADDLE__SCHEDULER__ALOWED_FAILURES): there is no such setting; did you "
        "mean raddle.scheduler.allowed-failures?"
    )


def test_the_file_of_an_unknown_key_is_named(
    tmp_path: Path, environment: Environment
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("raddle:\n  worker:\n    heart-beat: 1s\n")
    dask.config.paths.append(str(tmp_path))
    try:
        environment()
        with pytest.warns(ConfigWarning) as caught:
            config.get("comm.secret")
    finally:
        dask.config.paths.remove(str(tmp_path))
    (warning,) = caught
    assert str(warning.message) == (
        f"raddle.worker.heart-beat (in {path}): there is no such setting; did you "
        "mean raddle.worker.heartbeat?"
    )


# Durations and sizes.


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (5, 5),
        (0, 0),
        (0.25, 0.25),
        ("5", 5),
        ("5s", 5),
        ("5 s", 5),
        (" 1.5 hours ", 5400),
        ("500 ms", 0.5),
        ("500ms", 0.5),
        (".5s", 0.5),
        ("5.s", 5),
        ("1e3 ms", 1),
        ("1e-3", 0.001),
        ("10us", 1e-5),
        ("10µs", 1e-5),
        ("3 ns", 3e-9),
        ("2 Minutes", 120),
        ("1m", 60),
        ("1 day", 86400),
        ("1w", 604800),
        (timedelta(minutes=1, milliseconds=500), 60.5),
    ],
)
def test_durations(value: Any, seconds: float) -> None:
    assert parse_seconds(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (100, 100),
        (1.5, 1),
        ("100", 100),
        ("100B", 100),
        ("4 KiB", 4096),
        ("4kB", 4000),
        ("4k", 4000),
        ("2GiB", 2**31),
        ("2Gi", 2**31),
        ("4GB", 4 * 10**9),
        ("4gb", 4 * 10**9),
        ("1.5 MiB", 1572864),
        ("1 TiB", 2**40),
        ("1PB", 10**15),
        ("1e6", 10**6),
    ],
)
def test_sizes(value: Any, size: int) -> None:
    assert parse_bytes(value) == size
    assert type(parse_bytes(value)) is int


@pytest.mark.parametrize("parse", [parse_seconds, parse_bytes])
@pytest.mark.parametrize(
    "value",
    [
        "", " ", "s", "five", "5 parsecs", "-5", -5, -0.1, "5s 3", "1,5s", "1..5",
        "nan", "inf", float("nan"), float("inf"), "1e999", True, None, [5], b"5",
        timedelta(seconds=-1),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_quantity_is_named(parse: Any, value: Any) -> None:
    if parse is parse_bytes and isinstance(value, timedelta):
        value = timedelta(seconds=1)
    with pytest.raises(ConfigError) as caught:
        parse(value, "--the-option")
    assert str(caught.value).startswith(f"--the-option: {value!r} is not a")


@pytest.mark.process
def test_reading_settings_imports_nothing_heavy() -> None:
    code = (
        "import sys, raddle.protocol.config, raddle.protocol.serialize\n"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'distributed', 'tornado'}\n"
        "print(heavy & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONSAFEPATH": "1"},
        timeout=50,
    )
    assert done.stdout.decode().strip() == "set()"
