"""The subtle cases of collisions, decided one by one (A6 of the design), and records."""

import pytest

from raddle.protocol.core.messages.client import (
    CollisionNotice,
    Erred,
    Finished,
    GraphAck,
    Release,
)
from raddle.protocol.core.messages.worker import Compute
from raddle.protocol.errors import from_wire
from raddle.scheduler.core.actions import LogRecord, ToClient
from testkit.core import ME, OTHER, Recorder, task, token


def log(r: Recorder, level: int) -> list[str]:
    """Texts of the unread records of this level."""
    records = r.take(LogRecord)
    return [record.text for record in records if record.level == level]


# 1. Tokens that are not deterministic, or not comparable.


@pytest.mark.parametrize("policy", ["warn", "raise"])
def test_tokens_that_differ_by_chance_prove_nothing(policy: str) -> None:
    r = Recorder(n_workers=1)
    r.submit(task("y", skeleton="s", made=token("one")))
    r.unread.clear()
    old = r.instance("y")
    fid = r.submit(task("y", skeleton="s", made=token("two")), policy=policy)
    assert r.machine.clients[ME].futures[fid] is old
    # Once per group at INFO, which the recorder waves through; never a warning.
    assert not r.take(LogRecord)
    assert not r.take(CollisionNotice)
    assert r.machine.collisions == {("undetermined", "processing", "kept"): 1}
    assert [record.kind for record in r.machine.records] == ["undetermined"]
    r.submit(task("y", skeleton="s", made=token("three")))
    assert len(r.machine.records) == 1


def test_the_first_undetermined_difference_of_a_group_is_logged_at_info() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("y", skeleton="s", made=token("one")))
    r.unread.clear()
    for made, n in (("two", 1), ("three", 0)):
        message, _ = r.graph(task("y", skeleton="s", made=token(made)))
        r.says(ME, message)
        texts = [
            action.text
            for action in r.machine.actions
            if isinstance(action, LogRecord) and action.level == 20
        ]
        assert len(texts) == n, texts
        r.unread.clear()


def test_skeletons_that_differ_prove_a_difference() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("y", skeleton="s", made=token("one")))
    r.unread.clear()
    r.submit(task("y", skeleton="t", made=token("two")))
    assert "spec differs" in r.warning()
    assert r.to(ME, CollisionNotice).records[0].new_token.endswith("?")


def test_dependency_names_that_differ_prove_a_difference_whatever_the_token() -> None:
    r = Recorder(n_workers=1)
    made = token("minted")
    r.submit(task("y", made=made))
    r.unread.clear()
    r.submit(task("x"), task("y", "x", made=made))
    assert "deps differs" in r.warning()
    r.take(CollisionNotice)
    assert not r.exists("x")


@pytest.mark.parametrize("equal", [True, False])
def test_tokens_of_clients_with_other_encodings_prove_nothing(equal: bool) -> None:
    r = Recorder(n_workers=1)
    r.add_client("Client-311", enc=2)
    r.submit(task("y"))
    r.unread.clear()
    fid = r.submit(task("y", fn="old" if equal else "new"), client="Client-311")
    bound = r.machine.clients["Client-311"].futures[fid]
    assert bound is r.instance("y")
    assert r.machine.collisions == {("undetermined", "processing", "kept"): 1}


def test_an_erred_task_is_superseded_even_if_nothing_is_proven() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("y", skeleton="s", made=token("one")))
    r.fail(r.compute())
    r.take(Erred)
    fid = r.submit(task("y", skeleton="s", made=token("two")))
    r.run_all()
    assert r.finished() == (fid,)


# 2. Releases in flight.


def test_a_release_before_the_graph_in_one_batch_leaves_nothing_to_collide() -> None:
    r = Recorder(n_workers=1)
    fid = r.submit(task("y"))
    r.compute_done(r.compute())
    r.finished()
    message, _ = r.graph(task("y", fn="new"))
    r.says(ME, Release((fid,)), message)
    r.to(ME, GraphAck)
    assert not r.machine.records
    assert r.machine.instances("y")[0].run_spec_token == task("y", fn="new").token
    r.unread.clear()


def test_a_release_after_the_graph_drops_the_first_future_only() -> None:
    r = Recorder(n_workers=1)
    first = r.submit(task("y"))
    r.compute_done(r.compute())
    r.finished()
    message, (second,) = r.graph(task("y", fn="new"))
    r.says(ME, message, Release((first,)))
    r.to(ME, GraphAck)
    assert r.finished() == (second,)
    assert r.status("y") == "memory"
    assert len(r.machine.records) == 1
    r.unread.clear()


# 3. The key is a dependency of a third task.


def test_under_warn_both_dependents_use_the_old_instance() -> None:
    r = Recorder(n_workers=1)
    t = r.submit(task("y"), task("t", "y"))
    r.compute()
    z = r.submit(task("y", fn="new"), task("z", "y"), client=OTHER)
    y = r.instance("y")
    assert r.machine.clients[ME].futures[t].deps == (y,)
    assert r.machine.clients[OTHER].futures[z].deps == (y,)
    r.unread.clear()


# Collisions below known tasks, and inputs.


def test_a_collision_below_a_known_task_is_noticed() -> None:
    """z = f(y) is in memory; {y: new, z: f(y)} with only z requested."""
    r = Recorder(n_workers=1)
    r.submit(task("y"), task("z", "y"))
    r.run_all()
    r.unread.clear()
    fid = r.submit(task("y", fn="new"), task("z", "y"))
    assert r.finished() == (fid,)
    assert "key 'y': spec differs" in r.warning()
    r.take(CollisionNotice)


def test_equal_code_on_other_inputs_is_a_new_instance() -> None:
    """Two clients scatter different data under one name, and both submit f("b")."""
    r = Recorder(n_workers=1)
    mine = r.scatter("b", "1")
    r.unread.clear()
    theirs = r.scatter("b", "2", client=OTHER)
    r.unread.clear()
    a = r.submit(task("a", "b"), embedded={"b": mine})
    r.unread.clear()
    fid = r.submit(task("a", "b"), embedded={"b": theirs}, client=OTHER)
    old = r.machine.clients[ME].futures[a]
    new = r.machine.clients[OTHER].futures[fid]
    assert r.machine.instances("a") == [old, new]
    assert old.deps == (r.instance("b", 0),)
    assert new.deps == (r.instance("b", 1),)
    assert r.machine.records[-1].kind == "inputs"
    assert "made a new instance beside the old one" in r.warning()
    r.release_all()


def test_two_inputs_of_one_name_are_told_apart_by_their_places() -> None:
    r = Recorder(n_workers=1)
    one = r.scatter("b", "1")
    r.unread.clear()
    two = r.scatter("b", "2")
    r.unread.clear()
    made = token("f(b, b)")
    refs = {"b": one, "b~2": two}
    first = r.submit(task("a", "b", "b~2", made=made), embedded=refs)
    r.unread.clear()
    again = r.submit(task("a", "b", "b~2", made=made), embedded=refs)
    other = r.submit(task("a", "b~2", "b", made=made), embedded=refs)
    futures = r.machine.clients[ME].futures
    assert futures[again] is futures[first]
    assert futures[other] is not futures[first]
    r.unread.clear()


def test_one_input_in_two_places_is_one_dependency() -> None:
    r = Recorder(n_workers=1)
    x = r.submit(task("x"))
    r.compute_done(r.compute())
    r.unread.clear()
    fid = r.submit(task("a", "x", "x~2"), embedded={"x": x, "x~2": x})
    compute = r.compute()
    assert [dep[0] for dep in compute.deps] == [r.instance("x").tid] * 2
    assert r.instance("x").n_waiters == 1
    r.compute_done(compute)
    assert r.finished() == (fid,)


def test_equal_code_on_other_inputs_is_an_error_under_raise() -> None:
    r = Recorder(n_workers=1)
    one = r.submit(task("b", fn="bad"))
    r.fail(r.compute())
    r.take(Erred)
    two = r.submit(task("b", fn="old"), client=OTHER)
    r.unread.clear()
    r.submit(task("a", "b"), embedded={"b": two}, client=OTHER)
    r.unread.clear()
    message, _ = r.graph(task("a", "b"), embedded={"b": one}, policy="raise")
    r.says(ME, message)
    error = r.to(ME, GraphAck).error
    assert error is not None
    assert from_wire(error).records[0].kind == "inputs"  # type: ignore[attr-defined]
    r.unread.clear()


def test_the_first_variant_that_is_the_same_is_found_among_several() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("y", fn="bad"))
    r.fail(r.compute())
    r.take(Erred)
    new = r.submit(task("y", fn="old"), client=OTHER)
    r.run_all()
    r.unread.clear()
    # Both specs are known now: neither collides.
    one = r.submit(task("y", fn="bad"))
    assert list(r.erred()) == [one]
    two = r.submit(task("y", fn="old"))
    futures = r.machine.clients[ME].futures
    assert futures[one] is r.instance("y", 1)
    assert futures[two] is r.machine.clients[OTHER].futures[new]
    assert not r.take(LogRecord)
    r.unread.clear()


# 4. Who is told.


def test_the_submitter_is_noticed_and_the_owner_is_not() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("y"))
    r.unread.clear()
    r.submit(task("y", fn="new"), client=OTHER)
    r.warning()
    assert r.to(OTHER, CollisionNotice).total == 1
    r.done()


# 6. Dependencies that only a rejected spec needs.


def test_a_dependency_of_a_rejected_spec_is_created_if_it_is_wanted_otherwise() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("y"))
    r.unread.clear()
    r.submit(task("x2"), task("y", "x2", fn="new"), wants=("y", "x2"))
    assert r.exists("x2")
    assert r.instance("x2").dependents is None
    r.unread.clear()


def test_a_known_dependency_of_a_rejected_spec_is_untouched() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("x2"), task("y"), wants=("x2", "y"))
    r.unread.clear()
    r.submit(
        task("x2", annotation=0), task("y", "x2", fn="new"), wants=("y",),
        annotations=({"priority": 9},),
    )  # fmt: skip
    x2 = r.instance("x2")
    assert (x2.priority, x2.n_waiters, x2.dependents) == (0, 0, None)
    r.unread.clear()


# 7. Old dependencies that are gone.


def test_a_retained_released_task_is_computed_by_its_old_lineage() -> None:
    r = Recorder(n_workers=1)
    y = r.submit(task("x1"), task("y", "x1"))
    r.run_all()
    r.unread.clear()
    r.submit(task("zz", "y"))
    r.run_all()
    r.unread.clear()
    r.says(ME, Release((y,)))
    r.unread.clear()
    fid = r.submit(task("x2"), task("y", "x2", fn="new"))
    assert r.status("x1") == "processing"
    assert not r.exists("x2")
    r.run_all()
    assert fid in [f for m in r.take(Finished) for f, *_ in m.items]
    r.unread.clear()


# 9. Annotations are no collisions.


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"priority": 1}, {"priority": 10}, {"priority": 10}),
        ({"priority": 10}, {"priority": 1}, {"priority": 10}),
        ({"retries": 0}, {"retries": 5}, {"retries": 5}),
        ({"retries": 5}, {"retries": 2}, {"retries": 5}),
        ({"workers": ("a", "b")}, {"workers": ("b", "c")}, {"workers": ["b"]}),
        ({"workers": ("a",)}, {"workers": ("c",)}, {"workers": ["a"]}),
        ({}, {"workers": ("c",)}, {"workers": ["c"]}),
        ({"workers": ("c",)}, {}, {"workers": ["c"]}),
        ({"resources": {"A": 1}}, {"resources": {"A": 2, "B": 1}},
         {"resources": {"A": 2, "B": 1}}),
        ({"resources": {"A": 2}}, {}, {"resources": {"A": 2}}),
    ],
)  # fmt: skip
def test_annotations_of_a_resubmission_are_merged(
    old: dict[str, object], new: dict[str, object], expected: dict[str, object]
) -> None:
    r = Recorder()
    r.submit(task("y", annotation=0), annotations=(old,))
    r.submit(task("y", annotation=0), annotations=(new,), client=OTHER)
    assert not r.machine.records
    y = r.instance("y")
    found = {
        "priority": y.priority,
        "retries": y.retries,
        "workers": sorted(y.queue.names) if y.queue.names else None,
        "resources": y.queue.resources,
    }
    assert {name: found[name] for name in expected} == expected
    r.release_all()
    assert list(r.machine.queues.values()) == [r.machine.default_queue]


def test_restrictions_of_a_started_task_are_left_alone() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("y"))
    r.compute()
    r.submit(task("y", annotation=0), annotations=({"workers": ("w9",)},))
    assert r.instance("y").queue is r.machine.default_queue


def test_a_raised_priority_puts_a_ready_task_ahead() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("busy"), task("a", order=1), task("b", order=2),
             wants=("busy", "a", "b"))  # fmt: skip
    busy = r.compute()
    r.submit(task("b", annotation=0), annotations=({"priority": 3},))
    r.compute_done(busy, seconds=1.0)
    assert r.compute().key == "b"
    r.unread.clear()


# 10 to 12. Erred tasks.


def test_the_same_erred_spec_gives_the_same_error() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("y", fn="bad"))
    r.fail(r.compute())
    r.take(Erred)
    fid = r.submit(task("y", fn="bad"))
    assert list(r.erred()) == [fid]
    assert len(r.machine.instances("y")) == 1


def test_what_is_erred_by_a_superseded_input_is_superseded_with_it() -> None:
    r = Recorder(n_workers=1)
    old = r.submit(task("x", fn="bad"), task("y", "x"), task("z", "y"))
    r.fail(r.compute())
    r.take(Erred)
    fid = r.submit(task("x", fn="old"), task("y", "x"), task("z", "y"))
    assert {(c.key, c.kind, c.action) for c in r.machine.records} == {
        ("x", "spec", "superseded"),
        ("y", "inputs", "superseded"),
        ("z", "inputs", "superseded"),
    }
    r.take(LogRecord)
    r.take(CollisionNotice)
    r.run_all()
    assert r.finished() == (fid,)
    assert r.status("z", 1) == "erred"
    assert r.machine.clients[ME].futures[old] is r.instance("z", 1)
    r.release_all()


@pytest.mark.parametrize("policy", ["warn", "raise"])
def test_what_follows_from_an_unproven_difference_is_no_error(policy: str) -> None:
    """x is erred and its token is of chance: neither x nor y = f(x) raises."""
    r = Recorder(n_workers=1)
    r.submit(task("x", skeleton="s", made=token("one")), task("y", "x"))
    r.fail(r.compute())
    r.take(Erred)
    fid = r.submit(
        task("x", skeleton="s", made=token("two")), task("y", "x"), policy=policy
    )
    r.unread = [a for a in r.unread if not isinstance(a, LogRecord)]
    r.take(CollisionNotice)
    r.run_all()
    assert r.finished() == (fid,)


def test_a_kept_task_erred_by_an_unchanged_input_gives_its_error() -> None:
    """z is new, y is known and erred: nothing collides, the error passes on."""
    r = Recorder(n_workers=1)
    r.submit(task("x", fn="bad"), task("y", "x"))
    r.fail(r.compute())
    r.take(Erred)
    fid = r.submit(task("x", fn="bad"), task("y", "x"), task("z", "y"))
    assert list(r.erred()) == [fid]
    assert not r.machine.records


def test_a_released_task_over_a_superseded_input_is_made_anew() -> None:
    """x is recomputed and fails; y = f(x) is released lineage; x is fixed."""
    r = Recorder(n_workers=1)
    r.submit(task("x"), task("y", "x"), task("w", "y"), wants=("w",))
    r.run_all()
    r.unread.clear()
    x = r.submit(task("x"))
    r.fail(r.compute())
    assert list(r.erred()) == [x]
    assert r.status("y") == "released"
    fid = r.submit(task("x", fn="new"), task("y", "x"))
    actions = {c.key: (c.kind, c.action) for c in r.machine.records}
    assert actions == {"x": ("spec", "superseded"), "y": ("inputs", "superseded")}
    r.take(LogRecord)
    r.take(CollisionNotice)
    r.run_all()
    assert r.finished() == (fid,)
    assert r.instance("y").deps == (r.instance("x"),)
    r.unread.clear()


# 13. A cancelled key is submitted again while the old attempt runs.


def test_a_key_that_is_free_again_gets_another_instance() -> None:
    r = Recorder(n_workers=1)
    first = r.submit(task("y"))
    old = r.compute()
    message, _ = r.graph(task("y"))
    r.says(ME, Release((first,)), message)
    r.to(ME, GraphAck)
    new = r.compute()
    assert new.tid > old.tid
    assert new.aid > old.aid
    r.unread.clear()
    r.works(1, r.done_message(new)._replace(aid=old.aid))
    assert r.status("y") == "processing"
    assert r.machine.stale_facts == 1


# 14. Culling.


def test_what_is_not_requested_is_neither_created_nor_compared() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("known"))
    r.unread.clear()
    r.submit(
        task("x"),
        task("known", "x", fn="new"),
        task("unrelated", "nobody-knows-this"),
        task("y"),
        wants=("y",),
    )
    assert set(r.machine.names) == {"known", "y"}
    assert r.instance("known").deps == ()
    assert not r.machine.records
    r.unread.clear()


# 15 and 16. What is said again, and how much at once.


def test_ping_pong_is_warned_about_once_per_distinct_claim() -> None:
    r = Recorder(n_workers=1)
    warnings = []
    for fn in ("old", "new", "old", "new", "two", "new"):
        r.submit(task("y", fn=fn))
        warnings += log(r, 30)
        r.unread.clear()
    assert len(warnings) == 2
    assert len(r.machine.records) == 2
    assert r.machine.collisions == {("spec", "processing", "kept"): 4}


def test_a_repeat_is_logged_at_debug_and_noticed_by_other_clients() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("y"))
    r.unread.clear()
    r.submit(task("y", fn="new"))
    r.unread.clear()
    r.submit(task("y", fn="new"), client=OTHER)
    assert [record.level for record in r.take(LogRecord)] == [10]
    assert r.to(OTHER, CollisionNotice).total == 1
    r.submit(task("y", fn="new"), client=OTHER)
    assert not r.take(CollisionNotice)
    r.unread.clear()


def test_many_collisions_of_a_group_are_one_warning_of_one_line() -> None:
    r = Recorder()
    keys = [("assign-f0dc4405", i) for i in range(3000)]
    r.submit(*(task(k) for k in keys), wants=tuple(keys))
    r.submit(*(task(k, fn="new") for k in keys), wants=tuple(keys), client=OTHER)
    text = r.warning()
    assert text.startswith(
        "run_spec collision: 3000 keys of group 'assign' in update-graph from "
        "Client-other: key ('assign-f0dc4405', "
    )
    assert text.count("spec differs, token") == 5
    assert "; and 2995 more; kept the old run_spec" in text
    assert "\n" not in text
    notice = r.to(OTHER, CollisionNotice)
    assert len(notice.records) == 10
    assert notice.total == 3000
    assert r.machine.collisions == {("spec", "ready", "kept"): 3000}


def test_each_group_has_its_own_warning() -> None:
    r = Recorder()
    r.submit(task("a-00000000"), task("b-00000000"), wants=("a-00000000", "b-00000000"))
    r.submit(
        task("a-00000000", fn="new"),
        task("b-00000000", fn="new"),
        wants=("a-00000000", "b-00000000"),
    )
    texts = log(r, 30)
    assert sorted(text.split("'")[1] for text in texts) == ["a", "b"]
    r.unread.clear()


def test_records_and_their_memory_are_bounded() -> None:
    r = Recorder(records_max=3)
    for n in range(5):
        r.submit(task(f"k{n}"))
        r.submit(task(f"k{n}", fn="new"))
        r.unread.clear()
    assert [record.key for record in r.machine.records] == ["k2", "k3", "k4"]


def test_a_mixed_warning_counts_its_outcomes() -> None:
    r = Recorder(n_workers=1)
    keys = ("k-00000000", "k-00000001")
    r.submit(*(task(k, fn="bad") for k in keys), wants=keys)
    r.fail(r.compute())
    r.unread.clear()
    r.submit(*(task(k, fn="new") for k in keys), wants=keys)
    text = r.warning()
    assert "replaced the erred instance by a new one (1)" in text
    assert "kept the old run_spec and dependencies (1)" in text
    r.unread.clear()


def test_the_acknowledgement_comes_before_what_the_futures_become() -> None:
    r = Recorder(n_workers=1)
    r.submit(task("y"))
    r.compute_done(r.compute())
    r.unread.clear()
    message, _ = r.graph(task("y", fn="new"))
    r.says(ME, message)
    kinds = [type(a.message) for a in r.unread if isinstance(a, ToClient)]
    assert kinds == [GraphAck, CollisionNotice, Finished]
    assert not r.take(Compute)
    r.unread.clear()
