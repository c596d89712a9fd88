"""The floor does the whole job: it may be fast, but not by leaving something out."""

import re
from collections import defaultdict
from pathlib import Path
from random import Random
from time import monotonic

import psutil
import pytest

from driftline.bench.measuring.corpus import expected_outputs
from driftline.bench.systems.floor import Changes, Floor
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


def all_changes(floor: Floor, records: int) -> list[Changes]:
    found: list[Changes] = []
    deadline = monotonic() + 10
    while sum(len(changes[1]) for changes in found) < records and monotonic() < deadline:
        floor.wait(100)
        found += floor.changes()
    return found


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_changes_are_those_of_a_plain_index(workers: int) -> None:
    documents = some_documents(60)
    with Floor(documents, workers) as floor:
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
        # One owner, so one order of documents per word, whichever it is: each length once.
        assert seen == list(range(1, 1 + sum(word == other for other, _, _ in postings)))


def test_workers_that_do_not_start_are_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(Unavailable, match="only 0 of 2 workers"), Floor([], workers=2):
        pass
