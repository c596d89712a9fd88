"""A part without some of its versions, as a merge reads it: those that nobody can ask for any more.

The versions that remain get new ordinals, without gaps, in the order that they had. Words, and
keywords, that none of them has are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, islice

import numpy as np
from numpy.typing import NDArray

from driftline.index.documents.values import ValueKind
from driftline.index.postings.packing import Numbers, edges, ranges
from driftline.index.postings.parts import Column, Keywords, Merged, Run
from driftline.index.postings.stored import Block, blocks, documents_of


class Remaining:
    """What remains of a part; `kept`: of each of its versions, whether it does."""

    def __init__(self, part: Merged, kept: NDArray[np.bool_]) -> None:
        self.count = int(np.count_nonzero(kept))
        self.size = 0
        """Of the runs that have been read."""
        self._part = part
        self._kept = kept
        self._rows = np.flatnonzero(kept)
        self._numbers = edges(kept.view(np.uint8))[:-1].astype(np.uint32)
        """The new ordinals of those that remain."""

    @property
    def text_fields(self) -> int:
        return self._part.text_fields

    @property
    def value_fields(self) -> Sequence[ValueKind]:
        return self._part.value_fields

    @property
    def times(self) -> NDArray[np.int64]:
        return self._part.times[self._rows]

    @property
    def deleted(self) -> NDArray[np.bool_]:
        return self._part.deleted[self._rows]

    def lengths(self, field: int) -> Numbers:
        return self._part.lengths(field)[self._rows]

    def values(self, number: int) -> Column:
        column = self._part.values(number)
        if not isinstance(column, Keywords):
            return column[self._rows]
        counts = np.diff(column.offsets)[self._rows]
        numbers = column.numbers[ranges(column.offsets[self._rows], counts)]
        used, renumbered = np.unique(numbers, return_inverse=True)
        words = [column.words[number] for number in used.tolist()]
        return Keywords(edges(counts), renumbered.astype(np.uint32), words)

    def id(self, ordinal: int) -> str:
        return self._part.id(int(self._rows[ordinal]))

    def runs(self, field: int) -> Iterator[Run]:
        for run in self._part.runs(field):
            kept = self._kept[run.ordinals]
            counts = np.add.reduceat(kept, edges(run.counts)[:-1], dtype=np.intp)
            ordinals = self._numbers[run.ordinals[kept]]
            self.size += len(ordinals)
            if len(ordinals):
                yield Run(
                    list(compress(run.words, counts > 0)),
                    counts[counts > 0],
                    ordinals,
                    run.frequencies[kept],
                    run.positions[np.repeat(kept, run.frequencies)],
                )

    def documents(self) -> Iterator[Block]:
        kept = iter(self._kept.tolist())
        for sizes, data in self._part.documents():
            stay = list(islice(kept, len(sizes)))
            if all(stay):
                yield sizes, data
            elif any(stay):
                yield from blocks(compress(documents_of(sizes, data), stay))
