"""Pair postings: postings of two adjacent common words of a text field.

Finding "of the" by the positions of its words is slow: both words are in nearly every text, often
several times. A segment therefore also stores postings for each two adjacent common words, as if
the pair were a word at the position of the first. Phrases are then found by pairs, not by words.
(As in Williams, Zobel and Bahle, Fast phrase querying with combined indexes, 2004, section 4.)
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftline.index.postings.packing import Numbers, list_offsets
from driftline.index.postings.segment_reader import RUN_SIZE, Run

COMMON_POSITIONS_MIN = 1 << 12
"""Minimum number of positions of a common word; fewer positions are cheap to scan."""

COMMON_MAX = 64
"""Maximum number of common words per field; pairs increase the size of a field by a ninth."""

POSITIONS_MAX = 1 << 26
"""Maximum total positions of all common words; a merge holds them in memory."""

_VERSIONS = 1 << 14
"""Versions per step when pairs are computed."""

_WORD_BITS = 6
_POSITION_BITS = 32


def pair_of(first: str, second: str) -> str:
    """Return the name of a pair. Names sort like pairs: no common word contains `\\0`."""
    return f"{first}\0{second}"


class _Word(NamedTuple):
    """A common word and its postings."""

    position_count: int
    """Number of positions. It is the first field, so a heap of words is ordered by it."""
    word: str
    ordinals: Numbers
    begins: NDArray[np.intp]
    """Edges of the positions of each posting in `flat_positions`."""
    flat_positions: Numbers

    def keys(self, first: int, number: int) -> NDArray[np.int64]:
        """Return a sort key per position: ordinal, position and `number`, packed into one integer.

        Covers `_VERSIONS` versions from the ordinal `first` on.
        """
        low, high = np.searchsorted(self.ordinals, (first, first + _VERSIONS))
        begins = self.begins[low : high + 1]
        keys = np.repeat(self.ordinals[low:high].astype(np.int64), np.diff(begins))
        keys <<= _POSITION_BITS
        keys += self.flat_positions[begins[0] : begins[-1]]
        keys <<= _WORD_BITS
        keys += number
        return keys


class CommonWords:
    """Finds the common words of a text field, and then their pairs."""

    def __init__(self) -> None:
        self._pairs: list[_Word] = []
        """A heap whose first word is the least common one."""
        self._positions = 0

    def add(self, run: Run) -> None:
        """Add the common words of a run. Precondition: no word is added twice."""
        ends, begins = list_offsets(run.counts), list_offsets(run.frequencies)
        for number in np.flatnonzero(np.diff(begins[ends]) >= COMMON_POSITIONS_MIN).tolist():
            if "\0" in (word := run.words[number]):
                continue  # analysers emit none, and `pair_of` needs distinct names
            low, high = ends[number : number + 2]
            at = begins[low : high + 1]
            positions = run.positions[at[0] : at[-1]].copy()
            ordinals = run.ordinals[low:high].copy()
            size = len(positions)
            heappush(self._pairs, _Word(size, word, ordinals, at - at[0], positions))
            self._positions += size
            while len(self._pairs) > COMMON_MAX or self._positions > POSITIONS_MAX:
                self._positions -= heappop(self._pairs).position_count

    def words(self) -> list[str]:
        """Return the common words, in order."""
        return sorted(found.word for found in self._pairs)

    def runs(self, versions: int) -> Iterator[Run]:
        """Yield all pairs of adjacent common words in the first `versions` versions, in order."""
        words = sorted(self._pairs, key=lambda found: found.word)
        pairs = [np.zeros(0, np.int16)]
        places = [np.zeros(0, np.int64)]
        for first in range(0, versions if words else 0, _VERSIONS):
            keys = np.concatenate([word.keys(first, i) for i, word in enumerate(words)])
            keys.sort()
            numbers = (keys & (1 << _WORD_BITS) - 1).astype(np.int16)
            keys >>= _WORD_BITS
            follow = np.flatnonzero(np.diff(keys) == 1)
            pairs.append(numbers[follow] * COMMON_MAX + numbers[follow + 1])
            places.append(keys[follow])
        found = np.concatenate(pairs)
        order = found.argsort(kind="stable")
        counts = np.bincount(found, minlength=COMMON_MAX * COMMON_MAX)
        all_places = np.concatenate(places)[order]
        begins = list_offsets(counts).tolist()
        some: list[int] = []
        for pair in np.flatnonzero(counts).tolist():
            some.append(pair)
            if begins[pair + 1] - begins[some[0]] >= RUN_SIZE:
                yield _run(words, some, counts, all_places[begins[some[0]] : begins[pair + 1]])
                some = []
        if some:
            yield _run(words, some, counts, all_places[begins[some[0]] :])


def _run(
    words: list[_Word], pairs: list[int], counts: NDArray[np.intp], places: NDArray[np.int64]
) -> Run:
    """Build the postings of some pairs.

    `pairs`: pair numbers; `counts`: number of places per pair number; `places`: (ordinal, position)
    of the given pairs, packed as in `_Word.keys` and concatenated.
    """
    ordinals = places >> _POSITION_BITS
    per_pair = counts[pairs]
    is_first = np.diff(ordinals, prepend=-1) != 0
    is_first[list_offsets(per_pair)[:-1]] = True
    firsts = np.flatnonzero(is_first)
    return Run(
        [pair_of(*(words[i].word for i in divmod(pair, COMMON_MAX))) for pair in pairs],
        np.diff(list_offsets(is_first.view(np.uint8))[list_offsets(per_pair)]),
        ordinals[firsts].astype(np.uint32),
        np.diff(firsts, append=len(places)).astype(np.uint32),
        (places & (1 << _POSITION_BITS) - 1).astype(np.uint32),
    )
