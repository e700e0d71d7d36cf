"""Addresses are read leniently, written exactly, and refused with the remedy."""

import ipaddress
import socket

import psutil
import pytest

from raddle.protocol.comm import (
    Parsed,
    contact_host,
    format_tcp,
    host_of_interface,
    parse,
    resolve,
)
from raddle.protocol.errors import ConfigError, StartError


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("tcp://10.0.0.5:8786", ("tcp", "10.0.0.5", 8786)),
        ("10.0.0.5:8786", ("tcp", "10.0.0.5", 8786)),
        ("  tcp://host:1/ ", ("tcp", "host", 1)),
        ("tcp://host", ("tcp", "host", None)),
        ("host:", ("tcp", "host", None)),
        ("tcp://:8786", ("tcp", "", 8786)),
        ("", ("tcp", "", None)),
        ("tcp://[::1]:80", ("tcp", "::1", 80)),
        ("[fe80::1]", ("tcp", "fe80::1", None)),
        ("tcp://fe80::1", ("tcp", "fe80::1", None)),
        ("inproc://a-name", ("inproc", "a-name", None)),
        ("inproc://", ("inproc", "", None)),
    ],
)
def test_parse(address: str, parts: tuple[str, str, int | None]) -> None:
    assert parse(address) == Parsed(*parts)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tls://host:1", "unknown scheme 'tls'; use tcp:// or inproc://"),
        ("tcp://host:http", "'http' is not a port"),
        ("tcp://host:-1", "'-1' is not a port"),
        ("tcp://host:70000", "'70000' is not a port"),
        ("tcp://host:²", "'²' is not a port"),
    ],
)
def test_what_is_no_address(address: str, words: str) -> None:
    with pytest.raises(ConfigError) as info:
        parse(address)
    assert repr(address) in str(info.value)
    assert words in str(info.value)


@pytest.mark.parametrize("host", ["10.0.0.5", "::1", "a.host"])
def test_what_is_written_is_read(host: str) -> None:
    assert parse(format_tcp(host, 8786)) == Parsed("tcp", host, 8786)


async def test_resolve() -> None:
    assert await resolve("127.0.0.1", 5) == [("127.0.0.1", 5)]
    assert await resolve("::1", 5) == [("::1", 5)]
    assert (await resolve("localhost", 5))[0] == ("127.0.0.1", 5)
    assert await resolve("", 5) == [("0.0.0.0", 5)]
    for host in ("no.such.invalid", "x" * 64 + ".invalid"):
        with pytest.raises(StartError, match=f"cannot resolve host '{host}'"):
            await resolve(host, 5)


def test_contact_host() -> None:
    assert contact_host("127.0.0.1") == "127.0.0.1"
    own = {entry.address for found in psutil.net_if_addrs().values() for entry in found}
    for bound in ("", "0.0.0.0", "::"):
        contact = contact_host(bound)
        assert not ipaddress.ip_address(contact).is_unspecified
        assert contact in own


def test_host_of_interface() -> None:
    (loopback,) = {
        name
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family == socket.AF_INET and entry.address == "127.0.0.1"
    }
    assert host_of_interface(loopback) == "127.0.0.1"
    with pytest.raises(
        StartError, match=f"'none0' has no address; there are: .*{loopback}"
    ):
        host_of_interface("none0")
