"""Real documents, two fields, replacements and deletions: rankings equal those of a brute force to
the last bit, and what matches equals what SQLite's FTS5 finds.

FTS5 has neither negations alone, nor near words. Its NEAR is left out: it counts the words between
others in any order, where the slop of a phrase says how far words are from their places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from random import Random

import pytest

from driftline.bench.measuring.corpus import load_documents
from tests.index.search.indexes import WEIGHTS
from tests.index.search.model import Document, Write
from tests.index.search.others import BruteForce, Sqlite, Texts, Tree, drawn, missing, ours
from tests.index.searcher.world import PLAIN, Replica, hits_of, items_of

WRITES = 600
IDS = 200
WORDS = 40
"""Of a text at most."""

QUERIES = 400
TIMES = 10
"""So many T are asked for, evenly; the last one is the newest."""

SAVED_EVERY, MERGED_AT, TAIL = 100, 400, 20
"""Writes until the tail becomes a segment, until all segments become one, and beyond the last tail
that is sealed: it is never saved, so it stays a part in memory, before the tail."""


@dataclass
class Story:
    """What was written, and the index that has it: in one shard, and in two."""

    raw: list[tuple[str, tuple[str, str] | None]]
    writes: list[Write]
    indexes: list[list[Replica]]

    def documents(self, time: int) -> dict[str, tuple[int, Texts]]:
        """The words of the documents as of a T."""
        found: dict[str, tuple[int, Texts]] = {}
        for each in self.writes[:time]:
            found.pop(each.id, None)
            if each.document is not None:
                title, text = each.document.texts
                found[each.id] = each.time, (title, text)
        return found


@cache
def raw_writes() -> list[tuple[str, tuple[str, str] | None]]:
    """Sections of the sample, of characters that SQLite and the index take for the same words."""
    chance, found = Random(1), list[tuple[str, tuple[str, str] | None]]()
    texts = [re.sub(r"[^A-Za-z0-9.,() -]", " ", text) for _, text in load_documents(WRITES)]
    for text in texts:
        words = text.split()
        title = " ".join(words[: chance.randint(0, 5)])
        body = " ".join(words[5 : 5 + WORDS])
        there = chance.random() < 0.85 and len(PLAIN.words(body)) > 3
        found.append((f"d{chance.randrange(IDS)}", (title, body) if there else None))
    return found


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    raw = raw_writes()
    writes = [
        Write(
            time,
            id,
            None
            if texts is None
            else Document((tuple(PLAIN.words(texts[0])), tuple(PLAIN.words(texts[1])))),
        )
        for time, (id, texts) in enumerate(raw)
    ]
    items, indexes = items_of(writes), []
    for shards in (1, 2):
        home = tmp_path_factory.mktemp("index")
        index = [Replica(home / str(number), number, shards) for number in range(shards)]
        for time in range(SAVED_EVERY, WRITES + 1, SAVED_EVERY):
            for each in index:
                each.follow(items, time - TAIL)
                each.happen("freeze" if time == WRITES else "save", items)
                if time == MERGED_AT:
                    each.happen("merge", items)
                each.follow(items, time)
        for each in index:
            assert each.searcher.figures()["segments"] == 2, "a merged one, and one that is not"
        indexes.append(index)
    return Story(raw, writes, indexes)


def found(index: list[Replica], query: str, at: int) -> list[tuple[str, float, int]]:
    """All hits of all shards, in order."""
    question = {"what": "search", "collection": "c", "q": query, "limit": 1000, "at": at}
    hits = [hit for each in index for hit in hits_of(each.searcher.ask(question))]
    return sorted(hits, key=lambda hit: (-hit[1], hit[2]))


def queries(seed: int, others: bool) -> Iterator[tuple[int, Tree]]:
    """(T, a query of words of documents that there were, are, or will be)"""
    chance, texts = (
        Random(seed),
        [
            (PLAIN.words(each[0]), PLAIN.words(each[1]))
            for _, each in raw_writes()
            if each is not None
        ],
    )
    for number in range(QUERIES):
        at = WRITES * (number % TIMES + 1) // TIMES
        yield at, drawn(chance, texts, others=others)


def test_rankings_are_those_of_a_brute_force(story: Story) -> None:
    """Ids, their order, scores to the last bit, and versions: hundreds of queries, ten T."""
    at_once = {
        at: BruteForce(story.documents(at), WEIGHTS) for at in {at for at, _ in queries(1, True)}
    }
    hits = 0
    for at, tree in queries(1, others=True):
        expected = at_once[at].ranked(tree)
        hits += len(expected)
        for index in story.indexes:
            assert found(index, ours(tree), at) == expected, f"{ours(tree)} as of {at}"
    assert hits > 10 * QUERIES


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_what_matches_is_what_sqlite_finds(story: Story) -> None:
    """Words, AND, OR, NOT, parentheses, phrases, beginnings, in a field or in any."""
    sqlite, written, hits = Sqlite(), 0, 0
    in_turn = cycle(story.indexes)
    for at, tree in sorted(queries(2, others=False), key=lambda each: each[0]):
        for id, texts in story.raw[written:at]:
            sqlite.write(id, texts)
        written = at
        expected = sqlite.found(tree)
        hits += len(expected)
        ids = {id for id, _, _ in found(next(in_turn), ours(tree), at)}
        assert ids == expected, f"{ours(tree)} as of {at}"
    assert hits > 10 * QUERIES
