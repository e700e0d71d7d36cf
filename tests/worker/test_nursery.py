"""Forked workers: they start clean, obey, and do not survive whoever minds them."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from testkit.polling import eventually

pytestmark = pytest.mark.process


@contextmanager
def supervise(targets: str, body: str) -> Iterator[subprocess.Popen[str]]:
    """A process that supervises `targets`, which `body` defines."""
    program = textwrap.dedent(
        """
        import os, random, signal, sys, time
        from raddle.protocol.node.lifecycle import leave
        from raddle.worker.nursery import supervise

        def waits(lifeline):
            # One write: the children share the pipe.
            os.write(1, b"ready %d\\n" % os.getpid())
            os.read(lifeline, 1)
            return 3

        {body}

        leave(supervise({targets}, close_seconds_max=1))
        """
    ).format(targets=targets, body=textwrap.dedent(body))
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def children(process: subprocess.Popen[str], count: int) -> list[int]:
    """The pids of the children that say that they are ready."""
    assert process.stdout is not None
    pids = []
    for _ in range(count):
        word, pid = process.stdout.readline().split()
        assert word == "ready"
        pids.append(int(pid))
    return pids


def gone(*pids: int) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.parametrize(
    ("codes", "expected"), [((0, 0), 0), ((0, 5), 0), ((5, 5), 5), ((5,), 5)]
)
def test_the_code_says_whether_all_failed(
    codes: tuple[int, ...], expected: int
) -> None:
    body = f"targets = {{str(i): (lambda _, c=c: c) for i, c in enumerate({codes})}}"
    with supervise("targets", body) as process:
        _, err = process.communicate()
    assert process.returncode == expected
    assert err.count("exit code 5") == codes.count(5)


def test_a_child_that_is_killed_is_told_of() -> None:
    body = """
    def dies(lifeline):
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with supervise("{'w-0': dies}", body) as process:
        _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGKILL
    assert "w-0" in err
    assert "killed by SIGKILL" in err


def test_an_exception_of_a_child_stays_in_it() -> None:
    with supervise("{'w': lambda _: 1 / 0}", "") as process:
        _, err = process.communicate()
    assert process.returncode == 70
    assert err.count("ZeroDivisionError") == 1


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on(signum: signal.Signals) -> None:
    # A terminal's Ctrl-C reaches the children too, which leave it to the parent.
    with supervise("{'a': waits, 'b': waits}", "") as process:
        pids = children(process, 2)
        process.send_signal(signum)
        process.communicate()
    assert process.returncode == 0
    assert gone(*pids)


def test_a_child_that_does_not_obey_is_killed() -> None:
    body = """
    def stubborn(lifeline):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        waits(lifeline)
        time.sleep(1000)
    """
    with supervise("{'a': stubborn}", body) as process:
        pids = children(process, 1)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 0
    assert gone(*pids)


def test_children_learn_that_their_parent_was_killed() -> None:
    with supervise("{'a': waits, 'b': waits}", "") as process:
        pids = children(process, 2)
        process.kill()
        process.communicate()
    eventually(lambda: gone(*pids))


def test_children_start_with_default_signals_and_no_foreign_files() -> None:
    body = """
    def looks(lifeline):
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
        assert signal.set_wakeup_fd(-1) == -1
        open_files = {int(fd) for fd in os.listdir("/proc/self/fd")}
        # One is the listing itself.
        assert len(open_files - {0, 1, 2, lifeline}) == 1, open_files
        return 0
    """
    with supervise("{'a': looks, 'b': looks}", body) as process:
        _, err = process.communicate()
    assert (process.returncode, err) == (0, "")
