"""Matches of real documents with replacements and deletions equal those of SQLite's FTS5.

The comparison shares only the analyser with the index. FTS5 supports neither pure negations nor
fuzzy words.
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
from tests.index.search.model import ModelDocument, ModelWrite
from tests.index.searcher.world import PLAIN, SearcherReplica, hits_of, items_of

WRITES = 600
IDS = 200
WORDS = 40
"""Maximum number of words of a text."""

QUERIES = 400
TIMES = 10
"""Number of evenly spaced T to query; the last one is the newest."""

SAVED_EVERY, MERGED_AT, TAIL = 100, 400, 20
"""Writes between checkpoints; the write at which segments are merged; writes in the tail.

The last tail is frozen but never saved, so it remains a part in memory before the current tail.
"""


CONNECTIVES = {"both": (" ", "AND"), "either": (" OR ", "OR"), "minus": (" -", "NOT")}
"""Connectives of two parts, in the syntax of the index and in that of FTS5."""


def draw_query(rng: Random, texts: Sequence[Sequence[str]], levels: int = 2) -> tuple[str, str]:
    """Draw a query from words of the texts, in the syntax of the index and in that of FTS5."""
    if levels and rng.random() < 0.5:
        left, right = draw_query(rng, texts, levels - 1), draw_query(rng, texts, levels - 1)
        ours, theirs = rng.choice(list(CONNECTIVES.values()))
        return f"({left[0]}){ours}({right[0]})", f"({left[1]}) {theirs} ({right[1]})"
    words = rng.choice(texts)
    at = rng.randrange(len(words) - 2)
    word, prefix = words[at], words[at][: rng.randint(3, 5)]
    phrase = '"' + " ".join(words[at : at + rng.choice((2, 2, 3))]) + '"'
    leaves = [(word, f'"{word}"')] * 2 + [(phrase, phrase), (f"{prefix}*", f'"{prefix}" *')]
    ours, theirs = rng.choice(leaves)
    field = rng.choice((None, None, "title", "text"))
    return (ours, theirs) if field is None else (f"{field}:{ours}", f"{field} : {theirs}")


class SqliteIndex:
    """Documents in an FTS5 table; its words are runs of ASCII letters and digits."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.execute(
            "CREATE VIRTUAL TABLE d USING fts5(id UNINDEXED, title, text, tokenize = 'ascii')"
        )

    def write(self, id: str, texts: tuple[str, str] | None) -> None:
        """Replace a document; `texts` is None to delete it."""
        self._database.execute("DELETE FROM d WHERE id = ?", (id,))
        if texts is not None:
            self._database.execute("INSERT INTO d VALUES (?, ?, ?)", (id, *texts))

    def found(self, query: str) -> set[str]:
        """Return the ids of the matching documents."""
        matching = "SELECT id FROM d WHERE d MATCH ?"
        return {id for (id,) in self._database.execute(matching, (query,))}


def fts5_problem() -> str:
    """Return why FTS5 is not available, or ""."""
    try:
        SqliteIndex()
    except sqlite3.OperationalError as error:
        return f"the SQLite of this Python has no FTS5: {error}"
    return ""


RawWrites = list[tuple[str, tuple[str, str] | None]]
"""(id, (title, text), or None for a deletion)"""


def raw_writes() -> RawWrites:
    """Return writes of sample sections, reduced to characters that both split alike."""
    rng, found = Random(1), RawWrites()
    texts = [re.sub(r"[^A-Za-z0-9.,() -]", " ", text) for _, text in load_documents(WRITES)]
    for text in texts:
        words = text.split()
        title = " ".join(words[: rng.randint(0, 5)])
        body = " ".join(words[5 : 5 + WORDS])
        exists = rng.random() < 0.85 and len(PLAIN.words(body)) > 3
        found.append((f"d{rng.randrange(IDS)}", (title, body) if exists else None))
    return found


def indexes_of(raw: RawWrites, home: Path) -> Iterator[list[SearcherReplica]]:
    """Yield an index of these writes with one shard, and one with two shards."""
    writes = []
    for time, (id, texts) in enumerate(raw):
        words = None if texts is None else tuple(tuple(PLAIN.words(text)) for text in texts)
        writes.append(ModelWrite(time, id, None if words is None else ModelDocument(words)))
    items = items_of(writes)
    for shards in (1, 2):
        index = [
            SearcherReplica(home / f"{number}-{shards}", number, shards) for number in range(shards)
        ]
        for time in range(SAVED_EVERY, WRITES + 1, SAVED_EVERY):
            for each in index:
                each.follow(items, time - TAIL)
                each.apply_event("freeze" if time == WRITES else "save", items)
                if time == MERGED_AT:
                    each.apply_event("merge", items)
                each.follow(items, time)
        for each in index:
            assert each.searcher.figures()["segments"] == 2, (
                "expected a merged segment and another one"
            )
        yield index


def found(index: list[SearcherReplica], query: str, at: int) -> set[str]:
    """Return the ids of the hits of all shards."""
    question = {"what": "search", "collection": "c", "q": query, "limit": 1000, "at": at}
    return {id for each in index for id, _, _ in hits_of(each.searcher.ask(question))}


@pytest.mark.skipif(bool(fts5_problem()), reason=fts5_problem())
def test_matches_equal_those_of_sqlite(tmp_path: Path) -> None:
    """Compare words, AND, OR, NOT, parentheses, phrases and prefixes, in one or any field."""
    raw = raw_writes()
    indexes = cycle(list(indexes_of(raw, tmp_path)))
    texts = [PLAIN.words(each[1]) for _, each in raw if each is not None]
    rng, sqlite, written, hits = Random(2), SqliteIndex(), 0, 0
    for number in range(QUERIES):
        at = WRITES * (number * TIMES // QUERIES + 1) // TIMES
        for id, document in raw[written:at]:
            sqlite.write(id, document)
        written = at
        ours, theirs = draw_query(rng, texts)
        expected = sqlite.found(theirs)
        hits += len(expected)
        assert found(next(indexes), ours, at) == expected, f"{ours} as of {at}"
    assert hits > 10 * QUERIES
