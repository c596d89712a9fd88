"""Journal under crashes and full disks: it stores every output exactly once."""

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from driftline.connectors.sinks import NO_BUNDLE, LastStored
from driftline.engine.errors import Unavailable
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.messages import Bundle
from driftline.serve.journal import Journal, Span
from tests.connectors.sinks.bundles import Disk, PowerLoss
from tests.serve.journal.runs import SimulatedRun, copy_after_crash, draw_run, open_journal, rngs


@dataclass
class RecordingFollower:
    """Follower that drops outputs that it already has, by label."""

    time: int = 0
    items: list[Item] = field(default_factory=list)

    def take(self, span: Span) -> None:
        assert span.since <= self.time, "a gap"
        self.items += [item for item in span.items if item.label[0] >= self.time]
        self.time = max(self.time, span.time)


def draw_replay(journal: Journal, run: SimulatedRun, rng: Random) -> list[Bundle]:
    """Return what barriers send after a recovery: the same blobs, partly in merged bundles."""
    bundles: list[Bundle] = []
    for bundle in run.bundles:
        if bundle.t_last <= journal.last(bundle.barrier, bundle.groups).t_last:
            continue
        before = bundles[-1] if bundles else None
        if before is not None and before.barrier == bundle.barrier and rng.random() < 0.5:
            bundle = replace(bundle, blobs=before.blobs + bundle.blobs)
            bundles.pop()
        bundles.append(bundle)
    return bundles


def check_stored(
    journal: Journal, run: SimulatedRun, stored: dict[str, Bundle], in_flight: list[Bundle]
) -> None:
    """Check that the journal ends, per barrier, with the last stored bundle or one in flight."""
    stored_bundles = []
    for barrier in {bundle.barrier for bundle in run.bundles}:
        of_barrier = [bundle for bundle in run.bundles if bundle.barrier == barrier]
        last = journal.last(barrier, of_barrier[0].groups)
        possible = [stored.get(barrier), *(b for b in in_flight if b.barrier == barrier)]
        assert last.t_last in [-1 if b is None else b.t_last for b in possible]
        stored_bundles += [bundle for bundle in of_barrier if bundle.t_last <= last.t_last]
        if stored_bundles and last != NO_BUNDLE:
            blobs = stored_bundles[-1].blobs
            assert last.blobs[len(last.blobs) - len(blobs) :] == blobs or not last.blobs
            assert last == LastStored(
                stored_bundles[-1].t_last, stored_bundles[-1].checksum, last.blobs
            )
    below = 1 + min(
        max((b.t_last for b in stored_bundles if b.groups[0] <= group <= b.groups[1]), default=-1)
        for group in range(8)
    )
    assert journal.time == below
    assert [item for span in journal.read(0) for item in span.items] == run.below(below)


@given(rngs, st.integers(60, 2000))
def test_journal_recovers_from_a_file_truncated_anywhere(rng: Random, segment_bytes: int) -> None:
    """A crash keeps synced bytes, and an arbitrary part of the others."""
    run = draw_run(rng)
    follower = RecordingFollower()
    with TemporaryDirectory() as directory:
        path = Path(directory) / "0"
        journal = open_journal(path, segment_bytes)
        journal.followers.append(follower.take)
        stored: dict[str, Bundle] = {}
        for crash in range(1, 4):
            in_flight: list[Bundle] = []
            for bundle in draw_replay(journal, run, rng):
                journal.take(bundle)
                in_flight.append(bundle)
                if rng.random() < 0.3:
                    journal.sync()
                    stored |= {each.barrier: each for each in in_flight}
                    in_flight.clear()
                if rng.random() < 0.1:
                    break
            path = copy_after_crash(journal, path, Path(directory) / str(crash), rng)
            journal = open_journal(path, segment_bytes)
            check_stored(journal, run, stored, in_flight)
            journal.followers.append(follower.take)
            for barrier in {bundle.barrier for bundle in run.bundles}:
                of_barrier = [b for b in run.bundles if b.barrier == barrier]
                last = journal.last(barrier, of_barrier[0].groups).t_last
                if stored_bundles := [b for b in of_barrier if b.t_last <= last]:
                    stored[barrier] = stored_bundles[-1]
        for bundle in draw_replay(journal, run, rng):
            journal.deliver(bundle)
        assert follower.items == run.items
        assert [item for span in journal.read(0) for item in span.items] == run.items
        journal.close()


@given(st.integers(0, 2**32), st.integers(0, 60), st.booleans())
def test_journal_survives_a_failure_or_power_loss_at_any_system_call(
    seed: int, call: int, is_full: bool
) -> None:
    """The disk is full once, or the power is cut, at any write, sync or rename."""
    rng = Random(seed)
    run = draw_run(rng)
    follower = RecordingFollower()
    stored: dict[str, Bundle] = {}
    with TemporaryDirectory() as directory, Disk(Path(directory), rng) as disk:
        full = OSError(errno.ENOSPC, "No space left on device")
        disk.fail_at(call, full if is_full else PowerLoss())
        journal = open_journal_on(disk, follower)
        for bundle in run.bundles:
            while stored.get(bundle.barrier) != bundle:
                try:
                    journal.deliver(bundle)
                except Unavailable:
                    check_stored(journal, run, stored, [])
                    continue
                except PowerLoss:
                    journal.close()
                    disk.lose_power()
                    journal = open_journal_on(disk, follower)
                    check_stored(journal, run, stored, [bundle])
                    continue
                stored[bundle.barrier] = bundle
        journal.close()
        journal = open_journal_on(disk, follower)
        check_stored(journal, run, stored, [])
        assert follower.items == run.items
        journal.close()


def open_journal_on(disk: Disk, follower: RecordingFollower) -> Journal:
    while True:
        try:
            journal = open_journal(disk.root / "journal", 300)
        except Unavailable:
            continue
        except PowerLoss:
            disk.lose_power()
            continue
        journal.followers.append(follower.take)
        return journal


def test_failed_sync_discards_all_unsynced_bundles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later successful fdatasync does not prove that the same data is on disk."""
    run = draw_run(Random(3))
    journal = open_journal(tmp_path)
    journal.deliver(run.bundles[0])
    size = (tmp_path / "segment-00000000").stat().st_size
    journal.take(run.bundles[1])
    journal.take(run.bundles[2])

    def fails(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fails)
        with pytest.raises(Unavailable, match="Input/output error"):
            journal.sync()
    stored = journal.sync()
    assert stored == {run.bundles[0].barrier: run.bundles[0].t_last}
    assert (tmp_path / "segment-00000000").stat().st_size == size
    for bundle in run.bundles[1:]:
        journal.deliver(bundle)
    assert [item for span in journal.read(0) for item in span.items] == run.items
    journal.close()
