"""Ledger: remembers processed frames, and keeps only those that may be needed again."""

from __future__ import annotations

from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY
from driftline.engine.snapshots.jobs import (
    Capture,
    Loaded,
    LoadSnapshot,
    MergeParts,
    StoreSnapshot,
)
from driftline.engine.snapshots.ledger import LEDGER, Ledger
from driftline.engine.snapshots.merging import restore
from driftline.engine.snapshots.store import PartStore
from driftline.engine.wire.codec import pack_rows
from driftline.engine.wire.label_columns import encode_labels
from driftline.engine.wire.messages import Frame, MessageHeader, encode
from driftline.simulation.world.disks import MemoryKeyValue

NO_OWNER = MessageHeader("", 0, 0)

FLOW = Flow("ledger")
FLOW.source("in").sink()


def frame(id: int, time: int, payload: object = "x") -> Frame:
    batch = encode_labels([(time, 0)]), pack_rows([payload]), ()
    return Frame(0, 1, time, id, (batch,), ())


def kept(ledger: Ledger) -> list[tuple[str, bytes]]:
    return [(to, encode(NO_OWNER, frame)) for to, frame in ledger.frames]


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
    ledger.rebuild_times()
    return ledger


def test_forgotten_frames_count_as_processed_by_their_time() -> None:
    ledger = Ledger()
    ledger.mark_frame_processed(5, 77)
    ledger.mark_frame_processed(8, 78)
    ledger.forget(8)
    assert ledger.was_processed(5, 77)
    assert ledger.was_processed(7, 99)
    assert ledger.was_processed(8, 78)
    assert not ledger.was_processed(8, 99)
    assert ledger.processed_below(1) == 8
    ledger.forget(3)  # a new incarnation starts with an older time
    assert ledger.was_processed(7, 99)


def test_frame_round_trips_through_the_disk() -> None:
    ledger = Ledger()
    ledger.keep_frame("node-1", frame(1, 4, ("a", (1, 2.5))))
    ledger.keep_outputs(3, (4, (b"blob",)))
    ledger.mark_frame_processed(4, 77)
    again = read_back(written(ledger))
    assert (
        kept(again) == kept(ledger) == [("node-1", encode(NO_OWNER, frame(1, 4, ("a", (1, 2.5)))))]
    )
    assert again.outputs == {3: (4, (b"blob",))}
    assert again.was_processed(4, 77)
    again.forget(5)
    assert again.frames == []


def test_forgotten_entries_do_not_grow_the_store() -> None:
    kv = MemoryKeyValue("disk")
    store = PartStore(kv, FLOW, merge_at=4, rows_at_once=10)
    ledger = Ledger()
    sizes = []
    for number in range(1, 401):
        ledger.mark_records_processed(0, number)
        ledger.mark_frame_processed(number, 10_000 + number)
        ledger.keep_frame("node-1", frame(number, number))
        ledger.keep_outputs(number, (number, (b"output",)))
        if number > 5:
            ledger.forget_outputs([number - 5])
            ledger.forget(number - 5)
        store.execute_job(StoreSnapshot(number, {0: written(ledger)}, b""))
        while store.execute_job(MergeParts(number, number - 1, merge_all=False)):
            pass
        sizes.append(sum(map(len, kv.data.values())))
    assert max(sizes[50:]) < 2 * max(sizes[:50])
    assert len(kv.data) < 20
    loaded = store.execute_job(LoadSnapshot(0, allow_later=True))
    assert isinstance(loaded, Loaded)
    again = read_back(*loaded.segments)
    assert kept(again) == kept(ledger)
    assert again.outputs == ledger.outputs
    assert again.was_processed(395, 10_395)
    assert not again.was_processed(395, 1)


def test_later_frames_and_records_are_new_after_the_end_of_a_run() -> None:
    ledger = Ledger()
    ledger.mark_records_processed(0, 6)
    ledger.mark_frame_processed(5, 77)
    ledger.keep_frame("node-1", frame(78, 6))
    ledger.forget(INFINITY)
    assert ledger.frames == []
    assert ledger.was_processed(5, 77)
    assert ledger.processed_below(0) == 7
    assert not ledger.was_processed(7, 79)
    ledger.mark_frame_processed(9, 80)
    ledger.forget(INFINITY)
    assert ledger.was_processed(9, 80)
    assert not ledger.was_processed(10, 81)
