"""Merging by label: contiguous spans with all outputs in label order."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.bundles import to_blob
from driftline.engine.wire.messages import Bundle
from driftline.serve.journal import merging
from driftline.serve.journal.entries import JournalEntry, SegmentHeader, entry_of
from driftline.serve.journal.merging import Merge
from tests.serve.journal.runs import FLOW, SimulatedRun, draw_run, rngs

GROUPS, SINKS = FLOW.groups, len(FLOW.sinks)


def complete_below(bundles: list[Bundle]) -> int:
    """Return T, computed in the simplest way."""
    return 1 + min(
        max((b.t_last for b in bundles if b.groups[0] <= group <= b.groups[1]), default=-1)
        for group in range(GROUPS)
    )


@settings(max_examples=100)
@given(rngs, st.booleans(), st.integers(0, 200))
def test_spans_contain_all_outputs_in_label_order(rng: Random, decoded: bool, bound: int) -> None:
    run = draw_run(rng)
    merge, found, time = Merge(GROUPS), [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "DECODED_BYTES_MAX", bound)
        for number, bundle in enumerate(run.bundles):
            entry, items = entry_of(bundle, GROUPS, SINKS)
            merge.check(entry)
            since, time, of_span = merge.take(entry, items if decoded else ()).span()
            assert (since, time) == tuple(map(complete_below, _two_prefixes(run, number)))
            assert time == merge.time
            assert of_span == run.below(time, since)
            found += of_span
            if rng.random() < 0.2:
                header = SegmentHeader.decode(merge.header().encode())
                assert header == merge.header()
                merge = Merge(GROUPS, header)
    assert found == run.below(time)
    assert found == run.items, "the end of a run has outputs that no span contains"
    assert merge.waiting_bytes == 0


def _two_prefixes(run: SimulatedRun, number: int) -> tuple[list[Bundle], list[Bundle]]:
    return run.bundles[:number], run.bundles[: number + 1]


def test_key_group_is_complete_up_to_its_most_advanced_barrier() -> None:
    """The order of barrier names does not matter: as texts, 10 sorts before 9."""
    merge = Merge(2)
    merge.take(JournalEntry("barrier-9", (0, 1), 5, 1))
    merge.take(JournalEntry("barrier-10", (0, 0), 9, 1))
    assert merge.take(JournalEntry("barrier-11", (1, 1), 8, 1)).time == 9
    merge = Merge(2, merge.header())
    assert merge.take(JournalEntry("barrier-11", (1, 1), 15, 1)).time == 10


@pytest.mark.parametrize("time", [2, 4])
def test_late_outputs_are_rejected(time: int) -> None:
    merge = Merge(2)
    merge.take(JournalEntry("barrier-0", (0, 0), 4, 1))
    merge.take(JournalEntry("barrier-1", (1, 1), 2, 1))
    barrier, groups = ("barrier-2", (0, 1)) if time == 2 else ("barrier-0", (0, 0))
    late = Bundle(barrier, 1, groups, (to_blob([(time, 0)], 0, [1]),), 9, 1)
    with pytest.raises(MalformedMessage, match="have already arrived"):
        merge.check(entry_of(late, 2, 1)[0])
    in_time = Bundle(barrier, 1, groups, (to_blob([(time + 1, 0)], 0, [1]),), 9, 1)
    merge.check(entry_of(in_time, 2, 1)[0])


def test_malformed_bundle_is_rejected() -> None:
    cases: list[tuple[tuple[int, int], list[list[tuple[int, ...]]], int, int]] = [
        ((0, 8), [[(1, 0)]], 9, 0),
        ((3, 2), [[(1, 0)]], 9, 0),
        ((0, 7), [[(1, 0)]], 0, 0),
        ((0, 7), [[(2, 0)], [(1, 0)]], 9, 0),
        ((0, 7), [[(1, 0)], [(1, 1)]], 9, 0),
        ((0, 7), [[(1, 0), (2, 0)]], 9, 0),
        ((0, 7), [[()]], 9, 0),
        ((0, 7), [[]], 9, 0),
        ((0, 7), [[(1, 0)]], 9, SINKS),
    ]
    for groups, labels, t_last, sink in cases:
        blobs = tuple(to_blob(each, sink, ["a"] * len(each)) for each in labels)
        with pytest.raises(MalformedMessage):
            entry_of(Bundle("barrier-0", 1, groups, blobs, t_last, 1), GROUPS, SINKS)
