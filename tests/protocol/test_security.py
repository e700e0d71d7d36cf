"""Which secret applies, and who may listen where without one."""

import logging
from pathlib import Path

import dask.config
import pytest

from raddle.protocol.errors import ConfigError, StartError
from raddle.protocol.security import check_bind, is_loopback, load_secret


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Two files with a secret each."""
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(f"from {name}\r\n".encode())
    return str(tmp_path / "one"), str(tmp_path / "two")


def test_no_secret() -> None:
    assert load_secret() is None


def test_the_order_of_sources(files: tuple[str, str]) -> None:
    one, two = files
    with dask.config.set({"raddle.comm.secret-file": two}):
        assert load_secret() == b"from two"
        assert load_secret(file=one) == b"from one"
        with dask.config.set({"raddle.comm.secret": "configured"}):
            assert load_secret() == b"configured"
            assert load_secret(file=one) == b"from one"
            assert load_secret("given", file=one) == b"given"
            assert load_secret(b"\x00bytes ") == b"\x00bytes "


@pytest.mark.parametrize("secret", ["from outside", "12345", "12e45", "0x1f", "True"])
def test_the_environment(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """dask reads values as Python literals where it can; a secret stays a text."""
    monkeypatch.setenv("DASK_RADDLE__COMM__SECRET", secret)
    with dask.config.set(dask.config.collect_env()):
        assert load_secret() == secret.encode()


def test_a_file_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "key").write_text("x")
    assert load_secret(file="~/key") == b"x"


def test_files_that_do_not_do(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(ConfigError, match=f"'{missing}': No such file"):
        load_secret(file=str(missing))
    with pytest.raises(ConfigError, match="Is a directory"):
        load_secret(file=str(tmp_path))
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(ConfigError, match=f"'{empty}' is empty"):
        load_secret(file=str(empty))
    with pytest.raises(ConfigError, match="the secret given is empty"):
        load_secret("")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "localhost", "::1"])
def test_loopback_needs_nothing(host: str, caplog: pytest.LogCaptureFixture) -> None:
    assert is_loopback(host)
    check_bind(host, None, insecure=False)
    check_bind(host, None, insecure=True)
    assert not caplog.records


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.0.2.1"])
def test_everything_else_needs_a_secret(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not is_loopback(host)
    check_bind(host, b"secret", insecure=False)
    with pytest.raises(StartError) as info:
        check_bind(host, None, insecure=False)
    for words in (host or "all interfaces", "--secret-file", "127.0.0.1", "--insecure"):
        assert words in str(info.value)
    assert "\n" not in str(info.value)
    assert not caplog.records
    check_bind(host, None, insecure=True)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "without a secret" in record.getMessage()
    check_bind(host, b"secret", insecure=True)
    assert len(caplog.records) == 1


def test_a_host_that_cannot_be_resolved() -> None:
    with pytest.raises(StartError, match=r"cannot resolve host 'no\.such\.invalid'"):
        check_bind("no.such.invalid", None, insecure=False)
