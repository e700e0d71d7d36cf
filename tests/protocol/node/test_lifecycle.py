"""The life of a process: signals, errors, orphans, and the exit code of each."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from raddle.protocol.errors import StartError
from raddle.protocol.node.lifecycle import pid_file

pytestmark = pytest.mark.process


def start(
    body: str, *arguments: str, pass_fds: Sequence[int] = ()
) -> subprocess.Popen[str]:
    """A process whose main coroutine is `body`; it prints `ready` before it waits."""
    program = textwrap.dedent(
        """
        import asyncio, os, sys, threading, time
        from raddle.protocol.errors import StartError
        from raddle.protocol.node import lifecycle

        async def main(stop):
        {body}

        lifeline = int(sys.argv[1]) if len(sys.argv) > 1 else None
        lifecycle.leave(lifecycle.run(main, name="test", lifeline=lifeline))
        """
    ).format(body=textwrap.indent(textwrap.dedent(body), "    "))
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
    )


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


WAIT = """
    print("ready", flush=True)
    await stop.wait()
    return 0
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_code_0(signum: signal.Signals) -> None:
    with start(WAIT) as process:
        ready(process)
        process.send_signal(signum)
        _, err = process.communicate()
    assert (process.returncode, err) == (0, "")


def test_a_second_signal_does_not_wait() -> None:
    body = """
        print("ready", flush=True)
        await stop.wait()
        print("ready", flush=True)
        await asyncio.Event().wait()
    """
    with start(body) as process:
        ready(process)
        process.send_signal(signal.SIGTERM)
        ready(process)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM


def test_an_error_of_ours_is_one_line() -> None:
    with start('raise StartError("the port\\nis busy")') as process:
        out, err = process.communicate()
    assert (process.returncode, out, err) == (1, "", "test: the port is busy\n")


def test_a_bug_keeps_its_traceback() -> None:
    with start("raise ZeroDivisionError") as process:
        _, err = process.communicate()
    assert process.returncode != 0
    assert "Traceback" in err


def test_a_thread_of_user_code_does_not_hold_the_end_up() -> None:
    body = """
        threading.Thread(target=time.sleep, args=(1000,)).start()
        await asyncio.sleep(0)
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 1000)
        print("done")
        return 7
    """
    with start(body) as process:
        out, _ = process.communicate()
    assert (process.returncode, out) == (7, "done\n")


def test_an_orphan_ends() -> None:
    reader, writer = os.pipe()
    with start(WAIT, str(reader), pass_fds=[reader]) as process:
        ready(process)
        os.close(reader)
        os.close(writer)
        process.communicate()
    assert process.returncode == 0


def test_the_pid_file_is_there_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with pid_file(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"
    assert not path.exists()
    with pid_file(None):
        assert list(tmp_path.iterdir()) == []


def test_a_pid_file_that_cannot_be_written(tmp_path: Path) -> None:
    with (
        pytest.raises(StartError, match=r"cannot write the pid file.*No such file"),
        pid_file(str(tmp_path / "none" / "pid")),
    ):
        pass
