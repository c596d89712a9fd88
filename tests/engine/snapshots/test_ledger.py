"""Ledger: remembers what was processed, and keeps only what may be needed again."""

from __future__ import annotations

from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY
from driftline.engine.snapshots.jobs import (
    Capture,
    CommitSnapshot,
    Loaded,
    LoadSnapshot,
    StoreSnapshot,
)
from driftline.engine.snapshots.ledger import LEDGER, Ledger
from driftline.engine.snapshots.merging import restore
from driftline.engine.snapshots.store import PartStore
from driftline.engine.wire.codec import pack_rows
from driftline.engine.wire.label_columns import encode_labels
from driftline.engine.wire.messages import Frame, MessageHeader, encode
from driftline.simulation.world.disks import MemoryKeyValue

NOBODY = MessageHeader("", 0, 0)

FLOW = Flow("ledger")
FLOW.source("in").sink()


def frame(id: int, time: int, payload: object = "x") -> Frame:
    batch = encode_labels([(time, 0)]), pack_rows([payload]), ()
    return Frame(0, 1, time, id, (batch,), ())


def kept(ledger: Ledger) -> list[tuple[str, bytes]]:
    return [(to, encode(NOBODY, frame)) for to, frame in ledger.frames]


def written(ledger: Ledger) -> bytes:
    """Return the rows of the changes since the last call."""
    ledger.keep_changes()
    capture = Capture()
    capture.take(ledger.changelog)
    while capture.step():
        pass
    return b"".join(capture.segments.values())


def read_back(*segments: bytes) -> Ledger:
    ledger = Ledger()
    restore({LEDGER: ledger.table}, segments)
    ledger.loaded()
    return ledger


def test_what_is_processed_everywhere_is_known_by_its_time_alone() -> None:
    ledger = Ledger()
    ledger.take_frame(5, 77)
    ledger.take_frame(8, 78)
    ledger.forget(8)
    assert ledger.has_had(5, 77)
    assert ledger.has_had(7, 99)
    assert ledger.has_had(8, 78)
    assert not ledger.has_had(8, 99)
    assert ledger.next_of(1) == 8
    ledger.forget(3)  # a new incarnation starts with an older time
    assert ledger.has_had(7, 99)


def test_a_frame_comes_back_from_the_disk_as_it_was() -> None:
    ledger = Ledger()
    ledger.keep_frame("node-1", frame(1, 4, ("a", (1, 2.5))))
    ledger.keep_outputs(3, (4, (b"blob",)))
    ledger.take_frame(4, 77)
    again = read_back(written(ledger))
    assert kept(again) == kept(ledger) == [("node-1", encode(NOBODY, frame(1, 4, ("a", (1, 2.5)))))]
    assert again.outputs == {3: (4, (b"blob",))}
    assert again.has_had(4, 77)
    again.forget(5)
    assert again.frames == []


def test_the_store_does_not_grow_with_what_is_forgotten() -> None:
    kv = MemoryKeyValue("disk")
    store = PartStore(kv, FLOW, merge_at=4, rows_at_once=10)
    ledger = Ledger()
    sizes = []
    for number in range(1, 401):
        ledger.take_record(0, number)
        ledger.take_frame(number, 10_000 + number)
        ledger.keep_frame("node-1", frame(number, number))
        ledger.keep_outputs(number, (number, (b"output",)))
        if number > 5:
            ledger.forget_outputs([number - 5])
            ledger.forget(number - 5)
        store.carry_out(StoreSnapshot(number, {0: written(ledger)}, b""))
        while store.carry_out(CommitSnapshot(number, number - 1, whole=False)):
            pass
        sizes.append(sum(map(len, kv.data.values())))
    assert max(sizes[50:]) < 2 * max(sizes[:50])
    assert len(kv.data) < 20
    loaded = store.carry_out(LoadSnapshot(0, or_later=True))
    assert isinstance(loaded, Loaded)
    again = read_back(*loaded.segments)
    assert kept(again) == kept(ledger)
    assert again.outputs == ledger.outputs
    assert again.has_had(395, 10_395)
    assert not again.has_had(395, 1)


def test_at_the_end_of_a_run_later_frames_and_records_are_not_taken_for_old_ones() -> None:
    ledger = Ledger()
    ledger.take_record(0, 6)
    ledger.take_frame(5, 77)
    ledger.keep_frame("node-1", frame(78, 6))
    ledger.forget(INFINITY)
    assert ledger.frames == []
    assert ledger.has_had(5, 77)
    assert ledger.next_of(0) == 7
    assert not ledger.has_had(7, 79)
    ledger.take_frame(9, 80)
    ledger.forget(INFINITY)
    assert ledger.has_had(9, 80)
    assert not ledger.has_had(10, 81)
