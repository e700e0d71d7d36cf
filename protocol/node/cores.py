"""How many cores this process may use, and how worker processes share them out.

Tasks that hold the GIL want many processes, large data wants few: up to four cores
get a process each; beyond that there are about as many processes as threads in each.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from ..errors import ConfigError

CGROUP = Path("/sys/fs/cgroup")


def cpu_count(cgroup: Path = CGROUP) -> int:
    """Cores this process may use: machine, affinity and container limit considered."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = _quota(cgroup)
    return count if quota is None else max(1, min(count, math.ceil(quota)))


def _quota(cgroup: Path) -> float | None:
    """Cores' worth of time that the container is allowed, if that is limited."""
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            quota = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):
        return None


def shares(cores: int) -> tuple[int, int]:
    """Processes, and threads of each, for so many cores: 4 -> 4, 1; 16 -> 4, 4.

    Of the ways to use every core, the one with the fewest processes that are not
    fewer than their threads.
    """
    if cores <= 4:
        return cores, 1
    processes = next(
        n for n in range(math.isqrt(cores - 1) + 1, cores + 1) if not cores % n
    )
    return processes, cores // processes


def parse_nworkers(text: str, nthreads: int, cores: int) -> tuple[int, int]:
    """Processes and threads from ``--nworkers`` (N, -N, auto) and ``--nthreads``.

    ``nthreads`` 0 shares all cores out. Raises ConfigError.
    """
    if text == "auto":
        if nthreads:
            msg = "--nworkers auto chooses the threads too: leave out --nthreads"
            raise ConfigError(msg)
        return shares(cores)
    try:
        processes = int(text)
    except ValueError:
        processes = 0
    if processes < 0:
        processes += cores + 1
    if processes < 1:
        msg = f"--nworkers {text}: give a number, -1 to -{cores} here, or 'auto'"
        raise ConfigError(msg)
    return processes, nthreads or max(1, cores // processes)
