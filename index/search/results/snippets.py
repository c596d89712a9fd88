"""Snippets: of each text of a document the piece that shows best why a query finds it.

The best piece has most of the different words that match; of several such it is the first. A phrase
matches where all of it is. What matches is said by places, in the text as it was written: how it is
shown is not decided here.

>>> from driftline.index.documents.analysis import analyser
>>> snippet("Of cats. The Cat sat on", analyser("english"), [Word(0, "text", "cat")], 12)
Snippet(text='Of cats. The', start=0, more=True, marks=((3, 7),))
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from driftline.index.documents.analysis import Analyser, Span
from driftline.index.documents.schema import Collection
from driftline.index.query.bound import Bound, BoundPhrase, Near, Scoring, Word, WordsFrom
from driftline.index.search.edits import is_near
from driftline.index.search.phrases import in_text

LENGTH = 160
"""Characters of a snippet."""

READ_MAX = 100_000
"""Characters of a text in which words are looked for: a snippet is made while somebody waits."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of a text: where it begins there, and whether the text goes on behind it.

    `marks`: (start, end) in the piece of what matches the query, in order, and apart.
    """

    text: str
    start: int
    more: bool
    marks: tuple[tuple[int, int], ...]


def snippets(stored: bytes, collection: Collection, query: Bound) -> dict[str, Snippet]:
    """A snippet of each text that a stored document has, by the name of its field."""
    document = json.loads(stored)
    found = {}
    for field in collection.texts:
        text = document.get(field.name)
        if text:
            leaves = [leaf for leaf in query.scoring if leaf.field == field.number]
            found[field.name] = snippet(text, field.analyser, leaves)
    return found


def snippet(
    text: str, analyser: Analyser, leaves: Iterable[Scoring], length: int = LENGTH
) -> Snippet:
    """The best piece of a text; its beginning, if no leaf of a query is in it."""
    spans = analyser.spans(text[:READ_MAX])
    if len(text) > READ_MAX:
        del spans[-1:]  # it may go on
    matching = [spans[position] for position in sorted(_matching(spans, leaves))]
    core = _best(matching, length)
    begin, end = _edges(text, spans, core, length)
    marks = (
        (start - begin, min(stop, end) - begin)
        for _, start, stop in matching
        if begin <= start < end and (stop <= end or start == core[0])
    )
    return Snippet(text[begin:end], begin, end < len(text), tuple(_apart(marks)))


def _matching(spans: Sequence[Span], leaves: Iterable[Scoring]) -> set[int]:
    """The positions of the words that match."""
    positions: dict[str, list[int]] = {}
    for position, (word, _, _) in enumerate(spans):
        positions.setdefault(word, []).append(position)
    found: set[int] = set()
    for leaf in leaves:
        found.update(_of_leaf(leaf, positions))
    return found


def _of_leaf(leaf: Scoring, positions: Mapping[str, list[int]]) -> Iterator[int]:
    match leaf:
        case BoundPhrase():
            yield from in_text(leaf.words, leaf.slop, positions)
            return
        case Word():
            words = [leaf.word]
        case WordsFrom():
            words = [word for word in positions if word.startswith(leaf.prefix)]
        case Near():
            words = [word for word in positions if is_near(leaf.word, word)]
        case _:
            assert_never(leaf)
    for word in words:
        yield from positions.get(word, ())


def _best(matching: Sequence[Span], length: int) -> tuple[int, int]:
    """Where the best matches begin and end: most different words, as far as a snippet goes."""
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


def _edges(text: str, spans: Sequence[Span], core: tuple[int, int], length: int) -> tuple[int, int]:
    """Where a snippet begins and ends: at words, as much before its core as behind it."""
    start, stop = core
    begin = min(start - (length - (stop - start)) // 2, len(text) - length)
    begin = max(0, min(begin, start))
    if begin:
        begin = spans[bisect_left(spans, begin, key=lambda span: span[1])][1]
    end = begin + length
    if end >= len(text):
        return begin, len(text)
    before = bisect_right(spans, end, key=lambda span: span[2])
    if before and spans[before - 1][2] > begin:
        end = spans[before - 1][2]
    return begin, end


def _apart(marks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Marks as one where they touch: words of Han, Kana and Hangul overlap."""
    apart: list[tuple[int, int]] = []
    for start, end in marks:
        if apart and start <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        else:
            apart.append((start, end))
    return apart
