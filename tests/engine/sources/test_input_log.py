"""The input log: groups are there as a whole or not at all, and only their owner opens it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest

from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.snapshots.store import LmdbStore
from driftline.engine.sources.logs.inputlog import (
    READ_BYTES,
    TRIM_MAX,
    Entry,
    InputLog,
    WriteGroup,
)
from driftline.engine.sources.logs.received import ReceivedSource
from driftline.engine.wire.codec import pack
from driftline.engine.wire.marks import Mark
from tests.engine.sources.memory_disk import memory_disk


@pytest.fixture
def path() -> Iterator[Path]:
    with memory_disk() as directory:
        yield directory / "log"


def entries(first: int, last: int, producer: str = "p") -> tuple[Entry, ...]:
    return tuple(Entry(time, producer, time, b"%d" % time) for time in range(first, last + 1))


def test_a_new_log_is_empty(path: Path) -> None:
    log = InputLog(path, "flow")
    assert (log.last_time, log.reserved, log.trimmed) == (0, 0, 0)
    assert log.sequences() == {}
    assert log.read(0) == []


def test_what_was_written_is_there_when_it_is_opened_again(path: Path) -> None:
    log = InputLog(path, "flow")
    log.write(WriteGroup((*entries(1, 3), Entry(7, "q", 1, b"seven")), 20, 0))
    log.write(WriteGroup((), 30, 0))
    log.close()
    log = InputLog(path, "flow")
    assert log.read(2) == [*entries(2, 3), Entry(7, "q", 1, b"seven")]
    assert log.read(2, limit=1) == [*entries(2, 2)]
    assert (log.last_time, log.reserved, log.trimmed) == (7, 30, 0)
    assert log.sequences() == {"p": 3, "q": 1}


def test_numbers_of_producers_outlive_their_entries(path: Path) -> None:
    log = InputLog(path, "flow")
    log.write(WriteGroup(entries(1, 5), 10, 0))
    log.trim(4)
    assert log.read(0) == [*entries(4, 5)]
    log.trim(2)
    assert log.trimmed == 4, "it does not go back"
    log.trim(100)
    assert (log.read(0), log.last_time, log.trimmed) == ([], 0, 100)
    assert log.sequences() == {"p": 5}


def test_one_transaction_removes_a_bounded_number_of_entries(path: Path) -> None:
    log = InputLog(path, "flow")
    log.write(WriteGroup(entries(1, TRIM_MAX + 2), 0, 0))
    assert log.carry_out(WriteGroup((), 0, TRIM_MAX + 2)) is True
    assert log.read(0) == [*entries(TRIM_MAX + 1, TRIM_MAX + 2)]
    assert log.carry_out(WriteGroup((), 0, TRIM_MAX + 2)) is False
    assert log.read(0) == [*entries(TRIM_MAX + 2, TRIM_MAX + 2)]


def test_a_group_that_cannot_be_written_leaves_nothing(path: Path) -> None:
    log = InputLog(path, "flow", map_size=1 << 17)
    log.write(WriteGroup(entries(1, 1), 5, 0))
    too_much = (*entries(2, 2), Entry(3, "q", 1, bytes(1 << 17)))
    with pytest.raises(Unavailable, match="is full"):
        log.write(WriteGroup(too_much, 10, 0))
    assert log.read(0) == [*entries(1, 1)]
    assert (log.reserved, log.sequences()) == (5, {"p": 1})


@pytest.mark.parametrize("done", [False, True])
def test_a_group_may_be_written_again_if_it_is_said(path: Path, done: bool) -> None:
    log = InputLog(path, "flow")
    group = WriteGroup(entries(1, 3), 20, 0, (("p", 3),))
    if done:
        log.write(group)
    log.write(replace(group, again=True))
    assert log.read(0) == [*entries(1, 3)]
    assert (log.reserved, log.sequences(), log.ended()) == (20, {"p": 3}, ["p"])


def test_times_have_to_grow(path: Path) -> None:
    log = InputLog(path, "flow")
    log.write(WriteGroup(entries(5, 6), 0, 0))
    with pytest.raises(AssertionError, match="times have to grow"):
        log.write(WriteGroup(entries(6, 7), 0, 0))
    assert log.read(0) == [*entries(5, 6)]


def test_a_log_belongs_to_one_flow(path: Path) -> None:
    InputLog(path, "flow").close()
    with pytest.raises(StateMismatch, match="another flow"):
        InputLog(path, "other")
    InputLog(path, "flow").close()  # and nothing keeps it open


def test_a_log_is_open_in_one_process_at_a_time(path: Path) -> None:
    log = InputLog(path, "flow")
    with pytest.raises(Unavailable, match="another process"):
        InputLog(path, "flow")
    log.close()
    InputLog(path, "flow").close()


def test_the_directory_of_something_else_is_refused(path: Path) -> None:
    path.mkdir()
    (path / "talks.txt").write_text("mine")
    with pytest.raises(StateMismatch, match="holds other files"):
        InputLog(path, "flow")
    assert [file.name for file in path.iterdir()] == ["talks.txt"]


def test_another_database_is_refused_and_left_alone(path: Path) -> None:
    LmdbStore(path, "flow").close()
    with pytest.raises(StateMismatch, match="not an input log"):
        InputLog(path, "flow")
    LmdbStore(path, "flow").close()


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.mkdir()
    (path / "data.mdb").write_bytes(b"no database" * 1000)
    with pytest.raises(StateMismatch, match="not an input log, or damaged"):
        InputLog(path, "flow")


def test_a_directory_that_cannot_be_made_is_told_of(path: Path) -> None:
    path.write_text("a file")
    with pytest.raises(Unavailable, match="input log"):
        InputLog(path / "log", "flow")


def test_a_damaged_entry_is_noticed(path: Path) -> None:
    log = InputLog(path, "flow")
    log.write(WriteGroup(entries(1, 3), 0, 0))
    log.close()
    with lmdb.open(str(path), max_dbs=3) as env:
        db = env.open_db(b"entries")
        with env.begin(write=True, db=db) as txn:
            key = (2).to_bytes(8, "big")
            txn.put(key, bytes(txn.get(key, b""))[:-1] + b"!")
    log = InputLog(path, "flow")
    assert log.read(3) == [*entries(3, 3)]
    with pytest.raises(StateMismatch, match="damaged at time 2"):
        log.read(1)


def test_large_entries_are_read_a_few_at_a_time(path: Path) -> None:
    log = InputLog(path, "flow")
    large = tuple(Entry(time, "p", time, pack(bytes(1_000_000))) for time in range(1, 13))
    log.write(WriteGroup(large, 20, 0))
    source = ReceivedSource(log, lambda: 0)
    read = log.read(1, limit=256)
    assert read == [*large[: len(read)]]
    assert len(read) * 1_000_000 < READ_BYTES + 1_000_000
    assert [entry.time for entry in log.read(1)] == list(range(1, 13))
    replayed = source.entries(1)
    times = [r[0] for r, _ in zip(replayed, large, strict=False) if isinstance(r, tuple)]
    assert times == list(range(1, 13))


MINE = Mark("mine", "input-0", 1)


def test_with_a_mark_another_name_of_the_flow_does_not_matter(path: Path) -> None:
    """A name may be a path, and whoever moves the file of the flow changes it."""
    InputLog(path, "here/flow.py:flow 0", MINE).close()
    InputLog(path, "there/flow.py:flow 0", MINE).close()
    with pytest.raises(StateMismatch, match="belongs to another flow"):
        InputLog(path, "there/flow.py:flow 0")
    with pytest.raises(StateMismatch, match="it was moved or copied here"):
        InputLog(path, "here/flow.py:flow 0", Mark("other", "input-0", 1))
