"""Fuzzy matching: words at an edit distance of at most 1 (insertion, deletion or substitution).

>>> [word for word in ("cat", "cats", "at", "cut", "act") if is_near("cat", word)]
['cat', 'cats', 'at', 'cut']
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from operator import eq
from sys import maxunicode

from driftline.index.postings.segment_reader import SegmentReader

PREFIX_LENGTH = 3
"""Prefix length in characters at which few enough words remain to check all of them."""

WORDS_PER_SEEK = 8
"""Words to scan before a seek; a seek costs as much as scanning this many words."""

_SURROGATES = range(0xD800, 0xE000)
"""Code points that are not characters."""


def is_near(word: str, other: str) -> bool:
    """Return whether the Levenshtein distance of two words is at most 1."""
    if len(word) > len(other):
        word, other = other, word
    if len(other) > len(word) + 1:
        return False
    common = sum(takewhile(bool, map(eq, word, other)))  # length of the common prefix
    return word[common + (len(word) == len(other)) :] == other[common + 1 :]


def near_words(part: SegmentReader, field: int, word: str) -> Iterator[str]:
    """Yield the words of a part's text field at a distance of at most 1 from `word`, each once.

    Such a word has the same first `PREFIX_LENGTH` characters as `word`, or differs within these.
    """
    if len(word) >= PREFIX_LENGTH:
        for other in words_from(part, field, word[:PREFIX_LENGTH]):
            if is_near(word, other):
                yield other
    elif part.postings(field, word) is not None:
        yield word
    for at in range(min(len(word) + 1, PREFIX_LENGTH)):
        yield from _near_words_differing_at(part, field, word, at)


def words_from(part: SegmentReader, field: int, prefix: str) -> Iterator[str]:
    """Return the words of a part's text field that start with `prefix`."""
    return takewhile(lambda word: word.startswith(prefix), part.words(field, prefix))


def _near_words_differing_at(part: SegmentReader, field: int, word: str, at: int) -> Iterator[str]:
    """Yield the near words that share exactly the first `at` characters with `word`.

    Only the character at `at` of a near word is unknown, so seeks skip most words.
    """
    prefix, letter, rest = word[:at], word[at : at + 1], word[at + 1 :]
    start: str | None = prefix
    while start is not None:
        batch = list(islice(part.words(field, start), WORDS_PER_SEEK))
        for candidate in batch:
            if not candidate.startswith(prefix):
                return
            if candidate[at : at + 1] != letter and is_near(word, candidate):
                yield candidate
        if len(batch) < WORDS_PER_SEEK:
            return
        last = batch[-1]
        last_letter = last[at : at + 1]
        near = (  # by deletion, substitution and insertion
            prefix + rest,
            prefix + last_letter + rest,
            prefix + last_letter + letter + rest,
        )
        next_starts = (*near, *(prefix + each for each in _next_letter(last_letter)))
        start = min((each for each in next_starts if each > last), default=None)


def _next_letter(letter: str) -> Iterator[str]:
    """Yield the character after a letter; nothing after the last one. "" precedes the first one."""
    number = ord(letter) + 1 if letter else 0
    if number == _SURROGATES.start:
        number = _SURROGATES.stop
    if number <= maxunicode:
        yield chr(number)
