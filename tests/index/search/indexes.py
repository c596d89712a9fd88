"""Random histories and queries, and indexes with the same versions in different shards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from zlib import crc32

from hypothesis import strategies as st

from driftline.index.documents.values import Kind, Value, ValueKind
from driftline.index.documents.versions import (
    DocumentVersion,
    ReplacedField,
    replaced_fields,
    words_of,
)
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.postings.merging import write
from driftline.index.query.tree import (
    And,
    Exists,
    Fuzzy,
    Keyword,
    KeywordPrefix,
    MatchAll,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Range,
    Scoring,
    Term,
)
from driftline.index.search.ranking import SortPosition, merge_ranked
from driftline.index.search.shard import Shard
from tests.index.search.model import Hit, Model, ModelDocument, ModelWrite

WEIGHTS = [2.0, 1.0]
KINDS: tuple[ValueKind, ...] = (Kind.KEYWORD, Kind.NUMBER, Kind.DATE)

WORD = st.sampled_from(("a", "b", "ab", "abc", "c", "caa"))
TEXT = st.lists(WORD, max_size=6).map(tuple)
DOCUMENT = st.builds(
    ModelDocument,
    st.tuples(TEXT, TEXT),
    st.lists(st.sampled_from(("x", "xy", "z")), max_size=2).map(tuple),
    st.none() | st.sampled_from((-1.5, 0.0, 2.0)),
    st.none() | st.sampled_from((-7, 0, 8)),
)
WRITES = st.lists(
    st.tuples(st.sampled_from("pqrstuvw"), st.none() | DOCUMENT, st.integers(1, 3)), max_size=25
)

FIELD = st.integers(0, 1)
LEAF: st.SearchStrategy[Node] = st.one_of(
    st.just(MatchAll()),
    st.builds(Term, FIELD, st.just("f"), WORD),
    st.builds(Phrase, FIELD, st.just("f"), st.lists(WORD, min_size=2, max_size=3).map(tuple)),
    st.builds(Prefix, FIELD, st.just("f"), st.sampled_from(("a", "ab", "c"))),
    st.builds(Fuzzy, FIELD, st.just("f"), WORD),
    st.builds(Exists, FIELD, st.just("f")),
    st.builds(Keyword, st.just(0), st.just("f"), st.sampled_from(("x", "xy"))),
    st.builds(KeywordPrefix, st.just(0), st.just("f"), st.sampled_from(("x", "q", ""))),
    st.builds(Range, st.just(1), st.just("f"), st.just(-1.5), st.sampled_from((-1.5, 0.0, 9.0))),
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Model, int]:
    """Draw the writes of an index and the time of the last one."""
    model, time = Model(WEIGHTS), 0
    for id, document, step in draw(WRITES):
        time += step
        model.writes.append(ModelWrite(time, id, document))
    return model, time


def joined(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    some = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.builds(And, some) | st.builds(Or, some) | st.builds(Not, parts)


QUERY = st.recursive(LEAF, joined, max_leaves=4).map(
    lambda root: Query(root, tuple(dict.fromkeys(leaves(root))))
)


def leaves(part: Node) -> Iterator[Scoring]:
    match part:
        case And() | Or():
            for each in part.parts:
                yield from leaves(each)
        case Term() | Phrase() | Prefix() | Fuzzy():
            yield part


def versions(writes: list[ModelWrite]) -> Iterator[tuple[int, DocumentVersion]]:
    """Yield the versions that the flow of the index would output for these writes."""
    last: dict[str, tuple[ReplacedField | None, ...]] = {}
    for each in writes:
        before = last.pop(each.id, None)
        if each.document is None:
            if before is not None:
                yield (
                    each.time,
                    DocumentVersion("c", each.id, (None, None), (None,) * 3, b"", True, before),
                )
            continue
        texts = tuple(words_of(text) for text in each.document.texts)
        document = each.document
        values: tuple[Value | None, ...] = (document.keywords, document.number, document.date)
        version = DocumentVersion("c", each.id, texts, values, each.id.encode(), False, before)
        last[each.id] = replaced_fields(version)
        yield each.time, version


class ShardedIndex:
    """Index with several shards, whose segments are sealed after given numbers of versions."""

    def __init__(self, directory: Path, shards: int, sealed_at: list[int]) -> None:
        self.shards = [
            Shard(MemorySegment(0, 2, KINDS), WEIGHTS, partial(self._is_of, shards, number))
            for number in range(shards)
        ]
        self._directory = directory
        self._names = count()
        self._sealed_at = sealed_at
        self._applied = 0

    @staticmethod
    def _is_of(shards: int, number: int, id: str) -> bool:
        return crc32(id.encode()) % shards == number

    def apply(self, time: int, version: DocumentVersion) -> None:
        for shard in self.shards:
            shard.apply(time, version)
        self._applied += 1
        if self._applied in self._sealed_at:
            for shard in self.shards:
                self._seal(shard)

    def _seal(self, shard: Shard) -> None:
        """Seal the tail as a segment; sometimes merge all segments into one."""
        parts = [part for part in shard.parts if part.count]
        if not parts:
            return
        at = 0 if self._applied % 3 == 0 else len(parts) - 1
        segment = write(parts[at:], self._directory / str(next(self._names)))
        tail = MemorySegment(segment.first + segment.count, 2, KINDS)
        shard.replace([*parts[:at], segment], tail)

    def search(
        self, query: Query, time: int, limit: int, after: SortPosition | None = None
    ) -> tuple[int, list[Hit]]:
        answers = [shard.search(query, time, limit, after) for shard in self.shards]
        ids = {
            ranked.sort_position: shard.id(ranked.ordinal)
            for shard, answer in zip(self.shards, answers, strict=True)
            for ranked in answer.ranked
        }
        ranked = merge_ranked((answer.ranked for answer in answers), limit)
        hits = [
            (ids[each.sort_position], each.sort_position.score, each.sort_position.time)
            for each in ranked
        ]
        return sum(answer.total for answer in answers), hits


def indexes(directory: Path, model: Model, sealed_at: list[int]) -> list[ShardedIndex]:
    """Build an index with one shard and one with two shards."""
    found = []
    for shards in (1, 2):
        home = directory / str(shards)
        if home.exists():
            shutil.rmtree(home)
        home.mkdir()
        found.append(ShardedIndex(home, shards, sealed_at if shards == 1 else [7, 11]))
        for moment, version in versions(model.writes):
            found[-1].apply(moment, version)
    return found
