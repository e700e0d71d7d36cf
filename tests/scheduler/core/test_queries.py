"""What the shell reads."""

from raddle.protocol.core.messages.client import Ask, ShutdownCluster
from raddle.protocol.core.messages.worker import Heartbeat, RunResult
from raddle.scheduler.core import queries
from raddle.scheduler.core.actions import AskShell, Heard, RunAnswered
from testkit.core import ME, OTHER, Recorder, task


def one_done() -> tuple[Recorder, int]:
    r = Recorder(n_workers=2)
    fid = r.submit(task("x"))
    x = r.compute(1)
    r.works(1, r.done_message(x)._replace(frames=(b"5",)))
    r.finished()
    return r, fid


def test_holders_names_places_and_small_values() -> None:
    r, fid = one_done()
    tid = r.instance("x").tid
    assert queries.holders(r.machine, ME, (fid, 99)) == (
        (fid, tid, ((1, "tcp://host:1"),), (b"5",)),
    )
    assert queries.holders(r.machine, OTHER, (fid,)) == ()
    assert queries.holders(r.machine, "nobody", (fid,)) == ()


def test_who_has_by_key_and_by_future() -> None:
    r, fid = one_done()
    r.submit(task("y", "x"))
    r.compute()
    assert queries.who_has(r.machine) == (("x", ("tcp://host:1",)),)
    assert queries.who_has(r.machine, ("y", "z")) == (("y", ()), ("z", ()))
    assert queries.who_has_futures(r.machine, ME, (fid,)) == ((fid, ("tcp://host:1",)),)


def test_counts_and_statuses() -> None:
    r, _ = one_done()
    r.submit(task("y", "x", annotation=0), annotations=({"workers": ("w9",)},))
    assert queries.n_tasks(r.machine) == 2
    found = queries.counts(r.machine)
    assert (found["memory"], found["ready"], found["erred"]) == (1, 1, 0)
    assert queries.status(r.machine, "y") == "ready (restrictions)"
    assert queries.status(r.machine, "nobody") is None


def test_processing_and_threads() -> None:
    r, _ = one_done()
    r.submit(task("y"))
    r.compute(2)
    assert queries.processing(r.machine) == {"tcp://host:1": (), "tcp://host:2": ("y",)}
    assert queries.nthreads(r.machine) == {"tcp://host:1": 1, "tcp://host:2": 1}


def test_what_the_core_does_not_decide_goes_to_the_shell() -> None:
    r = Recorder(n_workers=1)
    ask = Ask(1, "identity", None)
    r.says(ME, ask, ShutdownCluster())
    assert r.unread == [AskShell(ME, ask), AskShell(ME, ShutdownCluster())]
    r.unread.clear()
    result = RunResult(3, (b"x",), None)
    r.works(1, result, Heartbeat({"memory": 5}))
    assert r.unread == [RunAnswered(1, result), Heard(1, {"memory": 5})]
    r.unread.clear()
