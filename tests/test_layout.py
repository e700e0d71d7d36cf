"""The folders keep to the architecture: who may import whom, and how much.

The rules are in ``tests/support/testkit/house_rules.py``. Each is also held
against a seeded offender, so that a rule that no longer sees anything is noticed.
"""

import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from testkit.house_rules import (
    FACADE,
    FUNCTION_LINES_MAX,
    LINES_MAX,
    ROLES,
    ROOT,
    Module,
    imports,
    sources,
    violations,
)

DOC = '"""What it decides."""\n'


@pytest.mark.parametrize("module", sources(), ids=lambda m: m.path)
def test_module(module: Module) -> None:
    assert violations(module) == []


def test_sizes_are_measured_through_one_module() -> None:
    users = [
        module.path
        for module in sources()
        if module.role and any(found.within("dask.sizeof") for found in imports(module))
    ]
    assert len(users) <= 1, users


OFFENDERS = {
    "a foreign role": ("scheduler/x.py", "import raddle.worker", "must not know"),
    "a foreign role, by name": (
        "worker/x.py",
        "from raddle.scheduler.core import state",
        "must not know",
    ),
    "a foreign role, inside a function": (
        "client/x.py",
        "def f():\n    from raddle import worker",
        "must not know",
    ),
    "the facade": ("protocol/x.py", "from raddle.local import LocalCluster", "know"),
    "the facade itself": ("client/x.py", "import raddle", "must not know raddle"),
    "itself absolutely": ("client/x.py", "import raddle.client.y", "relatively"),
    "another role relatively": ("client/x.py", "from ..protocol import y", "absolute"),
    "the facade, a role relatively": (
        f"{FACADE}/x.py",
        "from .client import Client",
        "absolutely",
    ),
    "beyond the package": ("client/x.py", "from ...y import z", "leaves the package"),
    "a clock in a core": ("scheduler/core/x.py", "import time", "import time"),
    "a loop in a deep core": (
        "scheduler/core/transitions/x.py",
        "from asyncio.events import get_running_loop",
        "import asyncio",
    ),
    "a core's shell": ("worker/core/x.py", "from ..server import y", "the shell's"),
    "the protocol's shell, in a core": (
        "worker/core/x.py",
        "from raddle.protocol.comm import tcp",
        "the shell's",
    ),
    "the protocol's shell, from its core": (
        "protocol/core/x.py",
        "from .. import config",
        "the shell's",
    ),
    "settings in a core": ("client/core/x.py", "import dask.config", "core must not"),
    "dask": ("scheduler/x.py", "import dask", "not for this file"),
    "dask beyond its configuration": (
        "scheduler/x.py",
        "from dask import config, base",
        "dask.base is not for this file",
    ),
    "eager dask": ("protocol/tokenize/x.py", "import dask.array", "inside the func"),
    "eager numpy": ("protocol/serialize/x.py", "import numpy as np", "inside the func"),
    "distributed": ("client/x.py", "import distributed", "not a dependency"),
    "distributed, by its name": (
        "client/x.py",
        'def f():\n    importlib.import_module("distributed.client")',
        "not a dependency",
    ),
    "click": ("scheduler/server.py", "import click", "not for this file"),
    "tornado": ("scheduler/server.py", "from tornado import web", "not for this file"),
    "a stranger": ("worker/x.py", "import requests", "not a dependency"),
    "a long file": ("client/x.py", "x = 1\n" * LINES_MAX, "at most 600"),
    "a long function": (
        "tests/test_x.py",
        "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX,
        "f has 61 lines",
    ),
    "a long method": (
        "client/x.py",
        "class C:\n  async def f(self):\n" + "    x = 1\n" * FUNCTION_LINES_MAX,
        "f has 61 lines",
    ),
    "silence": (
        "scripts/x.py",
        "try:\n    f()\nexcept OSError:\n    pass",
        "exception vanishes",
    ),
    "silence, with an ellipsis": (
        "worker/x.py",
        "try:\n    f()\nexcept* OSError:\n    ...",
        "exception vanishes",
    ),
    "silence, with a note": (
        "worker/x.py",
        "try:\n    f()\nexcept OSError:\n    'never mind'\n    pass",
        "exception vanishes",
    ),
    "silence of all": (
        "worker/x.py",
        "with contextlib.suppress(OSError, Exception):\n    f()",
        "every exception vanishes",
    ),
    "a sleep": ("tests/test_x.py", "import time\ntime.sleep(0.1)", "must not sleep"),
    "a sleep by name": (
        "tests/client/test_x.py",
        "from asyncio import sleep as nap\nasync def f(n):\n    await nap(n)",
        "must not sleep",
    ),
    "a sleep of a helper": (
        "tests/support/testkit/x.py",
        "import asyncio as aio\nasync def f():\n    await aio.sleep(1)",
        "must not sleep",
    ),
}


@pytest.mark.parametrize(("path", "code", "says"), OFFENDERS.values(), ids=OFFENDERS)
def test_an_offender_is_seen(path: str, code: str, says: str) -> None:
    found = violations(Module(path, DOC + code))
    assert len(found) == 1, found
    assert says in found[0]


@pytest.mark.parametrize("text", ["", "x = 1", '""" """', '"""\nToo late.\n"""'])
def test_a_missing_docstring_is_seen(text: str) -> None:
    (found,) = violations(Module("client/x.py", text))
    assert "docstring" in found


ALLOWED = {
    "the protocol": ("client/x.py", "from raddle.protocol.errors import RaddleError"),
    "a core's own": ("scheduler/core/transitions/x.py", "from ..state import y"),
    "another core's words": ("worker/core/x.py", "import raddle.protocol.core.ids"),
    "errors, in a core": ("protocol/core/x.py", "from ..errors import RaddleError"),
    "a shell's core": ("worker/x.py", "from .core.machine import Machine"),
    "the facade": (f"{FACADE}/x.py", "from raddle.client import y\nfrom .z import z"),
    "settings": ("worker/x.py", "from dask import config"),
    "dask, at home": ("client/dask/x.py", "import dask.base"),
    "lazy numpy": ("protocol/tokenize/x.py", "def f():\n    import numpy"),
    "commands": ("worker/cli.py", "import click"),
    "a named error": ("worker/x.py", "with contextlib.suppress(OSError):\n    f()"),
    "a yield": (
        "tests/test_x.py",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)",
    ),
    "a task that sleeps": ("tests/test_x.py", "import time\nc.submit(time.sleep, 1)"),
    "a long docstring": (
        "client/x.py",
        'def f():\n    """Short.\n' + "\n" * FUNCTION_LINES_MAX + '    """\n    g()',
    ),
}


@pytest.mark.parametrize(("path", "code"), ALLOWED.values(), ids=ALLOWED)
def test_the_innocent_pass(path: str, code: str) -> None:
    assert violations(Module(path, DOC + code)) == []


def test_every_package_is_installed() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {m.package for m in sources() if m.installed}
    assert {".".join(f) for f in folders} == set(
        config["tool"]["setuptools"]["packages"]
    )


@pytest.mark.parametrize("role", ROLES)
def test_generic_names_are_not_installed(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"", str(Path.cwd()), str(ROOT)}
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in here])
    assert find_spec(role) is None
