"""The floor does the complete job; with durable ends, outputs arrive only once they are on disk."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import msgpack
import psutil
import pytest

from driftline.bench.experiments.rounds import Setup
from driftline.bench.measuring.corpus import expected_outputs
from driftline.bench.measuring.loops import System, open_loop
from driftline.bench.measuring.meter import Arrival, RunMeter
from driftline.bench.systems.cases import FLOOR, Case
from driftline.bench.systems.engine import DurableFirstSource, Engine
from driftline.bench.systems.floor import Changes, DurableFloor, MemoryFloor
from driftline.connectors.logs.inputlog import InputLog
from driftline.engine.errors import Unavailable

Posting = tuple[str, str, tuple[int, ...]]


def some_documents(count: int) -> list[tuple[str, str]]:
    random = Random(1)
    words = ["Tide", "tide", "Über", "drift,", "line", "x1", "don't", "潮", "--", "sea\nsea"]
    return [(f"d{i}", " ".join(random.choices(words, k=i % 40))) for i in range(count)]


def plain_index(documents: list[tuple[str, str]]) -> set[Posting]:
    postings: set[Posting] = set()
    for document, text in documents:
        positions: defaultdict[str, list[int]] = defaultdict(list)
        for position, word in enumerate(re.findall(r"\w+", text.lower())):
            positions[word].append(position)
        postings |= {(word, document, tuple(places)) for word, places in positions.items()}
    return postings


def all_changes(floor: MemoryFloor, records: int) -> list[Changes]:
    found: list[Changes] = []
    deadline = monotonic() + 10
    while sum(len(changes[1]) for changes in found) < records and monotonic() < deadline:
        floor.wait(100)
        found += floor.changes()
    return found


def test_changes_equal_those_of_a_plain_index() -> None:
    documents = some_documents(60)
    with MemoryFloor(documents, workers=2) as floor:
        for number in range(len(documents)):
            floor.send(number)
        changes = all_changes(floor, sum(expected_outputs(documents)))
        pids = [process.pid for process in floor._processes]
        directory = Path(floor._directory.name)

    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not directory.exists()

    postings = plain_index(documents)
    found = [
        (word, document, positions)
        for document, words, places, _ in changes
        for word, positions in zip(words, places, strict=True)
    ]
    assert len(found) == len(postings)
    assert set(found) == postings

    lengths: defaultdict[str, list[int]] = defaultdict(list)
    for _, words, _, news in changes:
        for word, length in zip(words, news, strict=True):
            lengths[word].append(length)
    for word, seen in lengths.items():
        # Each word has one owner, so one order of its documents: each length occurs once.
        assert seen == list(range(1, 1 + sum(word == other for other, _, _ in postings)))


def test_workers_that_do_not_start_raise_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(Unavailable, match="only 0 of 2 workers"), MemoryFloor([], workers=2):
        pass


DOCUMENTS = some_documents(40)


class CheckedSystem:
    """System whose arrivals are compared with the files at once."""

    def __init__(self, system: DurableFloor | Engine) -> None:
        self.system = system
        self.late: list[tuple[str, object]] = []

    def send(self, number: int) -> None:
        self.system.send(number)

    def receive(self) -> list[Arrival]:
        arrivals = self.system.receive()
        stored = stored_in(self.system) if arrivals else set()
        delivered = {
            (DOCUMENTS[number][0], word) for number, words, _ in arrivals for word in words
        }
        self.late += delivered - stored
        return arrivals

    def wait(self, timeout_ms: int) -> None:
        self.system.wait(timeout_ms)


def stored_in(system: DurableFloor | Engine) -> set[tuple[str, object]]:
    """Return (document, word) of all outputs in the files; the last line may be incomplete."""
    if isinstance(system, DurableFloor):
        return {
            (document, word)
            for document, words, *_ in unpacked(system.directory / "changes")
            for word in words
        }
    found = set()
    for file in (system.directory / "sockets" / "outputs").glob("*.jsonl"):
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                value = json.loads(line)["value"]
                found.add((value["document"], value["word"]))
    return found


def unpacked(file: Path) -> list[Any]:
    unpacker = msgpack.Unpacker(use_list=False)
    unpacker.feed(file.read_bytes())
    return list(unpacker)


@pytest.mark.parametrize(
    "case",
    [Case(FLOOR, None, durable=True), Case("exactly-once", 100, durable=True)],
    ids=str,
)
def test_outputs_are_on_disk_before_they_arrive(case: Case) -> None:
    meter = RunMeter(expected_outputs(DOCUMENTS))
    with Setup(DOCUMENTS, 2).start(case) as system:
        assert isinstance(system, DurableFloor | Engine)
        watched = CheckedSystem(system)
        checked: System = watched
        schedule = [number / 100 for number in range(len(DOCUMENTS))]
        result = open_loop(checked, meter, schedule, patience_s=20.0)
        stored = stored_in(system)
        if isinstance(system, DurableFloor):
            assert sorted(unpacked(system.directory / "documents")) == sorted(DOCUMENTS)
    assert (result["lost"], result["duplicated"]) == (0, 0)
    assert watched.late == []
    assert stored == {(document, word) for word, document, _ in plain_index(DOCUMENTS)}


def test_source_yields_a_record_only_after_it_is_durable(tmp_path: Path) -> None:
    log = InputLog(tmp_path / "log", "test")
    source = DurableFirstSource(log, lambda: 7)
    source.receive("p", 1, "a")
    records = source.read(1)
    assert next(records) is None
    assert source.advance_to(100) <= 7, "the waiting record has this time"
    group = source.next_group()
    assert group is not None
    log.write(group)
    assert next(records) is None
    source.mark_written(group)
    assert next(records) == (7, "a")
    assert source.advance_to(100) >= 100
    log.close()
