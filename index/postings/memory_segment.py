"""In-memory part of a shard: the newest versions.

The last part of a shard, its *tail*, is the only one that grows. A checkpoint seals the tail and
starts an empty one; a sealed tail does not change, and a segment file replaces it later.

Each text field has one flat table, with a row per word of each version: ordinal, frequency, and the
start of its positions. Each word has the list of its rows. Adding a version therefore appends to a
few arrays; a posting list is gathered on request.

A returned array may be a view of the first values of a buffer. Later values do not change it: they
follow these values in the buffer, or go to a larger copy when the buffer is full.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain, islice, takewhile
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from driftline.index.documents.values import NO_DATE, Kind, Value, ValueKind
from driftline.index.documents.versions import DocumentVersion, Words
from driftline.index.postings.document_blocks import blocks
from driftline.index.postings.packing import Indices, Numbers, list_offsets, ranges
from driftline.index.postings.segment_reader import RUN_SIZE, WORD_COST, Column, Keywords, WordRun

Scalar = TypeVar("Scalar", np.uint32, np.int64, np.float64)
Number = TypeVar("Number", np.float64, np.int64)

RECENT_MAX = 1 << 10
"""Maximum number of recent words, which are sorted separately; beyond it, all words are sorted."""


class MemorySegment:
    """`SegmentReader` of the newest versions of a shard, from the ordinal `first` on.

    `text_fields`: number of text fields; `value_fields`: kinds of the keyword, number and date
    fields. Not thread-safe.
    """

    def __init__(self, first: int, text_fields: int, value_fields: Sequence[ValueKind]) -> None:
        self.first = first
        self.count = 0
        self.text_fields = text_fields
        self.value_fields = tuple(value_fields)
        self._times = _GrowingArray(np.dtype(np.int64))
        self._texts = [_MemoryTextField() for _ in range(text_fields)]
        self._columns = [_column(kind) for kind in value_fields]
        self._ids: list[str] = []
        self._stored: list[bytes] = []

    def add(self, time: int, version: DocumentVersion) -> None:
        """Append a version; `time`: its label time."""
        ordinal = self.count
        for text, field in zip(self._texts, version.fields, strict=True):
            text.add(ordinal, field)
        for column, value in zip(self._columns, version.values, strict=True):
            column.add(value)
        self._times.append(time)
        self._ids.append(version.id)
        self._stored.append(version.stored)
        self.count = ordinal + 1

    @property
    def postings_count(self) -> int:
        return sum(text.ordinals.count for text in self._texts)

    @property
    def times(self) -> NDArray[np.int64]:
        return self._times.view()

    def lengths(self, field: int) -> Numbers:
        return self._texts[field].lengths.view()

    def postings(self, field: int, word: str) -> MemoryPostings | None:
        text = self._texts[field]
        rows = text.rows.get(word)
        return None if rows is None else MemoryPostings(text, np.array(rows))

    def postings_of_prefix(self, field: int, prefix: str) -> Iterator[tuple[Numbers, Numbers]]:
        text = self._texts[field]
        words = takewhile(lambda word: word.startswith(prefix), text.words(prefix))
        rows = np.frombuffer(b"".join(text.rows[word] for word in words), np.uint32)
        yield text.ordinals.view()[rows], text.frequencies.view()[rows]

    def has_pair(self, field: int, first: str, second: str) -> bool:
        return False

    def pair(self, field: int, first: str, second: str) -> None:
        raise NotImplementedError("a memory segment has no pairs")

    def words(self, field: int, start: str) -> Iterator[str]:
        return self._texts[field].words(start)

    def values(self, number: int) -> Column:
        return self._columns[number].view()

    def id(self, ordinal: int) -> str:
        return self._ids[ordinal]

    def stored(self, ordinal: int) -> bytes:
        return self._stored[ordinal]

    def runs(self, field: int) -> Iterator[WordRun]:
        return self._texts[field].runs()

    def documents(self) -> Iterator[tuple[list[int], bytes]]:
        return blocks(self._stored)

    def free(self, words_max: int) -> bool:
        """Free the rows of up to `words_max` words per field; return whether any words are left.

        Precondition: no reader uses the segment any longer.
        """
        for text in self._texts:
            for _ in range(min(words_max, len(text.rows))):
                text.rows.popitem()
        return any(text.rows for text in self._texts)


class MemoryPostings:
    """Postings of a word in a memory segment; postings added later are not included."""

    def __init__(self, text: _MemoryTextField, rows: Numbers) -> None:
        self.count = len(rows)
        self._text = text
        self._rows = rows

    @property
    def ordinals(self) -> Numbers:
        return self._text.ordinals.view()[self._rows]

    @property
    def frequencies(self) -> Numbers:
        return self._text.frequencies.view()[self._rows]

    @property
    def dense_frequencies(self) -> None:
        return None

    def positions(self, rows: Indices) -> tuple[Numbers, Indices]:
        return self._text.positions_of(self._rows[rows])


class _GrowingArray(Generic[Scalar]):
    """Array of numbers that grows at its end."""

    def __init__(self, dtype: np.dtype[Scalar]) -> None:
        self._buffer: NDArray[Scalar] = np.zeros(64, dtype)
        self.count = 0

    def append(self, value: float) -> None:
        if self.count == len(self._buffer):
            self._grow(1)
        self._buffer[self.count] = value
        self.count += 1

    def extend(self, values: Sequence[int] | NDArray[Scalar]) -> None:
        count = self.count + len(values)
        if count > len(self._buffer):
            self._grow(len(values))
        self._buffer[self.count : count] = values
        self.count = count

    def view(self) -> NDArray[Scalar]:
        """Return the current values, read-only; later additions do not change them."""
        view: NDArray[Scalar] = self._buffer[: self.count]
        view.flags.writeable = False
        return view

    def _grow(self, added_count: int) -> None:
        larger = np.zeros(2 * (self.count + added_count), self._buffer.dtype)
        larger[: self.count] = self._buffer[: self.count]
        self._buffer = larger


class _MemoryTextField:
    """Postings and lengths of one text field, for all versions of the segment.

    A row of the table is (ordinal, frequency, start of its positions in `_positions`); the columns
    are `ordinals`, `frequencies` and `_begins`. `lengths` has the number of words per version.
    """

    def __init__(self) -> None:
        self.rows: dict[str, array[int]] = {}
        """Word -> its rows in the table."""
        self.lengths = _GrowingArray(np.dtype(np.uint32))
        self.ordinals = _GrowingArray(np.dtype(np.uint32))
        self.frequencies = _GrowingArray(np.dtype(np.uint32))
        self._begins = _GrowingArray(np.dtype(np.int64))
        self._positions = _GrowingArray(np.dtype(np.uint32))
        self._sorted: list[str] = []
        self._recent: list[str] = []
        self._new: list[str] = []
        """Each word is in exactly one of these lists: `_sorted` and `_recent` are in order, `_new`
        is not."""

    def add(self, ordinal: int, field: Words | None) -> None:
        if field is None or not field.words:
            self.lengths.append(field.length if field else 0)
            return
        self.lengths.append(field.length)
        row = self.ordinals.count
        rows = self.rows
        for word, _ in field.words:
            word_rows = rows.get(word)
            if word_rows is None:
                rows[word] = array("I", (row,))
                self._new.append(word)
            else:
                word_rows.append(row)
            row += 1
        positions = [positions for _, positions in field.words]
        counts = np.array(list(map(len, positions)))
        begins = list_offsets(counts)[:-1]
        begins += self._positions.count
        self.ordinals.extend([ordinal] * len(positions))
        self.frequencies.extend(counts)
        self._begins.extend(begins)
        self._positions.extend(list(chain.from_iterable(positions)))

    def positions_of(self, rows: Numbers) -> tuple[Numbers, Indices]:
        """Return the concatenated positions of table rows, and where each row's positions begin,
        followed by the end."""
        counts = self.frequencies.view()[rows].astype(np.intp)
        return self._positions.view()[ranges(self._begins.view()[rows], counts)], list_offsets(
            counts
        )

    def words(self, start: str) -> Iterator[str]:
        """Return the words from `start` on, in order, except words added after the call."""
        if self._new:
            self._recent = sorted(self._recent + self._new)
            self._new = []
            if len(self._recent) > RECENT_MAX:
                self._sorted = sorted(self._sorted + self._recent)
                self._recent = []
        return merge(_from(start, self._sorted), _from(start, self._recent))

    def runs(self) -> Iterator[WordRun]:
        words: list[str] = []
        size = 0
        for word in self.words(""):
            words.append(word)
            size += len(self.rows[word]) + WORD_COST
            if size >= RUN_SIZE:
                yield self._run(words)
                words, size = [], 0
        if words:
            yield self._run(words)

    def _run(self, words: list[str]) -> WordRun:
        lists = [self.rows[word] for word in words]
        rows = np.frombuffer(b"".join(lists), np.uint32)
        return WordRun(
            words,
            np.array(list(map(len, lists))),
            self.ordinals.view()[rows],
            self.frequencies.view()[rows],
            self.positions_of(rows)[0],
        )


def _from(start: str, words: list[str]) -> Iterator[str]:
    """Return the words of a sorted list from `start` on."""
    return map(words.__getitem__, range(bisect_left(words, start), len(words)))


class _NumberColumn(Generic[Number]):
    """Column of a number or date field; `missing`: the entry of a version without a value."""

    def __init__(self, missing: float, dtype: np.dtype[Number]) -> None:
        self._missing = missing
        self._column: _GrowingArray[Number] = _GrowingArray(dtype)

    def add(self, value: Value | None) -> None:
        self._column.append(value if isinstance(value, (float, int)) else self._missing)

    def view(self) -> NDArray[Number]:
        return self._column.view()


class _KeywordColumn:
    """Column of a keyword field. Keywords are numbered in order of first appearance."""

    def __init__(self) -> None:
        self._numbers_of: dict[str, int] = {}
        self._offsets = _GrowingArray(np.dtype(np.int64))
        self._offsets.append(0)
        self._numbers = _GrowingArray(np.dtype(np.uint32))
        self._words: list[str] = []
        """The keywords that existed at the last call of `view`, sorted."""
        self._ranks = np.zeros(0, np.uint32)
        """Keyword number -> index in `_words`."""

    def add(self, value: Value | None) -> None:
        for word in value if isinstance(value, tuple) else ():
            self._numbers.append(self._numbers_of.setdefault(word, len(self._numbers_of)))
        self._offsets.append(self._numbers.count)

    def view(self) -> Keywords:
        if len(self._words) < len(self._numbers_of):
            new = islice(self._numbers_of, len(self._words), None)
            self._words = sorted([*self._words, *new])
            order = np.array([self._numbers_of[word] for word in self._words])
            self._ranks = np.empty(len(order), np.uint32)
            self._ranks[order] = np.arange(len(order), dtype=np.uint32)
        return Keywords(self._offsets.view(), self._ranks[self._numbers.view()], self._words)


def _column(
    kind: ValueKind,
) -> _NumberColumn[np.float64] | _NumberColumn[np.int64] | _KeywordColumn:
    if kind is Kind.KEYWORD:
        return _KeywordColumn()
    if kind is Kind.NUMBER:
        return _NumberColumn(np.nan, np.dtype(np.float64))
    return _NumberColumn(NO_DATE, np.dtype(np.int64))
