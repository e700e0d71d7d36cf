"""How long a client tries to reach its scheduler, and after which failures.

A connection that is refused may be accepted a moment later, when the scheduler has
started. Whatever else goes wrong (a secret, a version, a name) stays wrong.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from raddle.protocol.comm import Hello, Link, connect
from raddle.protocol.comm.link import OnBatch, OnClose
from raddle.protocol.errors import CommClosedError
from raddle.protocol.errors import TimeoutError as RaddleTimeoutError

logger = logging.getLogger("raddle.client")

FIRST_SECONDS = 0.05
"""Between the first refusal and the second try; doubled after each."""
PAUSE_SECONDS_MAX = 1.0


async def reach(
    address: str,
    hello: Hello,
    secret: bytes | None,
    seconds: float,
    *,
    given_up: Callable[[], bool],
    on_batch: OnBatch,
    on_close: OnClose,
) -> Link:
    """A link to the scheduler, tried again while refused, for ``seconds``.

    Whoever has lost interest says so by ``given_up``: the last refusal is raised
    then. Raises what :func:`raddle.protocol.comm.connect` raises, and TimeoutError
    when the time is over.
    """
    deadline = time.monotonic() + seconds
    pause = FIRST_SECONDS
    left = seconds
    while True:
        try:
            return await connect(
                address,
                hello,
                secret=secret,
                timeout=left,
                on_batch=on_batch,
                on_close=on_close,
            )
        except RaddleTimeoutError as error:
            msg = f"{address} did not answer within {seconds:g} s"
            raise RaddleTimeoutError(msg) from error
        except CommClosedError as error:
            if not isinstance(error.__cause__, ConnectionRefusedError) or given_up():
                raise
            left = deadline - time.monotonic()
            if left <= 0:
                msg = (
                    f"no scheduler at {address} within {seconds:g} s: the connection "
                    "is refused. Start one there, or correct the address"
                )
                raise RaddleTimeoutError(msg) from error
            logger.debug("refused at %s, trying again: no scheduler there yet", address)
        await asyncio.sleep(min(pause, left))
        # The last try comes when the time is over, and takes a moment.
        left = max(deadline - time.monotonic(), FIRST_SECONDS)
        pause = min(2 * pause, PAUSE_SECONDS_MAX)
