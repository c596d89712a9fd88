"""When processes were heard last."""

from __future__ import annotations

from driftline.serve.gateway.monitors import GAP_S, LOOK_EVERY_S, LivenessMonitor


def looked(hearing: LivenessMonitor, begin: float, end: float) -> None:
    """The loop goes on from one time to another."""
    now = begin
    while now <= end:
        hearing.look(now)
        now += LOOK_EVERY_S


def test_a_process_is_silent_since_it_was_heard_last() -> None:
    hearing = LivenessMonitor()
    hearing.heard("documents-0", 101.0)
    looked(hearing, 100.0, 110.0)
    assert hearing.silent_s("documents-0", 99.0) == 9.0
    hearing.heard("documents-0", 110.0)
    assert hearing.silent_s("documents-0", 99.0) == 0.0


def test_one_that_was_not_heard_since_it_was_started_is_not_silent() -> None:
    hearing = LivenessMonitor()
    looked(hearing, 100.0, 200.0)
    assert hearing.silent_s("documents-0", 100.0) == 0.0
    hearing.heard("documents-0", 110.0)
    assert hearing.silent_s("documents-0", 120.0) == 0.0, "it was another process"
    assert hearing.silent_s("documents-0", 105.0) == 90.0


def test_time_in_which_nothing_could_be_heard_does_not_count() -> None:
    hearing = LivenessMonitor()
    hearing.heard("journal", 100.0)
    looked(hearing, 100.0, 101.0)
    looked(hearing, 101.0 + 2 * GAP_S, 103.0 + 2 * GAP_S)
    assert hearing.silent_s("journal", 0.0) == 2.0
