"""A record that cannot be taken is a bad record in every source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from driftline.connectors.files import open_source
from driftline.connectors.logs.inputlog import PIPE, Entry, InputLog, WriteGroup
from driftline.connectors.logs.received import ReceivedSource
from driftline.engine.sources import BadRecord
from driftline.engine.sources.record import RAW_CHARS
from driftline.engine.wire.codec import pack
from tests.connectors.poison import LARGE, POISON, nested


@pytest.mark.parametrize("kind", POISON)
def test_in_a_file_it_is_a_bad_record_that_is_set_aside_in_short(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    records = [{"id": 1}, POISON[kind], {"id": 3}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    one, bad, three = open_source(path).read(1)
    assert (one, three) == ((1, {"id": 1}), (3, {"id": 3}))
    assert isinstance(bad, BadRecord)
    assert (bad.time, bad.file) == (2, "in.jsonl")
    line = bad.as_line()
    assert len(line) < 2 * RAW_CHARS
    assert json.loads(line)["reason"] == bad.reason


def test_a_large_record_is_set_aside_with_its_beginning_and_its_size(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    line = json.dumps(POISON["large"])
    path.write_text(line)
    [bad] = open_source(path).read(1)
    assert isinstance(bad, BadRecord)
    kept = json.loads(bad.as_line())["value"]
    assert kept.startswith(line[: RAW_CHARS - 100])
    assert kept.endswith(f"[this is the beginning of {len(line)} characters]")


def test_what_is_no_larger_than_is_kept_is_set_aside_whole(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    record = {"text": "x" * (RAW_CHARS - 20)}
    path.write_text(json.dumps(record))
    [bad] = open_source(path, id_field="id").read(1)
    assert isinstance(bad, BadRecord)
    assert json.loads(bad.as_line())["value"] == record


def log_with(path: Path, producer: str, records: Sequence[object]) -> InputLog:
    """A log as an earlier version has written it, without limits."""
    log = InputLog(path, "test")
    entries = [Entry(5 + i, producer, 1 + i, pack(record)) for i, record in enumerate(records)]
    log.write(WriteGroup(tuple(entries), 100, 0))
    return log


@pytest.mark.parametrize("producer", ["a producer", PIPE])
def test_what_an_earlier_version_has_taken_into_a_log_is_a_bad_record_when_it_is_read(
    tmp_path: Path, producer: str
) -> None:
    records = [{"id": 1}, {"id": 2, "text": LARGE}, {"id": 3, "text": nested(101)}, {"id": 4}]
    log = log_with(tmp_path / "log", producer, records)
    source = ReceivedSource(log, lambda: 0)
    source.close()
    found = list(source.read(1))
    log.close()
    for read in (found, list(open_source(tmp_path / "log").read(1))):
        assert [read[0], read[3]] == [(5, {"id": 1}), (8, {"id": 4})]
        for bad, reason in zip(read[1:3], ("bytes; a record has at most", "deep"), strict=True):
            assert isinstance(bad, BadRecord)
            assert reason in bad.reason
            assert len(bad.as_line()) < 2 * RAW_CHARS
        assert [bad.time for bad in read[1:3] if isinstance(bad, BadRecord)] == [6, 7]
