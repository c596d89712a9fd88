"""Standard input as a source: a repeated stream resumes, a different one is rejected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.connectors.logs.inputlog import InputLog, LoggedSource
from driftline.connectors.logs.received import PipedSource
from driftline.engine.errors import InputError, StateMismatch
from driftline.engine.labels import INFINITY
from driftline.engine.sources import BadRecord
from driftline.engine.sources.record import Malformed, Row
from tests.connectors.logs.received_front import memory_disk


def record(number: int) -> Row:
    return {"id": number}


BAD = Malformed("it is bad", "shown", "all of it")


class LoggedPipe:
    """Standard input source with its log, driven as a runtime does."""

    def __init__(self, path: Path, *, keep_bad: bool = True) -> None:
        self.log = InputLog(path, "flow")
        self.source = PipedSource(self.log, keep_bad=keep_bad)

    def take(self, rows: list[Row], end: bool = False) -> None:
        for row in rows:
            self.source.take(row)
        if end:
            self.source.end()

    def commit(self) -> None:
        while (group := self.source.next_group()) is not None:
            self.log.write(group)
            self.source.mark_written(group)
            self.source.validate()

    def crash(self) -> Path:
        """Return the path of the log after a crash: uncommitted records are lost."""
        self.log.close()
        return Path(self.log.name)

    def records(self) -> list[tuple[int, object] | BadRecord]:
        return list(until_none(self.source.read(1)))


def until_none(
    records: Iterator[tuple[int, object] | BadRecord | None],
) -> Iterator[tuple[int, object] | BadRecord]:
    for found in records:
        if found is None:
            return
        yield found


def as_read(rows: list[Row]) -> list[tuple[int, object] | BadRecord]:
    return [
        BadRecord(number, "standard input", row.reason, row.text, row.raw)
        if isinstance(row, Malformed)
        else (number, row)
        for number, row in enumerate(rows, 1)
    ]


@settings(max_examples=40, deadline=None)
@given(
    bad=st.lists(st.booleans(), max_size=30),
    cuts=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=4),
)
def test_kills_at_any_point_change_no_record_and_no_number(
    bad: list[bool], cuts: list[tuple[int, int]]
) -> None:
    rows = [BAD if is_bad else record(n) for n, is_bad in enumerate(bad)]
    with memory_disk() as folder:
        path = folder / "log"
        durable = 0
        for committed, taken in cuts:
            pipe = LoggedPipe(path)
            assert pipe.source.logged_records == durable
            pipe.take(rows[:committed])
            pipe.commit()
            durable = max(durable, min(len(rows), committed))
            pipe.take(rows[committed:taken])
            assert pipe.records() == as_read(rows[: max(durable, min(len(rows), taken))])
            path = pipe.crash()
        pipe = LoggedPipe(path)
        pipe.take(rows, end=True)
        pipe.commit()
        assert pipe.records() == as_read(rows)
        assert pipe.source.durable == INFINITY
        assert list(LoggedSource(pipe.crash()).read(1)) == as_read(rows)


def test_different_stream_is_rejected_on_the_first_difference(tmp_path: Path) -> None:
    pipe = LoggedPipe(tmp_path / "log")
    pipe.take([record(1), record(2), BAD])
    pipe.commit()
    for other in ([record(1), record(3), BAD], [record(2), record(1), BAD], [record(1)] * 3):
        again = LoggedPipe(pipe.crash())
        again.take(other[:2])
        with pytest.raises(
            StateMismatch, match="3 records of another stream on standard input: its first 3"
        ):
            again.take(other[2:])
        pipe = again
    again = LoggedPipe(pipe.crash())
    again.take([record(1), record(2)])
    with pytest.raises(StateMismatch, match=r"it ends after 2\. Give the same stream again"):
        again.source.end()
    again.crash()


def test_rejected_record_is_not_stored(tmp_path: Path) -> None:
    pipe = LoggedPipe(tmp_path / "log", keep_bad=False)
    pipe.take([record(1)])
    with pytest.raises(InputError, match="standard input, record 2: it is bad"):
        pipe.source.take(BAD)
    pipe.commit()
    again = LoggedPipe(pipe.crash(), keep_bad=False)
    again.take([record(1), record(2)])  # the input was repaired
    again.commit()
    assert again.records() == as_read([record(1), record(2)])
    again.crash()


def test_bad_record_after_a_clock_jump_has_both_numbers(tmp_path: Path) -> None:
    pipe = LoggedPipe(tmp_path / "log")
    pipe.source.advance_to(100)  # another input of the flow has reached this time
    pipe.take([record(1), BAD])
    pipe.commit()
    one, other = pipe.records()
    assert one == (100, record(1))
    assert isinstance(other, BadRecord)
    assert (other.time, other.reason) == (101, "it is bad (it is record 2 of this input)")
    again = LoggedPipe(pipe.crash())
    again.take([record(1), BAD, record(3)])
    assert again.records()[2] == (102, record(3))
    again.crash()
