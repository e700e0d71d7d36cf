"""How others find a scheduler: a JSON file on a disk that all of them see.

Keys: ``type``, ``id``, ``address``, ``workers``, ``services`` as tools of the field
expect them, and ``secret_file``, the path of the secret where there is one. The
secret itself is never in it; it may lie beside it, in a file that only its owner can
read.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import StartError


class SchedulerFile(NamedTuple):
    """What the file says about a scheduler."""

    id: str
    address: str
    secret_file: str | None


def write(path: str, content: SchedulerFile) -> None:
    """Write the file in one step, so that a reader sees all of it or nothing.

    Raises StartError when it cannot be written.
    """
    values = {
        "type": "Scheduler",
        "id": content.id,
        "address": content.address,
        "workers": {},
        "services": {},
    }
    if content.secret_file is not None:
        values["secret_file"] = str(Path(content.secret_file).absolute())
    try:
        _write(Path(path), json.dumps(values, indent=2), 0o644)
    except OSError as error:
        msg = f"cannot write the scheduler file {path}: {error.strerror}"
        raise StartError(msg) from error


def _write(target: Path, text: str, mode: int) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_secret(secret_file: str, secret: str) -> None:
    """Write a secret for nobody but its owner to read.

    Raises StartError when it cannot be written.
    """
    try:
        _write(Path(secret_file), secret, 0o600)
    except OSError as error:
        msg = f"cannot write the secret file {secret_file}: {error.strerror}"
        raise StartError(msg) from error


def remove_secret(secret_file: str, secret: str) -> None:
    """Remove what :func:`write_secret` wrote, unless another one is there now."""
    file = Path(secret_file)
    with suppress(OSError):
        if file.read_text() == secret:
            file.unlink()


def read(path: str) -> SchedulerFile:
    """What the file says; raises StartError when it is missing or something else."""
    try:
        values = json.loads(Path(path).read_text())
        return SchedulerFile(
            str(values["id"]), str(values["address"]), values.get("secret_file")
        )
    except OSError as error:
        msg = f"cannot read the scheduler file {path}: {error.strerror}"
        raise StartError(msg) from error
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{path} is not a scheduler file: it has no id and address in JSON"
        raise StartError(msg) from error


def remove(path: str, scheduler_id: str) -> None:
    """Remove the file unless another scheduler has written it since."""
    try:
        if read(path).id == scheduler_id:
            Path(path).unlink(missing_ok=True)
    except StartError:
        return
