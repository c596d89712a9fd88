"""Details of the versions that a query finds: snippets, score explanations and facets.

*Snippets*: for each text field of a document, the piece of its text that contains the most distinct
matching words, or the first one of several such pieces. The words of a phrase match only where the
complete phrase occurs. Marks are the spans of the matching words in the piece, in characters; the
caller renders them.

>>> from driftline.index.documents.analysis import analyser
>>> snippet("Of cats. The Cat sat on", analyser("english"), [Term(0, "text", "cat")], 12)
Snippet(text='Of cats. The', start=0, more=True, marks=((3, 7),))

*Shares*: the amount that each leaf of the query adds to the score of a version. The sum of the
shares, in order, equals the score to the last bit.

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
"""A snippet is chosen from this many characters at the start of a text, to bound the latency."""


class Snippet(Struct, frozen=True):
    """A piece of a text; `start`: where it begins in the text; `more`: whether more text follows.

    `marks`: (start, end) of each match, relative to the piece, in order and disjoint.
    """

    text: str
    start: int
    more: bool
    marks: tuple[tuple[int, int], ...]


def snippets(stored: bytes, collection: Collection, query: Query) -> dict[str, Snippet]:
    """Return a snippet of each text of a stored document, by field name."""
    document = json.loads(stored)
    by_field = {}
    for field in collection.fields:
        text = document.get(field.name)
        if text and isinstance(field, TextField):
            leaves = [leaf for leaf in query.scoring if leaf.field == field.number]
            by_field[field.name] = snippet(text, field.analyser, leaves)
    return by_field


def snippet(
    text: str, analyser: Analyser, leaves: Iterable[Scoring], length: int = LENGTH
) -> Snippet:
    """Return the best piece of a text; the beginning of the text if no leaf matches."""
    words, spans = analyser.words(text[:READ_MAX]), analyser.word_spans(text[:READ_MAX])
    if len(text) > READ_MAX:
        del words[-1:], spans[-1:]  # the last word may be truncated
    matches = [(words[i], *spans[i]) for i in sorted(_matching_positions(words, leaves))]
    core = _densest_span(matches, length)
    begin, end = _snippet_bounds(text, spans, core, length)
    # A match that extends beyond the snippet is marked only if it starts `core`.
    marks = (
        (start - begin, min(stop, end) - begin)
        for _, start, stop in matches
        if begin <= start < end and (stop <= end or start == core[0])
    )
    return Snippet(text[begin:end], begin, end < len(text), tuple(_merge_overlapping(marks)))


def _matching_positions(words: Sequence[str], leaves: Iterable[Scoring]) -> set[int]:
    """Return the positions of the words of a text that match a leaf."""
    text_words = set(words)
    leaves_and_words = [(leaf, set(_words_of(leaf, text_words))) for leaf in leaves]
    positions: dict[str, list[int]] = {
        word: [] for _, leaf_words in leaves_and_words for word in leaf_words
    }
    if positions:
        for position, word in enumerate(words):
            if word in positions:
                positions[word].append(position)
    matching: set[int] = set()
    for leaf, leaf_words in leaves_and_words:
        if isinstance(leaf, Phrase):
            for start in starts_in_text(leaf.words, positions).tolist():
                matching.update(range(start, start + len(leaf.words)))
        else:
            matching.update(*(positions[word] for word in leaf_words))
    return matching


def _words_of(leaf: Scoring, text_words: set[str]) -> Iterable[str]:
    """Return the words of a text that match a leaf, or that a phrase contains."""
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


def _densest_span(matches: Sequence[tuple[str, int, int]], length: int) -> tuple[int, int]:
    """Return the span of at most `length` characters with the most distinct matching words.

    A single longer match is also such a span. `matches`: (word, start, end) of each match, in
    order.
    """
    best, core = 0, (0, 0)
    inside: Counter[str] = Counter()
    next_match = 0
    for word, start, stop in matches:
        while next_match < len(matches) and (
            not inside or matches[next_match][2] <= start + length
        ):
            inside[matches[next_match][0]] += 1
            next_match += 1
        if len(inside) > best:
            best, core = len(inside), (start, max(stop, matches[next_match - 1][2]))
        inside[word] -= 1
        if not inside[word]:
            del inside[word]
    return core


def _snippet_bounds(text: str, spans: Sequence[WordSpan], core: WordSpan, length: int) -> WordSpan:
    """Return the span of a snippet, at word boundaries and centred on `core`.

    `spans`: spans of all words; `core`: the result of `_densest_span`.
    """
    start, stop = core
    begin = min(start - (length - (stop - start)) // 2, len(text) - length)
    begin = max(0, min(begin, start))
    if begin:
        begin = spans[bisect_left(spans, (begin,))][0]
    end = begin + length
    if end >= len(text):
        return begin, len(text)
    before = bisect_right(spans, end, key=itemgetter(1))
    if before and spans[before - 1][1] > begin:
        end = spans[before - 1][1]
    return begin, end


def _merge_overlapping(marks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge adjacent and overlapping marks; the analysed words of Han, Kana and Hangul overlap."""
    merged: list[tuple[int, int]] = []
    for start, end in marks:
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def explain(query: Query, scorer: Scorer, matching: Matching, row: int) -> ExplainedQuery:
    """Explain the score of one version; `row`: its ordinal relative to the part's first version."""
    score = 0.0
    shares = []
    for leaf, factor in scorer.factors:
        # The frequency of the leaf in the version; empty if the leaf does not match it.
        _, frequencies = matching.frequencies_in(leaf, np.array([row]))
        length = matching.part.lengths(leaf.field)[row : row + 1]
        share = float(bm25(frequencies, length, factor)[0]) if len(frequencies) else 0.0
        score += share
        shares.append(
            ScoreShare(
                leaf=str(leaf),
                score=share,
                frequency=int(frequencies.sum()),
                length=int(length[0]),
                average=factor.length / factor.documents if factor.documents else 0.0,
                documents=factor.documents,
                document_frequencies=factor.document_frequencies,
                weight=factor.weight,
                idf=factor.idf,
            )
        )
    return ExplainedQuery(str(query), bool(matching.mask(query.root)[row]), score, shares)


def count_by(field: int, matching: Matching, mask: Mask) -> Counter[str]:
    """Return the number of matches in a part per keyword of a field; `mask`: the matches."""
    column = matching.part.values(field)
    assert isinstance(column, Keywords)
    offsets = column.offsets[: len(mask) + 1]
    keyword_counts = np.diff(offsets)
    entry_mask = np.repeat(mask, keyword_counts)
    numbers = column.numbers[: offsets[-1]][entry_mask]
    if not len(numbers):
        return Counter()
    if keyword_counts.max() > 1:  # a version may repeat a keyword: count it once
        versions = np.repeat(np.arange(len(mask)), keyword_counts)[entry_mask]
        numbers = np.unique(versions * len(column.words) + numbers) % len(column.words)
    counts = np.bincount(numbers)
    occurring = np.flatnonzero(counts).tolist()
    return Counter({column.words[number]: int(counts[number]) for number in occurring})
