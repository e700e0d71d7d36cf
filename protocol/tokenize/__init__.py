"""Which token a task or a value has: equal for equal meaning, nothing else."""

from . import lazy as _lazy
from .api import tokenize
from .hashing import (
    ENCODING,
    Digest,
    encoding_id,
    minted_token,
    run_spec_token,
)
from .node import Buffer, Chunks, Opaque
from .registry import normalize_token
from .tokens import Token, TokenizationError
from .walk import Walker

_lazy.install()

__all__ = [
    "ENCODING",
    "Buffer",
    "Chunks",
    "Digest",
    "Opaque",
    "Token",
    "TokenizationError",
    "Walker",
    "encoding_id",
    "minted_token",
    "normalize_token",
    "run_spec_token",
    "tokenize",
]
