"""Splits of a source, to read it in parallel; records get the same times as without splits.

A *row* is a line or a page; it gives any number of documents. Each document becomes a record, whose
time is its number in the source. So the earlier splits have to be counted before a split is read:
first `count` every split (in parallel; generated documents are counted without reading), then
`read` every split, with the number of its first row and the time of its first document from
`first_rows_and_times`.

Uncompressed JSON lines and text are split between lines, uncompressed XML dumps between pages, and
multistream bzip2 dumps, as Wikimedia publishes them, between streams. Generated documents are split
by number. Any other source is one split. So is a file in an encoding other than UTF-8, a file
smaller than twice `SPLIT_BYTES_MIN`, and an uncompressed XML file with a comment, CDATA, DOCTYPE or
processing instruction, where `<page` may be text.

    >>> from driftline.connectors.files.generated import ZipfSource
    >>> splits = splits_of(ZipfSource(5, words_per_document=1), 2)
    >>> firsts = first_rows_and_times(split.count() for split in splits)
    >>> [[time for time, _ in split.read(*first)] for split, first in zip(splits, firsts)]
    [[1, 2], [3, 4, 5]]
"""

from __future__ import annotations

import bz2
import mmap
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from driftline.connectors.files.buffers import BUFFER_BYTES, Broken, Buffers, decompressor
from driftline.connectors.files.files import FileSource, Format, SeveralFiles
from driftline.connectors.files.formats import json_rows, lines, page_rows, text_rows
from driftline.connectors.files.generated import ZipfSource
from driftline.engine.labels import INFINITY
from driftline.engine.sources.record import UTF_8, Malformed, RecordFormat
from driftline.engine.sources.source import BadRecord, Source

SPLIT_BYTES_MIN = 2**20
"""Minimum size of a split of a file."""

BZIP2_BLOCK_BYTES = 2**20
"""Maximum size of a compressed block; bzip2 only decompresses whole blocks."""

_PAGE = re.compile(rb"<page[\s>]")
_NON_ELEMENT_MARKUP = re.compile(rb"<(?:!|\?(?!xml\s))")
"""The beginning of markup that may hold `<page` as text."""
_BETWEEN_PAGES = re.compile(rb"\s*<(?:page[\s>]|/)")
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")
_ROOT = re.compile(rb"<(mediawiki|pages)[\s>]")


class SplitCount(Struct, frozen=True):
    """Number of rows and documents in a split.

    `broken`: whether the file breaks off in the split; the rest of the file cannot be read.
    """

    rows: int
    documents: int
    broken: bool = False


class Split(Protocol):
    """A split of a source. It can be pickled, to be read in another process."""

    def count(self) -> SplitCount:
        """Return the number of rows and documents in the split."""

    def read(self, row: int, time: int) -> Iterator[tuple[int, object] | BadRecord]:
        """Yield the records.

        `row`: the number of the split's first row; `time`: the time of its first document.
        """


def splits_of(source: Source, count: int, since: int = 1) -> list[Split]:
    """Split a source into at most `count` splits, in order, but at least one for each file.

    If the source is not split, the only split begins with time `since`.
    """
    if isinstance(source, ZipfSource):
        bounds = _bounds(1, source.documents + 1, count)
        return [TimeSlice(source, start, stop) for start, stop in bounds]
    if isinstance(source, FileSource):
        splits = _splits_of_file(source, count)
        if len(splits) > 1:
            return splits
    if isinstance(source, SeveralFiles):
        total_bytes = sum(source.sizes) or 1
        return [
            split
            for file, size in zip(source.files, source.sizes, strict=True)
            for split in _splits_of_file(file, count * size // total_bytes)
        ]
    return [TimeSlice(source, max(1, since), INFINITY)]


def _splits_of_file(file: FileSource, count: int) -> list[Split]:
    cuts = _cuts(file.path, file.parse_rows, count) if file.record_format.encoding == UTF_8 else []
    if len(cuts) <= 2:
        return [WholeFile(file)]
    return [FileSplit(file, begin, end) for begin, end in pairwise(cuts)]


def line_splits(path: Path, count: int) -> list[FileSplit]:
    """Split an uncompressed file of lines into at most `count` splits, for `FileSplit.lines`."""
    cuts = _cuts(path, text_rows, count) or [0, path.stat().st_size]
    file = FileSource(path, text_rows, RecordFormat())
    return [FileSplit(file, begin, end) for begin, end in pairwise(cuts)]


def first_rows_and_times(counts: Iterable[SplitCount]) -> list[tuple[int, int]]:
    """Return (number of the first row, time of the first document) of each split.

    A broken split is the last one in the result.
    """
    row = time = 1
    firsts = []
    for count in counts:
        firsts.append((row, time))
        if count.broken:
            break
        row += count.rows
        time += count.documents
    return firsts


class TimeSlice(Struct, frozen=True):
    """The records of a source with times in [start, stop).

    `count` assumes one row and one document for each time, as in generated documents; of a source
    that is not split, the count is not needed. `read` ignores its arguments: the source knows the
    times.
    """

    source: Source
    start: int
    stop: int

    def count(self) -> SplitCount:
        return SplitCount(self.stop - self.start, self.stop - self.start)

    def read(self, row: int, time: int) -> Iterator[tuple[int, object] | BadRecord]:
        for record in self.source.read(self.start):
            if (record.time if isinstance(record, BadRecord) else record[0]) >= self.stop:
                return
            yield record


class WholeFile(Struct, frozen=True):
    """One of several files, as a single split."""

    source: FileSource

    def count(self) -> SplitCount:
        try:
            # No record has time INFINITY: the generator yields nothing, and returns the numbers.
            next(self.source.read_numbered(1, 1, INFINITY))
        except StopIteration as end:
            if end.value is not None:
                row, time = end.value
                return SplitCount(row - 1, time - 1)
        return SplitCount(0, 0, broken=True)

    def read(self, row: int, time: int) -> Iterator[tuple[int, object] | BadRecord]:
        return self.source.read_numbered(row, time, time)


class FileSplit(Struct, frozen=True):
    """The rows of a file that begin in [begin, end): byte offsets in the file on disk."""

    source: FileSource
    begin: int
    end: int

    def count(self) -> SplitCount:
        record_format = self.source.record_format
        if not self._is_xml and not record_format.sections:
            try:
                rows = sum(1 for _ in self.lines())
            except Broken:
                return SplitCount(0, 0, broken=True)
            return SplitCount(rows, rows)
        rows = documents = 0
        try:
            for row in self.source.parse_rows(self._buffers()):
                rows += 1
                documents += sum(1 for _ in record_format.documents(rows, row))
        except Broken:
            return SplitCount(rows, documents, broken=True)
        return SplitCount(rows, documents)

    def read(self, row: int, time: int) -> Iterator[tuple[int, object] | BadRecord]:
        try:
            for number, parsed_row in enumerate(self.source.parse_rows(self._buffers()), row):
                for document in self.source.record_format.documents(number, parsed_row):
                    if isinstance(document, Malformed):
                        yield document.to_bad_record(time, self.source.name)
                    else:
                        yield time, document
                    time += 1
        except Broken as broken:
            yield self.source.make_break_record(broken, time)

    def lines(self) -> Iterator[bytes]:
        """Return the lines that are not blank, without their newlines."""
        return filter(bytes.strip, lines(self._buffers()))

    @property
    def _is_xml(self) -> bool:
        return self.source.parse_rows is page_rows

    def _buffers(self) -> Iterator[bytes]:
        """Yield the split's rows as buffers of a complete file of the same format."""
        path = self.source.path
        if not self._is_xml:
            if self.begin:
                yield b"\n"  # so that `lines` does not look for a byte order mark in the split
            yield from self._read_range()
            return
        is_last = self.end >= path.stat().st_size
        head = _xml_head(path)
        if self.begin:
            yield head
        yield from self._read_range() if decompressor(path) is None else self._streams()
        if not is_last:
            yield b"</" + _root_name(head) + b">"

    def _read_range(self) -> Iterator[bytes]:
        try:
            with self.source.path.open("rb") as file:
                file.seek(self.begin)
                remaining_bytes = self.end - self.begin
                while remaining_bytes and (buffer := file.read(min(BUFFER_BYTES, remaining_bytes))):
                    remaining_bytes -= len(buffer)
                    yield buffer
        except OSError as error:
            raise Broken(f"the file cannot be read any further: {error}") from None

    def _streams(self) -> Iterator[bytes]:
        """Yield the decompressed buffers of this split of a bzip2 dump: whole streams."""
        stream = bz2.BZ2Decompressor()
        try:
            for buffer in self._read_range():
                while buffer:
                    if stream.eof:
                        stream = bz2.BZ2Decompressor()
                    yield stream.decompress(buffer)
                    buffer = stream.unused_data.lstrip(b"\0") if stream.eof else b""
        except OSError as error:
            raise Broken(f"the file cannot be read any further: {error}") from None
        if not stream.eof:
            raise Broken("the compressed file ends too early, as a partial download does")


def _bounds(first: int, last: int, count: int) -> list[tuple[int, int]]:
    """Divide [first, last) into at most `count` intervals of nearly the same length."""
    count = max(1, min(count, last - first))
    cuts = [first + (last - first) * i // count for i in range(count + 1)]
    return list(pairwise(cuts))


def _cuts(path: Path, parse_rows: Format, count: int) -> list[int]:
    """Return the offsets at which splits begin, then the file's size; [] for a single split."""
    size = path.stat().st_size
    count = min(count, size // SPLIT_BYTES_MIN)
    find: Callable[[mmap.mmap, int], int]
    if count < 2:
        return []
    compression = decompressor(path)
    if parse_rows in (json_rows, text_rows) and compression is None:
        find = _after_newline
    elif parse_rows is page_rows and compression is None:
        find = _finder(_PAGE)
    elif parse_rows is page_rows and compression is bz2.BZ2Decompressor:
        find = _finder(_STREAM)
    else:
        return []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if parse_rows is page_rows and compression is None and _NON_ELEMENT_MARKUP.search(data):
            return []
        offsets = {find(data, begin) for begin, _ in _bounds(0, size, count)[1:]} - {size}
        if compression is not None and not all(_is_between_pages(data, at) for at in offsets):
            return []
    return [0, *sorted(offsets), size]


def _is_between_pages(data: mmap.mmap, offset: int) -> bool:
    """Return whether a bzip2 stream begins between pages; `pbzip2` also cuts inside pages."""
    block = data[offset : offset + BZIP2_BLOCK_BYTES]
    try:
        return bool(_BETWEEN_PAGES.match(bz2.BZ2Decompressor().decompress(block, BUFFER_BYTES)))
    except OSError:  # the stream is damaged, which its reader reports
        return False


def _after_newline(data: mmap.mmap, start: int) -> int:
    newline = data.find(b"\n", start - 1)
    return len(data) if newline < 0 else newline + 1


def _finder(pattern: re.Pattern[bytes]) -> Callable[[mmap.mmap, int], int]:
    def find(data: mmap.mmap, start: int) -> int:
        match = pattern.search(data, start)
        return len(data) if match is None else match.start()

    return find


def _xml_head(path: Path) -> bytes:
    """Return the beginning of an XML file, up to its first page."""
    head = b""
    for buffer in Buffers(path):
        head += buffer
        if match := _PAGE.search(head):
            return head[: match.start()]
    return head


def _root_name(head: bytes) -> bytes:
    match = _ROOT.search(head)
    return match[1] if match else b"mediawiki"
