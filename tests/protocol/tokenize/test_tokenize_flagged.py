"""What has no reproducible content: flagged wherever it sits, and only it."""

import contextvars
import copy
import gc
import itertools
import mmap
import os
import pickle
import socket
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raddle.tokenize import Token, TokenizationError, normalize_token, tokenize


class Holder:
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


class Refuses:
    def __reduce__(self) -> str:
        message = "not me"
        raise ValueError(message)


class Misbehaves:
    """Neither repr nor str nor hash may be asked of a user's object."""

    def __init__(self) -> None:
        self.content = object()

    def __repr__(self) -> str:
        raise AssertionError

    __str__ = __repr__

    def __hash__(self) -> int:
        raise AssertionError

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AssertionError


class Hooked:
    def __init__(self, result: object) -> None:
        self.result = result

    def __dask_tokenize__(self) -> object:
        return self.result


def generator() -> object:
    return (x for x in "abc")


async def coroutine() -> None:
    pass


def closed_coroutine() -> object:
    made = coroutine()
    made.close()
    return made


def weak() -> object:
    target = Holder()
    made = weakref.ref(target)
    WEAK.append(target)
    return made


WEAK: list[object] = []


def in_cycle(value: object) -> list[object]:
    outer: list[object] = []
    outer.append([outer, value])
    return outer


FLAGGED: dict[str, Callable[[], object]] = {
    "object": object,
    "lock": threading.Lock,
    "condition": threading.Condition,
    "thread": lambda: threading.Thread(name="t"),
    "local": threading.local,
    "file": tempfile.TemporaryFile,
    "socket": socket.socket,
    "generator": generator,
    "iterator": lambda: itertools.count(3),
    "coroutine": closed_coroutine,
    "frame": sys._getframe,
    "weakref": weak,
    "mmap": lambda: mmap.mmap(-1, 10),
    "ufunc of Python": lambda: np.frompyfunc(lambda x: x, 1, 1),
    "context variable": lambda: contextvars.ContextVar("x"),
    "reduce raises": Refuses,
    "module of nowhere": lambda: types.ModuleType("nowhere_to_be_found"),
    "traceback": lambda: types.TracebackType(None, sys._getframe(), 0, 1),
}

WRAPPED: dict[str, tuple[Callable[[object], object], str]] = {
    "itself": (lambda x: x, ""),
    "list": (lambda x: [1, x], "[1]"),
    "long list": (lambda x: [*range(50), x], "[50]"),
    "dict": (lambda x: {"a": [0, x]}, "['a'][1]"),
    "dict of ints": (lambda x: {3: x}, "[3]"),
    "slice": (lambda x: slice(x, None), ".start"),
    "attribute": (lambda x: Holder(lock=x), ".__dict__['lock']"),
    "closure": (lambda x: lambda: x, ".__closure__['x']"),
    "default": (lambda x: lambda y=x: y, ".__defaults__[0]"),
    "object array": (lambda x: np.array([0, x, None], object), "[2][1]"),
    "series name": (lambda x: Hooked([x]), ".__dask_tokenize__()[0]"),
    "hook's result": (Hooked, ".__dask_tokenize__()"),
    "cycle": (in_cycle, "[0][1]"),
}


@pytest.mark.parametrize("kind", FLAGGED)
def test_flagged_idempotent_and_its_own(kind: str) -> None:
    first, second = FLAGGED[kind](), FLAGGED[kind]()
    token = tokenize(first)
    assert not token.deterministic
    assert token == tokenize(first)
    if kind != "frame":
        assert token != tokenize(second)
        assert token.skeleton == tokenize(second).skeleton
    assert token.skeleton is not None
    assert token.skeleton != str(token)
    with pytest.raises(TokenizationError):
        tokenize(first, ensure_deterministic=True)
    for made in (first, second):
        if hasattr(made, "close"):
            made.close()


@pytest.mark.parametrize("where", WRAPPED)
def test_flag_and_path_from_anywhere(where: str) -> None:
    wrap, path = WRAPPED[where]
    lock, other = threading.Lock(), threading.Lock()
    token = tokenize(wrap(lock))
    assert not token.deterministic
    assert token == tokenize(wrap(lock))
    assert token != tokenize(wrap(other))
    assert token.skeleton == tokenize(wrap(other)).skeleton
    assert token.skeleton != tokenize([wrap(lock)]).skeleton
    with pytest.raises(TokenizationError) as caught:
        tokenize("first", wrap(lock), ensure_deterministic=True)
    assert caught.value.path == f"args[1]{path}"
    assert caught.value.type_name == "_thread.lock"
    assert caught.value.path in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.path, again.type_name) == (caught.value.path, "_thread.lock")


def test_keyword_in_the_path() -> None:
    with pytest.raises(TokenizationError) as caught:
        tokenize(x={"a": object()}, ensure_deterministic=True)
    assert caught.value.path == "kwargs['x']['a']"
    assert caught.value.type_name == "builtins.object"


def test_the_name_of_a_series() -> None:
    assert not tokenize(pd.Series([1], name=(object(),))).deterministic


def test_skeleton_still_shows_every_other_difference() -> None:
    lock = threading.Lock()
    a, b = tokenize([lock, 1]), tokenize([lock, 2])
    assert a.skeleton != b.skeleton
    assert tokenize({object(): 1}).skeleton == tokenize({object(): 1}).skeleton
    assert tokenize({object(): 1}).skeleton != tokenize({object(): 2}).skeleton
    one = tokenize({object(), object()}, 1)
    assert one.skeleton == tokenize({object(), object()}, 1).skeleton


def test_changed_content_beside_a_lock_changes_the_token() -> None:
    holder: Any = Holder(lock=threading.Lock(), n=1)
    before = tokenize(holder)
    holder.n = 2
    assert tokenize(holder) != before


def test_no_code_of_a_user_class_is_asked() -> None:
    thing = Misbehaves()
    assert tokenize(thing) == tokenize(thing)
    assert not tokenize([thing, thing]).deterministic
    with pytest.raises(TokenizationError) as caught:
        tokenize([thing], ensure_deterministic=True)
    assert caught.value.path == "args[0][0].__dict__['content']"


def test_a_metaclass_is_not_asked_to_hash_or_compare() -> None:
    class Meta(type):
        def __hash__(cls) -> int:
            raise AssertionError

        def __eq__(cls, other: object) -> bool:
            raise AssertionError

    class Odd(metaclass=Meta):
        pass

    assert tokenize(Odd()) == tokenize(Odd())
    assert tokenize(Odd()).deterministic
    assert tokenize([1] * 40 + [Odd()] + [1]) != tokenize([1] * 42)


def test_a_token_carries_its_flag() -> None:
    lock = threading.Lock()
    token = tokenize(lock)
    for kept in (
        copy.copy(token),
        copy.deepcopy(token),
        pickle.loads(pickle.dumps(token)),
    ):
        assert kept == token
        assert kept.skeleton == token.skeleton
        assert not tokenize([kept]).deterministic
    assert tokenize([token]).skeleton == tokenize([tokenize(threading.Lock())]).skeleton
    assert tokenize(str(token)).deterministic
    with pytest.raises(TokenizationError):
        tokenize({"a": token}, ensure_deterministic=True)


def test_names_are_given_back() -> None:
    from raddle.protocol.tokenize import identity

    holder = Refuses()
    tokenize(holder)
    ident = id(holder)
    assert ident in identity._names.known
    del holder
    gc.collect()
    assert ident not in identity._names.known


def test_two_objects_at_one_address_differ() -> None:
    tokens = set()
    for _ in range(200):
        tokens.add(tokenize(Refuses()))
    assert len(tokens) == 200


def test_a_sentinel_can_be_registered() -> None:
    class Sentinel:
        def __reduce__(self) -> str:
            raise TypeError

    assert not tokenize(Sentinel()).deterministic
    normalize_token.register(Sentinel, lambda _: "the sentinel")
    try:
        assert tokenize([Sentinel()]).deterministic
        assert tokenize(Sentinel()) == tokenize(Sentinel())
    finally:
        normalize_token.unregister(Sentinel)
    assert not tokenize(Sentinel()).deterministic


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_names_afresh() -> None:
    thing = Refuses()
    mine = tokenize(thing)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, str(tokenize(thing)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        theirs = pipe.read()
    os.waitpid(pid, 0)
    assert len(theirs) == 32
    assert theirs != mine


def test_a_token_is_checked_and_fixed() -> None:
    with pytest.raises(ValueError, match="32 lower-case hex digits"):
        Token("no")
    token = tokenize(1)
    assert type(str(token)) is str
    assert hash(token) == hash(str(token))
    with pytest.raises(AttributeError):
        token.skeleton = None  # type: ignore[misc]
    with pytest.raises(AttributeError):
        token.other = 1
