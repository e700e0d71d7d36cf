"""Who is let in, who is not, and what either side is told."""

import random
import struct
from contextlib import suppress
from typing import Any

import msgpack
import pytest

from raddle.protocol.core.handshake import (
    NONCE_SIZE,
    VERSIONS,
    Acceptor,
    Connector,
    Hello,
)
from raddle.protocol.errors import (
    AuthenticationError,
    HandshakeError,
    ProtocolError,
)

HELLO = Hello("worker", {"name": "w-1", "nthreads": 4, "resources": {"GPU": 1.0}})
WELCOME = {"epoch": 2**63, "wid": 7}
NONCE_C, NONCE_A = b"c" * NONCE_SIZE, b"a" * NONCE_SIZE


def connector(secret: bytes | None = None, **kwargs: Any) -> Connector:
    return Connector(HELLO, NONCE_C, secret, **kwargs)


def acceptor(secret: bytes | None = None, **kwargs: Any) -> Acceptor:
    return Acceptor(NONCE_A, secret, **kwargs)


class Met:
    """Two sides that talked until one of them was done or failed."""

    def __init__(self, near: Connector, far: Acceptor, piece: int = 10_000) -> None:
        self.near, self.far = near, far
        self.errors: list[ProtocolError] = []
        to_far, to_near = near.start(), b""
        while (to_far or to_near) and not near.done:
            to_near += self._accept(to_far, piece)
            to_far, pending, to_near = b"", to_near, b""
            for at in range(0, len(pending), piece):
                try:
                    to_far += near.feed(pending[at : at + piece])
                except ProtocolError as error:
                    self.errors.append(error)
                    return

    def _accept(self, data: bytes, piece: int) -> bytes:
        reply = b""
        for at in range(0, len(data), piece):
            try:
                reply += self.far.feed(data[at : at + piece])
                if self.far.hello is not None and not self.far.done:
                    reply += self.far.welcome(WELCOME)
            except ProtocolError as error:
                self.errors.append(error)
                return reply + self.far.refusal(error)
        return reply

    @property
    def kinds(self) -> list[type[ProtocolError]]:
        """What the acceptor raised, then what the connector raised."""
        return [type(error) for error in self.errors]

    @property
    def texts(self) -> str:
        return "\n".join(map(str, self.errors))


@pytest.mark.parametrize("piece", [1, 7, 10_000])
@pytest.mark.parametrize("secret", [None, b"s", b"a much longer secret" * 20])
def test_they_meet(secret: bytes | None, piece: int) -> None:
    met = Met(connector(secret), acceptor(secret), piece)
    assert not met.errors
    assert met.near.done
    assert met.far.done
    assert met.far.hello == HELLO
    assert met.near.welcome == WELCOME
    assert met.near.rest == met.far.rest == b""


def test_without_a_secret_it_takes_one_round_trip() -> None:
    near, far = connector(), acceptor()
    reply = far.feed(near.start())
    assert far.hello == HELLO
    assert near.feed(reply + far.welcome(WELCOME)) == b""
    assert near.done


@pytest.mark.parametrize(
    ("ours", "theirs", "acceptor_says", "connector_says"),
    [
        (b"k", None, "a secret was offered, and this side has none", "other has none"),
        (
            None,
            b"k",
            "no secret was offered, and this side requires it",
            "--secret-file",
        ),
        (
            b"k",
            b"K",
            "different secrets",
            "refused: the two sides have different secrets",
        ),
    ],
)
def test_secrets_that_do_not_fit(
    ours: bytes | None, theirs: bytes | None, acceptor_says: str, connector_says: str
) -> None:
    met = Met(connector(ours), acceptor(theirs))
    assert met.kinds == [AuthenticationError, AuthenticationError]
    assert acceptor_says in str(met.errors[0])
    assert connector_says in str(met.errors[1])
    assert met.far.hello is None
    assert not met.near.done


@pytest.mark.parametrize("secret", [None, b"secret"])
@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ((1, 1), (2, 3), ("speaks 1,", "speaks 2 to 3,", "other 1;", "other 2 to 3;")),
        ((4, 4), (2, 3), ("speaks 4,", "speaks 2 to 3,", "other 4;", "other 2 to 3;")),
    ],
)
def test_versions_that_do_not_fit_are_named_on_both_sides(
    secret: bytes | None,
    ours: tuple[int, int],
    theirs: tuple[int, int],
    words: tuple[str, ...],
) -> None:
    met = Met(connector(secret, versions=ours), acceptor(secret, versions=theirs))
    assert met.kinds == [HandshakeError, HandshakeError]
    assert all(word in met.texts for word in words)
    assert "\n" not in str(met.errors[1])


@pytest.mark.parametrize(
    ("ours", "theirs"), [((1, 2), (2, 3)), ((1, 5), (2, 3)), ((2, 2), (2, 2))]
)
def test_versions_that_overlap_fit(
    ours: tuple[int, int], theirs: tuple[int, int]
) -> None:
    met = Met(connector(versions=ours), acceptor(versions=theirs))
    assert met.near.done, met.texts


def test_this_code_speaks_some_version() -> None:
    assert VERSIONS[0] <= VERSIONS[1]


STRANGERS = [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", r"begins with b'GET / HTTP/1\.1\\r\\n'"),
    (b"POST /x HTTP/1.1\r\n", r"\(HTTP\?\)"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", r"\(TLS\?\)"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", r"\(SSH\?\)"),
    (b"\x00", "not the raddle protocol"),
    (b"RDX", "not the raddle protocol"),
    (b"RDL\x02", "not the raddle protocol"),
    (random.Random(1).randbytes(5000), "not the raddle protocol"),
]


@pytest.mark.parametrize(("words", "reason"), STRANGERS)
def test_strangers_are_recognised_by_their_first_bytes(
    words: bytes, reason: str
) -> None:
    far = acceptor()
    with pytest.raises(ProtocolError, match=reason) as info:
        far.feed(words)
    assert far.refusal(info.value) == b"", "it would not understand"
    with pytest.raises(ProtocolError, match=reason):
        connector().feed(words)


def test_an_owner_refuses_in_its_own_words() -> None:
    near, far = connector(b"k"), acceptor(b"k")
    hello = near.feed(far.feed(near.start()))
    far.feed(hello)
    refusal = far.refusal(
        HandshakeError("a worker named 'w-1'\nis\x1b[31m here already")
    )
    with pytest.raises(HandshakeError) as info:
        near.feed(refusal)
    assert str(info.value) == (
        "the other side refused: a worker named 'w-1' is [31m here already"
    )


def test_what_follows_the_handshake_is_kept() -> None:
    near, far = connector(), acceptor()
    reply = far.feed(near.start() + b"first batch")
    assert far.rest == b"first batch"
    near.feed(reply + far.welcome({}) + b"second ")
    near.feed(b"batch")
    assert near.rest == b"second batch"


def exchange(kind: int, body: bytes) -> bytes:
    return struct.pack("<BI", kind, len(body)) + body


def prelude(side: Connector | Acceptor) -> bytes:
    """The prelude that a side would send."""
    if isinstance(side, Connector):
        return side.start()[:41]
    return side.feed(connector(b"k").start())[:41]


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1" * 10, b"x" * 32 + b"\xc1", b"x" * 32 + msgpack.packb(["", {}])],
)
def test_nothing_is_decoded_without_proof(body: bytes) -> None:
    """A body that msgpack would choke on is refused for its proof."""
    far = acceptor(b"k")
    far.feed(prelude(connector(b"k")))
    with pytest.raises(AuthenticationError, match="different secrets"):
        far.feed(exchange(1, body))
    near = connector(b"k")
    near.feed(prelude(acceptor(b"k")))
    with pytest.raises(AuthenticationError, match="did not prove"):
        near.feed(exchange(2, body))


def test_a_proof_holds_for_one_hello_and_one_meeting() -> None:
    near = connector(b"k")
    proven = near.feed(prelude(acceptor(b"k")))
    changed = proven.replace(b"w-1", b"w-2")
    assert changed != proven
    for nonce, words in ((NONCE_A, changed), (b"b" * NONCE_SIZE, proven)):
        far = Acceptor(nonce, b"k")
        far.feed(near.start())
        with pytest.raises(AuthenticationError):
            far.feed(words)
    far = acceptor(b"k")
    far.feed(near.start())
    far.feed(proven)
    assert far.hello == HELLO


@pytest.mark.parametrize("end", [None, 32])
def test_a_proof_cannot_be_sent_back(end: int | None) -> None:
    """One who knows no secret echoes what the connector says, or its proof alone."""
    near = connector(b"k")
    proven = near.feed(near.start())
    with pytest.raises(AuthenticationError, match="did not prove"):
        near.feed(exchange(2, proven[5:][:end]))


def test_a_welcome_cannot_be_changed_on_the_way() -> None:
    near, far = connector(b"k"), acceptor(b"k")
    far.feed(near.feed(far.feed(near.start())))
    welcome = far.welcome(WELCOME)
    changed = welcome.replace(b"wid\x07", b"wid\x08")
    assert changed != welcome
    with pytest.raises(AuthenticationError):
        near.feed(changed)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (struct.pack("<BI", 1, 4097), "4097 bytes in the handshake; at most 4096"),
        (struct.pack("<BI", 1, 2**32 - 1), "at most 4096"),
        (exchange(9, b""), "9 in place of a hello"),
        (exchange(1, b"\xc1"), "not msgpack"),
        (exchange(1, msgpack.packb(7)), r"the hello is not \[role, info\]"),
        (exchange(1, msgpack.packb(["worker"])), r"the hello is not \[role, info\]"),
        (exchange(1, msgpack.packb([1, {}])), r"the hello is not \[role, info\]"),
        (exchange(1, msgpack.packb(["w", []])), r"the hello is not \[role, info\]"),
    ],
)
def test_hellos_that_are_none(words: bytes, reason: str) -> None:
    far = acceptor()
    far.feed(prelude(connector()))
    with pytest.raises(ProtocolError, match=reason):
        far.feed(words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (struct.pack("<BI", 2, 4097), "4097 bytes in the handshake; at most 4096"),
        (exchange(9, b""), "unknown answer 9"),
        (exchange(2, b"\xc1"), "not msgpack"),
        (exchange(2, msgpack.packb([])), "the welcome is not a map"),
    ],
)
def test_welcomes_that_are_none(words: bytes, reason: str) -> None:
    near = connector()
    with pytest.raises(ProtocolError, match=reason):
        near.feed(acceptor().feed(connector().start()) + words)


def test_a_newer_hello_may_say_more() -> None:
    far = acceptor()
    far.feed(prelude(connector()))
    far.feed(exchange(1, msgpack.packb(["peer", {"from": "x"}, "more"])))
    assert far.hello == Hello("peer", {"from": "x"})


def test_an_own_hello_or_welcome_too_long_is_said_here() -> None:
    long = Hello("worker", {"name": "x" * 5000})
    with pytest.raises(
        HandshakeError, match=r"the hello has 50\d\d bytes; at most 4096"
    ):
        Connector(long, NONCE_C).start()
    assert Connector(long, NONCE_C, limit=10_000).start()
    far = acceptor()
    far.feed(connector().start())
    with pytest.raises(HandshakeError, match=r"the welcome has 5\d{3} bytes"):
        far.welcome({"x": "x" * 5000})
    with pytest.raises(HandshakeError, match=r"cannot encode the hello: .*complex"):
        Connector(Hello("worker", {"name": 1j}), NONCE_C)


def test_a_nonce_has_its_size() -> None:
    with pytest.raises(ValueError, match="a nonce has 32 bytes, not 5"):
        Connector(HELLO, b"short")


def test_the_secret_is_not_on_the_wire() -> None:
    secret = b"very secret words"
    near, far = connector(secret), acceptor(secret)
    words = [near.start()]
    words.append(far.feed(words[-1]))
    words.append(near.feed(words[-1]))
    far.feed(words[-1])
    words.append(far.welcome(WELCOME))
    near.feed(words[-1])
    assert near.done
    assert secret not in b"".join(words)


@pytest.mark.parametrize("secret", [None, b"secret"])
def test_spoilt_handshakes_fail_by_name_or_succeed(secret: bytes | None) -> None:
    """A thousand meetings with some bytes changed under way."""
    met = 0
    for seed in range(1000):
        rng = random.Random(seed)
        near, far = connector(secret), acceptor(secret)
        words = near.start()
        with suppress(ProtocolError):  # any other exception is a bug
            sides: tuple[Acceptor | Connector, ...] = (far, near, far, near)
            for side in sides:
                spoilt = bytearray(words)
                if spoilt and rng.random() < 0.5:
                    spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
                words = side.feed(bytes(spoilt))
                if side is far and far.hello and not far.done:
                    words += far.welcome(WELCOME)
        met += near.done
        if secret is not None and near.done:
            assert (far.hello, near.welcome) == (HELLO, WELCOME), seed
    assert 50 < met < 950
