"""Which rules of layout and style a module breaks, read from its source alone.

Each rule yields ``line: sentence``. They are data and functions of this file, so
that ``tests/test_layout.py`` can hold both the tree and seeded offenders to them.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[3]
FACADE = "src/raddle"
# Who may import whom; the facade may import everybody.
ROLES = {
    "protocol": {"protocol"},
    "scheduler": {"scheduler", "protocol"},
    "worker": {"worker", "protocol"},
    "client": {"client", "protocol"},
}
LINES_MAX = 600
FUNCTION_LINES_MAX = 60

# What would let the world into a core: sockets, loops, clocks, threads, chance.
IMPURE = {
    "asyncio",
    "concurrent",
    "logging",
    "os",
    "random",
    "secrets",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "uuid",
}
# Pure computations from outside that a core may use.
CORE_THIRD_PARTY = {"msgpack", "xxhash"}

# Imported name -> files that may import it. The longest name that fits decides,
# so that `dask.config` is allowed where the rest of dask is not.
THIRD_PARTY = {
    "click": ("*/cli.py", f"{FACADE}/*"),
    "cloudpickle": ("protocol/*",),
    "dask": ("client/dask/*", "client/future.py", "protocol/tokenize/*"),
    "dask.config": ("*",),
    "dask.sizeof": ("protocol/*",),
    "msgpack": ("protocol/*",),
    "numpy": ("client/dask/*", "protocol/serialize/*", "protocol/tokenize/*"),
    "pandas": ("client/dask/*", "protocol/serialize/*", "protocol/tokenize/*"),
    "prometheus_client": ("*/http/*", "protocol/node/*"),
    "psutil": ("*",),
    "pyarrow": ("client/dask/*", "protocol/serialize/*", "protocol/tokenize/*"),
    "tblib": ("protocol/*",),
    "tornado": ("*/http/*", "protocol/node/*"),
    "uvloop": ("*",),
    "xxhash": ("protocol/*",),
    "yaml": ("protocol/config.py",),
}
# Expensive, and perhaps not installed: imported by the function that needs it.
LAZY = {"numpy", "pandas", "pyarrow"}
LAZY_IN = {"dask": ("protocol/tokenize/*",)}
# Files about one library, imported themselves only when its first object comes.
ABOUT_A_LIBRARY = tuple(
    f"protocol/tokenize/{name}.py" for name in ("arrays", "arrow", "frames", "nodes")
)

# The one place that may wait for time to pass; it polls, with a deadline.
SLEEPERS = ("tests/support/testkit/polling.py",)


@dataclass(frozen=True)
class Module:
    """A source file: its path from the root of the repository, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(self.path.split("/")[:-1])

    @property
    def role(self) -> str | None:
        """The role it belongs to; None for the facade, tests and scripts."""
        return self.folders[0] if self.folders and self.folders[0] in ROLES else None

    @property
    def installed(self) -> bool:
        return self.role is not None or self.path.startswith(FACADE)

    @property
    def package(self) -> tuple[str, ...]:
        """The import name of the package it is in, when it is installed."""
        return ("raddle", *(self.folders if self.role else self.folders[2:]))

    def matches(self, patterns: tuple[str, ...]) -> bool:
        return any(fnmatch(self.path, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Import:
    """One imported name, made absolute."""

    name: str
    line: int
    level: int
    in_function: bool

    @property
    def top(self) -> str:
        return self.name.split(".")[0]

    def within(self, *packages: str) -> bool:
        return any(f"{self.name}.".startswith(f"{p}.") for p in packages)


def _names(node: ast.AST, module: Module) -> Iterator[tuple[str, int]]:
    """The absolute names (and the level) that one node imports."""
    match node:
        case ast.Import(names=aliases):
            yield from ((alias.name, 0) for alias in aliases)
        case ast.ImportFrom(module=source, names=aliases, level=level):
            base = module.package[: len(module.package) - level + 1] if level else ()
            start = (*base, source) if source else base
            yield from ((".".join((*start, a.name)), level) for a in aliases)
        case ast.Call(
            func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name))],
        ):
            yield name, 0


def imports(module: Module) -> Iterator[Import]:
    """Everything the module imports, wherever in it."""

    def visit(node: ast.AST, *, inside: bool) -> Iterator[Import]:
        for name, level in _names(node, module):
            yield Import(name, getattr(node, "lineno", 0), level, inside)
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside=inside or function)

    yield from visit(module.tree, inside=False)


def crossings(module: Module) -> Iterator[str]:
    """Roles import themselves relatively, the protocol absolutely, no one else.

    So a reader sees each crossing, and type checkers see each class once.
    """
    if not module.installed:
        return
    own = ".".join(module.package[:2]) if module.role else None
    for found in imports(module):
        parts = found.name.split(".")
        if found.level and found.level > len(module.package):
            yield f"{found.line}: the import leaves the package"
        elif found.level and own and not found.within(own):
            yield f"{found.line}: {found.name} is another role's: import it absolutely"
        elif found.level and not own and parts[1] in ROLES:
            yield f"{found.line}: {found.name} is a role's: import it absolutely"
        elif not found.level and own and found.within(own):
            yield f"{found.line}: {found.name} is the role's own: import it relatively"
        elif module.role and parts[0] == "raddle":
            crossed = parts[1] if len(parts) > 1 else "raddle"
            if crossed not in ROLES[module.role]:
                yield f"{found.line}: {module.role} must not know {found.name}"


def purity(module: Module) -> Iterator[str]:
    """A core imports cores and the errors, and nothing that touches the world."""
    if module.role is None or module.folders[1:2] != ("core",):
        return
    home = f"raddle.{module.role}.core"
    pure = (sys.stdlib_module_names - IMPURE) | CORE_THIRD_PARTY
    for found in imports(module):
        if found.top == "raddle":
            if not found.within(home, "raddle.protocol.core", "raddle.protocol.errors"):
                yield f"{found.line}: a core must not import the shell's {found.name}"
        elif found.top not in pure:
            yield f"{found.line}: a core must not import {found.top}"


def third_party(module: Module) -> Iterator[str]:
    """Each package from outside is imported only where THIRD_PARTY allows it."""
    if not module.installed:
        return
    for found in imports(module):
        if found.level or found.top in sys.stdlib_module_names | {"raddle"}:
            continue
        known = max((n for n in THIRD_PARTY if found.within(n)), key=len, default=None)
        if known is None:
            yield f"{found.line}: {found.name} is not a dependency (THIRD_PARTY)"
        elif not module.matches(THIRD_PARTY[known]):
            yield f"{found.line}: {found.name} is not for this file (THIRD_PARTY)"
        elif (
            not found.in_function
            and not module.matches(ABOUT_A_LIBRARY)
            and (known in LAZY or module.matches(LAZY_IN.get(known, ())))
        ):
            yield f"{found.line}: {found.name} belongs inside the function that needs it"


def sizes(module: Module) -> Iterator[str]:
    """Files and functions stay small; a function's docstring does not count."""
    lines = len(module.text.splitlines())
    if lines > LINES_MAX:
        yield f"1: {lines} lines, at most {LINES_MAX} are allowed"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = _length(node)
            if ast.get_docstring(node) is not None:
                lines -= _length(node.body[0])
            if lines > FUNCTION_LINES_MAX:
                yield (
                    f"{node.lineno}: {node.name} has {lines} lines, "
                    f"at most {FUNCTION_LINES_MAX} are allowed"
                )


def _length(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def docstring(module: Module) -> Iterator[str]:
    """A module's first line says what it decides."""
    text = ast.get_docstring(module.tree, clean=False)
    if not (text and text.splitlines()[0].strip()):
        yield "1: the module's docstring must begin on its first line"


def silence(module: Module) -> Iterator[str]:
    """No exception vanishes without a trace."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and all(
            isinstance(statement, ast.Pass)
            or (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
            )
            for statement in node.body
        ):
            yield (
                f"{node.lineno}: an exception vanishes: name the error in "
                "contextlib.suppress, or act on it"
            )
        match node:
            case ast.Call(
                func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"),
                args=arguments,
            ) if any(
                isinstance(a, ast.Name) and a.id in {"Exception", "BaseException"}
                for a in arguments
            ):
                yield f"{node.lineno}: every exception vanishes: name those meant"


def sleeps(module: Module) -> Iterator[str]:
    """Tests wait for events or poll with a deadline; they never sleep and hope.

    ``sleep(0)`` only lets others run. Handing the function itself to a task
    (``submit(time.sleep, 1)``) is the task's business.
    """
    if module.folders[:1] != ("tests",) or module.matches(SLEEPERS):
        return
    sleep = {"asyncio.sleep", "time.sleep"}
    local: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            local |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            local |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(args=[ast.Constant(value=0)]):
                continue
            case ast.Call(func=ast.Name(id=name)) if local.get(name) in sleep:
                yield f"{node.lineno}: a test must not sleep (see testkit.polling)"
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr=attribute)
            ) if f"{local.get(name)}.{attribute}" in sleep:
                yield f"{node.lineno}: a test must not sleep (see testkit.polling)"


RULES = (
    crossings,
    purity,
    third_party,
    sizes,
    docstring,
    silence,
    sleeps,
)


def sources() -> list[Module]:
    """Every Python file of the repository, once (the links are not followed)."""
    folders = (*ROLES, FACADE, "tests", "scripts", "benchmarks", "demo", "docs")
    paths = sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py"))
    return [Module(p.relative_to(ROOT).as_posix(), p.read_text()) for p in paths]


def violations(module: Module) -> list[str]:
    """What is wrong with a module, as ``path:line: sentence``."""
    return [f"{module.path}:{found}" for rule in RULES for found in rule(module)]
