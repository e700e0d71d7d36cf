"""When two functions are the same function.

One that can be imported counts by its name, and by its code so that an edit shows.
Any other counts by value: code, defaults, closure, and the globals that its code
loads. Where it was written (file, line, columns) does not count, nor do annotations
and the docstring.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import types
import weakref
from typing import Any, NamedTuple

from .builtins import DICT, LEAVES
from .hashing import digest_piece, int_piece, key_piece, str_piece, u64
from .node import PAIRS, Node, Piece, Raw
from .registry import Encoder, composite, cyclic, namespace_of

MISSING = object()
_MAIN = ("__main__", "__mp_main__")


def find_global(module: Any, name: Any) -> Any:  # noqa: PLR0911 (a chain of lookups)
    """What a loaded module (not ``__main__``) has under a dotted name, or MISSING.

    Read from the namespaces themselves: no module or class gets to run code.
    """
    if type(module) is not str or type(name) is not str or module in _MAIN:
        return MISSING
    loaded = sys.modules.get(module)
    if loaded is None:
        return MISSING
    try:
        names = object.__getattribute__(loaded, "__dict__")
    except AttributeError:
        return MISSING
    if "." not in name:
        return names.get(name, MISSING)
    first, *rest = name.split(".")
    found = names.get(first, MISSING)
    for part in rest:
        if not issubclass(type(found), type):
            return MISSING
        found = namespace_of(found).get(part, MISSING)
    if type(found) in (staticmethod, classmethod):
        return found.__func__
    return found


# --- code --------------------------------------------------------------------


class CodeFacts(NamedTuple):
    """What a code object says: its piece, and the globals it loads by name."""

    piece: bytes
    loads: tuple[str, ...]


_facts: dict[int, tuple[weakref.ref[types.CodeType], CodeFacts]] = {}
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_FLAGS = ~(inspect.CO_NESTED | getattr(inspect, "CO_HAS_DOCSTRING", 1 << 26))


def code_facts(code: types.CodeType) -> CodeFacts:
    """The facts of a code object, found out once in its life."""
    ident = id(code)
    known = _facts.get(ident)
    if known is not None and known[0]() is code:
        return known[1]
    facts = _find_facts(code)
    _facts[ident] = (weakref.ref(code, lambda _: _forget(ident)), facts)
    return facts


def _forget(ident: int) -> None:
    known = _facts.get(ident)
    if known is not None and known[0]() is None:
        _facts.pop(ident, None)


def _find_facts(code: types.CodeType) -> CodeFacts:
    loads = set()
    consts_used = set()
    for step in dis.get_instructions(code):
        if step.opname in _LOADS:
            loads.add(step.argval)
        elif step.opcode in dis.hasconst:
            consts_used.add(step.arg)
    consts = list(code.co_consts)
    if consts and type(consts[0]) is str and 0 not in consts_used:
        consts[0] = None  # the docstring
    parts = [
        str_piece(code.co_name),
        *map(
            int_piece,
            (
                code.co_argcount,
                code.co_posonlyargcount,
                code.co_kwonlyargcount,
                code.co_flags & _FLAGS,
            ),
        ),
        *map(_sized, (code.co_code, code.co_exceptiontable)),
        *map(
            key_piece,
            (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        ),
        u64(len(consts)),
    ]
    for const in consts:
        parts.append(_const(const))
        if type(const) is types.CodeType:
            loads.update(code_facts(const).loads)
    return CodeFacts(digest_piece(b"OC" + b"".join(parts)), tuple(sorted(loads)))


def _sized(data: bytes) -> bytes:
    return u64(len(data)) + data


def _const(value: Any) -> bytes:  # noqa: PLR0911 (one per type)
    kind = type(value)
    if kind is types.CodeType:
        return code_facts(value).piece
    if kind is tuple:
        return b"t" + u64(len(value)) + b"".join(map(_const, value))
    if kind is frozenset:
        return b"Z" + u64(len(value)) + b"".join(sorted(map(_const, value)))
    if kind is str:
        return str_piece(value)
    if kind is bytes:
        return b"b" + _sized(value)
    if kind is slice:
        return b"Os" + b"".join(map(_const, (value.start, value.stop, value.step)))
    piece = LEAVES[kind].take(None, value)
    assert type(piece) is bytes
    return piece


# --- functions ---------------------------------------------------------------


def take_function(walker: Any, func: types.FunctionType) -> Node | Piece:
    """A Python function: by reference if it can be imported, else by value."""
    module, name = func.__module__, func.__qualname__
    if find_global(module, name) is func:
        if walker.mode.function_code == "none":
            return digest_piece(b"OJ" + str_piece(module) + str_piece(name))
        code = _code_of(func)
        return digest_piece(b"Oj" + str_piece(module) + str_piece(name) + code)
    return _by_value(func)


def _code_of(func: types.FunctionType) -> bytes:
    """Digests of the code and the constant defaults, through its decorators."""
    parts = []
    seen: set[int] = set()
    current: Any = func
    while type(current) is types.FunctionType and id(current) not in seen:
        seen.add(id(current))
        parts.append(code_facts(current.__code__).piece)
        parts += map(_default, current.__defaults__ or ())
        for name, default in sorted((current.__kwdefaults__ or {}).items()):
            parts.append(str_piece(name) + _default(default))
        current = current.__dict__.get("__wrapped__")
    return u64(len(parts)) + b"".join(parts)


def _default(value: Any) -> bytes:
    # Other defaults (often a sentinel) belong to the module that the name names.
    kind = type(value)
    if kind in (str, int, float, bool, bytes, type(None)):
        return _const(value)
    return b"O"


def _by_value(func: types.FunctionType) -> Node:
    facts = code_facts(func.__code__)
    children: list[Any] = [func.__name__, Raw(facts.piece)]
    labels = [".__name__", ".__code__"]
    present = 0
    if func.__defaults__:
        present |= 1
        children.append(func.__defaults__)
        labels.append(".__defaults__")
    if func.__kwdefaults__:
        present |= 2
        children.append(func.__kwdefaults__)
        labels.append(".__kwdefaults__")
    if func.__closure__:
        present |= 4
        cells = dict(zip(func.__code__.co_freevars, func.__closure__, strict=True))
        children.append(_names(cells))
        labels.append(".__closure__")
    if facts.loads:
        space = func.__globals__
        found = {name: space[name] for name in facts.loads if name in space}
        if found:
            present |= 8
            children.append(_names(found))
            labels.append(".__globals__")
    if func.__dict__:
        present |= 16
        children.append(func.__dict__)
        labels.append("")
    return Node(b"Of" + bytes([present]), children, labels=labels)


def _names(values: dict[str, Any]) -> Node:
    return Node(DICT, [part for item in values.items() for part in item], PAIRS)


def _take_cell(_: Any, cell: types.CellType) -> Node:
    try:
        return Node(b"Oc\1", (cell.cell_contents,), labels=("",))
    except ValueError:  # not bound yet
        return Node(b"Oc\0", ())


def _take_code(_: Any, code: types.CodeType) -> bytes:
    return code_facts(code).piece


def _named_builtin(func: types.BuiltinFunctionType) -> bytes | None:
    """The piece of a function of an extension module, found there by its name."""
    owner = func.__self__
    if owner is None:
        module = func.__module__
    elif type(owner) is types.ModuleType:
        module = owner.__name__
    else:
        return None
    name = func.__name__
    if find_global(module, name) is func:
        return b"OB" + str_piece(module) + str_piece(name)
    return None


def _take_builtin(walker: Any, func: types.BuiltinFunctionType) -> Node | Piece:
    named = _named_builtin(func)
    if named is not None:
        return named
    owner = func.__self__
    if owner is None or type(owner) is types.ModuleType:
        identity: Node = walker.identity(func)
        return identity
    return Node(b"Ob", (owner, func.__name__), labels=(".__self__", ".__name__"))


def _fast_builtin(walker: Any, func: types.BuiltinFunctionType) -> Piece:
    # Cheaper to find anew than to remember.
    piece: Piece | None = _named_builtin(func)
    return walker.composite(func, _take_builtin) if piece is None else piece


def _take_method(_: Any, method: types.MethodType) -> Node:
    parts = (method.__self__, method.__func__)
    return Node(b"OM", parts, labels=(".__self__", ".__func__"))


def _take_partial(_: Any, call: functools.partial[Any]) -> Node:
    children: list[Any] = [call.func, call.args]
    labels = [".func", ".args"]
    present = 0
    if call.keywords:
        present |= 1
        children.append(call.keywords)
        labels.append(".keywords")
    if call.__dict__:
        present |= 2
        children.append(call.__dict__)
        labels.append("")
    return Node(b"Op" + bytes([present]), children, labels=labels)


def _take_lru_cache(walker: Any, func: Any) -> Node | Piece:
    inner = func.__wrapped__
    module, name = func.__module__, func.__qualname__
    parameters = func.cache_parameters()
    if find_global(module, name) is func and type(inner) is types.FunctionType:
        code = b"" if walker.mode.function_code == "none" else _code_of(inner)
        named = Raw(digest_piece(b"OL" + str_piece(module) + str_piece(name) + code))
        return Node(b"OK", (named, parameters))
    return Node(b"OK", (inner, parameters), labels=(".__wrapped__", ""))


def _take_module(walker: Any, module: types.ModuleType) -> Node | Piece:
    space = object.__getattribute__(module, "__dict__")
    for name in (space.get("__name__"), getattr(space.get("__spec__"), "name", None)):
        if type(name) is str and sys.modules.get(name) is module:
            return b"Oq" + str_piece(name)
    identity: Node = walker.identity(module)
    return identity


def _wrapper(tag: bytes, *names: str) -> Encoder:
    def take(_: Any, wrapper: Any) -> Node:
        return Node(
            tag,
            [getattr(wrapper, name) for name in names],
            labels=[f".{name}" for name in names],
        )

    return composite(take)


MODULE = composite(_take_module)
FUNCTIONS: dict[type, Encoder] = {
    types.FunctionType: cyclic(take_function),
    types.BuiltinFunctionType: Encoder(_take_builtin, _fast_builtin),
    types.MethodType: composite(_take_method),
    types.CodeType: composite(_take_code),
    types.CellType: composite(_take_cell),
    types.ModuleType: MODULE,
    functools.partial: composite(_take_partial),
    type(functools.lru_cache(len)): composite(_take_lru_cache),
    property: _wrapper(b"Og", "fget", "fset", "fdel"),
    classmethod: _wrapper(b"Oz", "__func__"),
    staticmethod: _wrapper(b"Ow", "__func__"),
    functools.cached_property: _wrapper(b"OQ", "func", "attrname"),
}
"""Exact types of functions and what wraps them."""
