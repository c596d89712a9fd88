"""What is noted of the inputs of a run, and which files a run from a savepoint takes."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from driftline.connectors.files import open_source
from driftline.deploy.local.inputs.used_files import UsedFile, read_used
from driftline.deploy.local.savepoints import used_of
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.flow import Flow
from driftline.engine.snapshots.fitting import Choice, fit
from driftline.engine.snapshots.savepoint import SavedInput, complete, open_savepoint
from driftline.engine.sources import Source
from driftline.engine.sources.used import CheckedSource, StoreUsed, Used
from driftline.engine.storage.manifest import Mark

MARK = Mark("lineage", "used-0", 1)

FLOW = Flow("one")
FLOW.source("lines").sink()

TIME = 6
"""The state is that before this record."""


def test_a_run_that_has_used_more_than_its_last_snapshot_still_knows_that_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "input-0.used"
    file = UsedFile(path, MARK)
    snapshot, end = Used(3, 2, 22), Used(8, 7, 77)
    file.carry_out(StoreUsed(snapshot, by_snapshot=True))
    file.carry_out(StoreUsed(end))
    UsedFile(path, MARK).carry_out(StoreUsed(Used(2, 1, 11)))
    noted = read_used(path)
    assert noted is not None
    assert (noted.used, noted.by_snapshot) == (end, snapshot)
    assert (noted.below(9), noted.below(3), noted.below(2)) == (end, snapshot, None)


def records(path: Path, count: int, other: int = 0) -> Source:
    """A file; `other`: a record that is another one."""
    texts = (f"other {n}" if n == other else f"{n}" for n in range(1, count + 1))
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return open_source(path)


def savepoint(folder: Path, known: str) -> Path:
    """A savepoint of a run over ten records; `known`: what it says of its input."""
    checked = CheckedSource(records(folder / "whole.jsonl", 10))
    assert len(list(checked.read(1))) == 10
    used = checked.used(TIME)
    of_source = {
        "compared": {"lines": SavedInput(True, (used.until, used.last, used.sum))},
        "no answer": {"lines": SavedInput(True)},
        "nothing": {},
    }
    start = folder / "saved"
    start.mkdir()
    complete(start, FLOW, TIME, of_source[known])
    return start


@pytest.mark.parametrize(
    ("known", "dropped", "count", "other", "says"),
    [
        ("compared", False, 10, 0, ""),
        ("compared", False, 5, 0, ""),
        ("compared", False, 10, 6, ""),
        ("compared", False, 10, 5, "of the first 5 records, which savepoint"),
        ("compared", False, 4, 0, "it has only 4 records now, but savepoint"),
        ("compared", True, 10, 5, ""),
        ("compared", True, 4, 0, "it has only 4 records now, but savepoint"),
        ("no answer", False, 10, 0, "--drop-state lines"),
        ("no answer", True, 10, 5, ""),
        ("nothing", False, 10, 5, ""),
        ("nothing", False, 5, 0, ""),
        ("nothing", False, 4, 0, "it has only 4 records now, but savepoint"),
        ("nothing", False, 1, 0, "it has only 1 record now, but savepoint"),
        ("nothing", False, 0, 0, "it has only 0 records now, but savepoint"),
    ],
)
def test_a_run_begins_only_with_the_input_of_its_savepoint(
    known: str, dropped: bool, count: int, other: int, says: str,
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    start = savepoint(tmp_path, known)
    fitted = fit(open_savepoint(start), FLOW, Choice(drop=("lines",) if dropped else ()))
    given = records(tmp_path / "in.jsonl", count, other)
    monkeypatch.setattr(logging.getLogger("driftline"), "propagate", True)
    if says:
        with pytest.raises(StateMismatch) as refused:
            used_of(fitted, "lines", given)
        assert says in str(refused.value)
        if "only" in says:
            assert re.search(r" (has used|was made of) 5\b", str(refused.value))
        return
    used = used_of(fitted, "lines", given)
    assert (used is not None) == (known == "compared" and not dropped)
    warned = "are not compared" in caplog.text
    assert warned == (known == "nothing"), "what is not compared is said, unless the user knows"


def test_an_input_beside_another_may_have_ended_before_it(tmp_path: Path) -> None:
    two = Flow("two")
    two.source("lines").union(two.source("more")).sink()
    start = tmp_path / "saved"
    start.mkdir()
    complete(start, two, TIME)
    used_of(fit(open_savepoint(start), two), "lines", records(tmp_path / "in.jsonl", 2))
