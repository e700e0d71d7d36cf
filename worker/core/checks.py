"""Whether the worker's state is sound: W1 to W6 of the design, after every event."""

from __future__ import annotations

from .attempts import EXECUTING, HANDED, LONGRUNNING, READY, WAITING, Attempt
from .state import State


def check(state: State) -> None:
    """Raise AssertionError, naming the invariant, when the state is not sound."""
    _w1_one_collection(state)
    _w2_inputs(state)
    _w3_w4_data(state)
    _w5_fetches(state)
    _w6_threads_and_resources(state)


def _w1_one_collection(state: State) -> None:
    both = state.attempts.keys() & state.zombies.keys()
    assert not both, f"W1: attempts {both} are alive and zombies"
    for aid, attempt in state.attempts.items():
        assert aid == attempt.aid, f"W1: {attempt} is listed as {aid}"
        assert not attempt.cancelled, f"W1: {attempt} is cancelled but alive"
    for zombie in state.zombies.values():
        assert zombie.cancelled, f"W1: {zombie} is a zombie but not cancelled"
        assert zombie.status >= HANDED, f"W1: no thread can have the zombie {zombie}"
    ready = {a.aid for a in state.attempts.values() if a.status == READY}
    listed = [aid for _, aid in state.ready]
    assert sorted(listed) == sorted(ready), f"W1: ready {listed}, should be {ready}"
    assert state.ready == sorted(state.ready), f"W1: ready is not sorted {listed}"


def _w2_inputs(state: State) -> None:
    for attempt in (*state.attempts.values(), *state.zombies.values()):
        if attempt.status >= HANDED:
            pinned = len(attempt.inputs) == len(attempt.deps)
            assert pinned, f"W2: {attempt} has not all its inputs"
            assert not attempt.missing, f"W2: {attempt} misses inputs"
        if attempt.status == WAITING:
            _w2_waiting(state, attempt)


def _w2_waiting(state: State, attempt: Attempt) -> None:
    wanted = state.data.wanted
    tids = {tid for tid, frames in attempt.deps if frames is None}
    waits = [t for t in tids if t in wanted and attempt.aid in wanted[t].waiters]
    assert attempt.missing == len(waits) > 0, f"W2: {attempt} waits for {waits}"


def _w3_w4_data(state: State) -> None:
    data = state.data
    both = data.stored.keys() & data.wanted.keys()
    assert not both, f"W3: {both} are stored and wanted"
    for aid, tid in data.origins.items():
        stored = tid in data.stored and data.stored[tid].origin == aid
        assert stored, f"W3: no value of attempt {aid} as {tid}"
    for tid, entry in data.wanted.items():
        assert tid == entry.tid, f"W3: {entry.tid} is listed as {tid}"
        reason = entry.waiters or entry.acquired
        assert reason, f"W4: nobody wants {tid}"
        for aid, attempt in entry.waiters.items():
            alive = state.attempts.get(aid) is attempt and attempt.status == WAITING
            assert alive, f"W4: {attempt} cannot wait for {tid}"


def _w5_fetches(state: State) -> None:
    fetches = state.fetches
    for entry in state.data.wanted.values():
        source = entry.source
        if source is None:
            continue
        asked = fetches.under_way.get(source)
        listed = (asked is not None and entry.tid in asked.tids) or (
            entry.tid in fetches.gathering.get(source, ())
        )
        assert listed, f"W5: nobody asks {source} for {entry.tid}"
    for wid, gathering in fetches.gathering.items():
        assert wid in fetches.under_way, f"W5: {wid} is idle and not asked"
        assert gathering, f"W5: nothing gathers for {wid}"
        for tid in gathering:
            entry_of = state.data.wanted.get(tid)
            wants = entry_of is not None and entry_of.source == wid
            assert wants, f"W5: {tid} gathers for {wid} and is not wanted from it"
    strangers = fetches.under_way.keys() - fetches.addresses.keys()
    assert not strangers, f"W5: requests to unknown workers {strangers}"


def _w6_threads_and_resources(state: State) -> None:
    everybody = (*state.attempts.values(), *state.zombies.values())
    running = [a for a in everybody if a.status == EXECUTING and not a.returned]
    limit = state.settings.nthreads
    assert len(running) <= limit, f"W6: {limit} threads cannot run {running}"
    holders = {a.aid: a.resources for a in everybody if a.status >= HANDED}
    holders = {aid: needs for aid, needs in holders.items() if needs}
    held = state.admission.held
    assert held == holders, f"W6: resources held {held}, should be {holders}"
    for name in state.admission.total:
        free = state.admission.free(name)
        assert free > -1e-6, f"W6: {free} of resource {name} is free"
    assert all(a.status <= LONGRUNNING for a in everybody), "W6: unknown status"
