"""Each mutation is found by a seed that has no problem without it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from random import Random

import pytest
from msgspec.structs import replace

from driftline.simulation.scenarios.disturbances import RescaleRequest, draw_partitions
from driftline.simulation.scenarios.scenario import MASTERS as MASTER_HOSTS
from driftline.simulation.scenarios.scenario import Scenario, draw_scenario
from driftline.simulation.seeds import run_one
from tests.mutations import (
    channels,
    decisions,
    disks,
    event_times,
    layouts,
    masters,
    order,
    outputs,
    productions,
    tracking,
)

SEEDS_MAX = 2000

EXACTLY, TWO_PHASE, STRONG = "exactly-once", "two-phase", "strong-productions"

Mutation = Callable[[], AbstractContextManager[object]]
"""Context manager that removes one safeguard from the engine."""

Focus = dict[str, float]
"""More frequent faults, for mutations that only these faults reveal."""

CASES: list[tuple[Mutation, str, Focus]] = [
    (outputs.t_last_is_not_fetched, EXACTLY, {}),
    (outputs.t_last_is_neither_fetched_nor_checked, EXACTLY, {}),
    (tracking.acknowledgement_is_split, EXACTLY, {}),
    (channels.incarnation_is_not_checked, EXACTLY, {"crash_at_message": 0.004}),
    # Not in exactly-once: lost frames are never covered there, and no later output is delivered.
    (channels.gaps_are_not_detected, TWO_PHASE, {"cut": 0.005}),
    (channels.repeated_batches_are_applied, TWO_PHASE, {"repeat": 0.05}),
    (order.nothing_is_undone, EXACTLY, {}),
    (order.tombstones_are_not_sent, EXACTLY, {}),
    (decisions.first_prepared_commits, EXACTLY, {}),
    (decisions.commit_is_sent_before_it_is_written, TWO_PHASE, {"crash_before_job": 0.03}),
    (order.markers_are_not_aligned, TWO_PHASE, {}),
    (tracking.outputs_do_not_wait_for_durable_inputs, EXACTLY, {"crash_before_job": 0.2}),
    (outputs.outputs_count_as_delivered_when_ready, EXACTLY, {}),
    (tracking.frames_cover_their_whole_turn, EXACTLY, {}),
    (tracking.outputs_do_not_wait_for_their_own_stage, EXACTLY, {}),
    (tracking.acknowledgements_overtake_frames, EXACTLY, {}),
    (tracking.intervals_count_across_gaps, EXACTLY, {}),
    (disks.checksums_are_not_compared, EXACTLY, {"bit_flip": 0.5}),
    (disks.checksums_of_records_are_not_compared, EXACTLY, {"bit_flip": 0.5}),
    (decisions.outcome_is_sent_before_it_is_written, EXACTLY, {"until_s": 5.0}),
    (decisions.outcome_is_sent_only_once, EXACTLY, {"crash_at_end": 0.2}),
    (decisions.stop_of_another_run_is_obeyed, EXACTLY, {}),
    (decisions.outcome_of_an_earlier_run_counts, EXACTLY, {}),
    (channels.idle_channels_send_nothing, TWO_PHASE, {"cut": 0.02}),
    (outputs.pre_commits_lose_their_epoch, TWO_PHASE, {}),
    (order.blocks_are_settled_out_of_order, EXACTLY, {}),
    (order.blocks_are_closed_too_early, EXACTLY, {}),
    (tracking.promises_pass_unread_records, EXACTLY, {}),
    (disks.lines_are_committed_before_they_are_durable, EXACTLY, {"power": 1.0}),
    (disks.records_are_acknowledged_before_they_are_stored, EXACTLY, {}),
    (disks.repeated_records_are_accepted, EXACTLY, {}),
    (disks.failed_group_write_counts_as_not_done, EXACTLY, {}),
    (productions.number_of_a_failed_production_is_reused, STRONG, {"done_but_failed": 0.05}),
    (outputs.failed_bundle_counts_as_stored, EXACTLY, {"job_fails": 0.1}),
    (tracking.stalled_work_is_not_detected, EXACTLY, {"cut": 0.02, "until_s": 3.0}),
    (productions.repeated_frames_are_processed, STRONG, {}),
    (productions.repeated_records_are_processed, STRONG, {}),
    (productions.frames_leave_before_they_are_durable, STRONG, {}),
    (productions.outputs_leave_before_they_are_durable, STRONG, {}),
    (
        productions.inputs_are_acknowledged_before_they_are_durable,
        STRONG,
        {"crash_at_message": 0.004},
    ),
    (productions.unsent_frames_are_not_resent, STRONG, {}),
    (
        productions.frontiers_move_before_resent_frames_are_known,
        STRONG,
        {"crash_at_message": 0.01, "until_s": 2.0},
    ),
    (productions.frames_are_tracked_under_an_earlier_time, STRONG, {}),
    (productions.records_leave_before_they_are_durable, STRONG, {}),
    (disks.checksums_are_not_compared, STRONG, {"bit_flip": 0.5}),
    (event_times.watermark_is_that_of_one_source, EXACTLY, {}),
    (event_times.timers_fire_in_the_wrong_order, EXACTLY, {}),
    (event_times.late_elements_enter_closed_windows, EXACTLY, {}),
    (event_times.watermarks_ignore_the_delay_of_outputs, EXACTLY, {}),
    (event_times.rows_have_the_event_time_of_their_timer, EXACTLY, {}),
    (event_times.sessions_are_not_merged, EXACTLY, {}),
    (event_times.event_times_are_lost_in_snapshots, EXACTLY, {}),
    (event_times.idle_sources_hold_back_the_watermark, EXACTLY, {}),
    (event_times.resumed_source_stays_idle, EXACTLY, {}),
    (event_times.values_outlive_their_ttl, EXACTLY, {}),
    (event_times.unmatched_elements_of_joins_are_lost, EXACTLY, {}),
]

MASTERS: list[tuple[Mutation, Focus]] = [
    (masters.any_master_may_write, {"pause": 0.02}),
    (masters.messages_of_any_master_are_accepted, {}),
    (masters.takeover_ignores_incarnations_of_members, {}),
    (masters.takeover_does_not_wait_for_followers, {}),
    (
        masters.pending_snapshot_is_not_given_up,
        {"crash_at_message": 0.01, "crash_before_job": 0.01},
    ),
]
"""With standby masters that crash, hang, and lose their connection to ZooKeeper."""

ONE_WAY_PARTITIONS: list[Mutation] = [
    masters.leader_never_steps_down,
    masters.members_are_not_probed,
]
"""With one-way partitions between masters and a member that outlast the run."""

LAYOUTS: list[Mutation] = [
    layouts.cut_may_precede_sent_outputs,
    layouts.paused_fronts_keep_sending,
    layouts.layout_changes_before_the_copy_is_complete,
    layouts.snapshot_before_the_cut_is_used,
    layouts.next_layout_keeps_the_incarnation,
]
"""In runs that rescale repeatedly and recover meanwhile."""

FIRST_SEED = {
    "acknowledgement_is_split-exactly-once": 4,
    "acknowledgements_overtake_frames-exactly-once": 15,
    "any_master_may_write-exactly-once": 599,
    "blocks_are_closed_too_early-exactly-once": 12,
    "blocks_are_settled_out_of_order-exactly-once": 13,
    "checksums_are_not_compared-exactly-once": 305,
    "checksums_are_not_compared-strong-productions": 135,
    "checksums_of_records_are_not_compared-exactly-once": 10,
    "commit_is_sent_before_it_is_written-two-phase": 160,
    "cut_may_precede_sent_outputs-exactly-once": 8,
    "event_times_are_lost_in_snapshots-exactly-once": 27,
    "failed_bundle_counts_as_stored-exactly-once": 37,
    "failed_group_write_counts_as_not_done-exactly-once": 67,
    "first_prepared_commits-exactly-once": 7,
    "frames_are_tracked_under_an_earlier_time-strong-productions": 8,
    "frames_cover_their_whole_turn-exactly-once": 15,
    "frames_leave_before_they_are_durable-strong-productions": 26,
    "frontiers_move_before_resent_frames_are_known-strong-productions": 376,
    "gaps_are_not_detected-two-phase": 50,
    "idle_channels_send_nothing-two-phase": 923,
    "idle_sources_hold_back_the_watermark-exactly-once": 295,
    "incarnation_is_not_checked-exactly-once": 384,
    "inputs_are_acknowledged_before_they_are_durable-strong-productions": 126,
    "intervals_count_across_gaps-exactly-once": 4,
    "late_elements_enter_closed_windows-exactly-once": 553,
    "layout_changes_before_the_copy_is_complete-exactly-once": 8,
    "leader_never_steps_down-exactly-once": 12,
    "lines_are_committed_before_they_are_durable-exactly-once": 95,
    "markers_are_not_aligned-two-phase": 59,
    "members_are_not_probed-exactly-once": 25,
    "messages_of_any_master_are_accepted-exactly-once": 102,
    "next_layout_keeps_the_incarnation-exactly-once": 12,
    "nothing_is_undone-exactly-once": 8,
    "number_of_a_failed_production_is_reused-strong-productions": 29,
    "outcome_is_sent_before_it_is_written-exactly-once": 2,
    "outcome_is_sent_only_once-exactly-once": 4,
    "outcome_of_an_earlier_run_counts-exactly-once": 12,
    "outputs_count_as_delivered_when_ready-exactly-once": 4,
    "outputs_do_not_wait_for_durable_inputs-exactly-once": 141,
    "outputs_do_not_wait_for_their_own_stage-exactly-once": 4,
    "outputs_leave_before_they_are_durable-strong-productions": 106,
    "paused_fronts_keep_sending-exactly-once": 142,
    "pending_snapshot_is_not_given_up-exactly-once": 674,
    "pre_commits_lose_their_epoch-two-phase": 656,
    "promises_pass_unread_records-exactly-once": 15,
    "records_are_acknowledged_before_they_are_stored-exactly-once": 12,
    "records_leave_before_they_are_durable-strong-productions": 277,
    "repeated_batches_are_applied-two-phase": 294,
    "repeated_frames_are_processed-strong-productions": 21,
    "repeated_records_are_accepted-exactly-once": 12,
    "repeated_records_are_processed-strong-productions": 17,
    "resumed_source_stays_idle-exactly-once": 701,
    "rows_have_the_event_time_of_their_timer-exactly-once": 27,
    "sessions_are_not_merged-exactly-once": 275,
    "snapshot_before_the_cut_is_used-exactly-once": 8,
    "stalled_work_is_not_detected-exactly-once": 246,
    "stop_of_another_run_is_obeyed-exactly-once": 12,
    "t_last_is_neither_fetched_nor_checked-exactly-once": 12,
    "t_last_is_not_fetched-exactly-once": 26,
    "takeover_does_not_wait_for_followers-exactly-once": 263,
    "takeover_ignores_incarnations_of_members-exactly-once": 12,
    "timers_fire_in_the_wrong_order-exactly-once": 21,
    "tombstones_are_not_sent-exactly-once": 8,
    "unmatched_elements_of_joins_are_lost-exactly-once": 53,
    "unsent_frames_are_not_resent-strong-productions": 18,
    "values_outlive_their_ttl-exactly-once": 49,
    "watermark_is_that_of_one_source-exactly-once": 51,
    "watermarks_ignore_the_delay_of_outputs-exactly-once": 629,
}
"""Seed at which the search for a mutation begins, which finds it in a short run.

If this seed no longer finds the mutation, the search continues from there.
"""

RECOVERIES: Focus = {"until_s": 1.5, "crash_at_message": 0.004, "crash_after_job": 0.05}

SUCCESSIONS: Focus = {
    "until_s": 3.0,
    "crash_at_message": 0.004,
    "pause": 0.004,
    "crash_before_job": 0.05,
    "crash_after_job": 0.05,
}


def with_faults(what: Scenario, focus: Focus) -> Scenario:
    """Return a scenario with other fault probabilities."""
    return replace(what, faults=replace(what.faults, **focus))


def with_rescales(what: Scenario) -> Scenario:
    """Return a longer scenario that rescales repeatedly."""
    numbers = Random(what.seed)
    requests = tuple(RescaleRequest(numbers.choice((1, 2, 3)), 0.04 + 0.15 * n) for n in range(8))
    return replace(what, rescale_requests=requests, records=200, drain_at_s=None)


def find_seed(
    mutation: Mutation,
    policy: str,
    focus: Focus,
    *,
    standby: bool = False,
    with_partitions: bool = False,
    rescales: bool = False,
) -> tuple[int, str]:
    """Find a seed that fails only with the mutation; return the seed and the problem."""
    begin = FIRST_SEED.get(f"{mutation.__name__}-{policy}", 1)
    for seed in range(begin, begin + SEEDS_MAX):
        what = with_faults(draw_scenario(seed, name=policy), focus)
        if standby:
            what = replace(what, standby=True, hangs=(), partitions=())
        if with_partitions:
            lost = draw_partitions(Random(seed), MASTER_HOSTS, what.nodes, what.faults.until_s)
            what = replace(what, standby=True, hangs=(), partitions=lost)
        if rescales:
            what = with_rescales(what)
        with mutation():
            problem = run_one(what).problem
        assert "mutated() " not in problem, f"the mutation does not fit any more: {problem}"
        if problem and not run_one(what).problem:
            return seed, problem
    return 0, ""


@pytest.mark.parametrize(
    ("mutation", "policy", "focus"), CASES, ids=[f"{case[0].__name__}-{case[1]}" for case in CASES]
)
def test_simulation_finds_each_mutation(mutation: Mutation, policy: str, focus: Focus) -> None:
    seed, problem = find_seed(mutation, policy, focus)
    assert seed, f"not found within {SEEDS_MAX} seeds"
    print(f"{mutation.__name__}: found by seed {seed}: {problem}")


@pytest.mark.parametrize(("mutation", "focus"), MASTERS, ids=[case[0].__name__ for case in MASTERS])
def test_simulation_finds_masters_without_a_fence(mutation: Mutation, focus: Focus) -> None:
    seed, problem = find_seed(mutation, EXACTLY, SUCCESSIONS | focus, standby=True)
    assert seed, f"not found within {SEEDS_MAX} seeds"
    print(f"{mutation.__name__}: found by seed {seed}: {problem}")


@pytest.mark.parametrize(
    "mutation", ONE_WAY_PARTITIONS, ids=[case.__name__ for case in ONE_WAY_PARTITIONS]
)
def test_simulation_finds_masters_that_do_not_step_down(mutation: Mutation) -> None:
    seed, problem = find_seed(mutation, EXACTLY, {}, with_partitions=True)
    assert seed, f"not found within {SEEDS_MAX} seeds"
    assert "makes no progress" in problem
    print(f"{mutation.__name__}: found by seed {seed}: {problem}")


@pytest.mark.parametrize("mutation", LAYOUTS, ids=[case.__name__ for case in LAYOUTS])
def test_simulation_finds_layouts_without_a_fence(mutation: Mutation) -> None:
    seed, problem = find_seed(mutation, EXACTLY, RECOVERIES, rescales=True)
    assert seed, f"not found within {SEEDS_MAX} seeds"
    print(f"{mutation.__name__}: found by seed {seed}: {problem}")


def test_nondeterministic_function_is_reported_as_the_cause() -> None:
    """A replay yields other outputs than the consumer has stored, and the error says so."""
    for seed in count(1):
        assert seed <= SEEDS_MAX
        outcome = run_one(draw_scenario(seed, "tests.mutations.flows:drifting"))
        assert outcome.problem, "the outputs cannot equal those of the reference"
        if "NotDeterministic" in outcome.problem:
            return
