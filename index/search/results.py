"""Details of the versions that a query finds: snippets, score explanations and facets.

*Snippets*: for each text of a document, the first piece with the most different matching words. The
words of a phrase match only where the complete phrase occurs. Marks are positions in the piece; the
caller renders them.

>>> from driftline.index.documents.analysis import analyser
>>> snippet("Of cats. The Cat sat on", analyser("english"), [Term(0, "text", "cat")], 12)
Snippet(text='Of cats. The', start=0, more=True, marks=((3, 7),))

*Shares*: the amount that each leaf of the query adds to the score of a version. Their sum, in
order, equals the score to the last bit.

*Facets*: the number of matching versions with each keyword. Each shard counts all keywords, not
only its most frequent ones, so sums over shards are exact.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import assert_never

import numpy as np
from msgspec import Struct

from driftline.index.documents.analysis import Analyser, WordSpan
from driftline.index.documents.answers import ExplainedQuery, ScoreShare
from driftline.index.documents.schema import Collection, TextField
from driftline.index.postings.segment_reader import Keywords
from driftline.index.query.tree import (
    Fuzzy,
    Phrase,
    Prefix,
    Query,
    Scoring,
    Term,
)
from driftline.index.search.fuzzy import is_near
from driftline.index.search.matching import Mask, Matching
from driftline.index.search.phrases import starts_in_text
from driftline.index.search.scoring import Scorer, bm25

LENGTH = 160
"""Default length of a snippet, in characters."""

READ_MAX = 100_000
"""Characters of a text that are analysed for a snippet; this bounds the latency."""


class Snippet(Struct, frozen=True):
    """A piece of a text; `start`: its start in the text; `more`: whether more text follows.

    `marks`: (start, end) of each match, relative to the piece, in order and disjoint.
    """

    text: str
    start: int
    more: bool
    marks: tuple[tuple[int, int], ...]


def snippets(stored: bytes, collection: Collection, query: Query) -> dict[str, Snippet]:
    """Return a snippet of each text of a stored document, by field name."""
    document = json.loads(stored)
    found = {}
    for field in collection.fields:
        text = document.get(field.name)
        if text and isinstance(field, TextField):
            leaves = [leaf for leaf in query.scoring if leaf.field == field.number]
            found[field.name] = snippet(text, field.analyser, leaves)
    return found


def snippet(
    text: str, analyser: Analyser, leaves: Iterable[Scoring], length: int = LENGTH
) -> Snippet:
    """Return the best piece of a text; the beginning of the text if no leaf matches."""
    words, places = analyser.words(text[:READ_MAX]), analyser.word_spans(text[:READ_MAX])
    if len(text) > READ_MAX:
        del words[-1:], places[-1:]  # the last word may be truncated
    matching = [(words[i], *places[i]) for i in sorted(_matching(words, leaves))]
    core = _best(matching, length)
    begin, end = _snippet_bounds(text, places, core, length)
    marks = (
        (start - begin, min(stop, end) - begin)
        for _, start, stop in matching
        if begin <= start < end and (stop <= end or start == core[0])
    )
    return Snippet(text[begin:end], begin, end < len(text), tuple(_merge_overlapping(marks)))


def _matching(words: Sequence[str], leaves: Iterable[Scoring]) -> set[int]:
    """Return the positions of the matching words."""
    there = set(words)
    wanted = [(leaf, set(_words_of(leaf, there))) for leaf in leaves]
    positions: dict[str, list[int]] = {word: [] for _, some in wanted for word in some}
    if positions:
        for position, word in enumerate(words):
            if word in positions:
                positions[word].append(position)
    found: set[int] = set()
    for leaf, some in wanted:
        if isinstance(leaf, Phrase):
            for start in starts_in_text(leaf.words, positions).tolist():
                found.update(range(start, start + len(leaf.words)))
        else:
            found.update(*(positions[word] for word in some))
    return found


def _words_of(leaf: Scoring, text_words: set[str]) -> Iterable[str]:
    """Return the words of a text that a leaf matches or contains."""
    match leaf:
        case Phrase():
            return text_words.intersection(leaf.words)
        case Term():
            return text_words.intersection((leaf.word,))
        case Prefix():
            return (word for word in text_words if word.startswith(leaf.prefix))
        case Fuzzy():
            return (word for word in text_words if is_near(leaf.word, word))
    assert_never(leaf)


def _best(matching: Sequence[tuple[str, int, int]], length: int) -> tuple[int, int]:
    """Return the span with the most different matching words within `length` characters.

    `matching`: (word, start, end) of each match, in order.
    """
    best, core = 0, (0, 0)
    inside: Counter[str] = Counter()
    last = 0
    for word, start, stop in matching:
        while last < len(matching) and (not inside or matching[last][2] <= start + length):
            inside[matching[last][0]] += 1
            last += 1
        if len(inside) > best:
            best, core = len(inside), (start, max(stop, matching[last - 1][2]))
        inside[word] -= 1
        if not inside[word]:
            del inside[word]
    return core


def _snippet_bounds(text: str, places: Sequence[WordSpan], core: WordSpan, length: int) -> WordSpan:
    """Return the span of a snippet: at word boundaries, centred on the best matches, `core`."""
    start, stop = core
    begin = min(start - (length - (stop - start)) // 2, len(text) - length)
    begin = max(0, min(begin, start))
    if begin:
        begin = places[bisect_left(places, (begin,))][0]
    end = begin + length
    if end >= len(text):
        return begin, len(text)
    before = bisect_right(places, end, key=itemgetter(1))
    if before and places[before - 1][1] > begin:
        end = places[before - 1][1]
    return begin, end


def _merge_overlapping(marks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge adjacent and overlapping marks; words of Han, Kana and Hangul overlap."""
    apart: list[tuple[int, int]] = []
    for start, end in marks:
        if apart and start <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        else:
            apart.append((start, end))
    return apart


def explain(query: Query, scorer: Scorer, matching: Matching, row: int) -> ExplainedQuery:
    """Explain the score of one version; `row`: its ordinal relative to `first` of the part."""
    score = 0.0
    shares = []
    for leaf, factor in scorer.factors:
        _, often = matching.frequencies_in(leaf, np.array([row]))
        length = matching.part.lengths(leaf.field)[row : row + 1]
        adds = float(bm25(often, length, factor)[0]) if len(often) else 0.0
        score += adds
        shares.append(
            ScoreShare(
                leaf=str(leaf),
                score=adds,
                frequency=int(often.sum()),
                length=int(length[0]),
                average=factor.length / factor.documents if factor.documents else 0.0,
                documents=factor.documents,
                having=factor.document_frequencies,
                weight=factor.weight,
                rarity=factor.idf,
            )
        )
    return ExplainedQuery(str(query), bool(matching.mask(query.root)[row]), score, shares)


def count_by(field: int, matching: Matching, found: Mask) -> Counter[str]:
    """Count the keywords of a value field in the matches of one part; `found`: the matches."""
    column = matching.part.values(field)
    assert isinstance(column, Keywords)
    offsets = column.offsets[: len(found) + 1]
    often = np.diff(offsets)
    has = np.repeat(found, often)
    numbers = column.numbers[: offsets[-1]][has]
    if not len(numbers):
        return Counter()
    if often.max() > 1:  # count a repeated keyword of a version once
        versions = np.repeat(np.arange(len(found)), often)[has]
        numbers = np.unique(versions * len(column.words) + numbers) % len(column.words)
    counts = np.bincount(numbers)
    there = np.flatnonzero(counts).tolist()
    return Counter({column.words[number]: int(counts[number]) for number in there})
