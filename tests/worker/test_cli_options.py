"""The worker's options: what their texts mean."""

import pytest

from raddle.protocol.errors import ConfigError
from raddle.worker.cli import parse_ports, parse_resources


@pytest.mark.parametrize(
    ("text", "nworkers", "ports"),
    [
        ("0", 1, [0]),
        ("0", 3, [0, 0, 0]),
        ("9000", 1, [9000]),
        ("9000,9005", 2, [9000, 9005]),
        ("9000:9003", 2, [9000, 9001, 9002, 9003]),
        ("80,9000:9001", 3, [80, 9000, 9001]),
    ],
)
def test_ports(text: str, nworkers: int, ports: list[int]) -> None:
    assert parse_ports(text, nworkers) == ports


@pytest.mark.parametrize("text", ["", "http", "9001:9000", "70000", "-1", "9000:"])
def test_ports_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--worker-port"):
        parse_ports(text, 1)


def test_too_few_ports() -> None:
    with pytest.raises(ConfigError, match="2 ports for 3 workers"):
        parse_ports("9000:9001", 3)


@pytest.mark.parametrize(
    "text", ["GPU=2 MEM=10e9", "GPU=2,MEM=1e10", " GPU=2  MEM=1e10 "]
)
def test_resources(text: str) -> None:
    assert parse_resources(text) == {"GPU": 2.0, "MEM": 1e10}


def test_no_resources() -> None:
    assert parse_resources("") == {}


@pytest.mark.parametrize("text", ["GPU", "GPU=", "GPU=two", "=2", "GPU=-1", "GPU=nan"])
def test_resources_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--resources"):
        parse_resources(text)
