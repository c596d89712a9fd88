"""Statistics of a collection as of each retained time: the inputs of BM25, exact over all shards.

Input: every version of the collection, in label order, including versions of documents in other
shards. Output: as of a time T, per text field, the number of documents that have the field, the
total length of the field in these documents, and the document frequency of a word. Invariant:
statistics as of T count exactly the versions that are current as of T; later versions do not change
them.

Counting the words of a version takes as long as the rest of indexing the version. It is therefore
deferred until the next call of `count_deferred`. Each lookup scans the uncounted texts; if there
are more than `UNCOUNTED_MAX`, `apply` counts them at once.
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
from driftline.index.search.checkpoint_codec import (
    CheckpointReader,
    encode_dictionary,
    encode_numbers,
)

TRIM_INTERVAL = 64
"""A word's history is trimmed whenever the number of its times is a multiple of this number."""

SWEEP_INTERVAL = 256
"""After this many added words, twice as many histories are checked for removal."""


class History:
    """Sum of all numbers added, as of each retained time.

    >>> count = History()
    >>> count.add(10, 1)
    >>> count.add(20, 1)
    >>> [count.before(time) for time in (10, 11, 21)]
    [0, 1, 2]

    Invariant: `before(T)` stays the same after `add` with a time >= T, and after `forget_before`
    with a time <= T.
    """

    __slots__ = ("_sums", "_times")

    def __init__(self, initial: int = 0) -> None:
        self._times = array("q")
        self._sums = array("q", [initial])
        """Sum before the first time, then the sum after each time of `_times`."""

    def add(self, time: int, number: int) -> None:
        """Add a number to the sum as of all times after `time`.

        Precondition: `add` was not called with a later time.
        """
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
        """Forget the sums that only reads as of times before `since` need."""
        forgotten = bisect_left(self._times, since)
        del self._times[:forgotten], self._sums[:forgotten]

    def save(self) -> Iterator[bytes]:
        """Yield the history as checkpoint parts."""
        yield from encode_numbers(self._times)
        yield from encode_numbers(self._sums)

    @classmethod
    def load(cls, reader: CheckpointReader) -> History:
        """Restore a saved history. Raises SnapshotDamaged."""
        times, sums = reader.numbers(), reader.numbers()
        if len(sums) != len(times) + 1:
            raise CheckpointReader.damaged()
        return cls._of(times, sums)

    @classmethod
    def _of(cls, times: array[int], sums: array[int]) -> History:
        history = cls.__new__(cls)
        history._times, history._sums = times, sums
        return history

    def __len__(self) -> int:
        """Return the number of retained times with additions."""
        return len(self._times)

    @property
    def last_time(self) -> int:
        """Time of the last addition; -1 if there is none, or if it was forgotten."""
        return self._times[-1] if self._times else -1

    @property
    def total(self) -> int:
        """Sum of all additions."""
        return self._sums[-1]


class Counts:
    """A count per word, as of each retained time.

    Only words whose count changed recently have a `History`. Old histories are removed gradually,
    as words are added; removing all of them at once would delay answers.
    """

    def __init__(self) -> None:
        self._constant: dict[str, int] = {}
        """Word -> its count, if this is not 0 and the same as of all retained times."""
        self._changing: dict[str, History] = {}
        """Word -> the history of its count; in the order of the last changes."""
        self._since = 0
        """Smallest retained time."""
        self._added = 0
        """Number of words added since histories were last removed."""

    def add(self, time: int, words: Sequence[str], number: int) -> None:
        """Add a number to the count of each word as of all times after `time`.

        Precondition: `add` was not called with a later time.
        """
        constant, changing = self._constant, self._changing
        for word in words:
            history = changing.pop(word, None)
            if history is None:
                history = History(constant.pop(word, 0))
            changing[word] = history
            history.add(time, number)
            if not len(history._times) % TRIM_INTERVAL:  # a word that changes often
                history.forget_before(self._since)
        self._added += len(words)
        if self._added >= SWEEP_INTERVAL:  # rarely: finding the first entries takes some 10 µs
            self._drop_histories(2 * self._added)
            self._added = 0

    def before(self, word: str, time: int) -> int:
        """Return the count of a word as of a retained time."""
        history = self._changing.get(word)
        return self._constant.get(word, 0) if history is None else history.before(time)

    def forget_before(self, since: int) -> None:
        """Forget the counts as of times before `since`."""
        self._since = max(self._since, since)

    def save(self) -> Iterator[bytes]:
        """Yield the counts as of all retained times, as checkpoint parts."""
        self._drop_histories(len(self._changing))
        for history in self._changing.values():
            history.forget_before(self._since)
        yield pack(self._since)
        yield from encode_dictionary(self._constant)
        histories = self._changing.values()
        yield from encode_dictionary({word: len(self._changing[word]) for word in self._changing})
        yield from encode_numbers(_joined(history._times for history in histories))
        yield from encode_numbers(_joined(history._sums for history in histories))

    @classmethod
    def load(cls, reader: CheckpointReader) -> Counts:
        """Restore saved counts. Raises SnapshotDamaged."""
        counts = cls()
        counts._since = reader.number()
        counts._constant = reader.dictionary()
        sizes = reader.dictionary()
        times, sums = reader.numbers(), reader.numbers()
        end = sum(sizes.values())
        if len(times) != end or len(sums) != end + len(sizes):
            raise CheckpointReader.damaged()
        at = 0
        for number, (word, size) in enumerate(sizes.items()):
            end, first = at + size, at + number
            counts._changing[word] = History._of(times[at:end], sums[first : first + size + 1])
            at = end
        return counts

    def _drop_histories(self, checked_max: int) -> None:
        """Drop the histories whose last change is before all retained times.

        Checks only the `checked_max` least recently changed histories.
        """
        changing, since = self._changing, self._since
        words = islice(changing, checked_max)
        for word in list(takewhile(lambda word: changing[word].last_time < since, words)):
            count = changing.pop(word).total
            if count:
                self._constant[word] = count


def _joined(arrays: Iterable[array[int]]) -> array[int]:
    joined = array("q")
    for each in arrays:
        joined.extend(each)
    return joined


UNCOUNTED_MAX = 8
"""Maximum number of texts whose words are not counted yet: the texts of a few versions."""


class FieldStatistics(Struct, frozen=True):
    """Statistics of one text field as of one time."""

    documents: int
    """Documents that have a word in the field."""
    length: int
    """Total number of words of the field in these documents."""


class _Uncounted(NamedTuple):
    """A text whose words are not counted yet; `sign`: 1 if the text was added, -1 if removed.

    `words`: each different word once.
    """

    time: int
    field: int
    sign: int
    words: Sequence[str]


class Statistics:
    """Statistics of one collection; `text_fields`: the number of its text fields."""

    def __init__(self, text_fields: int) -> None:
        self._documents = [History() for _ in range(text_fields)]
        self._lengths = [History() for _ in range(text_fields)]
        self._document_frequencies = [Counts() for _ in range(text_fields)]
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
        """Return the statistics of a text field as of a retained time."""
        return FieldStatistics(
            self._documents[field].before(time), self._lengths[field].before(time)
        )

    def document_frequency(self, field: int, word: str, time: int) -> int:
        """Return the document frequency of a word in a field, as of a retained time."""
        return self._document_frequencies[field].before(word, time) + sum(
            each.sign
            for each in self._uncounted
            if each.field == field and each.time < time and word in each.words
        )

    def count_deferred(self) -> None:
        """Count all words that are not counted yet."""
        for time, field, sign, words in self._uncounted:
            self._document_frequencies[field].add(time, words, sign)
        self._uncounted.clear()

    def forget_before(self, since: int) -> None:
        """Forget the statistics as of times before `since`."""
        self.count_deferred()
        for history in (*self._documents, *self._lengths):
            history.forget_before(since)
        for counts in self._document_frequencies:
            counts.forget_before(since)

    def save(self) -> Iterator[bytes]:
        """Yield the statistics as checkpoint parts."""
        self.count_deferred()
        for parts in zip(self._documents, self._lengths, self._document_frequencies, strict=True):
            for part in parts:
                yield from part.save()

    @classmethod
    def load(cls, reader: CheckpointReader, text_fields: int) -> Statistics:
        """Restore saved statistics. Raises SnapshotDamaged."""
        statistics = cls(text_fields)
        for field in range(text_fields):  # in the order of `save`
            statistics._documents[field] = History.load(reader)
            statistics._lengths[field] = History.load(reader)
            statistics._document_frequencies[field] = Counts.load(reader)
        return statistics

    def _add(self, time: int, field: int, sign: int, length: int, words: Sequence[str]) -> None:
        if words:
            self._documents[field].add(time, sign)
            self._lengths[field].add(time, sign * length)
            self._uncounted.append(_Uncounted(time, field, sign, words))
            if len(self._uncounted) > UNCOUNTED_MAX:
                self.count_deferred()
