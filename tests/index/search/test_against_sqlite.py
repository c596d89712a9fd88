"""Real documents, two fields, replacements and deletions: what matches is what SQLite's FTS5 finds.

It shares nothing with the index but the words that its analyser finds. FTS5 has neither negations
alone nor near words.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from random import Random

import pytest

from driftline.bench.measuring.corpus import load_documents
from tests.index.search.model import Document, Write
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


CONNECTIVES = {"both": (" ", "AND"), "either": (" OR ", "OR"), "minus": (" -", "NOT")}
"""How two parts are joined: in the language of the index, and in that of FTS5."""


def drawn(chance: Random, texts: Sequence[Sequence[str]], levels: int = 2) -> tuple[str, str]:
    """A query of words of these texts: in the language of the index, and in that of FTS5."""
    if levels and chance.random() < 0.5:
        left, right = drawn(chance, texts, levels - 1), drawn(chance, texts, levels - 1)
        ours, theirs = chance.choice(list(CONNECTIVES.values()))
        return f"({left[0]}){ours}({right[0]})", f"({left[1]}) {theirs} ({right[1]})"
    words = chance.choice(texts)
    at = chance.randrange(len(words) - 2)
    word, beginning = words[at], words[at][: chance.randint(3, 5)]
    phrase = '"' + " ".join(words[at : at + chance.choice((2, 2, 3))]) + '"'
    leaves = [(word, f'"{word}"')] * 2 + [(phrase, phrase), (f"{beginning}*", f'"{beginning}" *')]
    ours, theirs = chance.choice(leaves)
    field = chance.choice((None, None, "title", "text"))
    return (ours, theirs) if field is None else (f"{field}:{ours}", f"{field} : {theirs}")


class Sqlite:
    """Documents in a table of FTS5, whose words are runs of letters and digits of ASCII."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.execute(
            "CREATE VIRTUAL TABLE d USING fts5(id UNINDEXED, title, text, tokenize = 'ascii')"
        )

    def write(self, id: str, texts: tuple[str, str] | None) -> None:
        """A document is put in place of what is there; None: it is deleted."""
        self._database.execute("DELETE FROM d WHERE id = ?", (id,))
        if texts is not None:
            self._database.execute("INSERT INTO d VALUES (?, ?, ?)", (id, *texts))

    def found(self, query: str) -> set[str]:
        """The ids of what matches."""
        matching = "SELECT id FROM d WHERE d MATCH ?"
        return {id for (id,) in self._database.execute(matching, (query,))}


def missing() -> str:
    """Why FTS5 cannot be used here; "" if it can."""
    try:
        Sqlite()
    except sqlite3.OperationalError as error:
        return f"the SQLite of this Python has no FTS5: {error}"
    return ""


Raw = list[tuple[str, tuple[str, str] | None]]
"""(id, title and text, or None for a deletion)"""


def raw_writes() -> Raw:
    """Sections of the sample, of characters that SQLite and the index take for the same words."""
    chance, found = Random(1), Raw()
    texts = [re.sub(r"[^A-Za-z0-9.,() -]", " ", text) for _, text in load_documents(WRITES)]
    for text in texts:
        words = text.split()
        title = " ".join(words[: chance.randint(0, 5)])
        body = " ".join(words[5 : 5 + WORDS])
        there = chance.random() < 0.85 and len(PLAIN.words(body)) > 3
        found.append((f"d{chance.randrange(IDS)}", (title, body) if there else None))
    return found


def indexes_of(raw: Raw, home: Path) -> Iterator[list[Replica]]:
    """The index of these writes: in one shard, and in two."""
    writes = []
    for time, (id, texts) in enumerate(raw):
        words = None if texts is None else tuple(tuple(PLAIN.words(text)) for text in texts)
        writes.append(Write(time, id, None if words is None else Document(words)))
    items = items_of(writes)
    for shards in (1, 2):
        index = [Replica(home / f"{number}-{shards}", number, shards) for number in range(shards)]
        for time in range(SAVED_EVERY, WRITES + 1, SAVED_EVERY):
            for each in index:
                each.follow(items, time - TAIL)
                each.happen("freeze" if time == WRITES else "save", items)
                if time == MERGED_AT:
                    each.happen("merge", items)
                each.follow(items, time)
        for each in index:
            assert each.searcher.figures()["segments"] == 2, "a merged one, and one that is not"
        yield index


def found(index: list[Replica], query: str, at: int) -> set[str]:
    """The ids of all hits of all shards."""
    question = {"what": "search", "collection": "c", "q": query, "limit": 1000, "at": at}
    return {id for each in index for id, _, _ in hits_of(each.searcher.ask(question))}


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_matches_equal_those_of_sqlite(tmp_path: Path) -> None:
    """Words, AND, OR, NOT, parentheses, phrases, beginnings, in a field or in any."""
    raw = raw_writes()
    indexes = cycle(list(indexes_of(raw, tmp_path)))
    texts = [PLAIN.words(each[1]) for _, each in raw if each is not None]
    chance, sqlite, written, hits = Random(2), Sqlite(), 0, 0
    for number in range(QUERIES):
        at = WRITES * (number * TIMES // QUERIES + 1) // TIMES
        for id, document in raw[written:at]:
            sqlite.write(id, document)
        written = at
        ours, theirs = drawn(chance, texts)
        expected = sqlite.found(theirs)
        hits += len(expected)
        assert found(next(indexes), ours, at) == expected, f"{ours} as of {at}"
    assert hits > 10 * QUERIES
