"""What a token is to its users, and the error of those who insist on determinism."""

from __future__ import annotations

import re
from typing import Any, Self

from ..errors import RaddleError
from .hashing import Digest

_TEXT = re.compile(r"[0-9a-f]{32}\Z")


class Token(str):
    """32 lower-case hex digits that name a value; equal to, and hashing like, its text.

    ``deterministic`` is True if any process (same Python minor version, same
    libraries) would compute the same token for an equal value. ``skeleton`` is None
    then; else 32 hex digits: the token of the same value with each leaf that has no
    reproducible content replaced by its type. Pickle and copy keep both; ``str()``
    drops them.
    """

    __slots__ = ("_skeleton",)
    _skeleton: str | None

    def __new__(cls, text: str, skeleton: str | None = None) -> Self:
        """Check and keep; raises ValueError for anything but 32 hex digits."""
        for part in (text, skeleton):
            if part is not None and not _TEXT.match(part):
                msg = f"a token is 32 lower-case hex digits, not {str(part)[:80]!r}"
                raise ValueError(msg)
        token = str.__new__(cls, text)
        _set_skeleton(token, skeleton)
        return token

    @classmethod
    def of(cls, digest: Digest) -> Token:
        """The token of a digest."""
        token = str.__new__(cls, digest.digest.hex())
        skeleton = digest.skeleton
        _set_skeleton(token, None if skeleton is None else skeleton.hex())
        return token

    @property
    def deterministic(self) -> bool:
        """Whether every process computes this token for an equal value."""
        return self._skeleton is None

    @property
    def skeleton(self) -> str | None:
        """What is left when the parts without reproducible content are left out."""
        return self._skeleton

    @property
    def digest(self) -> Digest:
        """The form that travels: 16 bytes, and 16 bytes or None."""
        skeleton = self._skeleton
        return Digest(
            bytes.fromhex(self), None if skeleton is None else bytes.fromhex(skeleton)
        )

    def __setattr__(self, name: str, value: object) -> None:
        msg = "a Token cannot be changed"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> None:
        msg = "a Token cannot be changed"
        raise AttributeError(msg)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self._skeleton)

    def __copy__(self) -> Token:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Token:
        return self


_set_skeleton = Token.__dict__["_skeleton"].__set__


class TokenizationError(RaddleError, RuntimeError):
    """Something cannot be tokenized deterministically, and that was asked for.

    ``path`` leads from the tokenized arguments to the culprit, for example
    ``args[0]['a'][3].__dict__['lock']``; ``type_name`` is its type.
    """

    fault = "user"

    def __init__(self, path: str, type_name: str) -> None:
        super().__init__(
            f"cannot tokenize deterministically: {path} is a {type_name}, which has no "
            "content that another process could compare. Leave it out, say what counts "
            "(a method __dask_tokenize__, or normalize_token.register for its type), "
            "or use an enum member or a class of a module where it is a sentinel"
        )
        self.path = path
        self.type_name = type_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.type_name)
