"""In which order tasks of a graph are best run: depth first from what is wanted.

The same walk finds what is reachable at all (the rest of a graph is neither sent nor
compared) and that the graph has no cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from raddle.protocol.core.ids import Key
from raddle.protocol.errors import InvalidGraph


def depth_first(
    wanted: Iterable[Key], expand: Callable[[Key], Iterable[Key]]
) -> list[Key]:
    """The keys reachable from ``wanted``, each after all it depends on.

    ``expand`` is called once for each reachable key and gives the keys of the same
    graph that it depends on; they are followed in that order, so that the branches
    below one task end up side by side.

    Raises:
        InvalidGraph: a task depends on itself, by way of others or directly.

    """
    order: list[Key] = []
    finished: dict[Key, bool] = {}
    for start in wanted:
        if start in finished:
            continue
        finished[start] = False
        stack: list[tuple[Key, Iterator[Key]]] = [(start, iter(expand(start)))]
        while stack:
            key, dependencies = stack[-1]
            for dependency in dependencies:
                state = finished.get(dependency)
                if state is None:
                    finished[dependency] = False
                    stack.append((dependency, iter(expand(dependency))))
                    break
                if not state:
                    raise InvalidGraph(_cycle([k for k, _ in stack], dependency))
            else:
                stack.pop()
                finished[key] = True
                order.append(key)
    return order


def _cycle(path: list[Key], again: Key) -> str:
    loop = [*path[path.index(again) :], again]
    words = [repr(key) for key in loop]
    if len(words) > 10:
        words[8:-1] = ["..."]
    shown = " -> ".join(words)
    return f"the graph has a cycle, so none of its tasks can run first: {shown}"
