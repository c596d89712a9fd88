"""Interface of a part of an index: the postings of adjacent versions, in memory or in a file.

A version has an *ordinal*: its index in label order, from 0 on, in its shard. A part holds the
versions [first, first + count); all ordinals in its interface are relative to `first`. A part only
grows at its end, and arrays that it returned do not change. Reading as of a time therefore reads a
prefix of everything. A merge may drop versions that no query can read any more; the ordinals of
later versions then decrease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from driftline.index.documents.values import ValueKind
from driftline.index.postings.packing import Indices, Numbers


class Keywords(NamedTuple):
    """Keywords of versions.

    `words` is sorted; those of `ordinal` are ``words[n]`` for n in
    ``numbers[offsets[ordinal] : offsets[ordinal + 1]]``.
    """

    offsets: Indices
    numbers: Numbers
    words: Sequence[str]


Frequencies = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]
"""Per version, the number of occurrences."""

Column = NDArray[np.float64] | NDArray[np.int64] | Keywords
"""Numbers, NaN if missing; dates, NO_DATE if missing; keywords."""


class Postings(Protocol):
    """Postings of one word in one field of a part."""

    @property
    def count(self) -> int:
        """Number of versions that contain the word."""

    @property
    def ordinals(self) -> Numbers:
        """These versions, ascending."""

    @property
    def frequencies(self) -> Numbers:
        """Occurrences of the word in each of them."""

    @property
    def dense_frequencies(self) -> Frequencies | None:
        """Occurrences per version of the part; None if `ordinals` and `frequencies` are smaller."""

    def positions(self, rows: Indices) -> tuple[Numbers, Indices]:
        """Return the concatenated positions of these rows of `ordinals`, and the edges of rows."""


RUN_SIZE = 1 << 14
"""Size of a run, in postings: some milliseconds of work."""

WORD_COST = 8
"""Cost of a word, in postings."""


class Run(NamedTuple):
    """Adjacent words of a field with all their postings, as flat arrays.

    `counts`: postings per word; `frequencies`: positions per posting.
    """

    words: list[str]
    counts: Indices
    ordinals: Numbers
    frequencies: Numbers
    positions: Numbers


class Merged(Protocol):
    """Adjacent versions of a collection, as a merge reads them, in order."""

    @property
    def count(self) -> int:
        """Number of versions."""

    @property
    def postings_count(self) -> int:
        """Number of postings in all text fields; exact only after all runs were read."""

    @property
    def text_fields(self) -> int:
        """Number of text fields of the collection."""

    @property
    def value_fields(self) -> Sequence[ValueKind]:
        """Kinds of its keyword, number and date fields."""

    @property
    def times(self) -> NDArray[np.int64]:
        """Label time of each version."""

    def lengths(self, field: int) -> Numbers:
        """Return the number of words of a text field per version."""

    def values(self, number: int) -> Column:
        """Return the values of a field per version."""

    def id(self, ordinal: int) -> str:
        """Return the document id of a version."""

    def runs(self, field: int) -> Iterator[Run]:
        """Yield all words of a text field in order, some at a time; no run is empty."""

    def documents(self) -> Iterator[tuple[list[int], bytes]]:
        """Yield the stored bytes of all versions, some at a time.

        Each block holds the size of each document and all of them compressed
        (`index.postings.document_blocks`).
        """


class SegmentReader(Merged, Protocol):
    """Searchable adjacent versions of a collection."""

    first: int
    """Ordinal of the first version. It decreases when earlier versions are dropped."""

    def postings(self, field: int, word: str) -> Postings | None:
        """Return the postings of a word; None if no version has it."""

    def postings_of_prefix(self, field: int, prefix: str) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield ordinals and frequencies of all words with a prefix, some at a time.

        A version appears once for each of its words.
        """

    def has_pair(self, field: int, first: str, second: str) -> bool:
        """Return whether `pair` supports these two words."""

    def pair(self, field: int, first: str, second: str) -> Postings | None:
        """Return the postings of two adjacent words, at the positions of the first.

        None if there are none. Precondition: `has_pair`.
        """

    def words(self, field: int, start: str) -> Iterator[str]:
        """Yield the words of a text field in order, from the first one not before `start`."""

    def stored(self, ordinal: int) -> bytes:
        """Return the stored bytes of a version."""
