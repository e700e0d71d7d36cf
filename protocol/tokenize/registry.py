"""Which encoder a class gets: the public registry, and the order of precedence.

1. built-in leaf types, exactly; 2. a registered handler, most derived class first;
3. futures, which count by their key; 4. ``__dask_tokenize__`` found on the type;
5. built-in containers, functions, classes, enums, dataclasses; 6. the reduce protocol.

Plans are cached per class, by id: a class is never hashed, since its metaclass may
say how. Registering replaces the caches, so that a plan made meanwhile is lost
rather than stale.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from .node import Node, Opaque, Piece, Same

Take = Callable[[Any, Any], "Node | Same | Piece"]
"""``take(walker, obj)``: the piece of a leaf, or a composite taken apart."""

Fast = Callable[[Any, Any], Piece]
"""``fast(walker, obj)``: the piece, children encoded by recursion."""

Handler = Callable[[Any], Any]
Rewrite = Callable[[Any, dict[str, Any]], Any]
"""``rewrite(args, kwargs)``: the value that a call of some function stands for."""

_F = TypeVar("_F", bound=Handler)

HANDLED = b"h"


class Encoder(NamedTuple):
    """How the two ways of walking treat one class."""

    take: Take
    fast: Fast


def leaf(take: Callable[[Any, Any], Piece]) -> Encoder:
    """An encoder for values that have no children."""
    return Encoder(take, take)


def composite(take: Take) -> Encoder:
    """An encoder for values with children: remembered by id, cycles noticed."""

    def fast(walker: Any, obj: Any) -> Piece:
        piece: Piece = walker.composite(obj, take)
        return piece

    return Encoder(take, fast)


def cyclic(take: Take) -> Encoder:
    """As :func:`composite`, for what is often part of a small cycle of its own."""

    def fast(walker: Any, obj: Any) -> Piece:
        piece: Piece = walker.cyclic(obj, take)
        return piece

    return Encoder(take, fast)


def mro_of(cls: type) -> tuple[type, ...]:
    """The method resolution order, without asking the metaclass."""
    mro: tuple[type, ...] = type.__dict__["__mro__"].__get__(cls)
    return mro


def namespace_of(cls: type) -> dict[str, Any]:
    """The class's own dict, without asking the metaclass."""
    names: dict[str, Any] = type.__dict__["__dict__"].__get__(cls)
    return names


def lookup(cls: type, name: str) -> Any:
    """What ``name`` is on the class (never on an instance), or None."""
    for base in mro_of(cls):
        names = namespace_of(base)
        if name in names:
            return names[name]
    return None


def module_of(cls: type) -> str | None:
    """The name of the module that made the class, if it says."""
    try:
        module = type.__dict__["__module__"].__get__(cls)
    except AttributeError:
        return None
    return module if type(module) is str else None


def _handled(handler: Handler) -> Encoder:
    def take(walker: Any, obj: Any) -> Node:
        result = walker.call(handler, obj)
        if type(result) is Opaque:
            return Node(HANDLED, (result.type_tag, result.value), labels=("", ""))
        return Node(HANDLED, (type(obj), result), labels=(".__class__", ""))

    return composite(take)


def _hooked(walker: Any, obj: Any) -> Node:
    """Encode by ``__dask_tokenize__``, bound as Python binds special methods."""
    cls = type(obj)
    hook = lookup(cls, "__dask_tokenize__")
    bind = lookup(type(hook), "__get__")
    bound = hook if bind is None else bind(hook, obj, cls)
    result = walker.call(bound)
    return Node(HANDLED, (cls, result), labels=(".__class__", ".__dask_tokenize__()"))


HOOKED = composite(_hooked)


class Normalizer:
    """Dispatch by type, along the method resolution order.

    A handler takes an object and returns an ordinary value, which is walked again;
    it is never turned into text. Calling the registry on a value inside a handler
    returns an opaque stand-in for it that may be part of the result.
    """

    def __init__(self) -> None:
        self.fast: dict[int, Fast] = {}
        self.takes: dict[int, Take] = {}
        self.epoch = 0
        self._leaves: dict[int, Encoder] = {}
        self._structural: Callable[[type], Encoder] | None = None
        self._future: Encoder | None = None
        self._handlers: dict[int, tuple[type, Encoder]] = {}
        self._lazy: dict[str, list[Callable[[], object]]] = {}
        self._running: set[str] = set()
        self._rewrites: dict[int, tuple[Any, Rewrite]] = {}
        self._watched: dict[int, weakref.ref[type]] = {}
        # Taken only to run a lazy registration: others must not plan without it.
        self._lock = threading.RLock()

    def __call__(self, value: Any) -> Same:
        """``value`` as part of a handler's result."""
        return Same(value)

    def register(
        self, type_or_types: type | Iterable[type], func: Handler | None = None
    ) -> Any:
        """Let ``func(obj)`` say what counts for objects of these types.

        Also for subclasses without a handler of their own. Without ``func``: a
        decorator. Registering again replaces.
        """
        if func is None:

            def decorate(func: _F) -> _F:
                self.register(type_or_types, func)
                return func

            return decorate
        self.encode_with(type_or_types, _handled(func))
        return func

    def register_lazy(
        self, top_level_module: str, func: Callable[[], object] | None = None
    ) -> Any:
        """Call ``func()`` once, when the first class from that module is met.

        It should :meth:`register` what the module's classes need. If it raises
        ImportError a warning says so, and it is not called again. Without
        ``func``: a decorator.
        """
        if func is None:

            def decorate(func: _F) -> _F:
                self.register_lazy(top_level_module, func)  # type: ignore[arg-type]
                return func

            return decorate
        self._lazy.setdefault(top_level_module, []).append(func)
        self._bump()
        return func

    def unregister(self, type_: type) -> None:
        """Forget the handler of exactly this type; KeyError if there is none."""
        del self._handlers[id(type_)]
        self._bump()

    def encode_with(self, types: type | Iterable[type], encoder: Encoder) -> None:
        """:meth:`register` for encoders of this package."""
        for cls in (types,) if isinstance(types, type) else types:
            self._handlers[id(cls)] = (cls, encoder)
        self._bump()

    def rewrite_calls(self, func: Any, rewrite: Rewrite) -> None:
        """Let calls of ``func`` in a run_spec count as what ``rewrite`` makes of them."""
        self._rewrites[id(func)] = (func, rewrite)

    def rewrite_of(self, func: Any) -> Rewrite | None:
        """How calls of ``func`` are to be rewritten; None if they are not."""
        if self._lazy and type(func) is FunctionType:
            top = str(func.__module__).partition(".")[0]
            if top in self._lazy:
                self._run_lazy((top,))
        found = self._rewrites.get(id(func))
        return None if found is None else found[1]

    def install(
        self,
        leaves: dict[type, Encoder],
        structural: Callable[[type], Encoder],
        future: Encoder,
    ) -> None:
        """Set the built-in steps of the precedence (once, when walk is imported)."""
        self._leaves = {id(cls): encoder for cls, encoder in leaves.items()}
        self._structural = structural
        self._future = future
        self._bump()

    def plan(self, cls: type) -> Encoder:
        """Find, and remember while the class lives, the encoder of a class."""
        fast, takes = self.fast, self.takes
        encoder = self._find(cls)
        ident = id(cls)

        def forget(_: object) -> None:
            self._watched.pop(ident, None)
            self.fast.pop(ident, None)
            self.takes.pop(ident, None)

        # No class may take this id while a plan is kept under it. Those who plan
        # under an older epoch fill dicts that nobody reads any more.
        self._watched[ident] = weakref.ref(cls, forget)
        takes[ident] = encoder.take
        fast[ident] = encoder.fast
        return encoder

    def take(self, walker: Any, obj: Any) -> Node | Same | Piece:
        """One value taken apart, or its piece if it has no children."""
        cls = type(obj)
        take = self.takes.get(id(cls))
        if take is None:
            take = self.plan(cls).take
        return take(walker, obj)

    def _bump(self) -> None:
        self.epoch += 1
        self.takes = {ident: e.take for ident, e in self._leaves.items()}
        self.fast = {ident: e.fast for ident, e in self._leaves.items()}

    def _find(self, cls: type) -> Encoder:
        known = self._leaves.get(id(cls))
        if known is not None:
            return known
        mro = mro_of(cls)
        if self._lazy:
            self._run_lazy({(module_of(c) or "").partition(".")[0] for c in mro})
        for base in mro:
            found = self._handlers.get(id(base))
            if found is not None:
                return found[1]
        assert self._structural is not None
        assert self._future is not None
        if not issubclass(
            cls, type
        ):  # of a class object the instances' hooks say nothing
            if lookup(cls, "__dask_future__") is True:
                return self._future
            if lookup(cls, "__dask_tokenize__") is not None:
                return HOOKED
        return self._structural(cls)

    def _run_lazy(self, tops: Iterable[str]) -> None:
        for top in tops:
            if top not in self._lazy:
                continue
            with self._lock:
                if top in self._running:
                    continue  # the registration itself tokenizes
                self._running.add(top)
                failures = []
                try:
                    for func in self._lazy.get(top, ()):
                        try:
                            func()
                        except ImportError as error:
                            failures.append(error)
                    self._lazy.pop(top, None)
                finally:
                    self._running.discard(top)
            for failure in failures:
                warnings.warn(
                    f"a lazy registration for {top!r} failed ({failure}): its objects "
                    "are tokenized without it",
                    RuntimeWarning,
                    stacklevel=2,
                )


normalize_token = Normalizer()
