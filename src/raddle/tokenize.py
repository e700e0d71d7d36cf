"""Which names `raddle.tokenize` offers: tokens of values, and how classes join in."""

from raddle.protocol.tokenize import (
    Buffer,
    Chunks,
    Opaque,
    Token,
    TokenizationError,
    normalize_token,
    tokenize,
)

__all__ = [
    "Buffer",
    "Chunks",
    "Opaque",
    "Token",
    "TokenizationError",
    "normalize_token",
    "tokenize",
]
