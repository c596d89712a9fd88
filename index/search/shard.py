"""A shard: the documents of a collection that one searcher has, as of each retained time.

Takes: every version of the collection, in label order, each once. Gives: the answers to queries as
of a time T, and documents as of T. Statistics are those of the whole collection.

Versions have *ordinals* 0, 1, 2, ... in label order. So what there is as of T is a prefix of all
posting lists, without the versions that were replaced before T: nothing is copied, and nothing that
was read changes. Invariant: as of a T that is applied, every answer is the same for ever.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driftline.engine.labels import INFINITY
from driftline.index.documents.versions import Version
from driftline.index.postings.parts import Part
from driftline.index.postings.tail import Tail
from driftline.index.query.bound import Bound
from driftline.index.search.matching import Matching
from driftline.index.search.ranking import Place, Ranked, best, together
from driftline.index.search.scoring import Scorer
from driftline.index.search.statistics import Statistics

NONE = -1
"""In place of an ordinal: there is no version before."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How many versions a query finds, and the first of them."""

    total: int
    ranked: list[Ranked]


class Shard:
    """One shard of one collection.

    `weights`: of its text fields; `has`: whether the shard has the document with an id.
    """

    def __init__(
        self, tail: Tail, weights: Sequence[float], has: Callable[[str], bool] = lambda id: True
    ) -> None:
        self.parts: list[Part] = [tail]
        """Together they have all versions, in the order of their ordinals."""
        self.statistics = Statistics(tail.text_fields)
        self._weights = weights
        self._has = has
        self._tail = tail
        self._times = array("q")
        self._deaths = array("q")
        """Of each version, when the next one of the same document came; INFINITY: none has."""
        self._before = array("q")
        """Of each version, the one before it of the same document."""
        self._last: dict[str, int] = {}
        """Document -> its last version, also if it was deleted."""

    def apply(self, time: int, version: Version) -> None:
        """Take the next version. Precondition: `time` is not below that of the last one."""
        self.statistics.apply(time, version)
        if not self._has(version.id):
            return
        last = self._last.get(version.id, NONE)
        if last != NONE and self._deaths[last] == INFINITY:
            self._deaths[last] = time
        if not version.deleted:
            self._last[version.id] = len(self._times)
            self._times.append(time)
            self._deaths.append(INFINITY)
            self._before.append(last)
            self._tail.add(time, version)

    # Reading.

    def search(self, query: Bound, time: int, limit: int, after: Place | None = None) -> Answer:
        """How many versions a query finds as of a time, and the first `limit` behind a place."""
        scorer = Scorer(query.scoring, self._weights, self.statistics, time)
        total, results = 0, []
        for part, count in self._parts_at(time):
            matching = Matching(part, count)
            found = np.flatnonzero(matching.mask(query.root) & self._alive(part, count, time))
            total += len(found)
            if len(found):
                scores = scorer.scores(part, matching, count)[found]
                times = part.times[found]
                results.append(best(found + part.first, scores, times, limit, after))
        return Answer(total, together(results, limit))

    def find(self, id: str, time: int) -> int | None:
        """The ordinal of a document's version as of a time; None if there is none."""
        ordinal = self._last.get(id, NONE)
        while ordinal != NONE and self._times[ordinal] >= time:
            ordinal = self._before[ordinal]
        if ordinal == NONE or self._deaths[ordinal] < time:
            return None
        return ordinal

    def time_of(self, ordinal: int) -> int:
        """The label time of a version."""
        return self._times[ordinal]

    def id(self, ordinal: int) -> str:
        """The id of the document of a version."""
        part = self._part_of(ordinal)
        return part.id(ordinal - part.first)

    def stored(self, ordinal: int) -> bytes:
        """What is stored of a version."""
        part = self._part_of(ordinal)
        return part.stored(ordinal - part.first)

    def _parts_at(self, time: int) -> Iterator[tuple[Part, int]]:
        """The parts with versions as of a time, and how many."""
        end = bisect_left(self._times, time)
        for part in self.parts:
            if part.first < end:
                yield part, min(part.count, end - part.first)

    def _alive(self, part: Part, count: int, time: int) -> NDArray[np.bool_]:
        deaths = np.array(self._deaths[part.first : part.first + count], np.int64)
        return deaths >= time

    def _part_of(self, ordinal: int) -> Part:
        return self.parts[bisect_right(self.parts, ordinal, key=lambda part: part.first) - 1]

    # Parts.

    def replace(self, parts: Sequence[Part], tail: Tail) -> None:
        """Go on with other parts that have the same versions, and an empty tail behind them."""
        self.parts, self._tail = [*parts, tail], tail
