"""From values to digests: the walker, and the quick way of walking.

The quick way recurses. It gives up on a cycle and on a deep stack; then the value is
walked again by :mod:`.cycles`, which needs no stack, knows cycles, and comes to the
same digests. What is finished by then is kept: no object is taken apart twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from ..spec import Call, Ref
from .builtins import DICT, LEAVES, PACKED_MIN, packed, pairs, take_str
from .classes import structural
from .cycles import Cycle, walk_deep
from .hashing import (
    BULK_MIN,
    ROOT_ARGS,
    ROOT_CALL,
    ROOT_VALUE,
    Digest,
    Hasher,
    blake,
    deterministic,
    digest_piece,
    int_piece,
    key_piece,
    mode_of,
    str_piece,
    u64,
)
from .node import Chunks, Flagged, Node, Piece, Raw, Same, close
from .objects import identity
from .registry import Take, composite, leaf, normalize_token
from .tokens import Token, TokenizationError

strict_mode: ContextVar[bool | None] = ContextVar("strict_mode", default=None)
"""While a hook or handler runs: what its caller's ``ensure_deterministic`` was."""

_OPEN = object()
_REWRITTEN = object()
_EMPTY_DICT = digest_piece(DICT + u64(0))
_ONE_ARGUMENT = ROOT_ARGS + u64(1)
_NOTHING: dict[str, Any] = {}


class Walker:
    """Computes digests that share one memory, for instance those of one graph.

    Values must not change while a walker is in use, and stay alive in its memory.
    Not for use by two threads at a time.
    """

    __slots__ = (
        "_heads", "_kept", "_memo", "mode", "prepared", "shallow", "strict",
    )  # fmt: skip

    def __init__(
        self,
        *,
        ensure_deterministic: bool = False,
        function_code: str = "own",
        bulk_hash: str = "xxh3-128",
    ) -> None:
        self.strict = ensure_deterministic
        self.mode = mode_of(function_code, bulk_hash)
        self._memo: dict[int, Any] = {}
        self._kept: list[Any] = []
        self._heads: dict[int, Any] = {}
        self.prepared: dict[int, tuple[Any, Node | Same]] = {}
        self.shallow = False

    # --- what the client calls ---

    def body(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Digest:
        """The digest of a run_spec in normal form (see :mod:`raddle.protocol.spec`).

        Raises :class:`TokenizationError` if determinism was asked for and there is
        none, and whatever a hook of a user's class raises.
        """
        head: Any = self._heads.get(id(func))
        if head is None:
            head = self._head(func)
        if head is _REWRITTEN:
            return self._rewritten(func, args, kwargs or {})
        try:
            parts: list[Any] = [ROOT_CALL, head, u64(len(args))]
            for arg in args:
                kind = type(arg)
                if kind is Ref:
                    parts.append(b"R" + key_piece(arg.key))
                elif kind is int:
                    parts.append(int_piece(arg))
                else:
                    parts.append(self.encode(arg))
            parts.append(self.encode(kwargs) if kwargs else _EMPTY_DICT)
        except (Cycle, RecursionError):
            return self._body(func, args, kwargs)
        except BaseException:
            self.prepared.clear()
            raise
        try:
            return deterministic(blake(b"".join(parts)))
        except TypeError:  # a piece is flagged
            return self._body(func, args, kwargs)

    def value(self, obj: Any) -> Digest:
        """The digest of any value: of scattered data, of a literal."""
        return self.root(ROOT_VALUE, [("value", obj)])

    # --- what encoders and the public function call ---

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Digest:
        """The digest of the arguments of a call."""
        if len(args) == 1 and not kwargs:
            piece = self.piece(args[0])
            if type(piece) is bytes:
                self.prepared.clear()
                return deterministic(blake(_ONE_ARGUMENT + piece))
        named: list[tuple[str, Any]] = [("", Raw(u64(len(args))))]
        named += [(f"args[{i}]", arg) for i, arg in enumerate(args)]
        for name in sorted(kwargs):
            named.append(("", Raw(str_piece(name))))
            named.append((f"kwargs[{name!r}]", kwargs[name]))
        return self.root(ROOT_ARGS, named)

    def root(self, head: bytes, named: list[tuple[str, Any]]) -> Digest:
        """The digest of some values; their names begin the path of an error."""
        try:
            pieces: list[Any] = [self.piece(value) for _, value in named]
        finally:
            self.prepared.clear()
        first = next((i for i, p in enumerate(pieces) if type(p) is Flagged), None)
        if first is None:
            return deterministic(blake(head + b"".join(pieces)))
        if self.strict:
            path, type_name = pieces[first].trail()
            raise TokenizationError(named[first][0] + path, type_name)
        whole = [p.piece if type(p) is Flagged else p for p in pieces]
        bare = [p.skeleton if type(p) is Flagged else p for p in pieces]
        return Digest(blake(head + b"".join(whole)), blake(head + b"".join(bare)))

    def piece(self, obj: Any) -> Piece:
        """The piece of any value, however deep or cyclic."""
        try:
            return self.encode(obj)
        except (Cycle, RecursionError):
            return self._deep(obj)

    def encode(self, obj: Any) -> Piece:
        """The piece of a value, the quick way; raises Cycle or RecursionError."""
        kind = type(obj)
        if kind is str:
            return take_str(self, obj)
        if kind is int:
            return int_piece(obj)
        fast = normalize_token.fast.get(id(kind))
        if fast is None:
            fast = normalize_token.plan(kind).fast
        return fast(self, obj)

    def call(self, func: Callable[..., Any], *args: Any) -> Any:
        """Call a hook or handler; tokenize() inside it inherits our strictness."""
        before = strict_mode.set(self.strict)
        try:
            return func(*args)
        finally:
            strict_mode.reset(before)

    def buffer(self, head: bytes, data: Any) -> bytes:
        """The piece of a contiguous buffer, hashed where it is."""
        view = memoryview(data)
        size = view.nbytes
        if size < BULK_MIN:
            return digest_piece(head + u64(size) + view.tobytes())
        state = self.mode.hasher()
        state.update(view)
        return self.bulk_piece(head, size, state)

    def chunks(self, head: bytes, buffers: Any, size: int) -> bytes:
        """As :meth:`buffer`, for ``size`` bytes that come in contiguous chunks."""
        if size < BULK_MIN:
            data = b"".join([bytes(chunk) for chunk in buffers])
            return digest_piece(head + u64(size) + data)
        state = self.mode.hasher()
        for chunk in buffers:
            state.update(chunk)
        return self.bulk_piece(head, size, state)

    def remembered_chunks(self, wrapped: Chunks) -> bytes:
        """The piece of a handler's chunks, which can be read only once."""
        known: bytes | None = self._memo.get(id(wrapped))
        if known is not None:
            return known
        state = self.mode.hasher()
        size = 0
        for chunk in wrapped.buffers:
            view = memoryview(chunk)
            size += view.nbytes
            state.update(view)
        piece: bytes = self.remember(wrapped, self.bulk_piece(b"U", size, state))
        return piece

    def big_leaf(self, obj: Any, head: bytes, data: Any) -> bytes:
        """As :meth:`buffer`, for a value that is remembered if it is big."""
        known: bytes | None = self._memo.get(id(obj))
        if known is not None:
            return known
        piece: bytes = self.remember(obj, self.buffer(head, data))
        return piece

    def bulk_piece(self, head: bytes, size: int, state: Hasher) -> bytes:
        """The piece of what has gone through a bulk hasher."""
        return digest_piece(
            b"B" + u64(len(head)) + head + self.mode.tag + u64(size) + state.digest()
        )

    def identity(self, obj: Any) -> Node:
        """The node of an object that is only itself."""
        return identity(obj)

    # --- memory ---

    def known(self, ident: int) -> Any:
        """The piece of a finished value; Cycle if the quick way is inside it now."""
        piece = self._memo.get(ident)
        if piece is _OPEN:
            raise Cycle
        return piece

    def remember(self, obj: Any, piece: Any) -> Any:
        """Keep a value's piece, and the value, so that its id stays its own."""
        self._memo[id(obj)] = piece
        self._kept.append(obj)
        return piece

    def keep(self, obj: Any) -> None:
        """Let an object live as long as the walker."""
        self._kept.append(obj)

    # --- the quick way ---

    def sequence(self, items: Any, tag: bytes) -> Piece:
        """A list or tuple."""
        memo = self._memo
        ident = id(items)
        piece: Any = memo.get(ident)
        if piece is not None:
            if piece is _OPEN:
                raise Cycle
            return piece  # type: ignore[no-any-return]
        if len(items) >= PACKED_MIN:
            piece = packed(self, items, tag)
        if piece is None:
            memo[ident] = _OPEN
            try:
                encode = self.encode
                pieces = [encode(item) for item in items]
            except BaseException:
                del memo[ident]
                raise
            try:
                piece = digest_piece(tag + u64(len(pieces)) + b"".join(pieces))  # type: ignore[arg-type]
            except TypeError:
                piece = close(Node(tag, items), pieces)
        memo[ident] = piece
        self._kept.append(items)
        return piece  # type: ignore[no-any-return]

    def mapping(self, items: dict[Any, Any]) -> Piece:
        """A dict."""
        memo = self._memo
        ident = id(items)
        piece: Any = memo.get(ident)
        if piece is not None:
            if piece is _OPEN:
                raise Cycle
            return piece  # type: ignore[no-any-return]
        memo[ident] = _OPEN
        try:
            encode = self.encode
            # A copy: another thread may change the dict while we are inside.
            found = [(encode(key), encode(value)) for key, value in list(items.items())]
        except BaseException:
            del memo[ident]
            raise
        try:
            ordered: Any = sorted(found) if len(found) > 1 else found
            body = b"".join([key + value for key, value in ordered])
            piece = digest_piece(DICT + u64(2 * len(found)) + body)
        except TypeError:
            piece = close(pairs(items), [part for pair in found for part in pair])
        memo[ident] = piece
        self._kept.append(items)
        return piece  # type: ignore[no-any-return]

    def composite(self, obj: Any, take: Take) -> Piece:
        """Anything else with children."""
        memo = self._memo
        ident = id(obj)
        piece: Any = memo.get(ident)
        if piece is not None:
            if piece is _OPEN:
                raise Cycle
            return piece  # type: ignore[no-any-return]
        prepared = self.prepared.pop(ident, None) if self.prepared else None
        node: Any = take(self, obj) if prepared is None else prepared[1]
        kind = type(node)
        if kind is Node or kind is Same:
            memo[ident] = _OPEN
            try:
                if kind is Same:
                    piece = self.encode(node.value)
                    self._kept.append(node)
                else:
                    encode = self.encode
                    piece = close(node, [encode(child) for child in node.children])
            except BaseException:
                del memo[ident]
                self.prepared[ident] = (obj, node)
                raise
        else:
            piece = node
        memo[ident] = piece
        self._kept.append(obj)
        return piece  # type: ignore[no-any-return]

    def cyclic(self, obj: Any, take: Take) -> Piece:
        """A function or class: a cycle that ends in itself is settled right here."""
        try:
            return self.composite(obj, take)
        except Cycle:
            return self._deep(obj)

    def _deep(self, obj: Any) -> Piece:
        before, self.shallow = self.shallow, True
        try:
            return walk_deep(self, obj)
        finally:
            self.shallow = before

    # --- bodies that need more than the quick way ---

    def _head(self, func: Any) -> Any:
        if normalize_token.rewrite_of(func) is None:
            try:
                piece: Any = self.piece(func)
            finally:
                self.prepared.clear()
        else:
            piece = _REWRITTEN
        self._heads[id(func)] = piece
        self._kept.append(func)
        return piece

    def _rewritten(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Digest:
        rewrite = normalize_token.rewrite_of(func)
        assert rewrite is not None
        value = rewrite(args, kwargs)
        if type(value) is Call:
            return self.body(value.func, value.args, value.kwargs)
        return self.root(ROOT_VALUE, [("value", value)])

    def _body(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Digest:
        named: list[tuple[str, Any]] = [("func", func), ("", Raw(u64(len(args))))]
        named += [(f"args[{i}]", arg) for i, arg in enumerate(args)]
        named.append(("kwargs", kwargs or _NOTHING))
        return self.root(ROOT_CALL, named)


def _take_call(_: Walker, call: Call) -> Node | Same:
    rewrite = normalize_token.rewrite_of(call.func)
    if rewrite is not None:
        return Same(rewrite(call.args, call.kwargs))
    labels = ["()", *(f"()[{i}]" for i in range(len(call.args))), "()"]
    return Node(b"C", (call.func, *call.args, call.kwargs), labels=labels)


def _take_token(_: Walker, token: Token) -> Piece:
    digest, skeleton = token.digest
    if skeleton is None:
        return b"k" + digest
    return Flagged(b"k" + digest, b"k" + skeleton, "non-deterministic token", None)


normalize_token.install(
    {
        **LEAVES,
        Node: composite(lambda _, node: node),
        Ref: leaf(lambda _, ref: b"R" + key_piece(ref.key)),
        Call: composite(_take_call),
        Token: leaf(_take_token),
    },
    structural,
    leaf(lambda _, future: b"R" + key_piece(future.key)),
)
