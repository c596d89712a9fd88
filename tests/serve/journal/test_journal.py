"""Journal as a consumer of bundles, and reading from it."""

from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from driftline.connectors.sinks import NO_BUNDLE, JsonLinesConsumer, LastStored
from driftline.engine.errors import MalformedMessage, StateMismatch, Unavailable
from driftline.engine.storage import segment_log as module
from driftline.engine.storage.ownership import DirectoryOwner
from driftline.engine.storage.segment_log import LogDamaged
from driftline.engine.wire.bundles import Item
from driftline.engine.wire.messages import Bundle
from driftline.serve.errors import RetentionExceeded
from driftline.serve.journal import Journal, Span
from driftline.serve.journal.entries import inspect_journal
from tests.serve.journal.runs import FLOW, draw_run, open_journal, rngs

LONG = draw_run(Random(5), layouts=3, times=60)
SMALL = 700
"""Segment size in bytes."""


def last_of(bundle: Bundle) -> LastStored:
    return LastStored(bundle.t_last, bundle.checksum, bundle.blobs)


def fill_journal(path: Path, bundles: list[Bundle], segment_bytes: int = SMALL) -> Journal:
    journal = open_journal(path, segment_bytes)
    for bundle in bundles:
        journal.deliver(bundle)
    return journal


def read_all(path: Path, segment_bytes: int = SMALL) -> list[Span]:
    with closing(open_journal(path, segment_bytes)) as journal:
        return list(journal.read(0))


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("segment-*"))


def items_in(spans: list[Span]) -> list[Item]:
    return [item for span in spans for item in span.items]


def test_journal_stores_bundles_as_a_consumer(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    assert journal.last("barrier-0", (0, 7)) == NO_BUNDLE
    for bundle in LONG.bundles:
        journal.deliver(bundle)
        assert journal.last(bundle.barrier, bundle.groups) == last_of(bundle)
    for bundle in LONG.bundles:  # bundles that are already stored change nothing
        journal.deliver(bundle)
    assert items_in(list(journal.read(0))) == LONG.items
    with pytest.raises(StateMismatch, match="another number of nodes"):
        journal.last("barrier-0", (1, 2))
    with pytest.raises(MalformedMessage):
        journal.deliver(Bundle("barrier-99", 1, (0, 8), (), 99999, 0))
    journal.close()
    journal.close()


def test_directory_of_another_run_or_owner_is_rejected(tmp_path: Path) -> None:
    JsonLinesConsumer(tmp_path / "a", "barrier-0", FLOW, "me").close()
    with pytest.raises(StateMismatch) as before:
        JsonLinesConsumer(tmp_path / "a", "barrier-0", FLOW, "another").close()
    fill_journal(tmp_path / "b", LONG.bundles).close()
    with pytest.raises(StateMismatch) as refused:
        open_journal(tmp_path / "b", identity="another")
    assert str(refused.value) == str(before.value).replace("/a ", "/b ")
    owned_journal = Journal(tmp_path / "b", FLOW, "me", DirectoryOwner("abc", "output-0", 1))
    with pytest.raises(Unavailable, match="another process is writing"):
        open_journal(tmp_path / "b")
    owned_journal.close()
    with pytest.raises(StateMismatch, match="was moved or copied"):
        Journal(tmp_path / "b", FLOW, "me", DirectoryOwner("xyz", "output-0", 1))
    (tmp_path / "b" / ".driftline" / "identity").unlink()
    with pytest.raises(StateMismatch, match="give another --output"):
        open_journal(tmp_path / "b")


@settings(max_examples=40)
@given(rngs, st.integers(100, 3000))
def test_late_reader_gets_the_same_spans_as_followers(rng: Random, segment_bytes: int) -> None:
    run = draw_run(rng)
    with TemporaryDirectory() as directory:
        journal = open_journal(Path(directory), segment_bytes)
        forwarded: list[Span] = []
        journal.followers.append(forwarded.append)
        since = 0
        reader = journal.read(since)
        read: list[Span] = []
        for bundle in run.bundles:
            journal.take(bundle)
            if rng.random() < 0.2:
                assert journal.sync()[bundle.barrier] == bundle.t_last
            if rng.random() < 0.1:
                journal.close()  # the exit of a process loses no written data
                journal = open_journal(Path(directory), segment_bytes)
                journal.followers.append(forwarded.append)
                reader = journal.read(read[-1].time if read else since)
            if rng.random() < 0.3:
                read += [span for _, span in zip(range(rng.randint(1, 3)), reader, strict=False)]
        assert items_in(forwarded) == run.items
        read += journal.read(read[-1].time if read else since)
        assert items_in(read) == run.items
        for since in range(journal.time + 3):
            spans = list(journal.read(since))
            assert items_in(spans) == run.below(journal.time, since)
            assert [span.since for span in spans] == [since, *(s.time for s in spans)][:-1] or (
                not spans and since >= journal.time
            )
        journal.close()


def test_segment_holds_a_limited_number_of_bundles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT_FRAMES", 5)
    journal = fill_journal(tmp_path, LONG.bundles[:4], 1 << 26)
    journal.close()
    journal = open_journal(tmp_path)
    for bundle in LONG.bundles[4:]:
        journal.deliver(bundle)
    assert [len(_ends(path)) - 1 for path in segments(tmp_path)][:-1] == [5] * (
        (len(LONG.bundles) - 1) // 5
    )
    assert items_in(list(journal.read(0))) == LONG.items
    journal.close()


def test_retention_drops_the_oldest_segments_by_size(tmp_path: Path) -> None:
    journal = fill_journal(tmp_path, LONG.bundles)
    sizes = [path.stat().st_size for path in segments(tmp_path)]
    journal.drop(sum(sizes))
    assert journal.oldest == 0
    journal.drop(sum(sizes[3:]))
    assert len(segments(tmp_path)) == len(sizes) - 3
    oldest = journal.oldest
    assert items_in(list(journal.read(oldest))) == LONG.below(journal.time, oldest)
    with pytest.raises(RetentionExceeded, match=f"before record {oldest}") as refused:
        journal.read(oldest - 1)
    assert refused.value.oldest == oldest
    journal.close()

    journal = open_journal(tmp_path, SMALL)
    assert journal.oldest == oldest
    journal.drop(0, needed_from=oldest)
    assert journal.oldest == oldest
    needed = (oldest + journal.time) // 2
    journal.drop(0, needed_from=needed)
    assert oldest < journal.oldest <= needed
    assert items_in(list(journal.read(needed))) == LONG.below(journal.time, needed)
    journal.drop(0)
    assert len(segments(tmp_path)) == 1, "the last segment is never dropped"
    assert journal.last(LONG.bundles[-1].barrier, LONG.bundles[-1].groups) != NO_BUNDLE
    journal.close()


def test_reading_a_removed_segment_raises_retention_exceeded(tmp_path: Path) -> None:
    journal = fill_journal(tmp_path, LONG.bundles)
    reader = journal.read(0)
    next(reader)
    journal.drop(0)
    with pytest.raises(RetentionExceeded):
        list(reader)
    journal.close()


def test_damage_anywhere_in_a_segment_is_detected(tmp_path: Path) -> None:
    """Flip a bit in each part of each segment; reading raises StateMismatch."""
    fill_journal(tmp_path, LONG.bundles, 3000).close()
    files = segments(tmp_path)
    assert len(files) > 2
    for path in files:
        whole = path.read_bytes()
        *entries, _ = _ends(path)
        for offset in range(0, len(whole), 37):
            path.write_bytes(whole[:offset] + bytes((whole[offset] ^ 1,)) + whole[offset + 1 :])
            if path == files[-1] and offset >= entries[-1]:
                continue  # the last entry: damage looks like a torn write
            frame = max(end for end in (0, *entries) if end <= offset)
            message = f"{path.name} is damaged at byte {frame}. Restore it together"
            with pytest.raises(StateMismatch, match=message):
                read_all(tmp_path, 3000)
        path.write_bytes(whole)
    assert items_in(read_all(tmp_path, 3000)) == LONG.items


def _ends(path: Path) -> list[int]:
    """Return the offsets of the ends of the frames of a segment."""
    data, at, ends = path.read_bytes(), 0, []
    while at < len(data):
        at += 20 + int.from_bytes(data[at + 8 : at + 12], "little")
        ends.append(at)
    return ends


def test_missing_or_truncated_segment_is_detected(tmp_path: Path) -> None:
    fill_journal(tmp_path, LONG.bundles).close()
    third = segments(tmp_path)[2]
    whole = third.read_bytes()
    third.write_bytes(whole[: _ends(third)[-2]])
    with pytest.raises(StateMismatch, match="the end of a segment is missing"):
        read_all(tmp_path)
    third.unlink()
    with pytest.raises(StateMismatch, match=f"{third.name} is missing"):
        open_journal(tmp_path, SMALL)


def test_draft_of_a_segment_is_removed(tmp_path: Path) -> None:
    fill_journal(tmp_path, LONG.bundles).close()
    (tmp_path / ".segment-00000099.1234").write_bytes(b"half of it")
    assert items_in(read_all(tmp_path)) == LONG.items
    assert not list(tmp_path.glob(".segment*"))


def test_late_bundle_is_rejected_and_changes_nothing(tmp_path: Path) -> None:
    journal = fill_journal(tmp_path, LONG.bundles[:5])
    first = next(bundle for bundle in LONG.bundles if bundle.blobs)
    late = replace(first, t_last=10**6)
    with pytest.raises(MalformedMessage, match="have already arrived"):
        journal.deliver(late)
    for bundle in LONG.bundles:
        journal.deliver(bundle)
    assert items_in(list(journal.read(0))) == LONG.items
    journal.close()


def test_inspection_reports_progress_and_damage_without_changes(tmp_path: Path) -> None:
    fill_journal(tmp_path, LONG.bundles, 3000).close()
    first, *_, last = segments(tmp_path)
    whole = last.read_bytes()
    found = inspect_journal(tmp_path, all_segments=True)
    assert (found.t_last, found.torn) == (max(bundle.t_last for bundle in LONG.bundles), "")
    assert (found.segments, found.entries) == (len(segments(tmp_path)), len(LONG.bundles))
    last.write_bytes(whole[:-1])
    assert (
        "of an incomplete record, which the next opening removes" in inspect_journal(tmp_path).torn
    )
    assert last.read_bytes() == whole[:-1], "inspection must not change the file"
    last.write_bytes(whole)
    whole = first.read_bytes()
    without_last_entry = whole[: whole.rindex(b"\xd7JNL")]
    for damaged in (whole[:-1], whole[:500] + b"?" + whole[501:], without_last_entry):
        first.write_bytes(damaged)
        inspect_journal(tmp_path)
        with pytest.raises(LogDamaged, match=r"is damaged at byte|the end of a segment"):
            inspect_journal(tmp_path, all_segments=True)
