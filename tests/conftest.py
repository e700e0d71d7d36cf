"""What holds for every test: invariants are checked, and no internal error passes."""

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before anything imports dask, which reads the environment once; processes that
# tests start inherit it.
os.environ["DASK_RADDLE__SCHEDULER__VALIDATE"] = "true"
# Where Python must not write bytecode beside the sources, each of the processes that
# tests start would compile all of it anew: twice the time.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    bytecode = Path(tempfile.gettempdir()) / "raddle-tests-bytecode"
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(bytecode))
os.environ["DASK_RADDLE__WORKER__VALIDATE"] = "true"


class _Bugs(logging.Handler):
    """Keeps the records that tell of an exception nobody expected."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.texts.append(self.format(record))


@pytest.fixture(autouse=True)
def internal_errors() -> Iterator[list[str]]:
    """Errors with a traceback that our loggers were given: a test must clear them.

    A broken invariant of the scheduler's core shows here, as it costs only a link.
    """
    handler = _Bugs()
    logger = logging.getLogger("raddle")
    logger.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logger.removeHandler(handler)
    assert not handler.texts, "\n".join(handler.texts)
