"""Writing of a segment file from adjacent parts: sealed tails, or segments to merge.

`write` reads the words of all parts in order, one run at a time: some adjacent words with their
postings. The postings of a word in the new segment are its postings in each part, concatenated.
Memory use is limited to one run per part, the words of a field, one column at a time, and the
postings of common words. A merge may drop versions that no query can read any longer.
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
from driftline.index.postings.segment_reader import (
    Column,
    Keywords,
    MergeInput,
    SegmentReader,
    WordRun,
)

_COPY_BYTES = 1 << 20
"""Bytes to copy per step."""


def write(
    parts: Sequence[SegmentReader], path: Path, keep_mask: NDArray[np.bool_] | None = None
) -> Segment:
    """Write adjacent parts to a file, durably, and open it.

    `keep_mask`: per version, whether to write it; None: write all. The file appears under its name
    only when it is complete. Precondition: no part grows during the call. Raises DamagedSegment if
    a part is damaged; OSError.
    """
    if any(part.first + part.count != after.first for part, after in pairwise(parts)):
        raise ValueError("the parts do not follow each other")
    if len({(part.text_fields, tuple(part.value_fields)) for part in parts}) != 1:
        raise ValueError("the parts differ in their fields")
    first_part = parts[0]
    text_fields, value_fields = first_part.text_fields, tuple(first_part.value_fields)
    inputs: Sequence[MergeInput] = parts if keep_mask is None else _compact(parts, keep_mask)
    with SectionWriter(path) as writer:
        _write_versions(writer, inputs)
        for field in range(text_fields):
            lengths = [part.lengths(field) for part in inputs]
            writer.add(f"lengths {field}", np.concatenate(lengths))
            _write_text_field(writer, inputs, field, path.parent)
        for number in range(len(value_fields)):
            _write_values(writer, inputs, number)
        count = sum(part.count for part in inputs)
        postings_count = sum(part.postings_count for part in inputs)
        writer.publish((first_part.first, count, postings_count, text_fields, value_fields))
    return Segment(path)


def _compact(parts: Sequence[SegmentReader], keep_mask: NDArray[np.bool_]) -> list[MergeInput]:
    masks = np.split(keep_mask, list_offsets(np.array([part.count for part in parts]))[1:-1])
    return [_CompactedSegment(part, mask) for part, mask in zip(parts, masks, strict=True)]


class _CompactedSegment:
    """A part without some of its versions; `keep_mask`: per version, whether it remains.

    Remaining versions get new ordinals without gaps, in the same order. Words and keywords that no
    remaining version has are dropped.
    """

    def __init__(self, part: MergeInput, keep_mask: NDArray[np.bool_]) -> None:
        self.count = int(np.count_nonzero(keep_mask))
        self.postings_count = 0
        """Number of remaining postings in the runs read so far."""
        self._part = part
        self._keep_mask = keep_mask
        self._rows = np.flatnonzero(keep_mask)
        """Old ordinals of the remaining versions."""
        self._new_ordinals = list_offsets(keep_mask.view(np.uint8))[:-1].astype(np.uint32)
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

    def runs(self, field: int) -> Iterator[WordRun]:
        for run in self._part.runs(field):
            keep = self._keep_mask[run.ordinals]
            counts = np.add.reduceat(keep, list_offsets(run.counts)[:-1], dtype=np.intp)
            ordinals = self._new_ordinals[run.ordinals[keep]]
            self.postings_count += len(ordinals)
            if len(ordinals):
                yield WordRun(
                    list(compress(run.words, counts > 0)),
                    counts[counts > 0],
                    ordinals,
                    run.frequencies[keep],
                    run.positions[np.repeat(keep, run.frequencies)],
                )

    def documents(self) -> Iterator[Block]:
        mask = iter(self._keep_mask.tolist())
        for sizes, data in self._part.documents():
            block_mask = list(islice(mask, len(sizes)))
            if all(block_mask):
                yield sizes, data
            elif any(block_mask):
                yield from blocks(compress(documents_of(sizes, data), block_mask))


def _write_versions(writer: SectionWriter, parts: Sequence[MergeInput]) -> None:
    writer.add("times", np.concatenate([part.times for part in parts]))
    ids = (part.id(ordinal) for part in parts for ordinal in range(part.count))
    _write_texts(writer, "ids", ids)
    writer.begin("stored")
    sizes: list[int] = []
    block_starts = [(0, 0)]
    for block_sizes, data in repack(chain.from_iterable(part.documents() for part in parts)):
        writer.append(data)
        sizes += block_sizes
        block_starts.append((len(sizes), block_starts[-1][1] + len(data)))
    writer.add("stored at", narrow_list_offsets(np.array(sizes, np.intp)))
    writer.add("blocks", np.array(block_starts))


def _write_texts(writer: SectionWriter, name: str, texts: Iterable[str]) -> None:
    writer.begin(name)
    sizes: list[int] = []
    for text in texts:
        data = text.encode()
        writer.append(data)
        sizes.append(len(data))
    writer.add(f"{name} at", narrow_list_offsets(np.array(sizes, np.intp)))


def _write_values(writer: SectionWriter, parts: Sequence[MergeInput], number: int) -> None:
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
    writer: SectionWriter, parts: Sequence[MergeInput], field: int, folder: Path
) -> None:
    """Write the words of a text field, and the pairs of its common words."""
    common = CommonWords()

    def runs() -> Iterator[WordRun]:
        for run in _runs(parts, field):
            common.add(run)
            yield run

    _write_words(writer, f"{field}", runs(), folder)
    if words := common.words():
        _write_texts(writer, f"common {field}", words)
        pairs = common.runs(sum(part.count for part in parts))
        _write_words(writer, f"{field} pairs", pairs, folder)


def _write_words(writer: SectionWriter, which: str, runs: Iterable[WordRun], folder: Path) -> None:
    """Write words or pairs, in order, with all postings.

    `which`: suffix of the section names; `folder`: for a temporary file of positions.
    """
    texts = bytearray()
    empty = np.zeros(0, np.intp)
    counts, texts_sizes, postings_sizes, positions_sizes = ([empty] for _ in range(4))
    writer.begin(f"postings {which}")
    with TemporaryFile(dir=folder) as positions_file:
        for run in runs:
            words = [word.encode() for word in run.words]
            texts += b"".join(words)
            texts_sizes.append(np.array(list(map(len, words))))
            counts.append(run.counts)
            data, sizes = _pack_postings(run)
            writer.append(data.data)
            postings_sizes.append(sizes)
            data, sizes = _pack_positions(run)
            positions_file.write(data.data)
            positions_sizes.append(sizes)
        writer.begin(f"positions {which}")
        positions_file.seek(0)
        while chunk := positions_file.read(_COPY_BYTES):
            writer.append(chunk)
    writer.add(f"postings {which} at", narrow_list_offsets(np.concatenate(postings_sizes)))
    writer.add(f"positions {which} at", narrow_list_offsets(np.concatenate(positions_sizes)))
    writer.add(f"counts {which}", np.concatenate(counts).astype(np.uint32))
    writer.begin(f"words {which}")
    writer.append(texts)
    writer.add(f"words {which} at", narrow_list_offsets(np.concatenate(texts_sizes)))


def _pack_postings(run: WordRun) -> tuple[Bytes, Indices]:
    """Pack the ordinals and frequencies of each word; return the bytes, and the size per word."""
    counts = np.repeat(run.counts, 2)  # lengths of lists: ordinals and frequencies alternate
    begins = list_offsets(counts)
    values = np.empty(begins[-1], np.uint32)
    values[ranges(begins[:-1:2], run.counts)] = delta_encode(run.ordinals, run.counts)
    values[ranges(begins[1::2], run.counts)] = run.frequencies - np.uint32(1)
    data, byte_offsets = pack_lists(values, counts)
    return data, np.diff(byte_offsets[::2])


def _pack_positions(run: WordRun) -> tuple[Bytes, Indices]:
    """Pack the positions of each word; return the bytes, and the size per word."""
    per_posting = run.frequencies.astype(np.intp)
    per_word = np.diff(list_offsets(per_posting)[list_offsets(run.counts)])
    data, byte_offsets = pack_lists(delta_encode(run.positions, per_posting), per_word)
    return data, np.diff(byte_offsets)


def _runs(parts: Sequence[MergeInput], field: int) -> Iterator[WordRun]:
    """Yield the words of all parts in order; ordinals count from the start of the first part."""
    firsts = list_offsets(np.array([part.count for part in parts]))
    iterators = [part.runs(field) for part in parts]
    heads = [next(iterator, None) for iterator in iterators]
    while any(heads):
        last_word = min(run.words[-1] for run in heads if run)
        pieces: list[WordRun] = []
        for i, run in enumerate(heads):
            count = bisect_right(run.words, last_word) if run else 0
            if run and count:
                piece, rest = _split(run, count)
                shifted = piece.ordinals + firsts[i].astype(np.uint32)
                pieces.append(piece._replace(ordinals=shifted))
                heads[i] = rest if rest.words else next(iterators[i], None)
        yield _join(pieces) if len(pieces) > 1 else pieces[0]


def _split(run: WordRun, word_count: int) -> tuple[WordRun, WordRun]:
    """Split a run after its first `word_count` words."""
    posting_count = int(run.counts[:word_count].sum())
    position_count = int(run.frequencies[:posting_count].sum())
    return WordRun(
        run.words[:word_count],
        run.counts[:word_count],
        run.ordinals[:posting_count],
        run.frequencies[:posting_count],
        run.positions[:position_count],
    ), WordRun(
        run.words[word_count:],
        run.counts[word_count:],
        run.ordinals[posting_count:],
        run.frequencies[posting_count:],
        run.positions[position_count:],
    )


def _join(runs: Sequence[WordRun]) -> WordRun:
    """Merge runs into one; the postings of a word are in the order of the runs."""
    words = sorted(set().union(*(run.words for run in runs)))
    number_of = {word: i for i, word in enumerate(words)}
    numbers = np.concatenate(
        [np.repeat([number_of[word] for word in run.words], run.counts) for run in runs]
    )
    order = np.argsort(numbers, kind="stable")
    frequencies = np.concatenate([run.frequencies for run in runs])
    begins, sizes = list_offsets(frequencies)[:-1][order], frequencies[order].astype(np.intp)
    positions = np.concatenate([run.positions for run in runs])
    return WordRun(
        words,
        np.bincount(numbers),
        np.concatenate([run.ordinals for run in runs])[order],
        frequencies[order],
        positions[ranges(begins, sizes)],
    )
