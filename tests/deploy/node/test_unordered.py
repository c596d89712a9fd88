"""Node parts of the policies for comparison: markers, epochs and productions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from driftline.deploy.node.component_factory import ComponentFactory
from driftline.deploy.node.unordered import Alignment, Channel
from driftline.engine.flow.plan import make_plan
from driftline.engine.labels import Label
from driftline.engine.policy import get_policy
from driftline.engine.snapshots.jobs import StoreSnapshot
from driftline.engine.snapshots.store import PartStore
from driftline.engine.wire.messages import (
    Marker,
)
from driftline.index.flow import inverted_index
from driftline.simulation.world.disks import MemoryKeyValue


def test_long_segment_merge_runs_in_steps_between_snapshot_parts() -> None:
    flow_plan = make_plan(inverted_index())
    ids = iter(range(1, 100))
    components = ComponentFactory(flow_plan, get_policy("two-phase"), 0, (0,), lambda: next(ids))
    assembly = components.make_pipeline()
    store = PartStore(MemoryKeyValue("store"), flow_plan.flow, merge_at=4, rows_at_once=1)
    for number in range(1, 9):
        assembly.mark("front-0", Marker(0, 0, number))
        for port in flow_plan.ports:
            if port.vertex.is_keyed:
                assembly.begin_blocks(port.number, [])
                labels: list[Label] = [(number, 0, child) for child in range(20)]
                values: list[object] = [
                    (f"w{number}-{child}", f"d{number}", (1,)) for child in range(20)
                ]
                assembly.chains.entries[port.number].push(labels, values, None)
            assert assembly.ends_epoch(port.number)
            assembly.end_epoch(port.number)
        meta = assembly.meta(number)
        capture = assembly.capture(number)
        while capture.step():
            pass
        store.execute_job(StoreSnapshot(number, capture.segments, meta))
    job = assembly.merge_job(8, 7)
    steps = 1
    while store.execute_job(job):
        steps += 1
    assert steps > 20, "other parts can be written between two steps"


CHANNELS: list[Channel] = [("node-0", 0), ("node-0", 1), ("node-1", 0)]

sent = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["frame", "frame", "marker"])))
"""Arrivals: (channel, kind)."""


def is_complete(alignment: Alignment[str]) -> bool:
    return alignment.complete


def feed(alignment: Alignment[tuple[int, int]], arrivals: list[tuple[int, str]]) -> list[int]:
    """Feed frames and markers; return the sizes of the ended epochs, then of the open one.

    Check that each epoch contains exactly the frames before the marker on each channel.
    """
    epoch_of = [1] * len(CHANNELS)
    here: list[tuple[int, int]] = []
    sizes: list[int] = []
    for channel, what in arrivals:
        if what == "frame":
            frame = (channel, epoch_of[channel])
            if alignment.admit(CHANNELS[channel], frame):
                here.append(frame)
            continue
        if epoch_of[channel] > len(sizes) + 1:
            continue  # one epoch is in progress at a time
        alignment.mark(CHANNELS[channel], epoch_of[channel])
        epoch_of[channel] += 1
        if alignment.complete:
            assert alignment.epoch == len(sizes) + 1
            assert {epoch for _, epoch in here} <= {alignment.epoch}
            sizes.append(len(here))
            here = alignment.next_epoch()
    return [*sizes, len(here)]


@given(sent)
def test_aligned_epoch_holds_exactly_the_frames_before_its_markers(
    arrivals: list[tuple[int, str]],
) -> None:
    alignment = Alignment[tuple[int, int]](set(CHANNELS), aligned=True)
    sizes = feed(alignment, arrivals)
    markers = [0] * len(CHANNELS)
    wanted: dict[int, int] = {}
    for channel, what in arrivals:
        if what == "frame":
            wanted[markers[channel]] = wanted.get(markers[channel], 0) + 1
        elif markers[channel] <= min(markers):
            markers[channel] += 1
    assert sizes[:-1] == [wanted.get(epoch, 0) for epoch in range(min(markers))]


def test_blocked_input_is_released_in_order_of_arrival() -> None:
    alignment = Alignment[str](set(CHANNELS), aligned=True)
    for channel in CHANNELS[:2]:
        alignment.mark(channel, 7)
    assert not alignment.admit(CHANNELS[1], "a")
    assert alignment.admit(CHANNELS[2], "b")
    assert not alignment.admit(CHANNELS[0], "c")
    assert not alignment.admit(CHANNELS[1], "d")
    assert not is_complete(alignment)
    alignment.mark(CHANNELS[2], 7)
    assert is_complete(alignment)
    assert alignment.epoch == 7
    assert alignment.next_epoch() == ["a", "c", "d"]
    assert not is_complete(alignment)
    assert alignment.admit(CHANNELS[0], "e")
    assert alignment.next_epoch() == []


# The front ------------------------------------------------------------------------------------
