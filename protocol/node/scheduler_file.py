"""How others find a scheduler: a JSON file on a disk that all of them see.

Keys: ``type``, ``id``, ``address``, ``workers``, ``services`` as tools of the field
expect them, and ``secret_file``, the path of the secret where there is one. The
secret itself is never in it.
"""

from __future__ import annotations

import json
import os
import tempfile
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
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(values, file, indent=2)
            Path(name).chmod(0o644)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        msg = f"cannot write the scheduler file {path}: {error.strerror}"
        raise StartError(msg) from error


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
