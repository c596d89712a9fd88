"""Statistics of a collection as of each retained time: what BM25 needs, exact over all shards.

Takes: every version of the collection, in label order, also of documents that other shards index.
Gives: as of a time T, per text field, the number of documents that have it, the sum of their
lengths, and in how many of them a word is. Invariant: the figures as of T are those of the versions
that are alive as of T, whatever comes later.

Counting the words of a version takes as long as all else that makes it findable. So it is put off
until `settle`, or until more versions wait than it takes time to look through for each word.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import NamedTuple

from driftline.engine.wire.codec import pack
from driftline.index.documents.versions import DocumentVersion
from driftline.index.search.saving import Saved, of_dictionary, of_numbers

TRIMMED_EVERY = 64
"""Changes of one word after which its history is trimmed."""

FORGETS = 256
"""After so many words that were added, histories of twice as many are looked through."""


class History:
    """The sums of a number, by time.

    >>> count = History()
    >>> count.add(10, 1)
    >>> count.add(20, 1)
    >>> [count.before(time) for time in (10, 11, 21)]
    [0, 1, 2]

    Invariant: what `before` says of a time does not change by later additions, and not by `retain`
    of an earlier or the same time.
    """

    __slots__ = ("_sums", "_times")

    def __init__(self, before: int = 0) -> None:
        self._times = array("q")
        self._sums = array("q", [before])
        """The sum before the first time, then after each time."""

    def add(self, time: int, number: int) -> None:
        """Add a number. Precondition: no later time was added."""
        times, sums = self._times, self._sums
        if times and times[-1] == time:
            sums[-1] += number
        else:
            times.append(time)
            sums.append(sums[-1] + number)

    def before(self, time: int) -> int:
        """The sum of what was added at earlier times. Precondition: the time is retained."""
        return self._sums[bisect_left(self._times, time)]

    def retain(self, since: int) -> None:
        """Forget what the number was before a time."""
        keep = bisect_left(self._times, since)
        del self._times[:keep], self._sums[:keep]

    def save(self) -> Iterator[bytes]:
        """The history as it is, in parts."""
        yield from of_numbers(self._times)
        yield from of_numbers(self._sums)

    @classmethod
    def load(cls, saved: Saved) -> History:
        """The history that was saved. Raises SnapshotDamaged."""
        times, sums = saved.numbers(), saved.numbers()
        if len(sums) != len(times) + 1:
            raise Saved.damaged()
        return cls._of(times, sums)

    @classmethod
    def _of(cls, times: array[int], sums: array[int]) -> History:
        history = cls.__new__(cls)
        history._times, history._sums = times, sums
        return history

    def __len__(self) -> int:
        """How many changes are retained."""
        return len(self._times)

    @property
    def changed(self) -> int:
        """When it was added to last; -1: not since the retained times begin."""
        return self._times[-1] if self._times else -1

    @property
    def now(self) -> int:
        """The sum of all that was added."""
        return self._sums[-1]


class Counts:
    """A count for each word, as of retained times.

    Only of words whose count has changed lately there is a `History`.

    What is not retained is forgotten little by little, as words are added: at once it would be all
    words of the time since the last checkpoint, and answers would wait for it.
    """

    def __init__(self) -> None:
        self._settled: dict[str, int] = {}
        """What does not change any more as of retained times."""
        self._changing: dict[str, History] = {}
        """In the order of their last changes."""
        self._since = 0
        self._added = 0
        """Words since others were forgotten."""

    def add(self, time: int, words: Sequence[str], number: int) -> None:
        """Add a number to the count of each word. Precondition: no later time was added."""
        settled, changing = self._settled, self._changing
        for word in words:
            history = changing.pop(word, None)
            if history is None:
                history = History(settled.pop(word, 0))
            changing[word] = history
            history.add(time, number)
            if not len(history._times) % TRIMMED_EVERY:  # a word that changes again and again
                history.retain(self._since)
        self._added += len(words)
        if self._added >= FORGETS:  # to find the first ones takes some 10 µs
            self._forget(2 * self._added)
            self._added = 0

    def before(self, word: str, time: int) -> int:
        """The count of a word before a time that is retained."""
        history = self._changing.get(word)
        return self._settled.get(word, 0) if history is None else history.before(time)

    def retain(self, since: int) -> None:
        """What the counts were before a time is not asked for any more."""
        self._since = max(self._since, since)

    def save(self) -> Iterator[bytes]:
        """The counts as of retained times, in parts."""
        self._forget(len(self._changing))
        for history in self._changing.values():
            history.retain(self._since)
        yield pack(self._since)
        yield from of_dictionary(self._settled)
        histories = self._changing.values()
        yield from of_dictionary({word: len(self._changing[word]) for word in self._changing})
        yield from of_numbers(_joined(history._times for history in histories))
        yield from of_numbers(_joined(history._sums for history in histories))

    @classmethod
    def load(cls, saved: Saved) -> Counts:
        """The counts that were saved. Raises SnapshotDamaged."""
        counts = cls()
        counts._since = saved.number()
        counts._settled = saved.dictionary()
        sizes = saved.dictionary()
        times, sums = saved.numbers(), saved.numbers()
        end = sum(sizes.values())
        if len(times) != end or len(sums) != end + len(sizes):
            raise Saved.damaged()
        at = 0
        for number, (word, size) in enumerate(sizes.items()):
            end, first = at + size, at + number
            counts._changing[word] = History._of(times[at:end], sums[first : first + size + 1])
            at = end
        return counts

    def _forget(self, most: int) -> None:
        """Forget the histories of words whose count changes no more as of retained times."""
        changing, since = self._changing, self._since
        words = islice(changing, most)
        for word in list(takewhile(lambda word: changing[word].changed < since, words)):
            count = changing.pop(word).now
            if count:
                self._settled[word] = count


def _joined(arrays: Iterable[array[int]]) -> array[int]:
    joined = array("q")
    for each in arrays:
        joined.extend(each)
    return joined


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

    def apply(self, time: int, version: DocumentVersion) -> None:
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
