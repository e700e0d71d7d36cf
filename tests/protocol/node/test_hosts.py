"""Hosts: what is bound to when nobody says so."""

import pytest

from raddle.protocol.errors import ConfigError, StartError
from raddle.protocol.node.hosts import bind_host


def test_loopback_without_a_secret_and_everywhere_with_one() -> None:
    assert bind_host(None, None, None)[0] == "127.0.0.1"
    assert bind_host(None, None, b"secret")[0] == "0.0.0.0"


def test_what_is_given_is_taken() -> None:
    assert bind_host("10.0.0.5", None, None)[0] == "10.0.0.5"
    assert bind_host(None, "lo", None) == ("127.0.0.1", "interface lo")


def test_a_contradiction() -> None:
    with pytest.raises(ConfigError, match="not both"):
        bind_host("10.0.0.5", "lo", None)


def test_an_interface_that_is_missing() -> None:
    with pytest.raises(StartError, match=r"'nonesuch'.*\blo\b"):
        bind_host(None, "nonesuch", None)
