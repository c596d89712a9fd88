"""Interface of the parts of a shard: all data of adjacent versions, in memory or in a file.

A shard is one collection in one searcher. Each version in a shard has an *ordinal*: its index in
label order, from 0 on. A part contains the versions [first, first + count); ordinals in the
interface of a part are relative to `first`. A part grows only at its end, and arrays that it
returned do not change. A read as of a time therefore uses a prefix of each array. A merge may drop
versions that no query can read any longer; the ordinals of later versions then decrease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from driftline.index.documents.values import ValueKind
from driftline.index.postings.packing import Indices, Numbers


class Keywords(NamedTuple):
    """Column of a keyword field; `words`: its different keywords, sorted.

    The keywords of the version `ordinal` are ``words[n]`` for n in ``numbers[offsets[ordinal] :
    offsets[ordinal + 1]]``.
    """

    offsets: Indices
    numbers: Numbers
    words: Sequence[str]


Frequencies = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]
"""Number of occurrences of a word or query leaf, per version or per posting."""

Column = NDArray[np.float64] | NDArray[np.int64] | Keywords
"""Values of a field per version: numbers (NaN if missing), dates (NO_DATE), or keywords."""


class Postings(Protocol):
    """Postings of one word, or of one pair of words, in one field of a part."""

    @property
    def count(self) -> int:
        """Number of versions that contain the word."""

    @property
    def ordinals(self) -> Numbers:
        """Ordinals of the versions that contain the word, ascending."""

    @property
    def frequencies(self) -> Numbers:
        """Number of occurrences of the word in each version of `ordinals`."""

    @property
    def dense_frequencies(self) -> Frequencies | None:
        """Number of occurrences for every version of the part; None if this array is not cheap."""

    def positions(self, rows: Indices) -> tuple[Numbers, Indices]:
        """Return the positions of some postings, concatenated, and the index at which each begins.

        The end of the positions follows these indices. `rows`: indices of the postings in
        `ordinals`.
        """


RUN_SIZE = 1 << 14
"""Approximate size of a run, in postings: some milliseconds of work."""

WORD_COST = 8
"""Postings that a word adds to the size of a run as overhead, besides its own postings."""


class WordRun(NamedTuple):
    """Adjacent words of a field with all their postings, as flat arrays.

    `counts`: postings per word; `ordinals`, `frequencies`: version and number of positions of each
    posting; `positions`: of all postings, concatenated.
    """

    words: list[str]
    counts: Indices
    ordinals: Numbers
    frequencies: Numbers
    positions: Numbers


class MergeInput(Protocol):
    """Adjacent versions of a shard, as an input of a merge."""

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
        """Kinds of the keyword, number and date fields of the collection, by field number."""

    @property
    def times(self) -> NDArray[np.int64]:
        """Label time of each version."""

    def lengths(self, field: int) -> Numbers:
        """Return the number of words of a text field per version."""

    def values(self, number: int) -> Column:
        """Return the column of a value field; `number`: number of the field."""

    def id(self, ordinal: int) -> str:
        """Return the document id of a version."""

    def runs(self, field: int) -> Iterator[WordRun]:
        """Yield all words of a text field in order, many words per run; no run is empty."""

    def documents(self) -> Iterator[tuple[list[int], bytes]]:
        """Yield the stored documents of all versions, as blocks of
        `index.postings.document_blocks`."""


class SegmentReader(MergeInput, Protocol):
    """A part of a shard: adjacent versions that can be searched."""

    first: int
    """Ordinal of the first version. It decreases when earlier versions are dropped."""

    def postings(self, field: int, word: str) -> Postings | None:
        """Return the postings of a word; None if no version contains the word."""

    def postings_of_prefix(self, field: int, prefix: str) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield ordinals and frequencies of all words with a prefix, some words at a time.

        An ordinal appears once for each of these words that the version contains.
        """

    def has_pair(self, field: int, first: str, second: str) -> bool:
        """Return whether `pair` supports these two words."""

    def pair(self, field: int, first: str, second: str) -> Postings | None:
        """Return the postings of two adjacent words, at the positions of the first word.

        None if no version contains the pair. Precondition: `has_pair` returns True.
        """

    def words(self, field: int, start: str) -> Iterator[str]:
        """Yield the words >= `start` of a text field, in order."""

    def stored(self, ordinal: int) -> bytes:
        """Return the stored document of a version, as JSON."""
