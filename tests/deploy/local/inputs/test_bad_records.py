"""Bad records are stored once, in full and durably, and can be sent again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftline.connectors.files import open_source
from driftline.deploy.local.inputs.bad_records import BadRecordFile
from driftline.engine.errors import StateMismatch
from driftline.engine.sources import BadRecord

LINES = [
    '{"n": 1}',
    '{"n": "two\u2028lines \x85 of text"}',
    '{"n": ',
    '{"id": "a", "n": {"deep": ["Мир", 1.5, null]}}',
    '{"id": "b", "n": "\\ud800"}',
    '["no object"]',
]


def bad_records(path: Path) -> list[BadRecord]:
    path.write_text("".join(line + "\n" for line in LINES), encoding="utf-8")
    found = open_source(path, text_field="text").read(1)
    return [record for record in found if isinstance(record, BadRecord)]


def test_dead_letter_contains_the_record_and_can_be_resent(tmp_path: Path) -> None:
    records = bad_records(tmp_path / "in.jsonl")
    BadRecordFile(tmp_path / "aside" / "input-0.jsonl").add(records)
    lines = (tmp_path / "aside" / "input-0.jsonl").read_text(encoding="utf-8").splitlines()
    values = [json.loads(line)["value"] for line in lines]
    assert values[:2] == [json.loads(LINES[0]), json.loads(LINES[1])]
    assert values[2] == LINES[2]
    assert values[3:] == [json.loads(LINES[3]), json.loads(LINES[4]), LINES[5]]
    again = tmp_path / "again.jsonl"
    mended = [{**value, "text": "now there"} for value in values if isinstance(value, dict)]
    again.write_text("".join(json.dumps(value) + "\n" for value in mended))
    good = [r for r in open_source(again, text_field="text").read(1) if isinstance(r, tuple)]
    assert len(good) == 3, "all but the record that cannot be sent"


def test_bad_record_is_stored_once_and_torn_line_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "aside" / "input-0.jsonl"
    records = bad_records(tmp_path / "in.jsonl")
    BadRecordFile(path).add(records)
    whole = path.read_bytes()
    for cut in range(0, len(whole) + 1, 5):
        path.write_bytes(whole[:cut])
        again = BadRecordFile(path)
        again.add(records)
        assert again.count == len(records)
        assert path.read_bytes() == whole


def test_foreign_line_in_bad_record_file_raises(tmp_path: Path) -> None:
    path = tmp_path / "input-0.jsonl"
    path.write_text('{"record": 1}\nnot ours\n')
    with pytest.raises(StateMismatch, match=r"input-0\.jsonl, line 2"):
        BadRecordFile(path)


def test_replay_drops_bad_records_that_were_repaired(tmp_path: Path) -> None:
    path = tmp_path / "aside" / "input-0.jsonl"
    records = bad_records(tmp_path / "in.jsonl")
    BadRecordFile(path).add(records)
    whole = path.read_bytes()
    for first, record in enumerate(records):
        path.write_bytes(whole)
        again = BadRecordFile(path)
        again.forget(record.time)
        assert again.count_below(record.time) == first
        assert BadRecordFile(path).count == again.count == first
        again.add(records[first + 1 :])
        found = path.read_bytes().splitlines(keepends=True)
        wanted = whole.splitlines(keepends=True)
        assert found == wanted[:first] + wanted[first + 1 :]
