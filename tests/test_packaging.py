"""What an installation offers: metadata, commands, types, and nothing forgotten."""

import ast
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import raddle
from testkit.house_rules import FACADE, ROLES, ROOT

CONFIG: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = CONFIG["project"]


def test_version_is_the_project_s() -> None:
    # An installation that is older than pyproject.toml would test something else.
    assert metadata.version("raddle") == PROJECT["version"]
    assert raddle.__version__ == PROJECT["version"]


def test_metadata_name_the_license() -> None:
    found = metadata.metadata("raddle")
    assert found["License-Expression"] == "BSD-3-Clause"
    assert found.get_all("License-File") == ["LICENSE"]
    text = (ROOT / "LICENSE").read_text()
    assert text.startswith("BSD 3-Clause License")
    assert "raddle developers" in text


def test_distributed_is_no_dependency() -> None:
    required = metadata.requires("raddle") or []
    assert required
    assert not any("distributed" in requirement for requirement in required)


@pytest.mark.parametrize("name", PROJECT["scripts"])
def test_command_is_installed(name: str) -> None:
    (command,) = metadata.entry_points(group="console_scripts", name=name)
    assert command.value == PROJECT["scripts"][name]
    assert callable(command.load())


def test_types_are_announced() -> None:
    assert files("raddle").joinpath("py.typed").is_file()


@pytest.mark.parametrize("role", ROLES)
def test_link_is_relative(role: str) -> None:
    # An absolute link would lead another clone into this one.
    link = ROOT / FACADE / role
    assert link.is_symlink()
    assert link.readlink() == Path("..", "..", role)


def test_every_data_file_is_packaged() -> None:
    """A file that is no module reaches a wheel only if package-data names it."""
    packaged: dict[str, list[str]] = CONFIG["tool"]["setuptools"]["package-data"]
    mapping: dict[str, str] = CONFIG["tool"]["setuptools"]["package-dir"]
    wanted = {
        path
        for folder in mapping.values()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    named: set[Path] = set()
    for package, patterns in packaged.items():
        top = max((t for t in mapping if f"{package}.".startswith(f"{t}.")), key=len)
        inner = package.removeprefix(top).replace(".", "/").strip("/")
        for pattern in patterns:
            found = set((ROOT / mapping[top] / inner).glob(pattern))
            assert found, f"package-data: {package} has no {pattern}"
            named |= found
    assert wanted == named


def test_the_facade_imports_nothing_of_ours() -> None:
    """Each process pays only for the role it plays."""
    program = (
        "import sys, raddle; "
        "print(*sorted(name for name in sys.modules if name.startswith('raddle.')))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    seen = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout.split() == []


def test_a_worker_s_start_does_not_pay_for_the_client() -> None:
    program = (
        "import sys, dask.config, raddle.worker.process, raddle.inside; "
        "print(dask.config.get('scheduler')); "
        "print(*(name for name in sys.modules if name.startswith('raddle.client.')))"
    )
    seen = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    handle, modules = seen.stdout.splitlines()
    assert handle.startswith("<raddle's scheduler for dask")
    assert set(modules.split()) == {
        "raddle.client.dask",
        "raddle.client.dask.handle",
        "raddle.client.current",
    }


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = raddle.nonsense  # type: ignore[attr-defined]


def test_public_names_agree() -> None:
    """What is offered, where it is found, and what type checkers are told."""
    told = {
        alias.asname or alias.name: f"raddle.{node.module}"
        if node.level
        else node.module
        for node in ast.walk(ast.parse((ROOT / FACADE / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module
        and (node.level or node.module.startswith("raddle."))
        for alias in node.names
    }
    assert told == raddle._HOMES
    assert sorted(raddle.__all__) == sorted({"__version__", *raddle._HOMES})


@pytest.mark.parametrize(
    "first",
    ["import raddle.tokenize", "raddle.Token", "from raddle.tokenize import tokenize"],
)
def test_tokenize_is_a_module_whatever_came_before(first: str) -> None:
    program = f"import raddle; {first}; print(raddle.tokenize.tokenize(1))"
    command = [sys.executable, "-c", program]
    seen = subprocess.run(command, capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == str(raddle.tokenize.tokenize(1))
    assert "tokenize" not in raddle.__all__


@pytest.mark.parametrize("name", raddle.__all__)
def test_public_name_exists(name: str) -> None:
    assert getattr(raddle, name) is not None
    assert name in dir(raddle)
