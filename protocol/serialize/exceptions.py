"""How an exception travels: as itself if it can, as its words if it cannot.

The payload is a pickle of plain texts (type name, message, formatted traceback)
with the exception's own pickle inside, so that a reader that cannot rebuild the
exception still has the words. Causes, contexts, notes and tracebacks go along; a
part of the chain that cannot be pickled is replaced alone. Nothing is registered
globally: user code's own pickling of exceptions stays as it is.
"""

from __future__ import annotations

import io
import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

import cloudpickle
from tblib import Traceback

from ..errors import RaddleError, RemoteError, from_wire
from .blame import message_of, type_name
from .pickles import PROTOCOL, Buffers, loads

TEXT_MAX = 10_000
"""Characters of a message that travel beside the pickle."""
TRACEBACK_MAX = 100_000
"""Characters of a formatted traceback that travel beside the pickle."""
STACK_MAX = 200
"""Stack frames kept of one traceback: the first half and the last half."""

_PLAIN_REDUCE = (BaseException.__reduce__, OSError.__reduce__)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: the class is not a builtin

ErrorPair = tuple[str, Any]


def dump_exception(error: BaseException) -> ErrorPair:
    """``("", frames)``: ``error`` with its traceback and chain, and its words.

    Never raises: what cannot be pickled becomes a :class:`RemoteError`.
    """
    inner, buffers = _pickled(error, {})
    if not inner:
        hopeless = [e for e in _chain(error) if not _pickled(e, {}, links=False)[0]]
        stand_ins = {id(e): _stand_in(e) for e in hopeless}
        inner, buffers = _pickled(error, stand_ins)
        if not inner:  # the chain is longer than pickle can recurse
            inner, buffers = _pickled(error, stand_ins, links=False)
    texts = type_name(error), _text(error), _formatted(error)
    return "", (pickle.dumps((*texts, inner), PROTOCOL), *buffers)


def load_exception(pair: ErrorPair) -> BaseException:
    """The exception of a pair from :func:`dump_exception` or ``errors.to_wire``.

    Never raises: what cannot be rebuilt here is returned as a :class:`RemoteError`
    that shows the remote traceback and says why.
    """
    try:
        name, payload = pair
        if name:
            return from_wire((name, payload))
        cls, text, formatted, inner = pickle.loads(payload[0])
        stand_in = RemoteError(cls, text, formatted)
    except Exception as error:  # noqa: BLE001 (a peer's bytes may be anything)
        return RemoteError("unknown", f"the error itself is unreadable: {error!r}")
    try:
        if inner:
            loaded = loads((inner, *payload[1:]), f"an exception of type {cls}")
            if isinstance(loaded, BaseException):
                return loaded
    except RaddleError as error:
        stand_in.add_note(str(error))
    return stand_in


def _pickled(
    error: BaseException, stand_ins: Mapping[int, RemoteError], *, links: bool = True
) -> tuple[bytes, Buffers]:
    """The pickle of ``error`` and its long buffers; empty if that fails."""
    buffers = Buffers()
    with io.BytesIO() as file:
        try:
            _Pickler(file, buffers, stand_ins, links).dump(error)
        except Exception:  # noqa: BLE001 (whatever a __reduce__ raises)
            return b"", Buffers()
        return file.getvalue(), buffers


def _chain(error: BaseException) -> Iterator[BaseException]:
    """``error`` and all that it is linked to, each once."""
    pending, seen = [error], set()
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        linked = (current.__cause__, current.__context__)
        pending += [e for e in linked if e is not None]
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions


def _stand_in(error: BaseException) -> RemoteError:
    own = "".join(traceback.format_tb(error.__traceback__))
    return RemoteError(type_name(error), _text(error), _shortened(own, TRACEBACK_MAX))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Knows how to pickle exceptions with all that hangs on them, and tracebacks."""

    def __init__(
        self,
        file: io.BytesIO,
        buffers: Buffers,
        stand_ins: Mapping[int, RemoteError],
        links: bool,
    ) -> None:
        super().__init__(file, PROTOCOL, buffer_callback=buffers)
        self.stand_ins = stand_ins
        self.links = links

    def reducer_override(self, obj: Any) -> Any:
        """Reduce exceptions and tracebacks; cloudpickle has the rest."""
        if isinstance(obj, BaseException):
            return self.reduce_exception(obj)
        if type(obj) is TracebackType:
            return _as_traceback, (_stack(obj),)
        return super().reducer_override(obj)

    def reduce_exception(self, error: BaseException) -> Any:
        """Class and arguments first, so that the links may lead back to it."""
        reduced = _reduce(self.stand_ins.get(id(error), error))
        if isinstance(reduced, str):
            return reduced
        make, args, state, items, pairs, setter = reduced
        notes = getattr(error, "__notes__", None)
        cause, context = error.__cause__, error.__context__
        if not self.links and (cause or context):
            cause = context = None
            notes = [*(notes or ()), "(what caused it could not be sent along)"]
        suppress, tb = error.__suppress_context__, error.__traceback__
        rest = setter, state, (cause, context, suppress, tb, notes)
        return make, args, rest, items, pairs, _restore


def _reduce(error: BaseException) -> Any:
    """What pickle would do with ``error``, as a full tuple of six.

    Pickle calls a class with the exception's ``args``, which is wrong for the many
    classes whose ``__init__`` takes something else; those are made without it.
    """
    cls = type(error)
    reduced = error.__reduce_ex__(PROTOCOL)
    if isinstance(reduced, str):
        return reduced
    full = (*reduced, *(None,) * (6 - len(reduced)))
    own_init = cls.__init__ is not _builtin_base(cls).__init__
    if own_init and cls.__reduce__ in _PLAIN_REDUCE:
        return (
            _without_init,
            (cls, reduced[1]),
            object.__getstate__(error),
            None,
            None,
            None,
        )
    return full


def _builtin_base(cls: type) -> Any:
    while cls.__flags__ & _HEAP_TYPE:
        assert cls.__base__ is not None  # object is a builtin
        cls = cls.__base__
    return cls


def _without_init(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    base = _builtin_base(cls)
    error: BaseException = base.__new__(cls, *args)
    base.__init__(error, *args)
    return error


def _restore(
    error: BaseException,
    rest: tuple[Callable[[Any, Any], None] | None, Any, tuple[Any, ...]],
) -> None:
    """Give a new exception its attributes, links and traceback."""
    setter, state, links = rest
    if setter is not None:
        setter(error, state)
    else:
        # With __slots__ the state is a pair of dicts (object.__getstate__).
        for part in state if type(state) is tuple else (state,):
            error.__setstate__(part)
    cause, context, suppress, tb, notes = links
    error.__cause__ = cause
    error.__context__ = context
    error.__suppress_context__ = suppress
    error.__traceback__ = tb
    if notes is not None:
        error.__notes__ = notes


Entry = tuple[str, str, int, dict[str, Any]]


def _stack(tb: TracebackType | None) -> list[Entry]:
    """File, name, line and module of each frame, as many as are kept."""
    entries: list[Entry] = []
    while tb is not None:
        code, names = tb.tb_frame.f_code, tb.tb_frame.f_globals
        module: dict[str, Any] = {
            k: names[k] for k in ("__name__", "__file__") if k in names
        }
        entries.append((code.co_filename, code.co_name, tb.tb_lineno, module))
        tb = tb.tb_next
    half = STACK_MAX // 2
    return entries if len(entries) <= STACK_MAX else entries[:half] + entries[-half:]


def _as_traceback(entries: list[Entry]) -> TracebackType | None:
    """A traceback that prints like the one of :func:`_stack`.

    The frames run a stub, hence the place within the line is unknown: without an
    instruction, no carets are printed under the wrong words.
    """
    linked: dict[str, Any] | None = None
    for filename, name, line, module in reversed(entries):
        code = {"co_filename": filename, "co_name": name}
        frame = {"f_code": code, "f_globals": module, "f_lineno": line}
        linked = {"tb_frame": frame, "tb_lineno": line, "tb_next": linked}
    stubs: list[TracebackType] = []
    current: Any = linked and Traceback.from_dict(linked).as_traceback()
    while current is not None:
        stubs.append(current)
        current = current.tb_next
    tb: TracebackType | None = None
    for stub in reversed(stubs):
        tb = TracebackType(tb, stub.tb_frame, -1, stub.tb_lineno)
    return tb


def _text(error: BaseException) -> str:
    return _shortened(message_of(error), TEXT_MAX)


def _formatted(error: BaseException) -> str:
    try:
        return _shortened("".join(traceback.format_exception(error)), TRACEBACK_MAX)
    except Exception as broken:  # noqa: BLE001 (a user's __str__ or __notes__)
        return f"(its traceback is unreadable: {type(broken).__name__})"


def _shortened(text: str, limit: int) -> str:
    """``text`` without its middle if it is long; start and end say most."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - limit} characters ...\n{text[-half:]}"
