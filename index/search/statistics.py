"""Statistics of a collection as of each retained time: what BM25 needs, exact over all shards.

Takes: every version of the collection, in label order, also of documents that other shards index.
Gives: as of a time T, per text field, the number of documents that have it, the sum of their
lengths, and in how many of them a word is. Invariant: the figures as of T are those of the versions
that are alive as of T, whatever comes later.

Counting the words of a version takes as long as all else that makes it findable. So it is put off
until `settle`, or until more versions wait than it takes time to look through for each word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from driftline.index.documents.versions import Version
from driftline.index.search.histories import Counts, History
from driftline.index.search.saving import Saved

UNCOUNTED_MAX = 8
"""Texts whose words are not counted yet, at most: those of a few versions."""


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """Of one text field as of one time."""

    documents: int
    """How many documents have a word in it."""
    length: int
    """How many words these have, together."""


class _Uncounted(NamedTuple):
    """The words of a text field that comes (`sign` 1), or goes away (-1); each word once."""

    time: int
    field: int
    sign: int
    words: Sequence[str]


class Statistics:
    """The statistics of one collection; `text_fields`: how many there are."""

    def __init__(self, text_fields: int) -> None:
        self._documents = [History() for _ in range(text_fields)]
        self._lengths = [History() for _ in range(text_fields)]
        self._words = [Counts() for _ in range(text_fields)]
        self._uncounted: list[_Uncounted] = []
        """In label order."""

    def apply(self, time: int, version: Version) -> None:
        """Count a version in, and the one before it out."""
        if version.before is not None:
            for field, old in enumerate(version.before):
                if old is not None:
                    self._add(time, field, -1, old.length, old.words)
        for field, new in enumerate(version.fields):
            if new is not None:
                self._add(time, field, 1, new.length, [word for word, _ in new.words])

    def field(self, field: int, time: int) -> FieldStatistics:
        """Of a text field as of a time. Precondition: the time is retained."""
        return FieldStatistics(
            self._documents[field].before(time), self._lengths[field].before(time)
        )

    def documents_with(self, field: int, word: str, time: int) -> int:
        """In how many documents a word of a field is, as of a time that is retained."""
        return self._words[field].before(word, time) + sum(
            each.sign
            for each in self._uncounted
            if each.field == field and each.time < time and word in each.words
        )

    def settle(self) -> None:
        """Count all words that are not counted yet."""
        for time, field, sign, words in self._uncounted:
            self._words[field].add(time, words, sign)
        self._uncounted.clear()

    def retain(self, since: int) -> None:
        """Forget what was before a time."""
        self.settle()
        for history in (*self._documents, *self._lengths):
            history.retain(since)
        for counts in self._words:
            counts.retain(since)

    def save(self) -> Iterator[bytes]:
        """The statistics as they are, in parts."""
        self.settle()
        for columns in zip(self._documents, self._lengths, self._words, strict=True):
            for column in columns:
                yield from column.save()

    @classmethod
    def load(cls, saved: Saved, text_fields: int) -> Statistics:
        """The statistics that were saved. Raises SnapshotDamaged."""
        statistics = cls(text_fields)
        for field in range(text_fields):
            statistics._documents[field] = History.load(saved)
            statistics._lengths[field] = History.load(saved)
            statistics._words[field] = Counts.load(saved)
        return statistics

    def _add(self, time: int, field: int, sign: int, length: int, words: Sequence[str]) -> None:
        if words:
            self._documents[field].add(time, sign)
            self._lengths[field].add(time, sign * length)
            self._uncounted.append(_Uncounted(time, field, sign, words))
            if len(self._uncounted) > UNCOUNTED_MAX:
                self.settle()
