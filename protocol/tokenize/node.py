"""What the walker passes around: values taken apart, and values with no content.

A :class:`Node` is one value's encoding before its children are encoded: a tag, the
children, and whether their order counts. Both ways of walking (by recursion and
by a stack of their own) work on nodes, so they cannot come to different results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .hashing import digest_piece, u64

ORDERED, UNORDERED, PAIRS, IDENTITY = range(4)


class Node:
    """A value taken apart.

    ``head`` starts its encoding and tells its kind. ``children`` are ordinary
    values or nodes; under ``PAIRS`` keys and values alternate and the pairs are
    sorted by the key's piece, under ``UNORDERED`` the pieces are sorted. ``labels``
    name the children in an error's path.
    """

    __slots__ = ("children", "head", "labels", "shape")

    def __init__(
        self,
        head: bytes,
        children: Sequence[Any],
        shape: int = ORDERED,
        labels: Sequence[str] = (),
    ) -> None:
        self.head = head
        self.children = children
        self.shape = shape
        self.labels = labels

    def step(self, i: int) -> str:
        """How child ``i`` is reached from this value, for an error's path."""
        if self.labels:
            return self.labels[i]
        if self.shape == ORDERED:
            return f"[{i}]"
        if self.shape == PAIRS and i % 2:
            return f"[{_shown(self.children[i - 1])}]"
        return f"{{{_shown(self.children[i])}}}"


class Flagged:
    """The piece of a value that has no reproducible content, or holds such a value.

    ``inner`` leads to the culprit, ``step`` says how: together they are the path
    that :class:`~raddle.tokenize.TokenizationError` shows. The culprit itself has
    no ``inner``; its ``step`` is the name of its type.
    """

    __slots__ = ("inner", "piece", "skeleton", "step")

    def __init__(
        self, piece: bytes, skeleton: bytes, step: str, inner: Flagged | None
    ) -> None:
        self.piece = piece
        self.skeleton = skeleton
        self.step = step
        self.inner = inner

    def trail(self) -> tuple[str, str]:
        """``(path below this value, qualified name of the culprit's type)``."""
        steps = []
        here = self
        while here.inner is not None:
            steps.append(here.step)
            here = here.inner
        return "".join(steps), here.step


Piece = bytes | Flagged


class Raw:
    """A child whose piece is known already."""

    __slots__ = ("piece",)

    def __init__(self, piece: bytes) -> None:
        self.piece = piece


class Same:
    """Stands for another value: encoded as that value, without a level of its own."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Opaque:
    """A handler's result that chooses its own type tag.

    The encoder puts the object's type in front of what a handler returns;
    ``Opaque(type_tag, value)`` puts ``type_tag`` (a class or a name) there instead.
    """

    __slots__ = ("type_tag", "value")

    def __init__(self, type_tag: type | str, value: Any) -> None:
        self.type_tag = type_tag
        self.value = value


class Buffer:
    """A handler's result, or a part of one: memory that is hashed in place.

    ``data`` must be contiguous and must not change during the call.
    """

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        self.data = data


class Chunks:
    """Like :class:`Buffer`, for content that exists only piece by piece.

    ``buffers`` is read once; where one chunk ends and the next begins is invisible.
    """

    __slots__ = ("buffers",)

    def __init__(self, buffers: Iterable[Any]) -> None:
        self.buffers = buffers


def close(node: Node, pieces: list[Any]) -> Piece:
    """The piece of ``node`` from the pieces of its children."""
    shape = node.shape
    try:
        if shape == ORDERED:
            body = b"".join(pieces)
        elif shape == UNORDERED:
            body = b"".join(sorted(pieces))
        elif shape == PAIRS:
            alternate = iter(pieces)
            pairs = sorted(zip(alternate, alternate, strict=True))
            body = b"".join([key + value for key, value in pairs])
        else:
            return _identity(node, pieces[0])
    except TypeError:  # a flagged piece is no bytes object and has no order
        return _close_flagged(node, pieces)
    return digest_piece(node.head + u64(len(pieces)) + body)


def _close_flagged(node: Node, pieces: list[Any]) -> Flagged:
    first = next(i for i, p in enumerate(pieces) if type(p) is Flagged)
    whole = close(node, [p.piece if type(p) is Flagged else p for p in pieces])
    bare = close(node, [p.skeleton if type(p) is Flagged else p for p in pieces])
    assert type(whole) is bytes
    assert type(bare) is bytes
    return Flagged(whole, bare, node.step(first), pieces[first])


def _identity(node: Node, kind: Piece) -> Flagged:
    whole, bare = (kind.piece, kind.skeleton) if type(kind) is Flagged else (kind, kind)
    assert type(whole) is bytes
    assert type(bare) is bytes
    return Flagged(
        digest_piece(node.head + whole),
        digest_piece(b"Y" + bare),
        qualified_name(node.children[0]),
        None,
    )


def qualified_name(cls: type) -> str:
    """``module.qualname`` of a class, read without running code of its metaclass."""
    try:
        module = type.__dict__["__module__"].__get__(cls)
    except AttributeError:
        module = "?"
    name: str = type.__dict__["__qualname__"].__get__(cls)
    return f"{module}.{name}" if type(module) is str else name


def _shown(key: Any) -> str:
    """A key in a path. Only plain values are shown by repr: never a user's object."""
    if type(key) in (str, int, float, bool, bytes, type(None)):
        text = repr(key)
        return text if len(text) <= 60 else text[:57] + "..."
    if type(key) is tuple and len(key) <= 4:
        return "(" + ", ".join(map(_shown, key)) + ")"
    return f"<{qualified_name(type(key))}>"
