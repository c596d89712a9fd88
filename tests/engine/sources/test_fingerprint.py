"""Input fingerprints: at the next start the used part of an input must be unchanged."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.connectors.files import open_source
from driftline.connectors.inputs import open_files
from driftline.engine.errors import StateMismatch
from driftline.engine.sources import BadRecord, CachedSource, ListSource, Source
from driftline.engine.sources.fingerprint import InputFingerprint, VerifiedSource
from driftline.engine.sources.record import DEFAULT_FORMAT
from driftline.engine.sources.source import time_of
from driftline.engine.wire.codec import pack
from tests.connectors.files.samples import write


def after(records: Sequence[object], until: int, start: int = 1) -> InputFingerprint:
    """Return the fingerprint of a run that has read all records from `start` on."""
    source = VerifiedSource(ListSource(records))
    assert [time for time, *_ in map(as_tuple, source.read(start))] == list(
        range(start, len(records) + 1)
    )
    return source.fingerprint_until(until)


def as_tuple(record: tuple[int, object] | BadRecord) -> tuple[int, object]:
    return record if isinstance(record, tuple) else (record.time, record.reason)


@given(
    before=st.lists(st.integers(0, 3), max_size=8),
    now=st.lists(st.integers(0, 3), max_size=8),
    until=st.integers(1, 12),
    start=st.integers(1, 9),
)
def test_only_changes_of_used_records_are_rejected(
    before: list[int], now: list[int], until: int, start: int
) -> None:
    noted = after(before, until)
    same = before[: until - 1] == now[: until - 1]
    refuses = nullcontext() if same else pytest.raises(StateMismatch, match="memory: ")
    checked = VerifiedSource(ListSource(now), noted)
    with refuses:
        checked.check()
        assert list(checked.read(start)) == list(ListSource(now).read(start))
    with nullcontext() if same else pytest.raises(StateMismatch):
        list(VerifiedSource(ListSource(now), noted).read(start))


class ChangingSource:
    """Source whose records change while it is read."""

    name = "changing"

    def __init__(self, records: list[object]) -> None:
        self.records = records

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        yield from ListSource(self.records).read(start)

    def progress(self) -> tuple[int, int] | None:
        return None

    def identity(self) -> str:
        return self.name


def test_file_changed_during_the_run_is_reported() -> None:
    source = ChangingSource(list("abcdef"))
    checked = VerifiedSource(source)
    cached = CachedSource(checked)
    assert len(list(cached.read(1))) == 6
    checked.extend_expected(checked.fingerprint_until(4))
    source.records[4] = "x"
    cached.trim(6)
    now = [(4, pack("d")), (5, pack("x")), (6, pack("f"))]
    assert list(cached.read(4)) == now, "not used, so read as it is now"
    source.records[1] = "x"
    cached.trim(6)
    with pytest.raises(StateMismatch, match="of the first 3 records"):
        list(cached.read(4))


def test_reformatted_and_compressed_lines_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a", "n": 1}\n{"text": \n{"text": "b"}\n')
    source = VerifiedSource(open_source(path))
    list(source.read(1))
    noted = source.fingerprint_until(4)
    again = tmp_path / "in.jsonl.gz"
    again.write_bytes(
        gzip.compress(b'{ "text":"a",  "n":1 }\r\n\r\n{"text": \n{"text": "b"}\n{"text": "c"}\n')
    )
    VerifiedSource(open_source(again), noted).check()
    again.write_bytes(gzip.compress(b'{"text": "a", "n": 1}\n{"text": ""}\n{"text": "b"}\n'))
    with pytest.raises(StateMismatch):
        VerifiedSource(open_source(again), noted).check()
    assert open_source(again).identity() == open_source(path).identity()


def test_record_at_a_truncation_does_not_count_as_used(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.gz"
    lines = "".join(json.dumps({"text": f"{n}"}) + "\n" for n in range(3000))
    whole = gzip.compress(lines.encode())
    path.write_bytes(whole[: len(whole) // 2])
    source = VerifiedSource(open_source(path))
    *_, last = source.read(1)
    assert isinstance(last, BadRecord)
    noted = source.fingerprint_until(last.time)
    assert source.fingerprint_until(last.time + 1).last == noted.last == last.time - 1
    path.write_bytes(whole)
    checked = VerifiedSource(open_source(path), noted)
    checked.check()
    assert len(list(checked.read(last.time))) == 3001 - last.time


def test_input_that_ended_before_others_must_not_grow() -> None:
    noted = after("ab", 1000)
    VerifiedSource(ListSource("ab"), noted).check()
    with pytest.raises(
        StateMismatch, match="has read the input to its end, record 2, and has delivered"
    ):
        VerifiedSource(ListSource("abc"), noted).check()
    with pytest.raises(StateMismatch, match="it has only 1 record now"):
        VerifiedSource(ListSource("a"), noted).check()


def used_of(source: Source) -> InputFingerprint:
    """Return the fingerprint of a run that has read a whole source."""
    checked = VerifiedSource(source)
    last = max(map(time_of, checked.read(1)))
    return checked.fingerprint_until(last + 1)


@pytest.mark.parametrize(
    ("name", "begun", "completed"),
    [
        ("x.txt", "one\ntwo", "one\ntwo words\nthree\n"),
        ("x.txt.gz", "one\ntwo", "one\ntwo words\nthree\n"),
        ("x.csv", "n,word\n1,one\n2,tw", "n,word\n1,one\n2,two\n3,three\n"),
        ("x.csv", "n,word\n1,one\n2", "n,word\n1,one\n2,two\n3,three\n"),
        ("x.jsonl", '{"n": 1}\n{"n": ', '{"n": 1}\n{"n": 2}\n{"n": 3}\n'),
    ],
)
def test_completed_last_line_keeps_its_old_value(
    tmp_path: Path, name: str, begun: str, completed: str
) -> None:
    """This holds whether the partial line is a valid record or malformed."""
    used = used_of(open_source(write(tmp_path / name, begun)))
    assert used.last == 2
    source = open_source(write(tmp_path / name, completed))
    assert list(VerifiedSource(source, used).read(3)) == list(source.read(3))
    checked = VerifiedSource(source, used)
    checked.check(3)
    with pytest.raises(
        StateMismatch, match=r"has been completed since: .* no snapshot contains this"
    ):
        list(checked.read(2))  # a replay would take the completed line for the old record
    with pytest.raises(StateMismatch, match=f"record 2 of {tmp_path}/{name} was a line without a"):
        checked.check(2)


@pytest.mark.parametrize(
    ("begun", "changed"),
    [
        ("one\ntwo", "ONE\ntwo words\n"),
        ("one\ntwo", "one\nthree\n"),
        ("one\ntwo\n", "one\ntwo words\n"),
    ],
)
def test_other_changes_of_the_last_line_are_refused(
    tmp_path: Path, begun: str, changed: str
) -> None:
    used = used_of(open_source(write(tmp_path / "x.txt", begun)))
    source = VerifiedSource(open_source(write(tmp_path / "x.txt", changed)), used)
    with pytest.raises(StateMismatch, match=r"of the first 2 records, .* some have changed"):
        source.check(3)


def test_last_line_of_several_files_may_be_completed(tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt"):
        write(tmp_path / name, "one\ntwo")
    used = used_of(open_files([str(tmp_path)], DEFAULT_FORMAT, "test"))
    write(tmp_path / "2.txt", "one\ntwo words\n")
    write(tmp_path / "3.txt", "three")
    grown = VerifiedSource(open_files([str(tmp_path)], DEFAULT_FORMAT, "test"), used)
    assert list(grown.read(5)) == [(5, {"text": "three", "id": 5})]
