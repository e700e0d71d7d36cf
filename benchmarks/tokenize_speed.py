"""How long tokenize takes: ours beside dask's, on the rows of the design's table.

    python benchmarks/tokenize_speed.py [--quick]

CPU time, the better of several interleaved rounds. "Target" is the design's, for a
machine on which dask needs 2.70 us for an int; "scaled" multiplies it by what dask
needs for an int here and now.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from dask._task_spec import Task, TaskRef
from dask.tokenize import tokenize as dask_tokenize

from raddle.protocol.spec import Ref
from raddle.protocol.tokenize import Walker, run_spec_token, tokenize

DASK_INT_US = 2.70
QUICK = "--quick" in sys.argv
ROUNDS = 3 if QUICK else 7


class Plain:
    def __init__(self, n: int) -> None:
        self.n = n
        self.text = str(n)
        self.pair = (n, n)


def by_value(a: int, b: int) -> int:
    return operator.add(a, b) + 1


class Row(NamedTuple):
    name: str
    target_us: float
    ours: Callable[[], object]
    dask: Callable[[], object] | None


def seconds(func: Callable[[], object]) -> float:
    """CPU time of one call, over enough calls to be seen by the clock."""
    calls = 1
    while True:
        start = time.process_time()
        for _ in range(calls):
            func()
        spent = time.process_time() - start
        if spent > 0.02:
            return spent / calls
        calls *= 4


def of(name: str, target_us: float, value: object) -> Row:
    return Row(name, target_us, lambda: tokenize(value), lambda: dask_tokenize(value))


def tuple_graph(func: Callable[..., object]) -> Row:
    specs = [
        (("t", i, 5), (Ref(("t", i - 1, 5), 0), Ref(("t", i - 1, 6), 1)))
        for i in range(10_000)
    ]
    dsk = {key: (func, *(ref.key for ref in refs)) for key, refs in specs}

    def ours() -> None:
        walker = Walker()
        for key, args in specs:
            run_spec_token(key, walker.body(func, args, None))

    def dask() -> None:
        for spec in dsk.values():
            dask_tokenize(spec)

    name = f"10k-task graph, tuples, {func.__name__} (per task)"
    return per_task(Row(name, 8, ours, dask))


def task_graph() -> Row:
    def make() -> list[Task]:
        return [
            Task(
                ("t", i, 5),
                by_value,
                TaskRef(("t", i - 1, 5)),
                TaskRef(("t", i - 1, 6)),
            )
            for i in range(10_000)
        ]

    tasks = make()

    def ours() -> None:
        walker = Walker()
        for task in tasks:
            run_spec_token(task.key, walker.body(task.func, task.args, task.kwargs))

    def dask() -> None:
        for task in tasks:
            task._token = None  # noqa: SLF001 as in a graph that has just been made
            dask_tokenize(task)

    return per_task(
        Row("10k-task graph of Task objects, cold (per task)", 12, ours, dask)
    )


def per_task(row: Row) -> Row:
    return row._replace(target_us=row.target_us * 10_000)


def rows() -> list[Row]:
    floats = np.random.default_rng(0).random(12_500_000)
    strided = floats.reshape(-1, 1_000)[:, ::2]
    words = np.array([str(i) for i in range(1_000_000)], object)
    frame = pd.DataFrame(
        {
            "a": floats[:1_000_000],
            "b": np.arange(1_000_000),
            "c": words,
            "d": pd.Categorical(words[:1_000].tolist() * 1_000),
            "e": pd.date_range("2026", periods=1_000_000, freq="s"),
            "f": floats[:1_000_000] > 0.5,
        }
    )
    nested = {str(i): {str(j): j * 1.5 for j in range(5)} for i in range(1_000)}
    return [
        of("int", 2.5, 1),
        of("short str", 2.5, "hello"),
        of("list of 1e5 ints", 5_000, list(range(100_000))),
        of("nested dict, 1000 x 5 values", 12_000, nested),
        of("100 MB float array", 7_000, floats),
        of("50 MB strided view of a 100 MB array", 25_000, strided),
        of("object array, 1e6 str", 60_000, words),
        of("DataFrame 1e6 x 6 mixed", 80_000, frame),
        of("lambda in __main__", 12, lambda x: x + 1),
        of("partial of a __main__ function", 15, functools.partial(by_value, 1)),
        of("math.sin", 3, math.sin),
        tuple_graph(operator.add),
        tuple_graph(by_value),
        task_graph(),
        of("1000 plain __main__ objects", 10_000, [Plain(i) for i in range(1_000)]),
        of("100 MB bytes", 7_000, floats.tobytes()),
    ]


def shown(spent: float) -> str:
    us = spent * 1e6
    return f"{us:.2f} us" if us < 1_000 else f"{us / 1_000:.2f} ms"


def main() -> None:
    table: list[tuple[Row, list[float], list[float]]] = [(r, [], []) for r in rows()]
    for _ in range(ROUNDS):
        for row, ours, dask in table:
            ours.append(seconds(row.ours))
            if row.dask is not None:
                dask.append(seconds(row.dask))
    scale = min(table[0][2]) * 1e6 / DASK_INT_US
    print(f"| input | dask | raddle | target | scaled by {scale:.2f} | met |")
    print("|---|---|---|---|---|---|")
    for row, ours, dask in table:
        tasks = 10_000 if "per task" in row.name else 1
        best = min(ours) / tasks
        target = row.target_us / tasks / 1e6
        met = "yes" if best <= target else "scaled" if best <= target * scale else "NO"
        cells: list[Any] = [
            row.name,
            shown(min(dask) / tasks) if dask else "",
            shown(best),
            shown(target),
            shown(target * scale),
            met,
        ]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
