"""Shard: the documents of a collection in one searcher, as of each retained time.

Input: every version of the collection, once, in label order. Output: query results and documents as
of a time T. A shard stores only the versions of its own documents; its `Statistics` also count
those of documents in other shards.

The versions of a shard have *ordinals* 0, 1, 2, ... in label order. The state as of T is therefore
a prefix of each posting list, without the versions replaced or deleted before T: reads need no
copies, and later writes do not change data that was read. Adjacent versions form a *part*
(`index.postings.segment_reader`), in memory or in a file. A merge may drop versions that were
replaced or deleted before every retained T; this lowers the ordinals of later versions. Invariant:
an answer as of an applied and retained T never changes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from driftline.engine.labels import INFINITY
from driftline.index.documents.answers import ExplainedQuery
from driftline.index.documents.versions import DocumentVersion
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.postings.segment_reader import SegmentReader
from driftline.index.query.tree import Query, Scoring
from driftline.index.search.checkpoint_codec import (
    CheckpointReader,
    encode_dictionary,
    encode_numbers,
)
from driftline.index.search.matching import BUDGET, Mask, Matching, check_cost
from driftline.index.search.ranking import (
    Ranked,
    Sort,
    SortPosition,
    merge_ranked,
    rank_by_score,
    rank_by_value,
)
from driftline.index.search.results import count_by, explain
from driftline.index.search.scoring import Scorer, ScoreThreshold, candidates
from driftline.index.search.statistics import Statistics

NO_VERSION = -1
"""Placeholder for the ordinal or number of a version that does not exist or was dropped."""


class ShardAnswer(Struct, frozen=True):
    """Total number of matches, the first matches in order, and the counts of each facet."""

    total: int
    ranked: list[Ranked]
    facets: tuple[Counter[str], ...] = ()


class Shard:
    """One shard of one collection.

    `tail`: empty segment for the first versions; `weights`: weight of each text field; `has`:
    returns whether the document with a given id belongs to this shard; `budget`: cost limit of a
    query in this shard.
    """

    def __init__(
        self,
        tail: MemorySegment,
        weights: Sequence[float],
        has: Callable[[str], bool] = lambda id: True,
        budget: int = BUDGET,
    ) -> None:
        self.parts: list[SegmentReader] = [tail]
        """Parts with all versions, in the order of ordinals; only the last one, `tail`, grows."""
        self.statistics = Statistics(tail.text_fields)
        self._weights = weights
        self._has = has
        self._budget = budget
        self.tail = tail
        self.live_count = 0
        """Number of documents that the shard currently contains."""
        self._times = array("q")
        """Per version, its label time."""
        self._deleted_at = array("q")
        """Per version, the label time of the write that replaced or deleted it; else INFINITY."""
        self._numbers = array("q")
        """Per version, its number: ascending, and never changed, unlike its ordinal."""
        self._previous = array("q")
        """Per version, the number of the document's previous version, or NO_VERSION."""
        self._last: dict[str, int] = {}
        """Document id -> the number of its last version, until that version is dropped."""

    def apply(self, time: int, version: DocumentVersion) -> None:
        """Apply the next version of the collection, which may belong to another shard.

        Precondition: `time` is not less than in the previous call.
        """
        self.statistics.apply(time, version)
        if not self._has(version.id):
            return
        previous = self._last.get(version.id, NO_VERSION)
        previous_ordinal = self._ordinal(previous)
        if previous_ordinal != NO_VERSION and self._deleted_at[previous_ordinal] == INFINITY:
            self._deleted_at[previous_ordinal] = time
            self.live_count -= 1
        if not version.deleted:
            number = self._numbers[-1] + 1 if self._numbers else 0
            self.live_count += 1
            self._last[version.id] = number
            self._numbers.append(number)
            self._times.append(time)
            self._deleted_at.append(INFINITY)
            self._previous.append(previous)
            self.tail.add(time, version)

    @property
    def versions(self) -> int:
        """Number of versions in the shard."""
        return len(self._times)

    # Reading.

    def search(
        self,
        query: Query,
        time: int,
        limit: int,
        after: SortPosition | None = None,
        *,
        sort: Sort | None = None,
        facets: Sequence[int] = (),
        pause: Callable[[], None] = lambda: None,
    ) -> ShardAnswer:
        """Count the matches of a query as of a time; rank the first `limit` after a position.

        Ranks by score, or by `sort`. `facets`: numbers of the fields whose keywords are counted;
        `pause`: called often, so that other queries can run. Raises QueryTooCostly.
        """
        scoring = query.scoring if sort is None else ()
        scorer = Scorer(scoring, self._weights, self.statistics, time)
        threshold = ScoreThreshold(limit)
        total = 0
        ranked: list[Ranked] = []
        counts: tuple[Counter[str], ...] = tuple(Counter() for _ in facets)
        for matching, mask in self._matches_per_part(query, time, scoring, pause):
            total += int(np.count_nonzero(mask))
            if limit:
                part_ranked = _rank_part(scorer, matching, mask, threshold, after, sort)
                ranked = merge_ranked([ranked, part_ranked], limit, sort)
            for field, counter in zip(facets, counts, strict=True):
                counter.update(count_by(field, matching, mask))
        return ShardAnswer(total, ranked, counts)

    def count(self, query: Query, time: int, pause: Callable[[], None] = lambda: None) -> int:
        """Return the number of matches of a query as of a time. Raises QueryTooCostly."""
        matches = self._matches_per_part(query, time, (), pause)
        return sum(int(np.count_nonzero(mask)) for _, mask in matches)

    def explain(self, query: Query, id: str, time: int) -> ExplainedQuery | None:
        """Explain a document's score as of a time; None if the shard has no such document.

        Raises QueryTooCostly.
        """
        ordinal = self.find(id, time)
        if ordinal is None:
            return None
        part = self._part_of(ordinal)
        row = ordinal - part.first
        matching = Matching(part, row + 1, query.scoring)
        check_cost(query.root, [matching], self._budget)
        scorer = Scorer(query.scoring, self._weights, self.statistics, time)
        return explain(query, scorer, matching, row)

    def _matches_per_part(
        self,
        query: Query,
        time: int,
        scoring: Collection[Scoring],
        pause: Callable[[], None],
    ) -> Iterator[tuple[Matching, Mask]]:
        """Yield the matches of a query as of a time, for each part that may have any.

        `scoring`: leaves whose frequencies will be requested. Raises QueryTooCostly.
        """
        matchings = [Matching(part, count, scoring, pause) for part, count in self._parts_at(time)]
        check_cost(query.root, matchings, self._budget)
        for matching in matchings:
            if matching.cannot_match(query.root):
                continue  # common case: most words occur in few parts
            part, count = matching.part, matching.count
            alive = self._live_mask(part.first, part.first + count, time)
            yield matching, matching.mask(query.root) & alive

    def find(self, id: str, time: int) -> int | None:
        """Return the ordinal of a document's version as of a time; None if there is none."""
        ordinal = self._ordinal(self._last.get(id, NO_VERSION))
        while ordinal != NO_VERSION and self._times[ordinal] >= time:
            ordinal = self._ordinal(self._previous[ordinal])
        if ordinal == NO_VERSION or self._deleted_at[ordinal] < time:
            return None
        return ordinal

    def _ordinal(self, number: int) -> int:
        """Return the ordinal of the version with a number; NO_VERSION if it was dropped."""
        at = bisect_left(self._numbers, number)
        return at if at < len(self._numbers) and self._numbers[at] == number else NO_VERSION

    def time_of(self, ordinal: int) -> int:
        """Return the label time of a version."""
        return self._times[ordinal]

    def id(self, ordinal: int) -> str:
        """Return the document id of a version."""
        part = self._part_of(ordinal)
        return part.id(ordinal - part.first)

    def stored(self, ordinal: int) -> bytes:
        """Return the stored bytes of a version."""
        part = self._part_of(ordinal)
        return part.stored(ordinal - part.first)

    def _parts_at(self, time: int) -> Iterator[tuple[SegmentReader, int]]:
        """Yield the parts with versions before a time, each with the number of such versions."""
        end = bisect_left(self._times, time)
        for part in self.parts:
            if part.first < end:
                yield part, min(part.count, end - part.first)

    def _live_mask(self, first: int, end: int, time: int) -> NDArray[np.bool_]:
        """Return, per version in a range, whether it was neither replaced nor deleted before a
        time."""
        deleted_at = np.frombuffer(self._deleted_at, np.int64, end)
        return deleted_at[first:] >= time  # a new array: views would keep the old from growing

    def _part_of(self, ordinal: int) -> SegmentReader:
        return self.parts[bisect_right(self.parts, ordinal, key=lambda part: part.first) - 1]

    # Parts.

    def replace(self, parts: Sequence[SegmentReader], tail: MemorySegment) -> None:
        """Switch to other parts with the same versions, followed by an empty tail."""
        self._set_parts([*parts, tail])
        self.tail = tail

    def seal(self) -> None:
        """Start an empty tail, unless the tail is empty; the previous one stops growing."""
        tail = self.tail
        if tail.count:
            new_tail = MemorySegment(tail.first + tail.count, tail.text_fields, tail.value_fields)
            self.replace(self.parts, new_tail)

    def readable_mask(self, parts: Sequence[SegmentReader], since: int) -> NDArray[np.bool_]:
        """Return, per version of adjacent parts, whether a read as of T >= `since` can see it."""
        return self._live_mask(parts[0].first, parts[-1].first + parts[-1].count, since)

    def replace_parts(
        self,
        parts: Sequence[SegmentReader],
        part: SegmentReader,
        keep_mask: NDArray[np.bool_] | None = None,
    ) -> None:
        """Replace adjacent parts by one part with the same versions, or with some of them.

        `keep_mask`: per version of `parts`, whether `part` contains it; None: all. The shard drops
        the other versions. Precondition: no read as of a retained T can see them
        (`readable_mask`).
        """
        if keep_mask is not None and not keep_mask.all():
            self._drop(parts, keep_mask)
        at = self.parts.index(parts[0])
        self._set_parts([*self.parts[:at], part, *self.parts[at + len(parts) :]])

    def _drop(self, parts: Sequence[SegmentReader], keep_mask: NDArray[np.bool_]) -> None:
        """Drop the versions of adjacent parts that are not in the mask."""
        first, end = parts[0].first, parts[0].first + len(keep_mask)
        numbers = np.array(self._numbers[first:end])
        is_last = ~keep_mask & np.isin(numbers, np.array(self._previous), invert=True)
        # `_last` contains a dropped version only if no later one of its document exists: the
        # document was deleted. Reading an id is slow, so only the ids of these versions are read.
        rows = np.flatnonzero(is_last).tolist()
        dropped = zip([self.id(first + row) for row in rows], numbers[rows].tolist(), strict=True)
        for id, number in dropped:
            if self._last.get(id) == number:
                del self._last[id]
        for column in (self._times, self._deleted_at, self._previous, self._numbers):
            column[first:end] = array("q", np.array(column[first:end])[keep_mask].tobytes())

    def _set_parts(self, parts: Sequence[SegmentReader]) -> None:
        """Switch to these parts, which contain all versions in order, and renumber ordinals."""
        firsts = accumulate((part.count for part in parts), initial=0)
        for part, first in zip(parts, firsts, strict=False):
            part.first = first
        self.parts = list(parts)

    def save(self) -> Iterator[bytes]:
        """Yield the state outside of the segments, encoded for a checkpoint."""
        for numbers in (self._times, self._deleted_at, self._previous, self._numbers):
            yield from encode_numbers(numbers)
        yield from encode_dictionary(self._last)
        yield from self.statistics.save()

    def load(self, reader: CheckpointReader, parts: Sequence[SegmentReader]) -> None:
        """Restore a saved shard whose versions are all in `parts`.

        Precondition: no version was applied. Raises SnapshotDamaged.
        """
        columns = [reader.numbers() for _ in range(4)]
        count = sum(part.count for part in parts)
        if {len(column) for column in columns} != {count}:
            raise reader.damaged()
        self._times, self._deleted_at, self._previous, self._numbers = columns
        self._last = reader.dictionary()
        self.statistics = Statistics.load(reader, self.tail.text_fields)
        self.live_count = self._deleted_at.count(INFINITY)
        self.replace(parts, MemorySegment(count, self.tail.text_fields, self.tail.value_fields))


def _rank_part(
    scorer: Scorer,
    matching: Matching,
    mask: Mask,
    threshold: ScoreThreshold,
    after: SortPosition | None,
    sort: Sort | None,
) -> list[Ranked]:
    """Return the first `threshold.limit` matches of a part after a position.

    A search by score without `after` also increases the threshold.
    `mask`: the matches of the query in the part.
    """
    part, limit = matching.part, threshold.limit
    if sort is not None:
        rows = np.flatnonzero(mask)
        column = part.values(sort.field)
        return rank_by_value(sort, column, rows, part.first, part.times[rows], limit, after)
    is_later_page = after is not None  # `candidates` may contain only versions of earlier pages
    rows = np.flatnonzero(mask) if is_later_page else candidates(scorer, matching, mask, threshold)
    scores = scorer.scores(matching, rows)
    if not is_later_page:
        threshold.update(scores)
    return rank_by_score(rows + part.first, scores, part.times[rows], limit, after)
