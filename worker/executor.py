"""Which thread runs which attempt, and who holds one of the slots.

There are ``nthreads`` slots. A thread that finishes takes the next attempt itself,
in order of priority; one lock guards the queue, so that a claim, and taking an
attempt back, are one step. Reports gather in a deque, and one call wakes the event
loop per burst. A task that waits for other tasks gives its slot back meanwhile, and
another thread takes over. What an attempt is made of, it must not know.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from heapq import heappop, heappush
from queue import SimpleQueue
from typing import Any

from raddle.protocol.context import WorkerHandle
from raddle.protocol.core.ids import Aid, Key

from .core.attempts import Attempt
from .core.events import Rejoined, Report, Seceded

logger = logging.getLogger("raddle.worker")

PARKED_MAX = 4
"""Idle threads that are kept beyond the number of slots."""


class RunningTask:
    """What a running task can do about itself; it is the ``context.TaskHandle``.

    Its methods may be called from any thread. When the task has ended they do
    nothing.
    """

    __slots__ = (
        "_executor", "aid", "attempt", "blocks", "holding", "key", "seceded", "worker",
    )  # fmt: skip

    worker: Any

    def __init__(self, attempt: Attempt, executor: Executor) -> None:
        self.attempt = attempt
        self.aid: Aid = attempt.aid
        self.key: Key = attempt.key
        self.worker = executor.worker
        self._executor = executor
        self.holding = True
        self.blocks = 0
        self.seceded = False

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the result any more: a long task may look, and stop."""
        return self.attempt.cancelled

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Give the slot back while the block waits for other tasks."""
        self._executor.block(self)
        try:
            yield
        finally:
            self._executor.unblock(self)

    def secede(self) -> None:
        """Give the slot back until :meth:`rejoin`, or for good."""
        self._executor.secede(self)

    def rejoin(self) -> None:
        """Wait for a free slot and hold it again.

        On the event loop, which must not wait, it is held at once.
        """
        self._executor.rejoin(self)


Inbox = SimpleQueue[RunningTask | None]
"""Where an idle thread waits; None ends it."""


class Executor:
    """Threads that run attempts by priority.

    ``run`` is called in a thread with each task and returns a report, never an
    exception. ``deliver`` is called on the event loop with the reports of a burst.
    All public methods but those of the tasks belong to the loop's thread.
    """

    def __init__(
        self,
        nthreads: int,
        run: Callable[[RunningTask], Report],
        deliver: Callable[[list[Report]], None],
        worker: WorkerHandle,
    ) -> None:
        self.nthreads = nthreads
        self.worker = worker
        self._run = run
        self._deliver = deliver
        self._loop = worker.loop
        self._loop_thread = threading.get_ident()
        self._lock = threading.Lock()
        self._order: list[tuple[tuple[int, ...], Aid]] = []
        self._queued: dict[Aid, Attempt] = {}
        self._running: dict[Aid, RunningTask] = {}
        # Slots that nobody holds; less than zero while tasks have come back
        # without waiting.
        self._free = nthreads
        self._parked: list[Inbox] = []
        self._rejoining: deque[tuple[RunningTask, threading.Lock]] = deque()
        self._reports: deque[Report] = deque()
        self._woken = False
        self._closed = False
        self._started = 0

    # -- for the event loop

    def submit(self, attempts: list[Attempt]) -> None:
        """Queue attempts and set idle threads to work."""
        with self._lock:
            if self._closed:
                return
            for attempt in attempts:
                self._queued[attempt.aid] = attempt
                heappush(self._order, (attempt.priority, attempt.aid))
            if self._free > 0:
                self._dispatch()

    def withdraw(self, aid: Aid) -> bool:
        """Take an attempt back; false when a thread has claimed it."""
        with self._lock:
            return self._queued.pop(aid, None) is not None

    def begun(self) -> list[Aid]:
        """The attempts that hold a slot now; delivers what was reported before."""
        with self._lock:
            aids = [aid for aid, task in self._running.items() if task.holding]
            reports = self._collect()
        if reports:
            self._deliver(reports)
        return aids

    @property
    def running(self) -> int:
        """How many attempts run, long-running ones included."""
        return len(self._running)

    def close(self) -> None:
        """Forget the queue and let threads end, each after what it runs now."""
        with self._lock:
            self._closed = True
            self._queued.clear()
            self._order.clear()
            for inbox in self._parked:
                inbox.put(None)
            self._parked.clear()
            for _, gate in self._rejoining:
                gate.release()
            self._rejoining.clear()

    # -- for tasks

    def block(self, task: RunningTask) -> None:
        """The task waits for other tasks; may be nested."""
        with self._lock:
            task.blocks += 1
            woken = self._give(task)
        self._wake(woken)

    def unblock(self, task: RunningTask) -> None:
        """The task waits no more, and runs on at once."""
        with self._lock:
            task.blocks -= 1
            woken = False
            if not task.blocks and not task.seceded:
                woken = self._take(task, waited=self._free > 0)
        self._wake(woken)

    def secede(self, task: RunningTask) -> None:
        """The task gives its slot back for good, unless it rejoins."""
        with self._lock:
            task.seceded = True
            woken = self._give(task)
        self._wake(woken)

    def rejoin(self, task: RunningTask) -> None:
        """Give the task a slot, as soon as one is free."""
        gate = None
        with self._lock:
            task.seceded = False
            woken = False
            if not task.blocks:
                may_wait = threading.get_ident() != self._loop_thread
                needs = not task.holding and task.aid in self._running
                if needs and may_wait and self._free <= 0 and not self._closed:
                    gate = threading.Lock()
                    gate.acquire()
                    self._rejoining.append((task, gate))
                else:
                    woken = self._take(task, waited=self._free > 0)
        self._wake(woken)
        if gate is not None:
            gate.acquire()

    # -- with the lock held

    def _give(self, task: RunningTask) -> bool:
        """Free the task's slot; true when the loop should be woken."""
        if not task.holding:
            return False
        task.holding = False
        wake = self._report(Seceded(task.aid))
        self._free += 1
        self._dispatch()
        return wake

    def _take(self, task: RunningTask, *, waited: bool) -> bool:
        """Let the task hold a slot again; true when the loop should be woken."""
        if task.holding or task.aid not in self._running:
            return False
        task.holding = True
        self._free -= 1
        return self._report(Rejoined(task.aid, waited))

    def _report(self, report: Report) -> bool:
        self._reports.append(report)
        wake = not self._woken
        self._woken = True
        return wake

    def _collect(self) -> list[Report]:
        self._woken = False
        reports = list(self._reports)
        self._reports.clear()
        return reports

    def _claim(self) -> RunningTask | None:
        """The next attempt, which from now on runs."""
        while self._order:
            _, aid = heappop(self._order)
            attempt = self._queued.pop(aid, None)
            if attempt is not None:
                task = self._running[aid] = RunningTask(attempt, self)
                return task
        return None

    def _dispatch(self) -> None:
        """Give free slots to those who wait for one: tasks that rejoin come first."""
        while self._free > 0 and self._rejoining:
            task, gate = self._rejoining.popleft()
            self._take(task, waited=True)
            gate.release()
        while self._free > 0:
            claimed = self._claim()
            if claimed is None:
                return
            self._free -= 1
            if self._parked:
                self._parked.pop().put(claimed)
            elif not self._start(claimed):
                self._unclaim(claimed)
                return

    def _unclaim(self, task: RunningTask) -> None:
        """Queue an attempt again; whichever thread finishes next takes it."""
        self._free += 1
        del self._running[task.aid]
        self._queued[task.aid] = task.attempt
        heappush(self._order, (task.attempt.priority, task.aid))

    def _start(self, task: RunningTask) -> bool:
        """Start a thread; false when the system has none left."""
        self._started += 1
        # The thread object keeps its arguments: the task must not be one of them.
        inbox: Inbox = SimpleQueue()
        inbox.put(task)
        name = f"raddle-task-{self._started}"
        thread = threading.Thread(
            target=self._thread, args=(inbox,), name=name, daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            logger.warning("no more than %d threads can run here", self._started - 1)
            self._started -= 1
            return False
        return True

    # -- in the threads

    def _thread(self, inbox: Inbox) -> None:
        task = inbox.get()
        while task is not None:
            report: Report | None = self._run(task)
            assert report is not None
            task, parked, woken = self._finished(task, report, inbox)
            # An idle thread must not keep the last result alive.
            report = None
            self._wake(woken)
            if parked:
                task = inbox.get()

    def _finished(
        self, task: RunningTask, report: Report, inbox: Inbox
    ) -> tuple[RunningTask | None, bool, bool]:
        """The thread's next task, whether it is to wait, whether to wake the loop."""
        with self._lock:
            del self._running[task.aid]
            woken = self._report(report)
            if task.holding:
                task.holding = False
                if self._free >= 0 and not self._rejoining:
                    following = self._claim()
                    if following is not None:
                        return following, False, woken
                self._free += 1
                self._dispatch()
            parks = not self._closed and len(self._parked) < self.nthreads + PARKED_MAX
            if parks:
                self._parked.append(inbox)
            return None, parks, woken

    def _wake(self, needed: bool) -> None:
        """Let the loop collect the reports; it may be closed at the very end."""
        if needed:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        with self._lock:
            reports = self._collect()
        if reports:
            self._deliver(reports)
