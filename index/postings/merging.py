"""Writing segments: a tail is sealed, or neighbouring parts become one.

Both are the same: the words of all parts come in order, some at a time, each with its postings of
one part after the other. So there is in memory a run of words of each part, the new dictionary, one
column at a time, and the postings of common words. Versions that nobody can ask for any more may be
left out (`index.postings.remaining`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from driftline.index.postings.dictionary import DictionaryWriter
from driftline.index.postings.packing import (
    BLOCK,
    Numbers,
    Places,
    block_lasts,
    block_maxima,
    edges,
    gaps,
    pack_lists,
    ranges,
)
from driftline.index.postings.pairs import CommonWords
from driftline.index.postings.parts import Keywords, Merged, Part, Run
from driftline.index.postings.remaining import Remaining
from driftline.index.postings.sections import SectionWriter
from driftline.index.postings.segment import Segment
from driftline.index.postings.stored import joined

_COPIED = 1 << 20
"""Bytes that are copied in one step."""

_TEXTS = 1 << 12
"""Texts that are written in one step."""


def write(parts: Sequence[Part], path: Path, kept: NDArray[np.bool_] | None = None) -> Segment:
    """`merge` in one go."""
    steps = merge(parts, path, kept)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            segment: Segment = end.value
            return segment


def merge(
    parts: Sequence[Part], path: Path, kept: NDArray[np.bool_] | None = None
) -> Generator[None, None, Segment]:
    """Write parts that follow each other to a file, durably, in steps of some milliseconds.

    `kept`: of each of their versions, whether it is in the file; None: all are. Nothing is there
    under that name before the last step. A tail must not grow meanwhile. Raises DamagedSegment if
    one of the parts is; OSError.
    """
    if any(part.first + part.count != after.first for part, after in pairwise(parts)):
        raise ValueError("the parts do not follow each other")
    if len({(part.text_fields, tuple(part.value_fields)) for part in parts}) != 1:
        raise ValueError("the parts differ in their fields")
    one = parts[0]
    merged: Sequence[Merged] = parts if kept is None else _remaining(parts, kept)
    with SectionWriter(path) as writer:
        yield from _write_versions(writer, merged)
        for field in range(one.text_fields):
            lengths = [part.lengths(field) for part in merged]
            writer.add(f"lengths {field}", np.concatenate(lengths))
            yield from _write_text(writer, merged, field, path.parent)
        for number in range(len(one.value_fields)):
            yield from _write_values(writer, merged, number)
        count, size = sum(part.count for part in merged), sum(part.size for part in merged)
        writer.publish((one.first, count, size, one.text_fields, tuple(one.value_fields)))
    return Segment(path)


def _remaining(parts: Sequence[Part], kept: NDArray[np.bool_]) -> list[Merged]:
    pieces = np.split(kept, edges(np.array([part.count for part in parts]))[1:-1])
    return [Remaining(part, piece) for part, piece in zip(parts, pieces, strict=True)]


def _write_versions(writer: SectionWriter, parts: Sequence[Merged]) -> Iterator[None]:
    writer.add("times", np.concatenate([part.times for part in parts]))
    writer.add("deleted", np.concatenate([part.deleted for part in parts]))
    ids = (part.id(ordinal) for part in parts for ordinal in range(part.count))
    yield from _write_texts(writer, "ids", ids)
    writer.begin("stored")
    sizes: list[int] = []
    blocks = [(0, 0)]
    for block, data in joined(chain.from_iterable(part.documents() for part in parts)):
        writer.append(data)
        sizes += block
        blocks.append((len(sizes), blocks[-1][1] + len(data)))
        yield
    writer.add("stored at", edges(np.array(sizes, np.intp)))
    writer.add("blocks", np.array(blocks))


def _write_texts(writer: SectionWriter, name: str, texts: Iterable[str]) -> Iterator[None]:
    writer.begin(name)
    sizes: list[int] = []
    for text in texts:
        data = text.encode()
        writer.append(data)
        sizes.append(len(data))
        if len(sizes) % _TEXTS == 0:
            yield
    writer.add(f"{name} at", edges(np.array(sizes, np.intp)))
    yield


def _write_values(writer: SectionWriter, parts: Sequence[Merged], number: int) -> Iterator[None]:
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
    yield
    numbers = []
    for column in keywords:
        renumbered = np.array([number_of[word] for word in column.words], np.uint32)
        numbers.append(renumbered[column.numbers])
    writer.add(f"values {number}", np.concatenate(numbers))
    counts = np.concatenate([np.diff(column.offsets) for column in keywords])
    writer.add(f"offsets {number}", edges(counts))
    yield from _write_texts(writer, f"keywords {number}", words)


def _write_text(
    writer: SectionWriter, parts: Sequence[Merged], field: int, folder: Path
) -> Iterator[None]:
    """Write the words of a text field, and the pairs of its common ones."""
    common = CommonWords()

    def runs() -> Iterator[Run]:
        for run in _runs(parts, field):
            common.add(run)
            yield run

    yield from _write_words(writer, f"{field}", runs(), folder)
    if words := common.words():
        yield from _write_texts(writer, f"common {field}", words)
        pairs = common.runs(sum(part.count for part in parts))
        yield from _write_words(writer, f"{field} pairs", pairs, folder)


def _write_words(
    writer: SectionWriter, which: str, runs: Iterable[Run | None], folder: Path
) -> Iterator[None]:
    """Write a dictionary of words or pairs, and the postings of all."""
    dictionary = DictionaryWriter()
    skips = bytearray()
    writer.begin(f"postings {which}")
    with TemporaryFile(dir=folder) as aside:
        for run in runs:
            if run is None:
                yield
                continue
            postings, sizes = _pack_pairs(
                gaps(run.ordinals, run.counts), run.frequencies - np.uint32(1), run.counts
            )
            writer.append(postings.data)
            positions, positions_sizes = _pack_positions(run)
            aside.write(positions.data)
            some_skips, skips_sizes = _pack_skips(run)
            skips += some_skips
            for row in zip(
                run.words,
                run.counts.tolist(),
                sizes.tolist(),
                positions_sizes.tolist(),
                skips_sizes.tolist(),
                strict=True,
            ):
                dictionary.add(*row)
            yield
        writer.begin(f"positions {which}")
        aside.seek(0)
        while data := aside.read(_COPIED):
            writer.append(data)
            yield
    for name, content in (("skips", skips), ("words", dictionary.data)):
        writer.begin(f"{name} {which}")
        writer.append(content)
    writer.add(f"groups {which}", dictionary.groups())
    yield


def _pack_pairs(
    first: Numbers, second: Numbers, counts: Places
) -> tuple[NDArray[np.uint8], Places]:
    """Pack two lists for each word, one behind the other. Returns also the size of both."""
    begins = edges(np.repeat(counts, 2))
    both = np.empty(len(first) + len(second), np.uint32)
    both[ranges(begins[:-1:2], counts)] = first
    both[ranges(begins[1::2], counts)] = second
    data, places = pack_lists(both, np.repeat(counts, 2))
    return data, np.diff(places[::2])


def _pack_positions(run: Run) -> tuple[NDArray[np.uint8], Places]:
    per_posting = run.frequencies.astype(np.intp)
    per_word = np.diff(edges(per_posting)[edges(run.counts)])
    data, places = pack_lists(gaps(run.positions, per_posting), per_word)
    return data, np.diff(places)


def _pack_skips(run: Run) -> tuple[bytes, Places]:
    """The last ordinals and largest frequencies of blocks, of words that have several."""
    sizes = np.zeros(len(run.words), np.intp)
    long = np.flatnonzero(run.counts > BLOCK)
    if not len(long):
        return b"", sizes
    counts = run.counts[long]
    rows = ranges(edges(run.counts)[long], counts)
    blocks = -(-counts // BLOCK)
    lasts = gaps(block_lasts(run.ordinals[rows], counts), blocks)
    data, sizes[long] = _pack_pairs(lasts, block_maxima(run.frequencies[rows], counts), blocks)
    return data.tobytes(), sizes


def _runs(parts: Sequence[Merged], field: int) -> Iterator[Run]:
    """The words of all parts in order; ordinals are relative to the first part."""
    firsts = edges(np.array([part.count for part in parts]))
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
    """The first words of a run, and the rest."""
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
    """One run of several; of a word the postings of earlier ones come first."""
    words = sorted(set().union(*(run.words for run in runs)))
    number_of = {word: i for i, word in enumerate(words)}
    numbers = np.concatenate(
        [np.repeat([number_of[word] for word in run.words], run.counts) for run in runs]
    )
    order = np.argsort(numbers, kind="stable")
    frequencies = np.concatenate([run.frequencies for run in runs])
    begins, sizes = edges(frequencies)[:-1][order], frequencies[order].astype(np.intp)
    positions = np.concatenate([run.positions for run in runs])
    return Run(
        words,
        np.bincount(numbers),
        np.concatenate([run.ordinals for run in runs])[order],
        frequencies[order],
        positions[ranges(begins, sizes)],
    )
