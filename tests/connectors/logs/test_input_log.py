"""Input log: groups are stored completely or not at all, and only the owner opens the log."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from driftline.connectors.logs.inputlog import (
    READ_BYTES,
    InputLog,
    LoggedRecord,
    WriteGroup,
    check_log,
)
from driftline.connectors.logs.received import ReceivedSource
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.storage.ownership import DirectoryOwner
from driftline.engine.wire.codec import pack
from tests.connectors.logs.received_front import memory_disk


@pytest.fixture
def path() -> Iterator[Path]:
    with memory_disk() as directory:
        yield directory / "log"


def entries(first: int, last: int, producer: str = "p") -> tuple[LoggedRecord, ...]:
    return tuple(
        LoggedRecord(time, producer, time, b"%d" % time) for time in range(first, last + 1)
    )


def test_written_entries_survive_reopening(path: Path) -> None:
    log = InputLog(path, "flow")
    log.write(WriteGroup((*entries(1, 3), LoggedRecord(7, "q", 1, b"seven")), 20, 0))
    log.write(WriteGroup((), 30, 0))
    log.close()
    log = InputLog(path, "flow")
    assert log.read(2) == [*entries(2, 3), LoggedRecord(7, "q", 1, b"seven")]
    assert log.read(2, limit=1) == [*entries(2, 2)]
    assert (log.last_time, log.reserved, log.trimmed) == (7, 30, 0)
    assert log.sequences() == {"p": 3, "q": 1}


def test_trimming_removes_whole_segments(path: Path) -> None:
    log = InputLog(path, "flow", segment_bytes=200)
    for time in range(1, 50):
        log.write(WriteGroup(entries(time, time, f"p{time % 3}"), time + 1, 0))
    before = len(list(path.glob("segment-*")))
    log.trim(30)
    assert 1 < len(list(path.glob("segment-*"))) < before
    for _ in range(2):
        assert [entry.time for entry in log.read(0)] == list(range(30, 50))
        assert [entry.time for entry in log.read(41, 3)] == [41, 42, 43]
        assert (log.count(0), log.count(45)) == (20, 5)
        assert log.sequences() == {"p0": 48, "p1": 49, "p2": 47}
        log.close()
        log = InputLog(path, "flow", segment_bytes=200)


def test_removed_entries_still_count_for_the_end_time(path: Path) -> None:
    """At its start a service waits until all records of earlier sessions are processed."""
    log = InputLog(path, "flow", segment_bytes=200)
    assert log.end_time == 0
    for time in range(1, 50):
        log.write(WriteGroup(entries(time, time), time + 1, 0))
    log.trim(60)
    assert (log.last_time, log.end_time) == (0, 50)
    log.close()
    assert InputLog(path, "flow", segment_bytes=200).end_time == 50


def test_failed_group_write_leaves_no_entries(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = InputLog(path, "flow")
    log.write(WriteGroup(entries(1, 1), 5, 0))

    def fail_write(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    group = WriteGroup(entries(2, 3), 10, 0)
    with monkeypatch.context() as full:
        full.setattr(os, "fdatasync", fail_write)
        with pytest.raises(Unavailable, match="No space left on device"):
            log.write(group)
        with pytest.raises(Unavailable, match="No space left on device"):
            log.write(replace(group, again=True))
    assert log.read(0) == [*entries(1, 1)]
    assert (log.reserved, log.sequences()) == (5, {"p": 1})
    log.write(replace(group, again=True))
    assert log.read(0) == [*entries(1, 3)]


@pytest.mark.parametrize("done", [False, True])
def test_group_write_can_be_retried_with_the_again_flag(path: Path, done: bool) -> None:
    log = InputLog(path, "flow")
    group = WriteGroup(entries(1, 3), 20, 0, (("p", 3),))
    if done:
        log.write(group)
    log.write(replace(group, again=True))
    assert log.read(0) == [*entries(1, 3)]
    assert (log.reserved, log.sequences(), log.ended()) == (20, {"p": 3}, ["p"])


def test_log_belongs_to_one_flow(path: Path) -> None:
    InputLog(path, "flow").close()
    with pytest.raises(StateMismatch, match="another flow"):
        InputLog(path, "other")
    InputLog(path, "flow").close()  # and no process keeps the log open


def test_log_is_open_in_one_process_at_a_time(path: Path) -> None:
    log = InputLog(path, "flow")
    with pytest.raises(Unavailable, match="another process"):
        InputLog(path, "flow")
    log.close()
    InputLog(path, "flow").close()


def test_foreign_directory_is_rejected(path: Path) -> None:
    path.mkdir()
    (path / "talks.txt").write_text("mine")
    with pytest.raises(StateMismatch, match="holds other files"):
        InputLog(path, "flow")
    assert [file.name for file in path.iterdir()] == ["talks.txt"]


def test_damaged_entry_is_detected(path: Path) -> None:
    log = InputLog(path, "flow")
    for time in range(1, 4):
        log.write(WriteGroup(entries(time, time), 0, 0))
    log.close()
    (segment,) = path.glob("segment-*")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    for reading in (lambda: InputLog(path, "flow"), lambda: check_log(path)):
        with pytest.raises(StateMismatch, match="segment-00000000 is damaged at byte"):
            reading()


def test_torn_end_is_truncated_and_complete_log_is_counted(path: Path) -> None:
    log = InputLog(path, "flow")
    log.write(WriteGroup(entries(1, 3), 9, 2))
    log.close()
    (segment,) = path.glob("segment-*")
    data = segment.read_bytes()
    segment.write_bytes(data + b"torn")
    found = check_log(path)
    assert (found.reserved, found.trimmed, found.entries, found.torn) == (9, 2, 2, 4)
    log = InputLog(path, "flow")
    assert log.read(0) == [*entries(2, 3)]
    log.close()
    assert segment.read_bytes() == data


def test_truncated_earlier_segment_is_reported_as_damage(path: Path) -> None:
    log = InputLog(path, "flow", segment_bytes=200)
    for time in range(1, 30):
        log.write(WriteGroup(entries(time, time), time + 1, 0))
    log.close()
    first = min(path.glob("segment-*"))
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(StateMismatch, match="segment-00000000 is damaged"):
        check_log(path)


def test_large_entries_are_read_a_few_at_a_time(path: Path) -> None:
    log = InputLog(path, "flow")
    large = tuple(LoggedRecord(time, "p", time, pack(bytes(1_000_000))) for time in range(1, 13))
    log.write(WriteGroup(large, 20, 0))
    source = ReceivedSource(log, lambda: 0)
    read = log.read(1, limit=256)
    assert read == [*large[: len(read)]]
    assert len(read) * 1_000_000 < READ_BYTES + 1_000_000
    assert [entry.time for entry in log.read(1)] == list(range(1, 13))
    replayed = source.entries(1)
    times = [r[0] for r, _ in zip(replayed, large, strict=False) if isinstance(r, tuple)]
    assert times == list(range(1, 13))


MINE = DirectoryOwner("mine", "input-0", 1)


def test_marked_log_accepts_a_renamed_flow(path: Path) -> None:
    """The name of a flow may be its path, which changes if the file is moved."""
    InputLog(path, "here/flow.py:flow 0", MINE).close()
    InputLog(path, "there/flow.py:flow 0", MINE).close()
    with pytest.raises(StateMismatch, match="belongs to another flow"):
        InputLog(path, "there/flow.py:flow 0")
    with pytest.raises(StateMismatch, match="it was moved or copied here"):
        InputLog(path, "here/flow.py:flow 0", DirectoryOwner("other", "input-0", 1))
