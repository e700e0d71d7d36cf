"""The documentation says what the code does, as far as a machine can tell.

What is derived from the code is compared with it; links lead somewhere; programs in
the guide run and print what the guide says.
"""

import contextlib
import io
import os
import re
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import click
import dask.config
import pytest

import raddle
from raddle.protocol import errors
from raddle.protocol.config import ALIASES, DEFAULTS
from raddle.protocol.core import collisions

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GUIDE = DOCS / "guide"
PAGES = sorted((*DOCS.rglob("*.md"), *ROOT.glob("*.md")))
STATES = DOCS / "internals/states.md"
BEGIN, END = "<!-- states: begin -->\n", "<!-- states: end -->"

# Text of a link, and where it leads.
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
# A program that the tests run, and a line of it that says what it prints.
PROGRAM = re.compile(r"<!-- run -->\n+```python\n(.*?)```", re.DOTALL)
PRINTED = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", page.read_text())


def cells(page: Path, start: str) -> list[list[str]]:
    """The cells of those table rows whose first cell starts so."""
    rows = re.findall(rf"^\| (`{start}.*)\|$", page.read_text(), re.MULTILINE)
    return [[cell.strip() for cell in row.split(" | ")] for row in rows]


# Links


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", head.lower()) for head in heads)
    return {head.strip().replace(" ", "-") for head in kept}


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    for text, target in LINK.findall(prose(page)):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            yield text, (page.parent / path if path else page), anchor


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for text, path, anchor in links(page):
        assert path.exists(), f"[{text}] leads to {path}, which is not there"
        if anchor:
            assert anchor in anchors(path), f"[{text}]: no heading #{anchor} in {path}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_are_defined_where_the_link_leads(page: Path) -> None:
    """``[`update_graph`](.../graph.py)``: the file defines what the text names."""
    for text, path, _ in links(page):
        for name in re.findall(r"`(?:\w+\.)*(\w+)`", text):
            if path.suffix == ".py" and name != "py":
                defined = rf"^\s*(?:async )?(?:def|class) {name}\b|^{name}\b"
                found = re.search(defined, path.read_text(), re.MULTILINE)
                assert found, f"{path} does not define {name}"


def test_every_page_is_in_the_index() -> None:
    index = {path.resolve() for _, path, _ in links(DOCS / "README.md")}
    pages = {page for page in PAGES if page.is_relative_to(DOCS)}
    assert pages - {DOCS / "README.md"} <= index


# What the code has must be on the pages


def test_every_public_name_is_mentioned() -> None:
    text = "\n".join(page.read_text() for page in DOCS.rglob("*.md"))
    missing = [n for n in raddle.__all__ if not re.search(rf"\b{n}\b", text)]
    assert not missing


def test_every_setting_is_listed_with_its_default() -> None:
    listed = {row[0]: row[1] for row in cells(GUIDE / "configuration.md", "raddle\\.")}
    expected = {f"`raddle.{key}`": _written(DEFAULTS[key]) for key in DEFAULTS}
    assert listed == expected


def _written(value: Any) -> str:
    """A default as a YAML file has it."""
    text = "null" if value is None else str(value)
    return f"`{text.lower() if type(value) is bool else text}`"


def test_every_alias_is_listed() -> None:
    text = (GUIDE / "configuration.md").read_text()
    for ours, theirs in ALIASES.items():
        assert f"| `{theirs}` | `raddle.{ours}` |" in text


@pytest.mark.parametrize("command", ["scheduler", "worker"])
def test_every_option_of_a_command_is_listed(command: str) -> None:
    offered = getattr(import_module(f"raddle.{command}.cli"), command)
    names = {
        max(option.opts, key=len)
        for option in offered.params
        if isinstance(option, click.Option)
    }
    text = (GUIDE / "clusters.md").read_text()
    _, _, section = text.partition(f"\n### `raddle {command}`\n")
    section, _, _ = section.partition("\n### ")
    listed = set(re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE))
    # Click adds it when the command runs.
    assert listed - {"--help"} == names


def test_every_error_is_explained() -> None:
    listed = {row[0] for row in cells(GUIDE / "errors.md", "")}
    public = {
        name
        for name in raddle.__all__
        if isinstance(getattr(raddle, name), type)
        and issubclass(getattr(raddle, name), Exception)
        and not issubclass(getattr(raddle, name), Warning)
    }
    assert public <= {name.strip("`") for name in listed}
    for row in cells(GUIDE / "errors.md", ""):
        kind = getattr(errors, row[0].strip("`"), None)
        if kind is not None and issubclass(kind, errors.RaddleError):
            assert row[1] == kind.fault, row


def test_every_word_of_a_collision_record_is_explained() -> None:
    text = (GUIDE / "collisions.md").read_text()
    words = [*collisions.CollisionRecord._fields, *get_args(collisions.Kind)]
    words += [a for a in get_args(collisions.Action) if a != "isolated"]
    assert not [word for word in words if f"| `{word}` |" not in text]


# The page that a script writes


def make_states() -> ModuleType:
    spec = spec_from_file_location("make_states", DOCS / "internals/make_states.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_states_is_fresh() -> None:
    text = STATES.read_text()
    before, _, rest = text.partition(BEGIN)
    shown, _, after = rest.partition(END)
    current = f"\n{make_states().page()}\n"
    if os.environ.get("RADDLE_WRITE_DOCS"):
        STATES.write_text(before + BEGIN + current + END + after)
    else:
        assert shown == current, "write it anew with RADDLE_WRITE_DOCS=1"


# The programs of the guide


@pytest.fixture
def client() -> Iterator[raddle.Client]:
    """A client of a cluster in this process, which every ``Client()`` joins."""
    with (
        raddle.LocalCluster(n_workers=2, threads_per_worker=2, processes=False) as made,
        dask.config.set({"raddle.scheduler-address": made.scheduler_address}),
        raddle.Client() as client,
    ):
        yield client


WITH_PROGRAMS = [page for page in PAGES if PROGRAM.search(page.read_text())]


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=name_of)
def test_programs_print_what_they_say(page: Path, client: raddle.Client) -> None:
    """All programs of a page, one after the other, as if in one session."""
    programs = PROGRAM.findall(page.read_text())
    session: dict[str, Any] = {"__name__": "__main__", "client": client}
    for program in programs:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), warnings.catch_warnings():
            # Some programs are about collisions.
            warnings.simplefilter("ignore", raddle.RunSpecCollisionWarning)
            exec(compile(program, page.name, "exec"), session)
        assert output.getvalue().splitlines() == PRINTED.findall(program), program


def test_some_programs_are_run() -> None:
    assert {GUIDE / "getting-started.md", GUIDE / "futures.md"} <= set(WITH_PROGRAMS)
