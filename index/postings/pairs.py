"""Pair postings: postings of two adjacent common words of a text field.

Finding "of the" by the positions of its words is slow: both words are in nearly every text, often
several times. A segment file therefore also stores postings for each two adjacent common words, as
if the pair were a word at the position of its first word. Searches for phrases with common words
use these pairs. (As in Williams, Zobel and Bahle, Fast phrase querying with combined indexes, 2004,
section 4.)
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftline.index.postings.packing import Numbers, list_offsets
from driftline.index.postings.segment_reader import RUN_SIZE, WordRun

COMMON_POSITIONS_MIN = 1 << 12
"""Minimum number of positions of a common word; fewer positions are cheap to scan."""

COMMON_MAX = 64
"""Maximum number of common words per field; their pairs increase the size of a field by 1/9."""

POSITIONS_MAX = 1 << 26
"""Maximum total positions of all common words; a merge holds them in memory."""

_STEP_VERSIONS = 1 << 14
"""Number of versions whose pairs are computed at a time."""

_WORD_BITS = 6
"""Bits of a word's number in a sort key (`_Word.keys`), enough for `COMMON_MAX` words."""
_POSITION_BITS = 32


def pair_of(first: str, second: str) -> str:
    """Return the name of a pair: both words, separated by `\\0`, which no common word contains.

    Therefore names sort like pairs, by the first word and then by the second.
    """
    return f"{first}\0{second}"


class _Word(NamedTuple):
    """A common word and its postings."""

    position_count: int
    """Number of positions. It is the first field, so a heap of words is ordered by it."""
    word: str
    ordinals: Numbers
    begins: NDArray[np.intp]
    """Start of each posting's positions in `flat_positions`, and the end of the last."""
    flat_positions: Numbers

    def keys(self, first: int, number: int) -> NDArray[np.int64]:
        """Return a sort key per position: (ordinal - `first`, position, `number`), packed.

        The keys cover `_STEP_VERSIONS` versions from the ordinal `first` on. `number`: number of
        this word. Without the subtraction, large ordinals would not fit into 63 bits.
        """
        low, high = np.searchsorted(self.ordinals, (first, first + _STEP_VERSIONS))
        begins = self.begins[low : high + 1]
        keys = np.repeat(self.ordinals[low:high].astype(np.int64) - first, np.diff(begins))
        keys <<= _POSITION_BITS
        keys += self.flat_positions[begins[0] : begins[-1]]
        keys <<= _WORD_BITS
        keys += number
        return keys


class CommonWords:
    """Collector of the common words of a text field, which then computes their pairs."""

    def __init__(self) -> None:
        self._heap: list[_Word] = []
        """The common words so far, as a heap; its first word is the least common one."""
        self._position_count = 0
        """Total number of positions of these words."""

    def add(self, run: WordRun) -> None:
        """Add the common words of a run. Precondition: no word is added twice."""
        posting_at, position_at = list_offsets(run.counts), list_offsets(run.frequencies)
        for number in np.flatnonzero(
            np.diff(position_at[posting_at]) >= COMMON_POSITIONS_MIN
        ).tolist():
            if "\0" in (word := run.words[number]):
                continue  # analysers emit no such word; the names of its pairs would be ambiguous
            low, high = posting_at[number : number + 2]
            begins = position_at[low : high + 1]
            positions = run.positions[begins[0] : begins[-1]].copy()
            ordinals = run.ordinals[low:high].copy()
            size = len(positions)
            heappush(self._heap, _Word(size, word, ordinals, begins - begins[0], positions))
            self._position_count += size
            while len(self._heap) > COMMON_MAX or self._position_count > POSITIONS_MAX:
                self._position_count -= heappop(self._heap).position_count

    def words(self) -> list[str]:
        """Return the common words, in order."""
        return sorted(common.word for common in self._heap)

    def runs(self, versions: int) -> Iterator[WordRun]:
        """Yield all pairs of adjacent common words in the first `versions` versions, in order.

        A pair has the number `COMMON_MAX` * (number of its first word) + (number of its second).
        """
        words = sorted(self._heap, key=lambda common: common.word)
        pair_chunks = [np.zeros(0, np.int16)]
        place_chunks = [np.zeros(0, np.int64)]
        for first in range(0, versions if words else 0, _STEP_VERSIONS):
            keys = np.concatenate([word.keys(first, i) for i, word in enumerate(words)])
            keys.sort()
            numbers = (keys & (1 << _WORD_BITS) - 1).astype(np.int16)
            keys >>= _WORD_BITS
            rows = np.flatnonzero(np.diff(keys) == 1)  # the next row holds the adjacent position
            pair_chunks.append(numbers[rows] * COMMON_MAX + numbers[rows + 1])
            place_chunks.append(keys[rows] + (first << _POSITION_BITS))
        pairs = np.concatenate(pair_chunks)
        order = pairs.argsort(kind="stable")
        counts = np.bincount(pairs, minlength=COMMON_MAX * COMMON_MAX)
        places = np.concatenate(place_chunks)[order]
        begins = list_offsets(counts).tolist()
        batch: list[int] = []
        for pair in np.flatnonzero(counts).tolist():
            batch.append(pair)
            if begins[pair + 1] - begins[batch[0]] >= RUN_SIZE:
                yield _run(words, batch, counts, places[begins[batch[0]] : begins[pair + 1]])
                batch = []
        if batch:
            yield _run(words, batch, counts, places[begins[batch[0]] :])


def _run(
    words: list[_Word], pairs: list[int], counts: NDArray[np.intp], places: NDArray[np.int64]
) -> WordRun:
    """Build a run of some pairs.

    `pairs`: pair numbers; `counts`: number of occurrences per pair number; `places`: (ordinal,
    position) of each occurrence of the pairs, packed as in `_Word.keys` and concatenated.
    """
    ordinals = places >> _POSITION_BITS
    per_pair = counts[pairs]
    is_first = np.diff(ordinals, prepend=-1) != 0  # the first occurrence in a posting
    is_first[list_offsets(per_pair)[:-1]] = True
    firsts = np.flatnonzero(is_first)
    return WordRun(
        [pair_of(*(words[i].word for i in divmod(pair, COMMON_MAX))) for pair in pairs],
        np.diff(list_offsets(is_first.view(np.uint8))[list_offsets(per_pair)]),
        ordinals[firsts].astype(np.uint32),
        np.diff(firsts, append=len(places)).astype(np.uint32),
        (places & (1 << _POSITION_BITS) - 1).astype(np.uint32),
    )
