"""The words of a text field in a segment, sorted, and where the postings of each are.

Words are in groups of 16. A word is written as the length of what it has in common with the word
before it in its group, the rest, the number of its postings, and the sizes of what belongs to it in
three other sections: these follow each other there as the words do here. Numbers have 7 bits in a
byte. An array has, of each group, where it and what belongs to it begin: so a word is found by
binary search over the first words of groups, and by reading one group.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftline.index.documents.versions import as_bytes
from driftline.index.postings.packing import BLOCK

GROUP = 16
"""Words in a group."""


class Entry(NamedTuple):
    """Where the postings of a word are: begin and end in each section.

    `number`: of its postings; `postings`: their ordinals and frequencies; `skips`: the last ordinal
    and the largest frequency of each block, if there are several.
    """

    word: str
    number: int
    postings: tuple[int, int]
    positions: tuple[int, int]
    skips: tuple[int, int]


class DictionaryWriter:
    """Takes words in order, with the sizes of what belongs to them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._groups: list[tuple[int, int, int, int]] = []
        self._before = b""
        self._words = 0
        self._ends = (0, 0, 0)

    def add(self, word: str, count: int, postings: int, positions: int, skips: int) -> None:
        """Add a word with the number of its postings, and three sizes in bytes."""
        data, text = self.data, word.encode()
        if self._words % GROUP == 0:
            self._groups.append((len(data), *self._ends))
            common = 0
        else:
            common = _common(self._before, text)
        sizes = (count, postings, positions, skips)[: 4 if count > BLOCK else 3]
        data += as_bytes((common, len(text) - common)) + text[common:] + as_bytes(sizes)
        ends = self._ends
        self._ends = ends[0] + postings, ends[1] + positions, ends[2] + skips
        self._before = text
        self._words += 1

    def groups(self) -> NDArray[np.int64]:
        """Of each group, and at last of all: where it begins, here and in the three sections."""
        return np.array([*self._groups, (len(self.data), *self._ends)], np.int64)


class Dictionary:
    """Reads what a `DictionaryWriter` has written."""

    def __init__(self, data: memoryview, groups: NDArray[np.int64]) -> None:
        self._data = data
        self._groups = groups
        self._firsts: dict[int, bytes] = {}
        """Group -> its first word, where that was needed: each search begins with the same ones."""

    def find(self, word: str) -> Entry | None:
        """Where the postings of a word are."""
        text = word.encode()
        group = self._group_of(text)
        if group < 0 or not self._has(group, text):
            return None  # mostly so: a word is in few segments
        return next(entry for entry in self._group(group) if entry.word == word)

    def entries(self, start: str) -> Iterator[Entry]:
        """All words from the first one on that is not before `start`."""
        for some in range(max(self._group_of(start.encode()), 0), len(self._groups) - 1):
            for entry in self._group(some):
                if entry.word >= start:
                    yield entry

    def _group_of(self, text: bytes) -> int:
        """The group in which a word is, if it is anywhere; -1: it is before all."""
        return bisect_right(range(len(self._groups) - 1), text, key=self._first_word) - 1

    def _first_word(self, group: int) -> bytes:
        word = self._firsts.get(group)
        if word is None:
            size, at = _number(self._data, int(self._groups[group, 0]) + 1)
            word = self._firsts[group] = bytes(self._data[at : at + size])
        return word

    def _has(self, group: int, text: bytes) -> bool:
        """Whether a word is in a group; nothing else is decoded."""
        data = bytes(self._data[self._groups[group, 0] : self._groups[group + 1, 0]])
        at, end, word = 0, len(data), b""
        while at < end:
            common, at = _number(data, at)
            size, at = _number(data, at)
            word = word[:common] + data[at : at + size]
            if word >= text:
                return word == text
            count, at = _number(data, at + size)
            for _ in range(3 if count > BLOCK else 2):
                while data[at] > 0x7F:
                    at += 1
                at += 1
        return False

    def _group(self, group: int) -> Iterator[Entry]:
        at, postings, positions, skips = self._groups[group].tolist()
        data = bytes(self._data[at : self._groups[group + 1, 0]])
        at, word = 0, b""
        while at < len(data):
            common, at = _number(data, at)
            size, at = _number(data, at)
            word = word[:common] + data[at : at + size]
            count, at = _number(data, at + size)
            postings_size, at = _number(data, at)
            positions_size, at = _number(data, at)
            skips_size, at = _number(data, at) if count > BLOCK else (0, at)
            ends = postings + postings_size, positions + positions_size, skips + skips_size
            yield Entry(
                word.decode(),
                count,
                (postings, ends[0]),
                (positions, ends[1]),
                (skips, ends[2]),
            )
            postings, positions, skips = ends


def _common(a: bytes, b: bytes) -> int:
    """How many bytes two texts have in common at their beginning."""
    number = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        number += 1
    return number


def _number(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    number = data[at]
    at += 1
    if number <= 0x7F:
        return number, at
    number &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return number, at
        shift += 7
