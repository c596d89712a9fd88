"""Statistics of a collection as of each retained time: the inputs of BM25, exact over all shards.

Input: every version of the collection, in label order, also of documents in other shards. Output:
as of a time T, per text field, the number of documents that have it, its total length in these, and
the document frequency of a word. Invariant: figures as of T count exactly the versions that are
current as of T; later versions do not change them.

Counting the words of a version takes as long as the rest of indexing it. Counting is therefore
deferred until `settle`. Each lookup scans the uncounted texts, so there are at most UNCOUNTED_MAX.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from msgspec import Struct

from driftline.engine.wire.codec import pack
from driftline.index.documents.versions import DocumentVersion
from driftline.index.search.checkpoint_codec import Saved, encode_dictionary, encode_numbers

TRIMMED_EVERY = 64
"""The history of a word is trimmed after this many changes."""

SWEEP_INTERVAL = 256
"""After this many added words, twice as many histories are checked for removal."""


class History:
    """Running sums of a number, by time.

    >>> count = History()
    >>> count.add(10, 1)
    >>> count.add(20, 1)
    >>> [count.before(time) for time in (10, 11, 21)]
    [0, 1, 2]

    Invariant: later additions, and `retain` of an earlier or the same time, do not change what
    `before` returns for a time.
    """

    __slots__ = ("_sums", "_times")

    def __init__(self, before: int = 0) -> None:
        self._times = array("q")
        self._sums = array("q", [before])
        """Sum before the first time, then the sum after each time of `_times`."""

    def add(self, time: int, number: int) -> None:
        """Add a number. Precondition: no later time was added."""
        times, sums = self._times, self._sums
        if times and times[-1] == time:
            sums[-1] += number
        else:
            times.append(time)
            sums.append(sums[-1] + number)

    def before(self, time: int) -> int:
        """Return the sum of additions before a time. Precondition: the time is retained."""
        return self._sums[bisect_left(self._times, time)]

    def forget_before(self, since: int) -> None:
        """Forget sums before a time."""
        keep = bisect_left(self._times, since)
        del self._times[:keep], self._sums[:keep]

    def save(self) -> Iterator[bytes]:
        """Yield the history as checkpoint parts."""
        yield from encode_numbers(self._times)
        yield from encode_numbers(self._sums)

    @classmethod
    def load(cls, saved: Saved) -> History:
        """Restore a saved history. Raises SnapshotDamaged."""
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
        """Return the number of retained changes."""
        return len(self._times)

    @property
    def last_time(self) -> int:
        """Time of the last addition; -1 if it is not retained."""
        return self._times[-1] if self._times else -1

    @property
    def total(self) -> int:
        """Sum of all additions."""
        return self._sums[-1]


class Counts:
    """A count per word, as of retained times.

    Only words whose count changed recently have a `History`.

    Old histories are removed gradually, as words are added. Removing all of them at once would
    delay answers.
    """

    def __init__(self) -> None:
        self._settled: dict[str, int] = {}
        """Word -> its count, if this is the same as of all retained times."""
        self._changing: dict[str, History] = {}
        """Word -> the history of its count; in the order of the last changes."""
        self._since = 0
        self._added = 0
        """Words added since histories were last removed."""

    def add(self, time: int, words: Sequence[str], number: int) -> None:
        """Add a number to the count of each word. Precondition: no later time was added."""
        settled, changing = self._settled, self._changing
        for word in words:
            history = changing.pop(word, None)
            if history is None:
                history = History(settled.pop(word, 0))
            changing[word] = history
            history.add(time, number)
            if not len(history._times) % TRIMMED_EVERY:  # a word that changes often
                history.forget_before(self._since)
        self._added += len(words)
        if self._added >= SWEEP_INTERVAL:  # finding the first entries takes some 10 µs
            self._forget(2 * self._added)
            self._added = 0

    def before(self, word: str, time: int) -> int:
        """Return the count of a word as of a retained time."""
        history = self._changing.get(word)
        return self._settled.get(word, 0) if history is None else history.before(time)

    def forget_before(self, since: int) -> None:
        """Forget counts as of earlier times."""
        self._since = max(self._since, since)

    def save(self) -> Iterator[bytes]:
        """Yield the counts as of all retained times, as checkpoint parts."""
        self._forget(len(self._changing))
        for history in self._changing.values():
            history.forget_before(self._since)
        yield pack(self._since)
        yield from encode_dictionary(self._settled)
        histories = self._changing.values()
        yield from encode_dictionary({word: len(self._changing[word]) for word in self._changing})
        yield from encode_numbers(_joined(history._times for history in histories))
        yield from encode_numbers(_joined(history._sums for history in histories))

    @classmethod
    def load(cls, saved: Saved) -> Counts:
        """Restore saved counts. Raises SnapshotDamaged."""
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
        """Drop the histories without changes in retained times, among the `most` oldest ones."""
        changing, since = self._changing, self._since
        words = islice(changing, most)
        for word in list(takewhile(lambda word: changing[word].last_time < since, words)):
            count = changing.pop(word).total
            if count:
                self._settled[word] = count


def _joined(arrays: Iterable[array[int]]) -> array[int]:
    joined = array("q")
    for each in arrays:
        joined.extend(each)
    return joined


UNCOUNTED_MAX = 8
"""Largest number of texts with uncounted words: the texts of a few versions."""


class FieldStatistics(Struct, frozen=True):
    """Statistics of one text field as of one time."""

    documents: int
    """Documents that have a word in the field."""
    length: int
    """Total number of words of the field in these documents."""


class _Uncounted(NamedTuple):
    """Uncounted words of a text that was added (`sign` 1) or removed (-1), each word once."""

    time: int
    field: int
    sign: int
    words: Sequence[str]


class Statistics:
    """Statistics of one collection; `text_fields`: their number."""

    def __init__(self, text_fields: int) -> None:
        self._documents = [History() for _ in range(text_fields)]
        self._lengths = [History() for _ in range(text_fields)]
        self._words = [Counts() for _ in range(text_fields)]
        self._uncounted: list[_Uncounted] = []
        """In label order."""

    def apply(self, time: int, version: DocumentVersion) -> None:
        """Add a version to the statistics, and subtract the version that it replaces."""
        if version.replaced is not None:
            for field, old in enumerate(version.replaced):
                if old is not None:
                    self._add(time, field, -1, old.length, old.words)
        for field, new in enumerate(version.fields):
            if new is not None:
                self._add(time, field, 1, new.length, [word for word, _ in new.words])

    def field(self, field: int, time: int) -> FieldStatistics:
        """Return the statistics of a text field as of a time. Precondition: the time is
        retained."""
        return FieldStatistics(
            self._documents[field].before(time), self._lengths[field].before(time)
        )

    def document_frequency(self, field: int, word: str, time: int) -> int:
        """Return the document frequency of a word in a field, as of a retained time."""
        return self._words[field].before(word, time) + sum(
            each.sign
            for each in self._uncounted
            if each.field == field and each.time < time and word in each.words
        )

    def settle(self) -> None:
        """Count all words not counted yet."""
        for time, field, sign, words in self._uncounted:
            self._words[field].add(time, words, sign)
        self._uncounted.clear()

    def forget_before(self, since: int) -> None:
        """Forget statistics as of earlier times."""
        self.settle()
        for history in (*self._documents, *self._lengths):
            history.forget_before(since)
        for counts in self._words:
            counts.forget_before(since)

    def save(self) -> Iterator[bytes]:
        """Yield the statistics as checkpoint parts."""
        self.settle()
        for columns in zip(self._documents, self._lengths, self._words, strict=True):
            for column in columns:
                yield from column.save()

    @classmethod
    def load(cls, saved: Saved, text_fields: int) -> Statistics:
        """Restore saved statistics. Raises SnapshotDamaged."""
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
