"""dask core's own tests hold with our client as the default scheduler.

They ship in the dask wheel. differences.txt lists each expected difference.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SUPPORT = HERE.parent / "support"

# Module, and how many graphs must at least have reached our client.
SUITES = {
    "dask.tests.test_base": 40,
    "dask.tests.test_delayed": 60,
    "dask.bag.tests.test_bag": 150,
    "dask.array.tests.test_array_core": 300,
}
LONG = {"dask.bag.tests.test_bag", "dask.array.tests.test_array_core"}


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "module",
    [pytest.param(m, marks=[pytest.mark.soak] if m in LONG else []) for m in SUITES],
)
def test_dask_suite(module: str, tmp_path: Path) -> None:
    env = dict(
        os.environ,
        PYTHONPATH=str(SUPPORT),
        PYTHONSAFEPATH="1",
        RADDLE_DASK_DIFFERENCES=str(HERE / "differences.txt"),
    )
    options = ["-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-rfE", "-p"]
    options += ["no:cacheprovider", "-p", "testkit.dask_suite", "-W", "ignore"]
    options += ["--timeout", "120", "--pyargs", module]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    graphs = re.search(r"raddle graphs: (\d+)", done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert graphs is not None
    assert int(graphs[1]) >= SUITES[module], done.stdout[-500:]
