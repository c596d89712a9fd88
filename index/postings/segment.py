"""A sealed part of an index: a file that is mapped into memory, and never changes.

Its sections, for text field F and value field V (`index.postings.merging` writes them):

    times, deleted        of each version
    ids, ids at           texts, one after the other; where each begins, and the last one ends
    stored, stored at, blocks
                          blocks of `index.postings.stored`; where in the uncompressed whole each
                          version begins; the first version and the place of each block
    lengths F             of each version
    words F, groups F     `index.postings.dictionary`
    postings F            of each word two packed lists: ordinals (as gaps), frequencies - 1
    positions F           of each word one packed list: the positions (as gaps) of each posting
    skips F               of each word with several blocks two packed lists: their last ordinals
                          (as gaps), and their largest frequencies
    common F, common F at the common words of the field (`index.postings.pairs`), if it has any:
                          then there is "words F pairs", and so on, for their pairs, as for words
    values V              of each version the number or date; or the numbers of all keywords
    offsets V, keywords V, keywords V at
                          for keywords only: where each version begins in `values`; their texts

What is packed, and what is stored, is checked when it is first read; all else at the beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, get_args, overload

import numpy as np
from numpy.typing import NDArray

from driftline.index.documents.values import Kind, ValueKind
from driftline.index.postings.dictionary import Dictionary, Entry
from driftline.index.postings.packing import (
    BLOCK,
    Numbers,
    Packed,
    Places,
    edges,
    ranges,
    sums,
    unpack_at,
    unpack_list,
    unpack_lists,
)
from driftline.index.postings.pairs import pair_of
from driftline.index.postings.parts import RUN, WORD, Column, Keywords, Often, Run
from driftline.index.postings.sections import Section, Sections
from driftline.index.postings.stored import Block, document

Scalar = TypeVar("Scalar", bound=np.generic)

UNPACKED = 2
"""Of this share of the packed bytes of a field, postings stay unpacked: they take four times as
much then."""

BY_VERSION = 8
"""What one in so many versions has is kept by version: in a byte or two of each of them, in place
of eight of each posting."""

OBJECTS = 128
"""A quarter of the bytes of the objects that hold the postings of a word."""

ENTRIES_KEPT = 1 << 12
"""Of so many words that were looked for it is remembered where they are, or that they are not
there."""

MANY = 8
"""If the positions of one in so many versions are wanted, those of all are unpacked, and stay so.
"""


class Segment:
    """A part in a file. Raises DamagedSegment, OtherFormat, OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        file = Sections(path)
        about = _about(file.about)
        self.first, self.count, self.size, self.text_fields, self.value_fields = about
        self.file_size, self.checksum = file.size, file.checksum
        self.verify = file.verify
        self.times: NDArray[np.int64] = _array(file["times"], np.int64)
        self.deleted: NDArray[np.bool_] = _array(file["deleted"], np.bool_)
        self._ids = _Texts(file, "ids")
        self._stored = file["stored"]
        self._stored_at = _array(file["stored at"], np.int64)
        self._blocks = _array(file["blocks"], np.int64).reshape(-1, 2)
        self._texts = [_TextField(file, number) for number in range(self.text_fields)]
        self._columns = [_column(file, i, kind) for i, kind in enumerate(self.value_fields)]

    @property
    def postings_bytes(self) -> int:
        """How much the postings take, with their words, and without positions."""
        return sum(kept.postings_bytes for text in self._texts for kept in text.kept)

    @property
    def positions_bytes(self) -> int:
        """How much the positions of all postings take."""
        return sum(kept.positions.size for text in self._texts for kept in text.kept)

    def lengths(self, field: int) -> Numbers:
        return self._texts[field].lengths

    def postings(self, field: int, word: str) -> SegmentPostings | None:
        return self._texts[field].words.find(word)

    def has_pair(self, field: int, first: str, second: str) -> bool:
        common = self._texts[field].common
        return first in common and second in common

    def pair(self, field: int, first: str, second: str) -> SegmentPostings | None:
        pairs = self._texts[field].pairs
        assert pairs is not None
        return pairs.find(pair_of(first, second))

    def words(self, field: int, start: str) -> Iterator[str]:
        return (entry.word for entry in self._texts[field].words.dictionary.entries(start))

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

    def runs(self, field: int) -> Iterator[Run]:
        return self._texts[field].words.runs()

    def documents(self) -> Iterator[Block]:
        sizes = np.diff(self._stored_at)
        for (first, begin), (last, end) in pairwise(self._blocks.tolist()):
            yield sizes[first:last].tolist(), self._stored.read(begin, end)


class SegmentPostings:
    """The postings of a word, which are unpacked when they are asked for."""

    def __init__(self, kept: _Words, entry: Entry) -> None:
        self.count = entry.number
        self._kept = kept
        self._entry = entry

    @property
    def size(self) -> int:
        """A quarter of what they take unpacked: their bytes in the file, and those by version."""
        (begin, end), (first, last) = self._entry.postings, self._entry.positions
        by_version = self._is_by_version * self._kept.versions // 4
        return OBJECTS + end - begin + last - first + by_version

    @property
    def ordinals(self) -> Numbers:
        return self._ordinals[0]

    @cached_property
    def frequencies(self) -> Numbers:
        return self._unpacked_frequencies(self._ordinals[1])

    @cached_property
    def often(self) -> Often | None:
        if not self._is_by_version:
            return None
        ordinals, middle = self._unpacked_ordinals()
        frequencies = self._unpacked_frequencies(middle)
        often = np.zeros(self._kept.versions, np.min_scalar_type(frequencies.max()))
        often[ordinals] = frequencies
        return often

    @property
    def _is_by_version(self) -> bool:
        return self.count * BY_VERSION >= self._kept.versions

    def positions(self, rows: Places) -> tuple[Numbers, Places]:
        begins = self._begins
        counts = begins[rows + 1] - begins[rows]
        places = ranges(begins[rows], counts)
        if len(rows) * MANY > self.count > BLOCK:
            left_out = self._left_out.take(places)
        else:
            left_out = unpack_at(*self._packed_positions(), places)
        return sums(left_out, counts), edges(counts)

    def blocks(self) -> tuple[Numbers, Numbers]:
        """Of each block of 128 postings the last ordinal, and the largest frequency."""
        if self.count <= BLOCK:
            return self.ordinals[-1:], self.frequencies.max(keepdims=True)
        section, (begin, end) = self._kept.skips, self._entry.skips
        section.check(begin, end)
        number = -(-self.count // BLOCK)
        lasts, middle = unpack_list(section.words, begin, number)
        maxima, _ = unpack_list(section.words, middle, number)
        return sums(lasts, np.array([number])), maxima

    @cached_property
    def _ordinals(self) -> tuple[Numbers, int]:
        return self._unpacked_ordinals()

    def _unpacked_ordinals(self) -> tuple[Numbers, int]:
        """And where the frequencies begin."""
        section, (begin, end) = self._kept.postings, self._entry.postings
        section.check(begin, end)
        left_out, middle = unpack_list(section.words, begin, self.count)
        return sums(left_out, np.array([self.count])), middle

    def _unpacked_frequencies(self, begin: int) -> Numbers:
        found, _ = unpack_list(self._kept.postings.words, begin, self.count)
        found += np.uint32(1)
        return found

    @cached_property
    def _left_out(self) -> Numbers:
        """The gaps between all positions."""
        found, _ = unpack_list(*self._packed_positions())
        return found

    def _packed_positions(self) -> tuple[Packed, int, int]:
        """Where they are, from which byte on, and how many."""
        section, (begin, end) = self._kept.positions, self._entry.positions
        section.check(begin, end)
        return section.words, begin, int(self._begins[-1])

    @cached_property
    def _begins(self) -> Places:
        """Where the positions of each posting begin, and the last ones end."""
        return edges(self.frequencies)


class _TextField:
    """The sections of a text field."""

    def __init__(self, file: Sections, number: int) -> None:
        self.lengths: Numbers = _array(file[f"lengths {number}"], np.uint32)
        self.words = _Words(file, f"{number}", len(self.lengths))
        self.common: frozenset[str] = frozenset()
        self.pairs: _Words | None = None
        if (name := f"common {number}") in file:
            self.common = frozenset(_Texts(file, name))
            self.pairs = _Words(file, f"{number} pairs", len(self.lengths))

    @property
    def kept(self) -> list[_Words]:
        """All that there are postings of."""
        return [self.words] if self.pairs is None else [self.words, self.pairs]


class _Words:
    """The sections of words, or pairs, that have postings; `versions`: how many there are."""

    def __init__(self, file: Sections, which: str, versions: int) -> None:
        self.versions = versions
        groups = _array(file[f"groups {which}"], np.int64).reshape(-1, 4)
        words = file[f"words {which}"].whole()
        self.dictionary = Dictionary(words, groups)
        self.postings = file[f"postings {which}"]
        self.positions = file[f"positions {which}"]
        self.skips = file[f"skips {which}"]
        self.postings_bytes = len(words) + groups.nbytes + self.skips.size + self.postings.size
        self._asked: dict[str, SegmentPostings] = {}
        """The words that were asked for last, the last one at the end: words that are asked for are
        asked for again, and then they are unpacked."""
        self._entry = lru_cache(ENTRIES_KEPT)(self.dictionary.find)
        self._room = (self.postings.size + self.positions.size) // UNPACKED

    def find(self, word: str) -> SegmentPostings | None:
        """The postings of a word, or pair."""
        found = self._asked.pop(word, None)
        if found is None:
            entry = self._entry(word)
            if entry is None:
                return None
            found = SegmentPostings(self, entry)
            self._room -= found.size
        self._asked[word] = found
        while self._room < 0:
            self._room += self._asked.pop(next(iter(self._asked))).size
        return found

    def runs(self) -> Iterator[Run]:
        entries: list[Entry] = []
        size = 0
        for entry in self.dictionary.entries(""):
            entries.append(entry)
            size += WORD + entry.number + entry.positions[1] - entry.positions[0]
            if size >= RUN:
                yield self._run(entries)
                entries, size = [], 0
        if entries:
            yield self._run(entries)

    def _run(self, entries: Sequence[Entry]) -> Run:
        first, last = entries[0], entries[-1]
        self.postings.check(first.postings[0], last.postings[1])
        self.positions.check(first.positions[0], last.positions[1])
        counts = np.array([entry.number for entry in entries])
        begins = np.array([entry.postings[0] for entry in entries])
        left_out, middles = unpack_lists(self.postings.words, begins, counts)
        frequencies, _ = unpack_lists(self.postings.words, middles, counts)
        frequencies += np.uint32(1)
        before = edges(frequencies)
        ends = edges(counts)
        begins = np.array([entry.positions[0] for entry in entries])
        gaps, _ = unpack_lists(self.positions.words, begins, np.diff(before[ends]))
        return Run(
            [entry.word for entry in entries],
            counts,
            sums(left_out, counts),
            frequencies,
            sums(gaps, np.diff(before)),
        )


class _Texts(Sequence[str]):
    """Texts in a file."""

    def __init__(self, file: Sections, name: str) -> None:
        self._data = file[name].whole()
        self._at = _array(file[f"{name} at"], np.int64)

    def __len__(self) -> int:
        return len(self._at) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        number = range(len(self))[index]
        return str(self._data[self._at[number] : self._at[number + 1]], "utf-8")


def _column(file: Sections, number: int, kind: ValueKind) -> Column:
    section = file[f"values {number}"]
    if kind is Kind.NUMBER:
        return _array(section, np.float64)
    if kind is Kind.DATE:
        return _array(section, np.int64)
    offsets: Places = _array(file[f"offsets {number}"], np.int64)
    return Keywords(offsets, _array(section, np.uint32), _Texts(file, f"keywords {number}"))


def _array(section: Section, kind: type[Scalar]) -> NDArray[Scalar]:
    """A section that is an array of numbers."""
    return np.frombuffer(section.whole(), kind)


def _about(about: object) -> tuple[int, int, int, int, tuple[ValueKind, ...]]:
    """First ordinal, number of versions and of postings, text fields, value fields."""
    match about:
        case (int(first), int(count), int(size), int(text_fields), tuple(kinds)):
            known = {str(kind): kind for kind in get_args(ValueKind)}
            return first, count, size, text_fields, tuple(known[kind] for kind in kinds)
    raise TypeError("not a segment")
