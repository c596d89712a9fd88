"""A record that cannot be taken is a bad record in every source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftline.connectors.files import open_source
from driftline.engine.sources import BadRecord
from driftline.engine.sources.record import RAW_CHARS
from tests.connectors.poison import POISON


@pytest.mark.parametrize("kind", POISON)
def test_poison_record_in_a_file_is_a_bad_record_with_a_short_line(
    kind: str, tmp_path: Path
) -> None:
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
