"""Decides who may talk: protocol version, shared secret, hello and welcome.

    prelude   := "RDL" | u8 1 | u16 lowest | u16 highest version | u8 flags | nonce
    exchange  := u8 kind | u32 length | body
    connector:  prelude, hello           (with a secret: the hello after the other's prelude)
    acceptor:   prelude, welcome or refusal

With a secret, hello and welcome begin with an HMAC-SHA256 over both preludes (so
over both nonces) and the body, keyed with the secret and labelled with the side
that sends it. It is checked before the body is decoded, so all that is parsed
from a stranger is fixed-size fields. Both state machines are sans-IO: nonces come
in as arguments, bytes go in by ``feed`` and come out as its result.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field
from typing import Any

import msgpack

from ..errors import AuthenticationError, HandshakeError, ProtocolError

VERSIONS = (1, 1)
"""The lowest and the highest protocol version that this code speaks."""

NONCE_SIZE = 32

_MAGIC = b"RDL\x01"
_PRELUDE = struct.Struct(f"<4sHHB{NONCE_SIZE}s")
_EXCHANGE = struct.Struct("<BI")
_MAC_SIZE = 32
_FLAG_SECRET = 1
_HELLO, _WELCOME, _REFUSED, _UNAUTHENTICATED = 1, 2, 3, 4
_REFUSAL_MAX = 1024
_CONNECTOR, _ACCEPTOR = b"raddle connector", b"raddle acceptor"


@dataclass(frozen=True)
class Hello:
    """What the connecting side says about itself.

    ``role`` is ``client``, ``worker`` or ``peer``; ``info`` holds what msgpack can
    carry.
    """

    role: str
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Prelude:
    """The fixed-size first words of a side."""

    versions: tuple[int, int]
    has_secret: bool
    raw: bytes


def _prelude(versions: tuple[int, int], secret: bytes | None, nonce: bytes) -> bytes:
    if len(nonce) != NONCE_SIZE:
        raise ValueError(f"a nonce has {NONCE_SIZE} bytes, not {len(nonce)}")
    flags = _FLAG_SECRET if secret is not None else 0
    return _PRELUDE.pack(_MAGIC, *versions, flags, nonce)


def _guess(start: bytes) -> str:
    """What a stranger seems to speak, for the log."""
    word = start.split(b" ")[0]
    if word in {b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS"} or word[:5] == b"HTTP/":
        return " (HTTP?)"
    if start[:2] == b"\x16\x03":
        return " (TLS?)"
    if start[:4] == b"SSH-":
        return " (SSH?)"
    return ""


class _Side:
    """What both sides of a handshake do alike."""

    def __init__(
        self, nonce: bytes, secret: bytes | None, limit: int, versions: tuple[int, int]
    ) -> None:
        self._secret = secret
        self._limit = limit
        self._versions = versions
        self._own = _prelude(versions, secret, nonce)
        self._other: _Prelude | None = None
        self._received = bytearray()
        self.done = False

    @property
    def rest(self) -> bytes:
        """What came after the handshake; the beginning of the batches."""
        return bytes(self._received)

    def _take_prelude(self) -> _Prelude | None:
        """The other side's prelude once it is here; refuses strangers at once."""
        start = bytes(self._received[: _PRELUDE.size])
        if start[:4] != _MAGIC[: len(start)]:
            msg = (
                f"not the raddle protocol: it begins with {start[:16]!r}{_guess(start)}"
            )
            raise ProtocolError(msg)
        if len(start) < _PRELUDE.size:
            return None
        del self._received[: _PRELUDE.size]
        _, lowest, highest, flags, _ = _PRELUDE.unpack(start)
        return _Prelude((lowest, highest), bool(flags & _FLAG_SECRET), start)

    def _check_versions(self, other: _Prelude) -> None:
        ours, theirs = self._versions, other.versions
        if max(ours[0], theirs[0]) > min(ours[1], theirs[1]):
            msg = (
                f"protocol versions do not fit: this side speaks {_span(ours)}, the "
                f"other {_span(theirs)}; install the same raddle on both"
            )
            raise HandshakeError(msg)

    def _take_exchange(self) -> tuple[int, bytes] | None:
        """The next kind and body once they are here."""
        if len(self._received) < _EXCHANGE.size:
            return None
        kind, length = _EXCHANGE.unpack_from(self._received)
        if length > self._limit:
            msg = f"{length} bytes in the handshake; at most {self._limit} are taken"
            raise ProtocolError(msg)
        end = _EXCHANGE.size + length
        if len(self._received) < end:
            return None
        body = bytes(self._received[_EXCHANGE.size : end])
        del self._received[:end]
        return kind, body

    def _mac(
        self, label: bytes, connector: bytes, acceptor: bytes, body: bytes
    ) -> bytes:
        assert self._secret is not None
        text = b"".join((label, connector, acceptor, body))
        return hmac.digest(self._secret, text, "sha256")

    def _exchange(self, kind: int, body: bytes, what: str) -> bytes:
        if len(body) > self._limit:
            msg = (
                f"the {what} has {len(body)} bytes; at most {self._limit} are taken: "
                "use shorter names or fewer resources"
            )
            raise HandshakeError(msg)
        return _EXCHANGE.pack(kind, len(body)) + body


def _span(versions: tuple[int, int]) -> str:
    low, high = versions
    return str(low) if low == high else f"{low} to {high}"


def _pack(value: Any, what: str) -> bytes:
    try:
        packed: bytes = msgpack.packb(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise HandshakeError(f"cannot encode the {what}: {error}") from error
    return packed


def _unpack(body: bytes) -> Any:
    try:
        return msgpack.unpackb(body, use_list=False, strict_map_key=False)
    except Exception as error:
        msg = f"the handshake is not msgpack: {error}"
        raise ProtocolError(msg) from error


class Connector(_Side):
    """The side that connects: ``start``, then ``feed`` until ``done``.

    ``welcome`` is what the acceptor answered. ``feed`` raises AuthenticationError
    (secrets), HandshakeError (versions, refusals) or ProtocolError (a stranger).
    """

    def __init__(
        self,
        hello: Hello,
        nonce: bytes,
        secret: bytes | None = None,
        limit: int = 4096,
        versions: tuple[int, int] = VERSIONS,
    ) -> None:
        super().__init__(nonce, secret, limit, versions)
        self._hello = _pack((hello.role, hello.info), "hello")
        self.welcome: dict[str, Any] = {}

    def start(self) -> bytes:
        """The first bytes to send."""
        if self._secret is not None:
            return self._own
        return self._own + self._exchange(_HELLO, self._hello, "hello")

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the acceptor; returns what to send."""
        self._received += data
        if self.done:
            return b""
        reply = b""
        if self._other is None:
            self._other = self._take_prelude()
            if self._other is None:
                return b""
            reply = self._judge(self._other)
        answer = self._take_exchange()
        if answer is not None:
            self._conclude(self._other, *answer)
        return reply

    def _judge(self, other: _Prelude) -> bytes:
        self._check_versions(other)
        if other.has_secret and self._secret is None:
            msg = (
                "the other side requires a secret and this side has none: give it by "
                "secret=, --secret-file, or raddle.comm.secret in the configuration"
            )
            raise AuthenticationError(msg)
        if self._secret is None:
            return b""
        if not other.has_secret:
            msg = (
                "this side has a secret and the other has none: start the other side "
                "with the secret, or drop it here"
            )
            raise AuthenticationError(msg)
        mac = self._mac(_CONNECTOR, self._own, other.raw, self._hello)
        return self._exchange(_HELLO, mac + self._hello, "hello")

    def _conclude(self, other: _Prelude, kind: int, body: bytes) -> None:
        if kind == _UNAUTHENTICATED:
            raise AuthenticationError(f"the other side refused: {_readable(body)}")
        if kind == _REFUSED:
            raise HandshakeError(f"the other side refused: {_readable(body)}")
        if kind != _WELCOME:
            raise ProtocolError(f"unknown answer {kind} in the handshake")
        if self._secret is not None:
            mac, body = body[:_MAC_SIZE], body[_MAC_SIZE:]
            text = self._hello + body
            if not hmac.compare_digest(
                mac, self._mac(_ACCEPTOR, self._own, other.raw, text)
            ):
                msg = "the other side did not prove that it knows the secret"
                raise AuthenticationError(msg)
        welcome = _unpack(body)
        if not isinstance(welcome, dict):
            raise ProtocolError("the welcome is not a map")
        self.welcome = welcome
        self.done = True


def _readable(text: bytes) -> str:
    """A refusal as one printable line."""
    line = text[:_REFUSAL_MAX].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else " " for c in line)


class Acceptor(_Side):
    """The side that is connected to: ``feed`` until ``hello`` is there, then answer.

    Answer by :meth:`welcome`, or by :meth:`refusal` with whatever error ``feed``
    (or the owner) raised.
    """

    def __init__(
        self,
        nonce: bytes,
        secret: bytes | None = None,
        limit: int = 4096,
        versions: tuple[int, int] = VERSIONS,
    ) -> None:
        super().__init__(nonce, secret, limit, versions)
        self._hello = b""
        self._spoke = False
        self.hello: Hello | None = None

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the connector; returns what to send."""
        self._received += data
        reply = b""
        if self._other is None:
            self._other = self._take_prelude()
            if self._other is None:
                return b""
            self._judge(self._other)
            reply = self._own
        if self.hello is None:
            exchange = self._take_exchange()
            if exchange is not None:
                self._take_hello(self._other, *exchange)
        self._spoke = True
        return reply

    def _judge(self, other: _Prelude) -> None:
        self._check_versions(other)
        if other.has_secret and self._secret is None:
            raise AuthenticationError("a secret was offered, and this side has none")
        if self._secret is not None and not other.has_secret:
            raise AuthenticationError(
                "no secret was offered, and this side requires it"
            )

    def _take_hello(self, other: _Prelude, kind: int, body: bytes) -> None:
        if kind != _HELLO:
            raise ProtocolError(f"{kind} in place of a hello")
        if self._secret is not None:
            mac, body = body[:_MAC_SIZE], body[_MAC_SIZE:]
            if not hmac.compare_digest(
                mac, self._mac(_CONNECTOR, other.raw, self._own, body)
            ):
                raise AuthenticationError("the two sides have different secrets")
        hello = _unpack(body)
        if not isinstance(hello, tuple) or len(hello) < 2:
            raise ProtocolError("the hello is not [role, info]")
        role, info = hello[:2]
        if not isinstance(role, str) or not isinstance(info, dict):
            raise ProtocolError("the hello is not [role, info]")
        self._hello = body
        self.hello = Hello(role, info)

    def welcome(self, info: dict[str, Any]) -> bytes:
        """What to send to take the other side in; HandshakeError if it is too long."""
        assert self._other is not None
        body = _pack(info, "welcome")
        if self._secret is not None:
            text = self._hello + body
            body = self._mac(_ACCEPTOR, self._other.raw, self._own, text) + body
        answer = self._exchange(_WELCOME, body, "welcome")
        self.done = True
        return answer

    def refusal(self, error: ProtocolError) -> bytes:
        """What to send before closing; nothing to a side that is not raddle."""
        if self._other is None:
            return b""
        kind = _UNAUTHENTICATED if isinstance(error, AuthenticationError) else _REFUSED
        body = str(error).encode("utf-8", "replace")[:_REFUSAL_MAX]
        before = b"" if self._spoke else self._own
        return before + _EXCHANGE.pack(kind, len(body)) + body
