"""What a value is that contains itself: the way of walking that needs no stack.

Values that reach each other form a component. Each of its members gets a digest
that says what can be reached from it, and not where the walk began: the members are
told apart round by round, by what their children were in the round before, until
no round tells more of them apart. So members that unroll to the same endless tree
are equal, order in sets and shared structure do not count, and every member of a
component is known once one of them has been walked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .hashing import digest_piece
from .node import Flagged, Node, Piece, Same, close
from .registry import normalize_token


class Cycle(Exception):
    """The quick way of walking has met a value that it is still inside of."""


class _Hole:
    """A child that is a member of the same component, by its place on the stack."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at


class _Visit:
    """A value whose children are being walked, or whose component is unfinished."""

    __slots__ = ("at", "low", "node", "obj", "pieces", "todo")

    def __init__(self, obj: Any, node: Node, at: int) -> None:
        self.obj = obj
        self.node = node
        self.at = at
        self.low = at
        self.pieces: list[Any] = []
        self.todo: Iterator[Any] = iter(node.children)


class _Walk:
    """Tarjan's algorithm for strongly connected components, on a stack of its own."""

    def __init__(self, walker: Any) -> None:
        self.walker = walker
        self.path: list[_Visit] = []
        self.pending: list[_Visit] = []
        self.places: dict[int, _Hole] = {}

    def run(self, root: Any) -> Piece:
        got = self.enter(root)
        path = self.path
        while path:
            visit = path[-1]
            for child in visit.todo:
                got = self.enter(child)
                if got is None:
                    break
                self.receive(visit, got)
            else:
                path.pop()
                got = self.leave(visit)
                if path:
                    self.receive(path[-1], got)
        assert type(got) is bytes or type(got) is Flagged
        return got

    def enter(self, obj: Any) -> Piece | _Hole | None:
        """What is known of a value; None if it is now on top of the path."""
        walker = self.walker
        while True:
            ident = id(obj)
            known: Piece | None = walker.known(ident)
            if known is not None:
                return known
            place = self.places.get(ident)
            if place is not None:
                return place
            prepared = walker.prepared.pop(ident, None)
            node: Node | Same | Piece
            if prepared is not None:
                node = prepared[1]
            else:
                node = normalize_token.take(walker, obj)
            if type(node) is Same:
                walker.keep(node)
                obj = node.value
                continue
            if type(node) is Node:
                break
            return node  # type: ignore[return-value]
        at = len(self.pending)
        visit = _Visit(obj, node, at)
        self.places[ident] = _Hole(at)
        self.path.append(visit)
        self.pending.append(visit)
        return None

    @staticmethod
    def receive(visit: _Visit, got: Piece | _Hole) -> None:
        visit.pieces.append(got)
        if type(got) is _Hole:
            visit.low = min(visit.low, got.at)

    def leave(self, visit: _Visit) -> Piece | _Hole:
        """Finish a value whose children are done."""
        if visit.low < visit.at:
            # It belongs to a component that an earlier value began.
            self.path[-1].low = min(self.path[-1].low, visit.low)
            return self.places[id(visit.obj)]
        members = self.pending[visit.at :]
        del self.pending[visit.at :]
        for member in members:
            del self.places[id(member.obj)]
        if len(members) == 1 and _Hole not in map(type, visit.pieces):
            pieces: list[Piece] = [close(visit.node, visit.pieces)]
        else:
            pieces = _component(members)
        for member, piece in zip(members, pieces, strict=True):
            self.walker.remember(member.obj, piece)
        return pieces[0]


def walk_deep(walker: Any, root: Any) -> Piece:
    """The piece of a value; raises Cycle if the quick way is inside a part of it."""
    return _Walk(walker).run(root)


def _component(members: list[_Visit]) -> list[Piece]:
    base = members[0].at
    whole = _refine(members, base, "piece")
    if not any(type(p) is Flagged for m in members for p in m.pieces):
        return list(whole)
    bare = _refine(members, base, "skeleton")
    pieces: list[Any] = [None] * len(members)
    # Lead each member to a culprit: directly, or through members already led.
    while None in pieces:
        for i, member in enumerate(members):
            if pieces[i] is None:
                step = _culprit(member, base, pieces)
                if step is not None:
                    pieces[i] = Flagged(whole[i], bare[i], *step)
    return pieces


def _culprit(
    member: _Visit, base: int, pieces: list[Any]
) -> tuple[str, Flagged] | None:
    for i, piece in enumerate(member.pieces):
        if type(piece) is Flagged:
            return member.node.step(i), piece
        if type(piece) is _Hole and pieces[piece.at - base] is not None:
            return member.node.step(i), pieces[piece.at - base]
    return None


def _refine(members: list[_Visit], base: int, side: str) -> list[bytes]:
    """One side (``piece`` or ``skeleton``) of the members' pieces.

    A colour contains the member's colour of the round before; the result contains
    all colours of the component. Without either, two components of different
    shape could agree in the colours that happen to be looked at.
    """
    colours = [digest_piece(b"@")] * len(members)
    count = 0
    while True:
        fresh = []
        for i, member in enumerate(members):
            pieces = [
                colours[p.at - base]
                if type(p) is _Hole
                else getattr(p, side)
                if type(p) is Flagged
                else p
                for p in member.pieces
            ]
            closed: Any = close(member.node, pieces)
            if type(closed) is Flagged:
                closed = getattr(closed, side)
            fresh.append(digest_piece(b"@" + colours[i] + closed))
        colours = fresh
        if len(set(colours)) == count:
            break
        count = len(set(colours))
    every = b"".join(sorted(set(colours)))
    return [digest_piece(b"%" + colour + every) for colour in colours]
