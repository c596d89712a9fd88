"""Each mutation is found, by a seed that is right without it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from random import Random

import pytest
from msgspec.structs import replace

from driftline.simulation.scenarios.disturbances import RescaleRequest, draw_holes
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
"""Takes one safeguard out of the engine, as long as it is entered."""

Focus = dict[str, float]
"""Faults that are more frequent than usual, where only they can show what is missing."""

CASES: list[tuple[Mutation, str, Focus]] = [
    (outputs.t_last_is_not_asked_for, EXACTLY, {}),
    (outputs.t_last_is_not_asked_for_nor_checked, EXACTLY, {}),
    (tracking.acknowledgement_is_split, EXACTLY, {}),
    (channels.incarnation_is_not_checked, EXACTLY, {"crash_at_message": 0.004}),
    # Not in exactly-once: what is lost there is never covered, and nothing is delivered past it.
    (channels.gaps_are_not_noticed, TWO_PHASE, {"cut": 0.005}),
    (channels.repeated_batches_are_applied, TWO_PHASE, {"repeat": 0.05}),
    (order.nothing_is_undone, EXACTLY, {}),
    (order.tombstones_are_not_sent, EXACTLY, {}),
    (decisions.first_prepared_commits, EXACTLY, {}),
    (decisions.commit_is_told_before_it_is_written, TWO_PHASE, {"crash_before_job": 0.03}),
    (order.markers_are_not_aligned, TWO_PHASE, {}),
    (tracking.durability_is_not_waited_for, EXACTLY, {"crash_before_job": 0.2}),
    (outputs.outputs_count_as_delivered_when_ready, EXACTLY, {}),
    (tracking.frames_cover_their_whole_turn, EXACTLY, {}),
    (tracking.outputs_do_not_wait_for_their_own_stage, EXACTLY, {}),
    (tracking.acknowledgements_overtake_frames, EXACTLY, {}),
    (tracking.intervals_count_across_gaps, EXACTLY, {}),
    (disks.checksums_are_not_compared, EXACTLY, {"rot": 0.5}),
    (disks.checksums_of_records_are_not_compared, EXACTLY, {"rot": 0.5}),
    (decisions.the_end_is_told_before_it_is_written, EXACTLY, {"until_s": 5.0}),
    (decisions.the_end_is_told_once, EXACTLY, {"crash_at_end": 0.2}),
    (decisions.any_run_may_be_over, EXACTLY, {}),
    (decisions.an_earlier_run_has_ended_this_one, EXACTLY, {}),
    (channels.channels_fall_silent, TWO_PHASE, {"cut": 0.02}),
    (outputs.pre_commits_lose_their_epoch, TWO_PHASE, {}),
    (order.blocks_are_settled_out_of_order, EXACTLY, {}),
    (order.blocks_are_closed_too_early, EXACTLY, {}),
    (tracking.promises_pass_unread_records, EXACTLY, {}),
    (disks.lines_are_committed_before_they_are_durable, EXACTLY, {"power": 1.0}),
    (disks.records_are_acknowledged_before_they_are_stored, EXACTLY, {}),
    (disks.records_that_come_again_are_taken, EXACTLY, {}),
    (disks.a_group_whose_writing_failed_is_written_again, EXACTLY, {}),
    (productions.a_production_that_failed_is_numbered_again, STRONG, {"done_but_failed": 0.05}),
    (outputs.a_consumer_counts_a_bundle_whose_storing_failed, EXACTLY, {"job_fails": 0.1}),
    (tracking.silence_is_not_noticed, EXACTLY, {"cut": 0.02, "until_s": 3.0}),
    (productions.frames_that_were_had_are_worked_off, STRONG, {}),
    (productions.records_that_were_had_are_worked_off, STRONG, {}),
    (productions.frames_leave_before_they_are_durable, STRONG, {}),
    (productions.outputs_leave_before_they_are_durable, STRONG, {}),
    (
        productions.inputs_are_acknowledged_before_they_are_durable,
        STRONG,
        {"crash_at_message": 0.004},
    ),
    (productions.nothing_is_sent_again, STRONG, {}),
    (
        productions.frontiers_move_before_all_is_known_that_is_sent_again,
        STRONG,
        {"crash_at_message": 0.01, "until_s": 2.0},
    ),
    (productions.frames_are_tracked_under_an_earlier_time, STRONG, {}),
    (productions.records_leave_that_may_be_forgotten, STRONG, {}),
    (disks.checksums_are_not_compared, STRONG, {"rot": 0.5}),
    (event_times.watermark_is_that_of_one_source, EXACTLY, {}),
    (event_times.timers_fire_in_the_wrong_order, EXACTLY, {}),
    (event_times.late_elements_enter_closed_windows, EXACTLY, {}),
    (event_times.sessions_are_not_merged, EXACTLY, {}),
    (event_times.event_times_are_lost_in_snapshots, EXACTLY, {}),
    (event_times.idle_sources_hold_back_the_watermark, EXACTLY, {}),
    (event_times.resumed_source_stays_idle, EXACTLY, {}),
    (event_times.values_outlive_their_ttl, EXACTLY, {}),
    (event_times.unmatched_elements_of_joins_are_lost, EXACTLY, {}),
]

MASTERS: list[tuple[Mutation, Focus]] = [
    (masters.any_master_may_write, {"pause": 0.02}),
    (masters.messages_of_any_master_are_taken, {}),
    (masters.a_takeover_does_not_look_where_members_are, {}),
    (masters.a_takeover_does_not_ask, {}),
    (masters.what_was_in_flight_counts, {"crash_at_message": 0.01, "crash_before_job": 0.01}),
]
"""With standby masters that die, stand still, and are cut off from ZooKeeper."""

HOLES: list[Mutation] = [masters.nobody_makes_way, masters.nobody_is_asked_who_hears]
"""With holes in the network between masters and a member, which last longer than the run."""

LAYOUTS: list[Mutation] = [
    layouts.the_cut_may_be_earlier_than_what_has_left,
    layouts.fronts_go_on_meanwhile,
    layouts.not_all_has_to_be_copied,
    layouts.a_snapshot_from_before_the_cut_will_do,
    layouts.the_next_layout_is_in_the_same_incarnation,
]
"""In runs that come to other numbers of nodes again and again, and recover meanwhile."""

BEGIN = {
    "a_consumer_counts_a_bundle_whose_storing_failed-exactly-once": 37,
    "a_group_whose_writing_failed_is_written_again-exactly-once": 67,
    "a_production_that_failed_is_numbered_again-strong-productions": 29,
    "a_snapshot_from_before_the_cut_will_do-exactly-once": 8,
    "a_takeover_does_not_ask-exactly-once": 263,
    "a_takeover_does_not_look_where_members_are-exactly-once": 12,
    "acknowledgement_is_split-exactly-once": 4,
    "acknowledgements_overtake_frames-exactly-once": 15,
    "an_earlier_run_has_ended_this_one-exactly-once": 12,
    "any_master_may_write-exactly-once": 599,
    "any_run_may_be_over-exactly-once": 12,
    "blocks_are_closed_too_early-exactly-once": 12,
    "blocks_are_settled_out_of_order-exactly-once": 13,
    "channels_fall_silent-two-phase": 923,
    "checksums_are_not_compared-exactly-once": 305,
    "checksums_are_not_compared-strong-productions": 135,
    "checksums_of_records_are_not_compared-exactly-once": 10,
    "commit_is_told_before_it_is_written-two-phase": 160,
    "durability_is_not_waited_for-exactly-once": 141,
    "event_times_are_lost_in_snapshots-exactly-once": 27,
    "first_prepared_commits-exactly-once": 7,
    "frames_are_tracked_under_an_earlier_time-strong-productions": 8,
    "frames_cover_their_whole_turn-exactly-once": 15,
    "frames_leave_before_they_are_durable-strong-productions": 26,
    "frames_that_were_had_are_worked_off-strong-productions": 21,
    "frontiers_move_before_all_is_known_that_is_sent_again-strong-productions": 376,
    "fronts_go_on_meanwhile-exactly-once": 142,
    "gaps_are_not_noticed-two-phase": 50,
    "idle_sources_hold_back_the_watermark-exactly-once": 295,
    "incarnation_is_not_checked-exactly-once": 384,
    "inputs_are_acknowledged_before_they_are_durable-strong-productions": 126,
    "intervals_count_across_gaps-exactly-once": 4,
    "late_elements_enter_closed_windows-exactly-once": 553,
    "lines_are_committed_before_they_are_durable-exactly-once": 95,
    "markers_are_not_aligned-two-phase": 59,
    "messages_of_any_master_are_taken-exactly-once": 102,
    "nobody_is_asked_who_hears-exactly-once": 25,
    "nobody_makes_way-exactly-once": 12,
    "not_all_has_to_be_copied-exactly-once": 8,
    "nothing_is_sent_again-strong-productions": 18,
    "nothing_is_undone-exactly-once": 8,
    "outputs_count_as_delivered_when_ready-exactly-once": 4,
    "outputs_do_not_wait_for_their_own_stage-exactly-once": 4,
    "outputs_leave_before_they_are_durable-strong-productions": 106,
    "pre_commits_lose_their_epoch-two-phase": 656,
    "promises_pass_unread_records-exactly-once": 15,
    "records_are_acknowledged_before_they_are_stored-exactly-once": 12,
    "records_leave_that_may_be_forgotten-strong-productions": 277,
    "records_that_come_again_are_taken-exactly-once": 12,
    "records_that_were_had_are_worked_off-strong-productions": 17,
    "repeated_batches_are_applied-two-phase": 294,
    "resumed_source_stays_idle-exactly-once": 701,
    "sessions_are_not_merged-exactly-once": 275,
    "silence_is_not_noticed-exactly-once": 246,
    "t_last_is_not_asked_for-exactly-once": 26,
    "t_last_is_not_asked_for_nor_checked-exactly-once": 12,
    "the_cut_may_be_earlier_than_what_has_left-exactly-once": 8,
    "the_end_is_told_before_it_is_written-exactly-once": 2,
    "the_end_is_told_once-exactly-once": 4,
    "the_next_layout_is_in_the_same_incarnation-exactly-once": 12,
    "timers_fire_in_the_wrong_order-exactly-once": 21,
    "tombstones_are_not_sent-exactly-once": 8,
    "unmatched_elements_of_joins_are_lost-exactly-once": 53,
    "values_outlive_their_ttl-exactly-once": 49,
    "watermark_is_that_of_one_source-exactly-once": 51,
    "what_was_in_flight_counts-exactly-once": 674,
}
"""A seed with a short run that finds the mutation: the search begins with it.

It is a seed like the others. If it finds nothing any more, the search continues from there.
"""

RECOVERIES: Focus = {"until_s": 1.5, "crash_at_message": 0.004, "crash_after_job": 0.05}

SUCCESSIONS: Focus = {
    "until_s": 3.0,
    "crash_at_message": 0.004,
    "pause": 0.004,
    "crash_before_job": 0.05,
    "crash_after_job": 0.05,
}


def focused(what: Scenario, focus: Focus) -> Scenario:
    """A scenario with other faults."""
    return replace(what, faults=replace(what.faults, **focus))


def changing(what: Scenario) -> Scenario:
    """A longer scenario, with other numbers of nodes again and again."""
    numbers = Random(what.seed)
    requests = tuple(RescaleRequest(numbers.choice((1, 2, 3)), 0.04 + 0.15 * n) for n in range(8))
    return replace(what, rescale_requests=requests, records=200, drain_at_s=None)


def found(
    mutation: Mutation,
    policy: str,
    focus: Focus,
    *,
    standby: bool = False,
    holed: bool = False,
    rescales: bool = False,
) -> tuple[int, str]:
    """A seed that is right, and wrong with the mutation; and what is wrong."""
    begin = BEGIN.get(f"{mutation.__name__}-{policy}", 1)
    for seed in range(begin, begin + SEEDS_MAX):
        what = focused(draw_scenario(seed, name=policy), focus)
        if standby:
            what = replace(what, standby=True, hangs=(), holes=())
        if holed:
            lost = draw_holes(Random(seed), MASTER_HOSTS, what.nodes, what.faults.until_s)
            what = replace(what, standby=True, hangs=(), holes=lost)
        if rescales:
            what = changing(what)
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
    seed, problem = found(mutation, policy, focus)
    assert seed, f"not found within {SEEDS_MAX} seeds"
    print(f"{mutation.__name__}: found by seed {seed}: {problem}")


@pytest.mark.parametrize(("mutation", "focus"), MASTERS, ids=[case[0].__name__ for case in MASTERS])
def test_the_simulation_finds_masters_without_a_fence(mutation: Mutation, focus: Focus) -> None:
    seed, problem = found(mutation, EXACTLY, SUCCESSIONS | focus, standby=True)
    assert seed, f"not found within {SEEDS_MAX} seeds"
    print(f"{mutation.__name__}: found by seed {seed}: {problem}")


@pytest.mark.parametrize("mutation", HOLES, ids=[case.__name__ for case in HOLES])
def test_simulation_finds_masters_that_do_not_step_down(mutation: Mutation) -> None:
    seed, problem = found(mutation, EXACTLY, {}, holed=True)
    assert seed, f"not found within {SEEDS_MAX} seeds"
    assert "makes no progress" in problem
    print(f"{mutation.__name__}: found by seed {seed}: {problem}")


@pytest.mark.parametrize("mutation", LAYOUTS, ids=[case.__name__ for case in LAYOUTS])
def test_the_simulation_finds_layouts_without_a_fence(mutation: Mutation) -> None:
    seed, problem = found(mutation, EXACTLY, RECOVERIES, rescales=True)
    assert seed, f"not found within {SEEDS_MAX} seeds"
    print(f"{mutation.__name__}: found by seed {seed}: {problem}")


def test_a_function_that_is_not_deterministic_is_named_as_the_cause() -> None:
    """The replay of what a consumer already has gives other outputs, and the guard says so."""
    for seed in count(1):
        assert seed <= SEEDS_MAX
        outcome = run_one(draw_scenario(seed, "tests.mutations.flows:drifting"))
        assert outcome.problem, "the outputs cannot be those of the reference"
        if "NotDeterministic" in outcome.problem:
            return
