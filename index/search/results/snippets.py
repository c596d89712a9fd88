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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import assert_never

from driftline.index.documents.analysis import Analyser, Place
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
    words, places = analyser.words(text[:READ_MAX]), analyser.places(text[:READ_MAX])
    if len(text) > READ_MAX:
        del words[-1:], places[-1:]  # it may go on
    matching = [(words[i], *places[i]) for i in sorted(_matching(words, leaves))]
    core = _best(matching, length)
    begin, end = _edges(text, places, core, length)
    marks = (
        (start - begin, min(stop, end) - begin)
        for _, start, stop in matching
        if begin <= start < end and (stop <= end or start == core[0])
    )
    return Snippet(text[begin:end], begin, end < len(text), tuple(_apart(marks)))


def _matching(words: Sequence[str], leaves: Iterable[Scoring]) -> set[int]:
    """The positions of the words that match."""
    there = set(words)
    wanted = [(leaf, set(_words_of(leaf, there))) for leaf in leaves]
    positions: dict[str, list[int]] = {word: [] for _, some in wanted for word in some}
    if positions:
        for position, word in enumerate(words):
            if word in positions:
                positions[word].append(position)
    found: set[int] = set()
    for leaf, some in wanted:
        if isinstance(leaf, BoundPhrase):
            found.update(in_text(leaf.words, leaf.slop, positions))
        else:
            found.update(*(positions[word] for word in some))
    return found


def _words_of(leaf: Scoring, there: set[str]) -> Iterable[str]:
    """The words of a text that a leaf stands for, or has in it."""
    match leaf:
        case BoundPhrase():
            return there.intersection(leaf.words)
        case Word():
            return there.intersection((leaf.word,))
        case WordsFrom():
            return (word for word in there if word.startswith(leaf.prefix))
        case Near():
            return (word for word in there if is_near(leaf.word, word))
    assert_never(leaf)


def _best(matching: Sequence[tuple[str, int, int]], length: int) -> tuple[int, int]:
    """Where the best matches begin and end: most different words, as far as a snippet goes.

    `matching`: words, each with its place.
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


def _edges(text: str, places: Sequence[Place], core: Place, length: int) -> Place:
    """Where a snippet begins and ends: at words, as much before its core as behind it."""
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


def _apart(marks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Marks as one where they touch: words of Han, Kana and Hangul overlap."""
    apart: list[tuple[int, int]] = []
    for start, end in marks:
        if apart and start <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        else:
            apart.append((start, end))
    return apart
