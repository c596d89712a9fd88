"""Cost limits of queries, against a simple count of postings.

Prefixes and fuzzy words have no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, pairwise, product
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from driftline.index.documents.versions import DocumentVersion, words_of
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.query.tree import (
    And,
    Fuzzy,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Scoring,
    Term,
)
from driftline.index.search.matching import STEPS_PER_POSTING, Matching, QueryTooCostly, check_cost
from driftline.index.search.shard import Shard
from tests.index.search.indexes import QUERY, WEIGHTS, histories, indexes
from tests.index.search.model import Model, ModelDocument, ModelWrite


def leaves(part: Node) -> Iterator[Term | Phrase]:
    """Yield all words and phrases of a query, also negated ones."""
    match part:
        case And() | Or():
            for each in part.parts:
                yield from leaves(each)
        case Not():
            yield from leaves(part.part)
        case Term() | Phrase():
            yield part


def words_of_leaf(leaf: Term | Phrase) -> set[str]:
    return set(leaf.words if isinstance(leaf, Phrase) else (leaf.word,))


def steps_of(leaf: Term | Phrase, texts: list[tuple[str, ...]]) -> int:
    """Return the maximum number of steps to find a phrase in the texts of a part."""
    if not isinstance(leaf, Phrase):
        return 0
    all_words = list(chain.from_iterable(texts))
    occurrences = [all_words.count(word) for word in leaf.words]
    occurrences_of_words = sum(map(all_words.count, set(leaf.words)))
    return occurrences_of_words + len(occurrences) * min(occurrences)


@given(histories(), QUERY, st.lists(st.integers(1, 25), max_size=4))
def test_cost_counts_all_postings_and_phrase_steps(
    tmp_path: Path, history: tuple[Model, int], query: Query, sealed_at: list[int]
) -> None:
    model, _ = history
    texts = [write.document.texts for write in model.writes if write.document is not None]
    asked = set(leaves(query.root))
    parts = indexes(tmp_path, model, sealed_at)[0].shards[0].parts
    phrases = [leaf for leaf in asked if isinstance(leaf, Phrase)]
    pairs = [(leaf.field, *pair) for leaf in phrases for pair in pairwise(leaf.words)]
    # Phrases in the pair index cost less.
    assume(not any(part.has_pair(*pair) for part in parts for pair in pairs))
    cost = 0
    for part in parts:
        texts_of_part = texts[part.first : part.first + part.count]
        for leaf in asked:
            field_texts = [text[leaf.field] for text in texts_of_part]
            if not isinstance(leaf, Phrase) or set(leaf.words) <= set(chain(*field_texts)):
                cost += sum(len(words_of_leaf(leaf) & set(text)) for text in field_texts)
                cost += steps_of(leaf, field_texts) // STEPS_PER_POSTING
    matchings = [Matching(part, part.count) for part in parts]
    check_cost(query.root, matchings, cost)
    if cost:
        with pytest.raises(QueryTooCostly, match=f"would read {cost:,} postings"):
            check_cost(query.root, matchings, cost - 1)


def test_leaf_with_many_words_gives_equal_answers_for_any_shards(tmp_path: Path) -> None:
    model = Model(WEIGHTS)
    leaves: tuple[Scoring, ...] = Prefix(0, "f", "b"), Fuzzy(0, "f", "b")
    for number in range(1_500):
        text = ("b" + chr(0x4E00 + number), "b", "c")
        model.writes.append(ModelWrite(number, f"{number % 100}", ModelDocument((text, ("b",)))))
    model.writes += [ModelWrite(2_000 + number, f"{number}", None) for number in range(100)]
    for index in indexes(tmp_path, model, [500, 1_400]):
        for leaf, time in product(leaves, (1_200, 2_000, 3_000)):
            query = Query(leaf, (leaf,))
            expected = model.search(query, time)
            assert index.search(query, time, 200) == (len(expected), expected)


A_SHARD = Shard(MemorySegment(0, 1, ()), [1.0], budget=6)
for _time, _text in enumerate(("cat cats car dog", "cat caps cut", "cat dog")):
    A_SHARD.apply(_time, DocumentVersion("c", str(_time), (words_of(_text.split()),), (), b""))


def test_too_costly_leaf_is_named_before_reading() -> None:
    leaves: list[tuple[Scoring, str]] = [
        (Prefix(0, "text", "ca"), ""),
        (Fuzzy(0, "text", "cat"), ""),
        (Phrase(0, "text", ("cat", "cat")), ""),
        (Phrase(0, "text", ("cat",) * 5), "would read 7 postings.* or search for"),
        (
            Phrase(0, "text", ("cat", "cats", "dog", "car")),
            'read 7 postings, 7 of them for text:"cat cats dog car"; the maximum is 6: remove',
        ),
    ]
    for leaf, problem in leaves:
        for query in Query(leaf, (leaf,)), Query(Not(leaf), ()):
            asks: list[Callable[[], object]] = [
                partial(A_SHARD.search, query, 3, 10),
                partial(A_SHARD.count, query, 3),
                partial(A_SHARD.explain, query, "2", 3),
            ]
            for ask in asks:
                if not problem:
                    ask()
                    continue
                with pytest.raises(QueryTooCostly, match=problem) as refused:
                    ask()
                assert refused.value.leaf == str(leaf)
