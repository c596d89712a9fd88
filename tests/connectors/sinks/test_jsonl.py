"""Files of JSON lines: no output is lost or duplicated after any crash."""

import errno
import json
import os
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from driftline.connectors.outputs import count_delivered
from driftline.connectors.sinks import JsonLines, JsonLinesConsumer, MemoryConsumer
from driftline.engine.errors import PayloadError, StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.steps import FAILURES
from driftline.engine.texts import escape_file_name
from driftline.engine.wire.bundles import to_blob
from driftline.engine.wire.messages import Bundle
from tests.connectors.sinks.bundles import (
    BARRIER,
    FLOW,
    GROUPS,
    Disk,
    PowerLoss,
    items,
    json_lines,
    stream,
    written,
)


def expected(bundles: list[Bundle]) -> dict[str, bytes]:
    """Return the expected files of bundles, line by line."""
    lines = JsonLines(FLOW)
    names = {0: "counts-0.jsonl", 1: "слова%2Fplain-0.jsonl", -1: "dead-letters/0.jsonl"}
    files = {names[0]: b"", names[1]: b""}
    for item in items(bundles):
        line = lines.format(item) + "\n"
        files[names[item.sink]] = files.get(names[item.sink], b"") + line.encode()
    return files


def deliver_all(path: Path, bundles: list[Bundle]) -> None:
    consumer = json_lines(path)
    for bundle in bundles:
        consumer.deliver(bundle)
    consumer.close()


def test_each_sink_has_a_file_and_dead_letters_get_one_when_needed(tmp_path: Path) -> None:
    deliver_all(tmp_path, stream(2))
    assert written("json-lines", tmp_path) == expected(stream(2))
    assert not (tmp_path / "dead-letters").exists()
    deliver_all(tmp_path, stream(9))
    assert written("json-lines", tmp_path) == expected(stream(9))
    assert (tmp_path / "dead-letters" / "0.jsonl").exists()


def test_dead_letters_are_counted_and_reported_once(tmp_path: Path) -> None:
    bundles = stream(12)
    wanted = [item.label for item in items(bundles) if item.sink == FAILURES]
    reported: list[tuple[int, ...]] = []
    for count in (9, 12):  # the second consumer receives all bundles again
        consumer = JsonLinesConsumer(
            *(tmp_path, BARRIER, FLOW, "me"),
            on_failures=lambda found: reported.extend(item.label for item in found),
        )
        for bundle in bundles[:count]:
            consumer.deliver(bundle)
        assert consumer.failures == len(reported) > 0
        consumer.close()
        assert count_delivered(tmp_path) == (consumer.outputs, consumer.failures)
    assert reported == wanted


def test_the_files_of_all_barriers_merged_by_label_are_the_output(tmp_path: Path) -> None:
    for number in range(3):
        consumer = json_lines(tmp_path, f"barrier-{number}")
        for bundle in stream(12, f"barrier-{number}")[number::3]:
            consumer.deliver(bundle)
        consumer.close()
    lines = [
        json.loads(s) for f in tmp_path.glob("*.jsonl") for s in f.read_text().split("\n")[:-1]
    ]
    lines.sort(key=lambda line: line["t"])
    assert [tuple(line["t"]) for line in lines] == [
        item.label for item in items(stream(12)) if item.sink >= 0
    ]


@pytest.mark.parametrize("garbage", [b"\0" * 100, b'{"t": [1, 2', b'{"t": [1, 0], "value": 1}\n'])
def test_uncommitted_output_is_truncated(tmp_path: Path, garbage: bytes) -> None:
    bundles = stream(9)
    deliver_all(tmp_path / "out", bundles[:6])
    for file in (tmp_path / "out").rglob("*.jsonl"):
        with file.open("ab") as opened:
            opened.write(garbage)
    consumer = json_lines(tmp_path / "out")
    assert written("json-lines", tmp_path / "out") == expected(bundles[:6])
    consumer.close()
    deliver_all(tmp_path / "out", bundles)
    assert written("json-lines", tmp_path / "out") == expected(bundles)


def test_full_disk_leaves_no_partial_bundle_and_delivery_can_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundles = stream(9)
    consumer = json_lines(tmp_path)
    for bundle in bundles[:8]:
        consumer.deliver(bundle)
    write = os.pwrite

    def full(file: int, data: bytes, offset: int) -> int:
        if len(data) <= 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:-5], offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(Unavailable, match="No space left on device"):
            consumer.deliver(bundles[8])
        assert consumer.last(BARRIER, GROUPS).t_last == bundles[7].t_last
        assert written("json-lines", tmp_path) == expected(bundles[:8])
    consumer.deliver(bundles[8])
    assert written("json-lines", tmp_path) == expected(bundles)
    consumer.close()


def test_payload_unsupported_by_json_changes_no_file(tmp_path: Path) -> None:
    consumer = json_lines(tmp_path)
    blob = to_blob([(1, 0), (1, 0, 1)], [0, 1], ["good", b"bytes"])
    with pytest.raises(PayloadError, match="'слова/plain' cannot write"):
        consumer.deliver(Bundle(BARRIER, 1, GROUPS, (blob,), 1, 0))
    assert consumer.last(BARRIER, GROUPS).t_last == -1
    assert written("json-lines", tmp_path) == expected([])
    consumer.close()


def test_file_shorter_than_committed_is_rejected(tmp_path: Path) -> None:
    deliver_all(tmp_path, stream(4))
    file = tmp_path / "counts-0.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(
        StateMismatch, match=r"counts-0.jsonl has \d+ bytes, but \d+ were delivered"
    ):
        json_lines(tmp_path)
    file.unlink()
    with pytest.raises(StateMismatch, match="has 0 bytes"):
        json_lines(tmp_path)
    assert not file.exists()
    file.write_bytes(whole)
    json_lines(tmp_path).close()


def test_damaged_progress_record_is_rejected(tmp_path: Path) -> None:
    deliver_all(tmp_path, stream(4))
    before = written("json-lines", tmp_path)
    record = tmp_path / ".driftline" / "barrier-0.progress"
    whole = record.read_bytes()
    for damaged in (b"", whole[:-1], whole[:20] + bytes((whole[20] ^ 1,)) + whole[21:]):
        record.write_bytes(damaged)
        with pytest.raises(StateMismatch, match="is damaged"):
            json_lines(tmp_path)
    record.unlink()
    with pytest.raises(StateMismatch, match="is missing"):
        json_lines(tmp_path)
    assert written("json-lines", tmp_path) == before, "a rejected directory is not changed"


def test_sink_name_is_escaped_to_stay_in_the_directory(tmp_path: Path) -> None:
    names = {"a b-c.д": "a b-c.д", "..": "%2E.", "a/../b": "a%2F..%2Fb", "%2F": "%252F"}
    for sink, name in names.items():
        assert escape_file_name(sink) == name
        flow = Flow("named")
        flow.source("in").sink(sink)
        JsonLinesConsumer(tmp_path / name, BARRIER, flow, "me").close()
        assert (tmp_path / name / f"{name}-0.jsonl").exists()


calls = st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.booleans()), max_size=12)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@example([(1, False, False), (10, False, False), (8, False, False)], 0)  # truncation fails
@given(calls, st.integers(0, 2**32))
def test_files_match_the_model_after_any_failure(
    faults: list[tuple[int, bool, bool]], seed: int
) -> None:
    """Any call may fail, or be the last one before a power loss, also during recovery."""
    bundles = stream(8)
    with TemporaryDirectory() as directory, Disk(Path(directory), Random(seed)) as disk:
        path = Path(directory) / "out"
        twin, consumer, confirmed = MemoryConsumer(), None, -1
        while confirmed < bundles[-1].t_last:
            call, power, twice = faults.pop() if faults else (-1, False, False)
            error = PowerLoss() if power else OSError(errno.EIO, "Input/output error")
            disk.fail_at(call, error if call >= 0 else None)
            try:
                consumer = consumer or json_lines(path)
                t_last = consumer.last(BARRIER, GROUPS).t_last
                assert t_last >= confirmed, "confirmed bundles are stored"
                confirmed = t_last
                for bundle in bundles:
                    if bundle.t_last <= t_last:
                        twin.deliver(bundle)
                assert written("json-lines", path) == expected(bundles[: (t_last + 1) // 10])
                for bundle in bundles[(t_last + 1) // 10 :]:
                    consumer.deliver(bundle)
                    twin.deliver(bundle)
                    confirmed = bundle.t_last
                    if twice:
                        consumer.deliver(bundle)
            except (PowerLoss, Unavailable):
                disk.fail_at(-1, None)
                if power:
                    if consumer is not None:
                        consumer.close()
                    consumer = None
                    disk.lose_power()
        assert consumer is None or consumer.last(BARRIER, GROUPS).t_last == confirmed
        assert twin.items == items(bundles)
        assert written("json-lines", path) == expected(bundles)
        if consumer is not None:
            consumer.close()
