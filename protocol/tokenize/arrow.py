"""How pyarrow counts: by type and logical content, read through Arrow's own stream.

Offsets of slices, chunk boundaries and what lies under a null do not count;
dictionaries, extension types and metadata do.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from .hashing import Hasher
from .node import Node, Piece, Raw
from .registry import composite, normalize_token


def register() -> None:
    """Register pyarrow's containers; its types and schemas reduce well themselves."""
    normalize_token.encode_with(pa.Array, composite(_take_array))
    normalize_token.encode_with(pa.ChunkedArray, composite(_take_chunked))
    normalize_token.encode_with((pa.Table, pa.RecordBatch), composite(_take_table))


class _Sink:
    """A file that only remembers the hash of what is written to it."""

    closed = False

    def __init__(self, state: Hasher) -> None:
        self.state = state
        self.size = 0

    def write(self, data: Any) -> int:
        self.state.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True

    def tell(self) -> int:
        return self.size


def stream_piece(walker: Any, array: Any) -> bytes:
    """The piece of one array's Arrow stream: schema, dictionaries, values."""
    sink = _Sink(walker.mode.hasher())
    batch = pa.record_batch([array], names=[""])
    with (
        pa.PythonFile(sink, mode="w") as file,
        pa.ipc.new_stream(file, batch.schema) as writer,
    ):
        writer.write_batch(batch)
    piece: bytes = walker.bulk_piece(b"W", sink.size, sink.state)
    return piece


def array_node(walker: Any, array: Any) -> Node:
    """Type, validity and valid values of an array."""
    kind = array.type
    parts: list[Any] = [kind, len(array)]
    if array.null_count and not pa.types.is_null(kind):
        parts.append(Raw(stream_piece(walker, _plain(array.is_valid()))))
        array = array.drop_null()
    parts.append(Raw(stream_piece(walker, _plain(array))))
    return Node(b"3a", parts)


def _plain(array: Any) -> Any:
    """The same values in a form whose bytes are all value."""
    kind = array.type
    if array.offset or array.nbytes != array.get_total_buffer_size():
        # A slice: the stream would cut it at its beginning only.
        array = pa.concat_arrays([array.slice(0, 0), array])
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8())  # the last byte of a bitmap has spare bits
    for views, flat in (
        ("string_view", "large_string"),
        ("binary_view", "large_binary"),
    ):
        if hasattr(pa.types, f"is_{views}") and getattr(pa.types, f"is_{views}")(kind):
            return array.cast(getattr(pa, flat)())
    return array


def chunks_node(walker: Any, chunked: Any) -> Node:
    """A chunked array as one array, however it is cut."""
    if chunked.num_chunks == 1:
        return array_node(walker, chunked.chunk(0))
    if pa.types.is_dictionary(chunked.type):
        chunked = chunked.unify_dictionaries()
    whole = chunked.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # too long for the offsets of one array
        return Node(b"3c", [array_node(walker, chunk) for chunk in whole.chunks])
    return array_node(walker, whole)


def _take_array(walker: Any, array: Any) -> Node | Piece:
    return Node(b"3A", (type(array), array_node(walker, array)))


def _take_chunked(walker: Any, chunked: Any) -> Node | Piece:
    return Node(b"3A", (pa.ChunkedArray, chunks_node(walker, chunked)))


def _take_table(walker: Any, table: Any) -> Node | Piece:
    columns = []
    for column in table.columns:
        chunked = isinstance(column, pa.ChunkedArray)
        columns.append((chunks_node if chunked else array_node)(walker, column))
    return Node(b"3B", (type(table), table.schema, table.num_rows, columns))
