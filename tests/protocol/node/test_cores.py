"""Cores: how many there are, and how workers share them out."""

from pathlib import Path

import pytest

from raddle.protocol.errors import ConfigError
from raddle.protocol.node.cores import cpu_count, parse_nworkers, shares


@pytest.mark.parametrize(
    ("cores", "expected"),
    [(1, (1, 1)), (2, (2, 1)), (4, (4, 1)), (6, (3, 2)), (8, (4, 2)), (16, (4, 4)),
     (7, (7, 1)), (12, (4, 3)), (64, (8, 8)), (96, (12, 8))],
)  # fmt: skip
def test_every_core_is_used_by_few_processes(
    cores: int, expected: tuple[int, int]
) -> None:
    assert shares(cores) == expected
    processes, threads = expected
    assert processes * threads == cores


@pytest.mark.parametrize(
    ("text", "nthreads", "expected"),
    [("1", 0, (1, 8)), ("4", 0, (4, 2)), ("3", 0, (3, 2)), ("20", 0, (20, 1)),
     ("2", 5, (2, 5)), ("-1", 1, (8, 1)), ("-2", 0, (7, 1)), ("auto", 0, (4, 2))],
)  # fmt: skip
def test_nworkers(text: str, nthreads: int, expected: tuple[int, int]) -> None:
    assert parse_nworkers(text, nthreads, 8) == expected


@pytest.mark.parametrize("text", ["0", "-9", "many", "1.5", ""])
def test_nworkers_that_make_no_sense(text: str) -> None:
    with pytest.raises(ConfigError, match="--nworkers"):
        parse_nworkers(text, 0, 8)


def test_auto_and_threads_contradict() -> None:
    with pytest.raises(ConfigError, match="leave out --nthreads"):
        parse_nworkers("auto", 2, 8)


def test_a_container_s_limit_counts(tmp_path: Path) -> None:
    unlimited = cpu_count(tmp_path)
    assert unlimited >= 1
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert cpu_count(tmp_path) == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cpu_count(tmp_path) == unlimited


def test_an_older_container_s_limit_counts(tmp_path: Path) -> None:
    unlimited = cpu_count(tmp_path)
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    assert cpu_count(tmp_path) == 1
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpu_count(tmp_path) == unlimited
