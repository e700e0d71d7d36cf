"""Tokens are the same in every process: hash seed, imports, shipping do not count."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("token_program.py")

RUNS = {
    "seed 0": ("0",),
    "seed 1": ("1", "--imports"),
    "seed 4711": ("4711", "--shipped"),
}


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    results = {}
    for name, (seed, *options) in RUNS.items():
        done = subprocess.run(
            [sys.executable, PROGRAM, *options],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        results[name] = json.loads(done.stdout)
    return results


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("other", ["seed 1", "seed 4711"])
def test_values(runs: dict[str, Any], other: str) -> None:
    mine, theirs = runs["seed 0"]["values"], runs[other]["values"]
    assert [name for name in mine if mine[name] != theirs[name]] == []
    assert [name for name, (_, skeleton) in mine.items() if skeleton is not None] == []
    assert len({token for token, _ in mine.values()}) == len(mine) > 30


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("other", ["seed 1", "seed 4711"])
def test_every_common_key_of_a_graph(runs: dict[str, Any], other: str) -> None:
    for name, mine in runs["seed 0"]["graphs"].items():
        theirs = runs[other]["graphs"][name]
        common = mine.keys() & theirs.keys()
        different = [key for key in common if mine[key] != theirs[key]]
        flagged = [key for key in common if mine[key][1] is not None]
        assert (name, different, flagged) == (name, [], [])
        assert len(common) > len(mine) * 0.5, name
        assert len(mine) > 3
