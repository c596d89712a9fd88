"""What a part of an index is: the postings of neighbouring versions, in memory or in a file.

A version has an *ordinal*: its place in the order of labels, from 0 on, in its shard. A part has
the versions [first, first + count); all ordinals that it gives and takes are relative to `first`.
A part only ever grows at its end, and an array that it has given out does not change. So whoever
reads as of a time reads a prefix of everything. A merge may leave out versions that nobody can ask
for any more: then the ordinals of those behind them fall.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from driftline.index.documents.values import ValueKind
from driftline.index.postings.packing import Numbers, Places


class Keywords(NamedTuple):
    """The keywords of versions: those of `ordinal` are ``words[n]`` for n in
    ``numbers[offsets[ordinal] : offsets[ordinal + 1]]``; `words` is sorted.
    """

    offsets: Places
    numbers: Numbers
    words: Sequence[str]


Often = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]
"""Of each version how often it has something."""

Column = NDArray[np.float64] | NDArray[np.int64] | Keywords
"""Numbers, NaN where a version has none; dates, NO_DATE where it has none; keywords."""


class Postings(Protocol):
    """The postings of one word in one field of a part."""

    @property
    def count(self) -> int:
        """How many versions have the word."""

    @property
    def ordinals(self) -> Numbers:
        """These versions, ascending."""

    @property
    def frequencies(self) -> Numbers:
        """How often each of them has the word."""

    @property
    def often(self) -> Often | None:
        """How often each version of the part has the word, if so many have it that this takes no
        more room than `ordinals` and `frequencies`; None: it would."""

    def positions(self, rows: Places) -> tuple[Numbers, Places]:
        """The positions of these rows of `ordinals`, one row after the other.

        And where each row begins among them, and the last one ends.
        """


RUN = 1 << 14
"""How large a run becomes, in postings: some milliseconds of work."""

WORD = 8
"""A word is as much work as so many postings."""


class Run(NamedTuple):
    """Neighbouring words of a field with all their postings, as flat arrays.

    `counts`: of postings per word; `frequencies`: of positions per posting.
    """

    words: list[str]
    counts: Places
    ordinals: Numbers
    frequencies: Numbers
    positions: Numbers


class Merged(Protocol):
    """Neighbouring versions of a collection, as a merge reads them, in their order."""

    @property
    def count(self) -> int:
        """The number of versions."""

    @property
    def size(self) -> int:
        """The number of postings, in all text fields; known at last once all runs were read."""

    @property
    def text_fields(self) -> int:
        """How many text fields the collection has."""

    @property
    def value_fields(self) -> Sequence[ValueKind]:
        """The kinds of its keyword, number and date fields."""

    @property
    def times(self) -> NDArray[np.int64]:
        """The time of each version's label."""

    def lengths(self, field: int) -> Numbers:
        """Of each version: how many words a text field has."""

    def values(self, number: int) -> Column:
        """The values of a field, of each version."""

    def id(self, ordinal: int) -> str:
        """The id of the document of a version."""

    def runs(self, field: int) -> Iterator[Run]:
        """All words of a text field in order, some at a time; none without words."""

    def documents(self) -> Iterator[tuple[list[int], bytes]]:
        """What is stored of all versions, some at a time: the size of each, and all of them
        compressed (`index.postings.stored`)."""


class SegmentReader(Merged, Protocol):
    """Neighbouring versions of a collection, which can be searched."""

    first: int
    """The ordinal of the first version. It falls when versions before it are gone for good."""

    def postings(self, field: int, word: str) -> Postings | None:
        """The postings of a word; None if no version has it."""

    def postings_of_prefix(self, field: int, prefix: str) -> Iterator[tuple[Numbers, Numbers]]:
        """The ordinals and frequencies of the postings of all words that begin so, some at a time;
        a version is there once for each of its words."""

    def has_pair(self, field: int, first: str, second: str) -> bool:
        """Whether `pair` can say where these two words follow each other."""

    def pair(self, field: int, first: str, second: str) -> Postings | None:
        """The postings of two words that follow each other, with the positions of the first one;
        None if they do nowhere. Precondition: `has_pair`."""

    def words(self, field: int, start: str) -> Iterator[str]:
        """The words of a text field in order, from the first one on that is not before `start`."""

    def stored(self, ordinal: int) -> bytes:
        """What is stored of a version."""
