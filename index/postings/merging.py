"""Writing of segment files: from a tail, or from adjacent parts that are merged.

Both read the words of all parts in order, one run at a time. The postings of a word in the merged
segment are its postings in each part, concatenated. Memory use is limited to one run per part, the
words of a field, one column at a time, and the postings of common words. A merge may drop versions
that no query can read any more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, islice, pairwise
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from driftline.index.documents.values import ValueKind
from driftline.index.postings.document_blocks import Block, blocks, documents_of, repack
from driftline.index.postings.packing import (
    Bytes,
    Indices,
    Numbers,
    delta_encode,
    list_offsets,
    narrow_list_offsets,
    pack_lists,
    ranges,
)
from driftline.index.postings.pairs import CommonWords
from driftline.index.postings.sections import SectionWriter
from driftline.index.postings.segment import Segment
from driftline.index.postings.segment_reader import Column, Keywords, Merged, Run, SegmentReader

_COPY_BYTES = 1 << 20
"""Bytes to copy per step."""


def write(
    parts: Sequence[SegmentReader], path: Path, kept: NDArray[np.bool_] | None = None
) -> Segment:
    """Write adjacent parts to a file, durably, and open it.

    `kept`: per version, whether to write it; None: write all. The file appears under its name only
    when it is complete. Precondition: a tail among the parts does not grow meanwhile. Raises
    DamagedSegment if a part is damaged; OSError.
    """
    if any(part.first + part.count != after.first for part, after in pairwise(parts)):
        raise ValueError("the parts do not follow each other")
    if len({(part.text_fields, tuple(part.value_fields)) for part in parts}) != 1:
        raise ValueError("the parts differ in their fields")
    one = parts[0]
    merged: Sequence[Merged] = parts if kept is None else _remaining(parts, kept)
    with SectionWriter(path) as writer:
        _write_versions(writer, merged)
        for field in range(one.text_fields):
            lengths = [part.lengths(field) for part in merged]
            writer.add(f"lengths {field}", np.concatenate(lengths))
            _write_text_field(writer, merged, field, path.parent)
        for number in range(len(one.value_fields)):
            _write_values(writer, merged, number)
        count, size = (
            sum(part.count for part in merged),
            sum(part.postings_count for part in merged),
        )
        writer.publish((one.first, count, size, one.text_fields, tuple(one.value_fields)))
    return Segment(path)


def _remaining(parts: Sequence[SegmentReader], kept: NDArray[np.bool_]) -> list[Merged]:
    pieces = np.split(kept, list_offsets(np.array([part.count for part in parts]))[1:-1])
    return [_CompactedSegment(part, piece) for part, piece in zip(parts, pieces, strict=True)]


class _CompactedSegment:
    """A part without some of its versions; `kept`: per version, whether it remains.

    Remaining versions get new ordinals without gaps, in the same order. Words and keywords that no
    remaining version has are dropped.
    """

    def __init__(self, part: Merged, kept: NDArray[np.bool_]) -> None:
        self.count = int(np.count_nonzero(kept))
        self.postings_count = 0
        """Postings of the runs read so far."""
        self._part = part
        self._keep_mask = kept
        self._rows = np.flatnonzero(kept)
        self._numbers = list_offsets(kept.view(np.uint8))[:-1].astype(np.uint32)
        """Old ordinal -> new ordinal; valid only for remaining versions."""

    @property
    def text_fields(self) -> int:
        return self._part.text_fields

    @property
    def value_fields(self) -> Sequence[ValueKind]:
        return self._part.value_fields

    @property
    def times(self) -> NDArray[np.int64]:
        return self._part.times[self._rows]

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
        return Keywords(list_offsets(counts), renumbered.astype(np.uint32), words)

    def id(self, ordinal: int) -> str:
        return self._part.id(int(self._rows[ordinal]))

    def runs(self, field: int) -> Iterator[Run]:
        for run in self._part.runs(field):
            kept = self._keep_mask[run.ordinals]
            counts = np.add.reduceat(kept, list_offsets(run.counts)[:-1], dtype=np.intp)
            ordinals = self._numbers[run.ordinals[kept]]
            self.postings_count += len(ordinals)
            if len(ordinals):
                yield Run(
                    list(compress(run.words, counts > 0)),
                    counts[counts > 0],
                    ordinals,
                    run.frequencies[kept],
                    run.positions[np.repeat(kept, run.frequencies)],
                )

    def documents(self) -> Iterator[Block]:
        kept = iter(self._keep_mask.tolist())
        for sizes, data in self._part.documents():
            stay = list(islice(kept, len(sizes)))
            if all(stay):
                yield sizes, data
            elif any(stay):
                yield from blocks(compress(documents_of(sizes, data), stay))


def _write_versions(writer: SectionWriter, parts: Sequence[Merged]) -> None:
    writer.add("times", np.concatenate([part.times for part in parts]))
    ids = (part.id(ordinal) for part in parts for ordinal in range(part.count))
    _write_texts(writer, "ids", ids)
    writer.begin("stored")
    sizes: list[int] = []
    places = [(0, 0)]
    for block, data in repack(chain.from_iterable(part.documents() for part in parts)):
        writer.append(data)
        sizes += block
        places.append((len(sizes), places[-1][1] + len(data)))
    writer.add("stored at", narrow_list_offsets(np.array(sizes, np.intp)))
    writer.add("blocks", np.array(places))


def _write_texts(writer: SectionWriter, name: str, texts: Iterable[str]) -> None:
    writer.begin(name)
    sizes: list[int] = []
    for text in texts:
        data = text.encode()
        writer.append(data)
        sizes.append(len(data))
    writer.add(f"{name} at", narrow_list_offsets(np.array(sizes, np.intp)))


def _write_values(writer: SectionWriter, parts: Sequence[Merged], number: int) -> None:
    """Write the column of a value field."""
    columns = [part.values(number) for part in parts]
    keywords = [column for column in columns if isinstance(column, Keywords)]
    if not keywords:
        writer.add(
            f"values {number}",
            np.concatenate([column for column in columns if not isinstance(column, Keywords)]),
        )
        return
    words = sorted(set().union(*(column.words for column in keywords)))
    number_of = {word: i for i, word in enumerate(words)}
    numbers = []
    for column in keywords:
        renumbered = np.array([number_of[word] for word in column.words], np.uint32)
        numbers.append(renumbered[column.numbers])
    writer.add(f"values {number}", np.concatenate(numbers))
    counts = np.concatenate([np.diff(column.offsets) for column in keywords])
    writer.add(f"offsets {number}", list_offsets(counts))
    _write_texts(writer, f"keywords {number}", words)


def _write_text_field(
    writer: SectionWriter, parts: Sequence[Merged], field: int, folder: Path
) -> None:
    """Write the words of a text field, and the pairs of its common words."""
    common = CommonWords()

    def runs() -> Iterator[Run]:
        for run in _runs(parts, field):
            common.add(run)
            yield run

    _write_words(writer, f"{field}", runs(), folder)
    if words := common.words():
        _write_texts(writer, f"common {field}", words)
        pairs = common.runs(sum(part.count for part in parts))
        _write_words(writer, f"{field} pairs", pairs, folder)


def _write_words(writer: SectionWriter, which: str, runs: Iterable[Run], folder: Path) -> None:
    """Write words or pairs, in order, with all postings.

    `which`: suffix of the section names; `folder`: for a temporary file of positions.
    """
    texts = bytearray()
    nothing = np.zeros(0, np.intp)
    counts, texts_sizes, postings_sizes, positions_sizes = ([nothing] for _ in range(4))
    writer.begin(f"postings {which}")
    with TemporaryFile(dir=folder) as aside:
        for run in runs:
            words = [word.encode() for word in run.words]
            texts += b"".join(words)
            texts_sizes.append(np.array(list(map(len, words))))
            counts.append(run.counts)
            data, sizes = _pack_postings(run)
            writer.append(data.data)
            postings_sizes.append(sizes)
            data, sizes = _pack_positions(run)
            aside.write(data.data)
            positions_sizes.append(sizes)
        writer.begin(f"positions {which}")
        aside.seek(0)
        while copied := aside.read(_COPY_BYTES):
            writer.append(copied)
    writer.add(f"postings {which} at", narrow_list_offsets(np.concatenate(postings_sizes)))
    writer.add(f"positions {which} at", narrow_list_offsets(np.concatenate(positions_sizes)))
    writer.add(f"counts {which}", np.concatenate(counts).astype(np.uint32))
    writer.begin(f"words {which}")
    writer.append(texts)
    writer.add(f"words {which} at", narrow_list_offsets(np.concatenate(texts_sizes)))


def _pack_postings(run: Run) -> tuple[Bytes, Indices]:
    """Pack the ordinals and frequencies of each word; return the bytes, and the size per word."""
    twice = np.repeat(run.counts, 2)
    begins = list_offsets(twice)
    both = np.empty(begins[-1], np.uint32)
    both[ranges(begins[:-1:2], run.counts)] = delta_encode(run.ordinals, run.counts)
    both[ranges(begins[1::2], run.counts)] = run.frequencies - np.uint32(1)
    data, places = pack_lists(both, twice)
    return data, np.diff(places[::2])


def _pack_positions(run: Run) -> tuple[Bytes, Indices]:
    per_posting = run.frequencies.astype(np.intp)
    per_word = np.diff(list_offsets(per_posting)[list_offsets(run.counts)])
    data, places = pack_lists(delta_encode(run.positions, per_posting), per_word)
    return data, np.diff(places)


def _runs(parts: Sequence[Merged], field: int) -> Iterator[Run]:
    """Yield the words of all parts in order; ordinals are relative to the first part."""
    firsts = list_offsets(np.array([part.count for part in parts]))
    sources = [part.runs(field) for part in parts]
    heads = [next(source, None) for source in sources]
    while any(heads):
        bound = min(run.words[-1] for run in heads if run)
        pieces: list[Run] = []
        for i, run in enumerate(heads):
            number = bisect_right(run.words, bound) if run else 0
            if run and number:
                piece, rest = _cut(run, number)
                moved = piece.ordinals + firsts[i].astype(np.uint32)
                pieces.append(piece._replace(ordinals=moved))
                heads[i] = rest if rest.words else next(sources[i], None)
        yield _join(pieces) if len(pieces) > 1 else pieces[0]


def _cut(run: Run, words: int) -> tuple[Run, Run]:
    """Split a run into its first words and the rest."""
    postings = int(run.counts[:words].sum())
    positions = int(run.frequencies[:postings].sum())
    return Run(
        run.words[:words],
        run.counts[:words],
        run.ordinals[:postings],
        run.frequencies[:postings],
        run.positions[:positions],
    ), Run(
        run.words[words:],
        run.counts[words:],
        run.ordinals[postings:],
        run.frequencies[postings:],
        run.positions[positions:],
    )


def _join(runs: Sequence[Run]) -> Run:
    """Merge runs into one; postings of a word keep the order of the runs."""
    words = sorted(set().union(*(run.words for run in runs)))
    number_of = {word: i for i, word in enumerate(words)}
    numbers = np.concatenate(
        [np.repeat([number_of[word] for word in run.words], run.counts) for run in runs]
    )
    order = np.argsort(numbers, kind="stable")
    frequencies = np.concatenate([run.frequencies for run in runs])
    begins, sizes = list_offsets(frequencies)[:-1][order], frequencies[order].astype(np.intp)
    positions = np.concatenate([run.positions for run in runs])
    return Run(
        words,
        np.bincount(numbers),
        np.concatenate([run.ordinals for run in runs])[order],
        frequencies[order],
        positions[ranges(begins, sizes)],
    )
