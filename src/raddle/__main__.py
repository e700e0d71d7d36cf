"""Which commands there are, and that a wrong option costs one line, not a page."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

# Command -> the module that defines it under its own name. Imported when chosen: a
# worker needs nothing of the scheduler.
_COMMANDS = {
    "scheduler": "raddle.scheduler.cli",
    "worker": "raddle.worker.cli",
}


class _Commands(click.Group):
    """The group of all commands, each imported when it is chosen."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """All names, in the order in which one needs them."""
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """The command of that name, if there is one."""
        return _command(name) if name in _COMMANDS else None


def _command(name: str) -> click.Command:
    if name == "worker":
        # In its process, and before any is forked from it.
        import_module("raddle.inside")
    command: click.Command = getattr(import_module(_COMMANDS[name]), name)
    return command


def _run(command: click.Command, name: str) -> None:
    """Run a command; what is wrong with its options is one line on stderr."""
    try:
        code: Any = command.main(prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = error.exit_code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else name
        text = " ".join(error.format_message().split())
        click.echo(f"{path}: {text} See {path} --help.", err=True)
        code = error.exit_code
    except click.ClickException as error:
        click.echo(f"{name}: {error.format_message()}", err=True)
        code = error.exit_code
    except click.Abort:
        code = 1
    sys.exit(code)


def main() -> None:
    """The command ``raddle``."""
    group = _Commands(
        name="raddle",
        help="A distributed task scheduler.",
        context_settings={"help_option_names": ["-h", "--help"]},
        params=[],
    )
    _run(click.version_option(package_name="raddle")(group), "raddle")


def scheduler() -> None:
    """The command ``raddle-scheduler``, the same as ``raddle scheduler``."""
    _run(_command("scheduler"), "raddle-scheduler")


def worker() -> None:
    """The command ``raddle-worker``, the same as ``raddle worker``."""
    _run(_command("worker"), "raddle-worker")


if __name__ == "__main__":
    main()
