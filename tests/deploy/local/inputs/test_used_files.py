"""The fingerprint file of an input, and the input files that a run from a savepoint accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftline.connectors.files import open_source
from driftline.deploy.local.inputs.used_files import UsedFile, read_used
from driftline.deploy.local.savepoints import check_restored
from driftline.engine.errors import StateMismatch
from driftline.engine.event_time import Status
from driftline.engine.flow.flow import Flow
from driftline.engine.snapshots.savepoint import open_savepoint, write_manifest
from driftline.engine.snapshots.savepoint_mapping import Fitted, MappingOptions, fit
from driftline.engine.sources import Source
from driftline.engine.sources.fingerprint import InputFingerprint, StoreFingerprint
from driftline.engine.storage.ownership import DirectoryOwner

MARK = DirectoryOwner("lineage", "used-0", 1)

FLOW = Flow("one")
FLOW.source("lines").sink()

TIME = 6
"""The state includes all records before this one."""


def test_older_fingerprint_does_not_overwrite_a_newer_one(tmp_path: Path) -> None:
    path = tmp_path / "input-0.used"
    file = UsedFile(path, MARK)
    file.execute_job(StoreFingerprint(InputFingerprint(8, 7, 77)))
    UsedFile(path, MARK).execute_job(StoreFingerprint(InputFingerprint(2, 1, 11)))
    noted = read_used(path)
    assert noted is not None
    assert noted.fingerprint == InputFingerprint(8, 7, 77)


def records(path: Path, count: int) -> Source:
    path.write_text("".join(json.dumps({"text": f"{n}"}) + "\n" for n in range(count)))
    return open_source(path)


def savepoint(folder: Path, flow: Flow = FLOW) -> Fitted:
    start = folder / "saved"
    start.mkdir()
    write_manifest(start, flow, TIME, {source.name: True for source in flow.sources})
    return fit(open_savepoint(start), flow)


@pytest.mark.parametrize("count", [10, 5, 4, 1, 0])
def test_single_input_must_contain_the_records_of_the_savepoint(count: int, tmp_path: Path) -> None:
    fitted, source = savepoint(tmp_path), records(tmp_path / "in.jsonl", count)
    if count >= TIME - 1:
        check_restored(fitted, "lines", source, is_only_input=True)
        return
    with pytest.raises(StateMismatch, match=f"has only {count} records? now, .* contains 5"):
        check_restored(fitted, "lines", source, is_only_input=True)


def test_one_of_several_inputs_may_be_shorter_than_the_savepoint(tmp_path: Path) -> None:
    two = Flow("two")
    two.source("lines").union(two.source("more")).sink()
    fitted = savepoint(tmp_path, two)
    check_restored(fitted, "lines", records(tmp_path / "in.jsonl", 2), is_only_input=False)


def test_source_that_ended_before_the_savepoint_gets_no_new_records(tmp_path: Path) -> None:
    two = Flow("two")
    lines, more = (two.source(name, event_time="at") for name in ("lines", "more"))
    lines.union(more).key_by("text").distinct(ttl=1, name="new").sink()
    times = (3, Status.ENDED), (9, Status.ACTIVE)
    write_manifest(tmp_path, two, TIME, {"lines": True, "more": True}, times)
    fitted = fit(open_savepoint(tmp_path), two)
    check_restored(fitted, "lines", records(tmp_path / "in.jsonl", TIME - 1), is_only_input=False)
    check_restored(fitted, "more", records(tmp_path / "in.jsonl", TIME), is_only_input=False)
    for new in (records(tmp_path / "in.jsonl", TIME), "tcp://127.0.0.1:5555"):
        with pytest.raises(StateMismatch, match="made after source 'lines' had ended"):
            check_restored(fitted, "lines", new, is_only_input=False)


def test_renamed_source_keeps_its_event_time(tmp_path: Path) -> None:
    old, new = Flow("flow"), Flow("flow")
    for flow, name in ((old, "lines"), (new, "words")):
        source = flow.source(name, event_time="at")
        source.key_by("text").distinct(ttl=1, name="new").sink()
    write_manifest(tmp_path, old, TIME, {"lines": True}, ((3, Status.ACTIVE),))
    fitted = fit(open_savepoint(tmp_path), new, MappingOptions(rename=(("lines", "words"),)))
    assert fitted.savepoint.event_times_of(new) == ((3, Status.ACTIVE),)


def test_new_records_of_a_shorter_input_must_not_come_before_the_savepoint(tmp_path: Path) -> None:
    old, new = Flow("two"), Flow("two")
    for flow, name in (old, "more"), (new, "words"):
        flow.source("lines").union(flow.source(name)).sink()
    write_manifest(tmp_path, old, TIME, {"lines": True, "more": True}, last_records={"more": 2})
    fitted = fit(open_savepoint(tmp_path), new, MappingOptions(rename=(("more", "words"),)))
    check_restored(fitted, "words", records(tmp_path / "in.jsonl", 2), is_only_input=False)
    longer = records(tmp_path / "in.jsonl", 20)
    with pytest.raises(StateMismatch, match=r"'words' had 2 records then, so its new record 3"):
        check_restored(fitted, "words", longer, is_only_input=False)
    check_restored(fitted, "lines", longer, is_only_input=False)
