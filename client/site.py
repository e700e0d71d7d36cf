"""Where in the user's program a call was made, for warnings that come later."""

from __future__ import annotations

import sys

from .core.futures import Where

_OURS = frozenset({"raddle", "dask"})


def call_site() -> Where:
    """File and line of the innermost frame that is neither raddle's nor dask's."""
    frame = sys._getframe(1)  # noqa: SLF001 (inspect.stack reads source files)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        outer = frame.f_back
        if outer is None:
            break
        frame = outer
    return frame.f_code.co_filename, frame.f_lineno
