"""The page about the wire lists the messages that there are."""

import os
from collections.abc import Iterator
from pathlib import Path

from raddle.protocol.core.handshake import NONCE_SIZE, Connector, Hello
from raddle.protocol.core.messages import (
    CLIENT_TO_SCHEDULER,
    MESSAGES,
    PEER,
    SCHEDULER_TO_CLIENT,
    SCHEDULER_TO_WORKER,
    WORKER_TO_SCHEDULER,
)

PAGE = Path(__file__).parents[2] / "docs/internals/wire.md"
BEGIN, END = "<!-- messages: begin -->\n", "<!-- messages: end -->"
WAYS = {
    "client to scheduler": CLIENT_TO_SCHEDULER,
    "scheduler to client": SCHEDULER_TO_CLIENT,
    "scheduler to worker": SCHEDULER_TO_WORKER,
    "worker to scheduler": WORKER_TO_SCHEDULER,
    "to and from a worker's data": PEER,
}


def table() -> Iterator[str]:
    yield "| op | message | way | fields | meaning |"
    yield "|---:|---|---|---|---|"
    for way, classes in WAYS.items():
        for cls in classes:
            op = next(op for op, known in MESSAGES.items() if known is cls)
            meaning = (cls.__doc__ or "").strip().splitlines()[0]
            fields = " ".join(cls._fields)
            yield f"| {op} | {cls.__name__} | {way} | {fields} | {meaning} |"


def test_the_page_lists_the_messages() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    shown, _, after = rest.partition(END)
    current = "".join(f"{line}\n" for line in table())
    if os.environ.get("RADDLE_WRITE_DOCS"):
        PAGE.write_text(before + BEGIN + current + END + after)
    else:
        assert shown == current, "write it anew with RADDLE_WRITE_DOCS=1"


def test_each_message_goes_some_way() -> None:
    listed = [cls for classes in WAYS.values() for cls in classes]
    assert listed == list(MESSAGES.values())


def test_the_prelude_is_as_long_as_the_page_says() -> None:
    start = Connector(Hello("client"), bytes(NONCE_SIZE), b"secret").start()
    assert len(start) == 41
    assert "41 fixed bytes" in PAGE.read_text()
