"""Part of a shard in an immutable file, mapped into memory.

The sections of the file, for text field F and value field V (`index.postings.merging` writes them;
a section of offsets ends with the end of the last entry):

    times                 label time of each version
    ids, ids at           concatenated document ids; offset of each id
    stored, stored at, blocks
                          blocks of `index.postings.document_blocks`; start of each document in
                          the concatenated documents; first version and offset of each block
    lengths F             number of words of each version
    words F, words F at   concatenated words, sorted; offset of each word
    counts F              number of postings of each word
    postings F, postings F at
                          per word two packed lists: ordinals (as gaps), frequencies - 1;
                          offset of the lists of each word
    positions F, positions F at
                          per word one packed list: the positions (as gaps) of each posting
    common F, common F at common words of the field (`index.postings.pairs`), if it has any; then
                          "words F pairs", "counts F pairs" and so on contain their pairs
    values V              number or date of each version; or keyword numbers of all versions
    offsets V, keywords V, keywords V at
                          for keywords only: start of each version in `values V`; the keywords

Pages of the sections `postings`, `positions` and `stored` are verified when they are first read,
all other sections when the file is opened.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import get_args, overload

import numpy as np
from numpy.typing import NDArray

from driftline.index.documents.values import Kind, ValueKind
from driftline.index.postings.document_blocks import Block, document
from driftline.index.postings.packing import (
    Indices,
    Numbers,
    delta_decode,
    list_offsets,
    ranges,
    unpack_list,
    unpack_lists,
)
from driftline.index.postings.pairs import pair_of
from driftline.index.postings.sections import Sections
from driftline.index.postings.segment_reader import (
    RUN_SIZE,
    WORD_COST,
    Column,
    Frequencies,
    Keywords,
    WordRun,
)

CACHE_RATIO = 1
"""Maximum size of a cache of unpacked postings, as a multiple of their packed size.

The packed size includes positions. A field has a cache for its words, and one for its pairs.
"""

DENSE_RATIO = 8
"""If at least one in this many versions contains a word, `dense_frequencies` is not None.

It takes a byte or two per version; `ordinals` and `frequencies` take eight bytes per posting.
"""

OVERHEAD_BYTES = 512
"""Estimated bytes of the Python objects of a cache entry, without its arrays."""


class Segment:
    """`SegmentReader` of a file. The constructor raises DamagedSegment, UnsupportedFormat, OSError.

    Methods raise DamagedSegment if they find a damaged page.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        file = Sections(path)
        metadata = _parse_metadata(file.metadata)
        self.first, self.count, self.postings_count, self.text_fields, self.value_fields = metadata
        self.file_size, self.checksum = file.size, file.checksum
        self.verify = file.verify
        self.times: NDArray[np.int64] = file["times"].array()
        self._ids = _StoredTexts(file, "ids")
        self._stored = file["stored"]
        self._stored_at = file["stored at"].array()
        self._blocks = file["blocks"].array().reshape(-1, 2)
        self._texts = [_TextField(file, number) for number in range(self.text_fields)]
        self._columns = [_column(file, i, kind) for i, kind in enumerate(self.value_fields)]

    @property
    def bytes_without_positions(self) -> int:
        """Size in the file of the words and postings of all text fields, without positions."""
        tables = (table for text in self._texts for table in text.word_tables)
        return sum(table.bytes_without_positions for table in tables)

    @property
    def positions_bytes(self) -> int:
        """Size in the file of the positions of all postings."""
        return sum(table.positions.size for text in self._texts for table in text.word_tables)

    def lengths(self, field: int) -> Numbers:
        return self._texts[field].lengths

    def postings(self, field: int, word: str) -> SegmentPostings | None:
        return self._texts[field].words.find(word)

    def postings_of_prefix(self, field: int, prefix: str) -> Iterator[tuple[Numbers, Numbers]]:
        return self._texts[field].words.of_prefix(prefix)

    def has_pair(self, field: int, first: str, second: str) -> bool:
        common = self._texts[field].common
        return first in common and second in common

    def pair(self, field: int, first: str, second: str) -> SegmentPostings | None:
        pairs = self._texts[field].pairs
        assert pairs is not None
        return pairs.find(pair_of(first, second))

    def words(self, field: int, start: str) -> Iterator[str]:
        texts = self._texts[field].words.texts
        return map(texts.__getitem__, range(bisect_left(texts, start), len(texts)))

    def values(self, number: int) -> Column:
        return self._columns[number]

    def id(self, ordinal: int) -> str:
        return self._ids[ordinal]

    def stored(self, ordinal: int) -> bytes:
        block = bisect_right(self._blocks[:, 0], ordinal) - 1
        (first, begin), (_, end) = self._blocks[block : block + 2].tolist()
        at = self._stored_at
        return document(
            self._stored.read(begin, end),
            int(at[ordinal] - at[first]),
            int(at[ordinal + 1] - at[first]),
        )

    def runs(self, field: int) -> Iterator[WordRun]:
        return self._texts[field].words.runs()

    def documents(self) -> Iterator[Block]:
        sizes = np.diff(self._stored_at)
        for (first, begin), (last, end) in pairwise(self._blocks.tolist()):
            yield sizes[first:last].tolist(), self._stored.read(begin, end)


class SegmentPostings:
    """Postings of a word or pair, unpacked on access."""

    def __init__(self, words: _Words, number: int) -> None:
        self.count = int(words.counts[number])
        self._words = words
        self._number = number
        self._is_dense = self.count * DENSE_RATIO >= words.versions
        self.size = OVERHEAD_BYTES + 16 * self.count + self._is_dense * words.versions
        """Approximate size when unpacked, in bytes."""

    @property
    def ordinals(self) -> Numbers:
        return self._cached_ordinals[0]

    @cached_property
    def frequencies(self) -> Numbers:
        return self._unpack_frequencies(self._cached_ordinals[1])

    @cached_property
    def dense_frequencies(self) -> Frequencies | None:
        if not self._is_dense:
            return None
        ordinals, frequencies_at = self._unpack_ordinals()
        frequencies = self._unpack_frequencies(frequencies_at)
        dense = np.zeros(self._words.versions, np.min_scalar_type(frequencies.max()))
        dense[ordinals] = frequencies
        return dense

    def positions(self, rows: Indices) -> tuple[Numbers, Indices]:
        begins = self._begins
        counts = begins[rows + 1] - begins[rows]
        section, at = self._words.positions, self._words.positions_at
        begin, end = at[self._number : self._number + 2].tolist()
        section.check(begin, end)
        gaps, _ = unpack_list(section.bytes, begin, int(begins[-1]))
        return delta_decode(gaps[ranges(begins[rows], counts)], counts), list_offsets(counts)

    @cached_property
    def _cached_ordinals(self) -> tuple[Numbers, int]:
        return self._unpack_ordinals()

    def _unpack_ordinals(self) -> tuple[Numbers, int]:
        """Return the ordinals, and the byte offset of the packed frequencies."""
        section, at = self._words.postings, self._words.postings_at
        begin, end = at[self._number : self._number + 2].tolist()
        section.check(begin, end)
        gaps, frequencies_at = unpack_list(section.bytes, begin, self.count)
        return delta_decode(gaps, np.array([self.count])), frequencies_at

    def _unpack_frequencies(self, begin: int) -> Numbers:
        less_one, _ = unpack_list(self._words.postings.bytes, begin, self.count)
        frequencies: Numbers = less_one.astype(np.uint32)
        frequencies += np.uint32(1)
        return frequencies

    @cached_property
    def _begins(self) -> Indices:
        """Index of each posting's first position in the word's positions, followed by the end."""
        return list_offsets(self.frequencies)


class _TextField:
    """The sections of a text field."""

    def __init__(self, file: Sections, number: int) -> None:
        self.lengths: Numbers = file[f"lengths {number}"].array()
        self.words = _Words(file, f"{number}", len(self.lengths))
        self.common: frozenset[str] = frozenset()
        self.pairs: _Words | None = None
        if (name := f"common {number}") in file:
            self.common = frozenset(_StoredTexts(file, name))
            self.pairs = _Words(file, f"{number} pairs", len(self.lengths))

    @property
    def word_tables(self) -> list[_Words]:
        """The table of words, and that of pairs if the field has any."""
        return [self.words] if self.pairs is None else [self.words, self.pairs]


class _Words:
    """The sections of a field's words, or of its pairs.

    `which`: suffix of the section names; `versions`: number of versions of the segment.
    """

    def __init__(self, file: Sections, which: str, versions: int) -> None:
        self.versions = versions
        self.texts = _StoredTexts(file, f"words {which}")
        self.counts = file[f"counts {which}"].array()
        self.postings = file[f"postings {which}"]
        self.postings_at = file[f"postings {which} at"].array()
        self.positions = file[f"positions {which}"]
        self.positions_at = file[f"positions {which} at"].array()
        columns = self.counts, self.postings_at, self.positions_at
        words_bytes = self.texts.size + sum(column.nbytes for column in columns)
        self.bytes_without_positions = words_bytes + self.postings.size
        self._cache: dict[str, SegmentPostings | None] = {}
        """LRU cache of postings, least recently used word first; None: the segment lacks it."""
        self._free_cache_bytes = (self.postings.size + self.positions.size) * CACHE_RATIO

    def find(self, word: str) -> SegmentPostings | None:
        """Return the postings of a word or pair; None if the segment lacks it."""
        if word in self._cache:
            postings = self._cache.pop(word)
        else:
            number = bisect_left(self.texts, word)
            exists = number < len(self.texts) and self.texts[number] == word
            postings = SegmentPostings(self, number) if exists else None
            self._free_cache_bytes -= _size(postings)
        self._cache[word] = postings
        while self._free_cache_bytes < 0:
            self._free_cache_bytes += _size(self._cache.pop(next(iter(self._cache))))
        return postings

    def of_prefix(self, prefix: str) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield ordinals and frequencies of all words with a prefix, some words at a time."""
        size = len(prefix)
        first = bisect_left(self.texts, prefix)
        last = bisect_right(self.texts, prefix, first, key=lambda word: word[:size])
        for batch in _batches(first, self.counts[first:last] + WORD_COST):
            _, ordinals, frequencies = self._unpack(batch)
            yield ordinals, frequencies

    def runs(self) -> Iterator[WordRun]:
        for batch in _batches(0, self.counts + np.diff(self.positions_at) + WORD_COST):
            counts, ordinals, frequencies = self._unpack(batch)
            self.positions.check(*self.positions_at[[batch.start, batch.stop]].tolist())
            begins = list_offsets(frequencies)
            per_word = np.diff(begins[list_offsets(counts)])
            gaps, _ = unpack_lists(self.positions.bytes, self.positions_at[batch], per_word)
            positions = delta_decode(gaps, np.diff(begins))
            yield WordRun(self.texts[batch], counts, ordinals, frequencies, positions)

    def _unpack(self, batch: slice) -> tuple[Indices, Numbers, Numbers]:
        """Unpack the words with the numbers in `batch`.

        Return the number of postings of each word, and the ordinals and frequencies of all
        postings.
        """
        self.postings.check(*self.postings_at[[batch.start, batch.stop]].tolist())
        counts = self.counts[batch].astype(np.intp)
        gaps, frequencies_at = unpack_lists(self.postings.bytes, self.postings_at[batch], counts)
        frequencies, _ = unpack_lists(self.postings.bytes, frequencies_at, counts)
        frequencies += np.uint32(1)
        return counts, delta_decode(gaps, counts), frequencies


def _batches(first: int, sizes: Indices) -> Iterator[slice]:
    """Split adjacent words into slices with a total size of about `RUN_SIZE` each.

    `first`: number of the first word; `sizes`: size of each word.
    """
    offsets = list_offsets(sizes)
    begin, count = 0, len(sizes)
    while begin < count:
        end = min(int(np.searchsorted(offsets, offsets[begin] + RUN_SIZE)), count)
        yield slice(first + begin, first + end)
        begin = end


def _size(entry: SegmentPostings | None) -> int:
    """Return the size of a cache entry in bytes."""
    return OVERHEAD_BYTES if entry is None else entry.size


class _StoredTexts(Sequence[str]):
    """Texts in a file; `size`: bytes of the texts and their offsets."""

    def __init__(self, file: Sections, name: str) -> None:
        self._data = file[name].read_all()
        self._offsets = file[f"{name} at"].array().data
        self.size = len(self._data) + self._offsets.nbytes

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        return str(self._data[self._offsets[index] : self._offsets[index + 1]], "utf-8")


def _column(file: Sections, number: int, kind: ValueKind) -> Column:
    values = file[f"values {number}"].array()
    if kind is not Kind.KEYWORD:
        return values
    return Keywords(
        file[f"offsets {number}"].array(), values, _StoredTexts(file, f"keywords {number}")
    )


def _parse_metadata(metadata: object) -> tuple[int, int, int, int, tuple[ValueKind, ...]]:
    """Return first ordinal, number of versions and of postings, text fields, value fields."""
    match metadata:
        case (int(first), int(count), int(postings), int(text_fields), tuple(kinds)):
            by_name = {str(kind): kind for kind in get_args(ValueKind)}
            return first, count, postings, text_fields, tuple(by_name[kind] for kind in kinds)
    raise TypeError("not a segment")
