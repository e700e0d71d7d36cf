"""Prints the tokens of many inputs; run by test_tokenize_processes in processes.

As a program, so that its functions and classes are of ``__main__``. With
``--imports`` it imports other modules first: what is imported must not count.
"""

import sys

if "--imports" in sys.argv:
    import json.tool
    import xml.dom.minidom  # noqa: F401

    import tblib.pickling_support

    tblib.pickling_support.install()

import abc
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import json
import pathlib
import pickle
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
from dask._task_spec import Alias, DataNode, Task, convert_legacy_graph

from raddle.protocol.spec import Ref
from raddle.protocol.tokenize import Walker, run_spec_token, tokenize

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"

    def other(self) -> "Color":
        return Color.RED if self is Color.BLUE else Color.BLUE


class Plain(abc.ABC):  # noqa: B024 (its metaclass is what counts here)
    names = frozenset(WORDS)

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value
        self.words: set[object] = set(WORDS)

    def get(self) -> object:
        return Plain(self.value), Color.RED


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: object
    y: object = dataclasses.field(default_factory=lambda: frozenset(WORDS))


class Zone(dt.tzinfo):
    def utcoffset(self, when: object) -> dt.timedelta:
        del when
        return dt.timedelta(hours=1)

    def dst(self, when: object) -> None:
        del when

    def tzname(self, when: object) -> None:
        del when


Pair = collections.namedtuple("Pair", ["first", "second"])  # noqa: PYI024


def uses_sets(word: str) -> bool:
    return word in {"alpha", "beta", "gamma"} or word in LOOKUP


LOOKUP = {word: {word, *WORDS} for word in WORDS}


def even(n: int) -> bool:
    return n == 0 or odd(n - 1)


def odd(n: int) -> bool:
    return n != 0 and even(n - 1)


def closure(*values: object) -> Callable[[], object]:
    return lambda: (values, Color.RED)


def grid() -> object:
    nodes = [Plain(i) for i in range(9)]
    for node in nodes:
        node.words = set(nodes)
    return nodes[0]


def values() -> Iterator[tuple[str, Any]]:
    yield "numbers", [1, 2.5, 10**5000, 1j, decimal.Decimal("1.10")]
    yield "text", ("a", b"b", "é", "\ud800")
    yield "set", set(WORDS)
    yield "sets in sets", {frozenset(WORDS), frozenset(WORDS[:3])}
    yield "dict", dict.fromkeys(WORDS)
    yield "dates", [dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=Zone())]
    yield "names", (uuid.UUID(int=1), pathlib.Path("a/b"))
    yield "enum", Color.RED
    yield "enum class", Color
    yield "object", Plain(1)
    yield "objects in a cycle", grid()
    yield "class", Plain
    yield "method", Plain(1).get
    yield "dataclass", Point(1)
    yield "namedtuple", Pair(1, frozenset(WORDS))
    yield "function with sets", uses_sets
    yield "mutual", [odd, even]
    yield "closure", closure(1, frozenset(WORDS))
    yield "lambda", lambda x: x in {"a", "b", "c", "d"}
    yield "partial", functools.partial(uses_sets, "alpha")
    yield "importable", [json.dumps, np.sum, np.sin, len, pd.concat, da.mean]
    yield "exception", ValueError("a", {"b", "c"})
    yield "counter", collections.Counter(WORDS)
    yield "array", np.arange(100_000).reshape(1000, 100)[::2]
    yield "objects", np.array([*WORDS, None, frozenset(WORDS)], object)
    yield "masked", np.ma.array([1, 2, 3], mask=[False, True, False])
    yield "random", [np.random.default_rng(1), np.random.RandomState(2)]
    frame = pd.DataFrame({"a": WORDS, "b": range(8), "c": pd.Categorical(WORDS)})
    yield "frame", frame
    yield "indexed", frame.set_index(["a", "b"])
    yield "times", pd.Series(pd.date_range("2026", periods=3, tz="Europe/Berlin"))
    yield "offset", pd.offsets.CustomBusinessDay(holidays=["2026-01-01"])
    yield "arrow", pa.table({"a": WORDS, "b": pa.array(WORDS).dictionary_encode()})
    yield "tokens", [tokenize(1), tokenize(WORDS)]


def program(chunks: int) -> da.Array:
    x = da.arange(6_400, chunks=chunks).reshape(80, 80).rechunk((20, 20))
    y = (x + x.T) * 2 - x.mean(axis=0)
    z = da.concatenate([y, y[::-1]]).map_blocks(lambda block: block + 1)
    made: da.Array = (z.std(axis=1) + z.sum(axis=1)).cumsum(axis=0)[::3]
    return made


def collections_of_dask() -> Iterator[tuple[str, Any]]:
    yield "array program", program(400)
    yield (
        "array graph of random numbers",
        da.random.default_rng(3).random((50, 50), chunks=10).sum(),
    )
    frame = pd.DataFrame({"a": WORDS * 4, "b": range(32)})
    ddf = dd.from_pandas(frame, npartitions=4)
    yield "group", ddf.groupby("a").b.sum()
    yield "shuffle", ddf.shuffle("a", shuffle_method="tasks")
    yield "merge", ddf.merge(ddf, on="a", shuffle_method="tasks")
    yield "bag", db.from_sequence(WORDS, npartitions=3).map(len).filter(bool).sum()


def graph_tokens(collection: Any) -> dict[str, list[str | None]]:
    from dask.base import collections_to_expr

    expr = collections_to_expr([collection]).optimize()
    graph = convert_legacy_graph(dict(expr.__dask_graph__()))
    walker = Walker()
    found = {}
    for key, node in graph.items():
        if isinstance(node, Task):
            body = walker.body(node.func, node.args, node.kwargs)
        elif isinstance(node, Alias):
            body = walker.value(Ref(node.target, 0))
        else:
            assert isinstance(node, DataNode)
            body = walker.value(node.value)
        token, skeleton = run_spec_token(key, body)
        found[repr(key)] = [token.hex(), skeleton.hex() if skeleton else None]
    return found


def main() -> None:
    tokens: dict[str, Any] = {}
    for name, value in values():
        token = tokenize(value)
        tokens[name] = [str(token), token.skeleton]
        if "--shipped" in sys.argv:
            again = pickle.loads(cloudpickle.dumps(value))
            tokens[name] = [str(tokenize(again)), tokenize(again).skeleton]
    graphs = {name: graph_tokens(made) for name, made in collections_of_dask()}
    print(json.dumps({"values": tokens, "graphs": graphs}))


if __name__ == "__main__":
    main()
