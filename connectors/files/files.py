"""A file as a source: its format, and its records with their numbers.

The format follows from the extension, without `.gz`, `.bz2`, `.xz` or `.zst`: `.jsonl`, `.ndjson`,
`.json`, `.csv`, `.tsv`, `.xml`, `.txt`. With another extension, a file that begins like XML is XML,
and any other file is text.

A record's time is its number in the file, from 1; with `sections`, the number of the section.
Malformed records keep their number. If the file breaks off, the last record is a BadRecord with
`ends_input` and the next number.

Cost: `read(start)` reads the file from its beginning and parses the records that it skips, as
formats and compressed files have no index. Memory: one record.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from driftline.connectors.files.buffers import COMPRESSIONS, Broken, Buffers
from driftline.connectors.files.formats import (
    csv_rows,
    detect_encoding,
    json_rows,
    page_rows,
    text_rows,
    tsv_rows,
    why_doubtful,
)
from driftline.connectors.files.generated import ZipfSource
from driftline.connectors.logs.inputlog import LoggedSource, is_log
from driftline.engine.errors import BAD_FILE_HINT, BREAKS_OFF, InputError, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.sources.record import COMMA, UTF_8, Malformed, RecordFormat, Row
from driftline.engine.sources.source import BadRecord, Source

GENERATED = "zipf:"
"""Prefix of generated inputs: `zipf:1000` stands for a thousand generated documents."""

NAMES_SHOWN = 5
"""Maximum number of unread files that an error names."""


class Format(Protocol):
    """Function that parses the buffers of a file into rows."""

    __name__: str

    def __call__(
        self, buffers: Iterable[bytes], record_format: RecordFormat = ..., /
    ) -> Iterator[Row]: ...


_FORMATS: dict[str, Format] = {
    ".csv": csv_rows,
    ".json": json_rows,
    ".jsonl": json_rows,
    ".ndjson": json_rows,
    ".tsv": tsv_rows,
    ".txt": text_rows,
    ".xml": page_rows,
}


def open_source(
    path: str | Path,
    *,
    id_field: str | None = None,
    text_field: str | None = None,
    sections: bool = False,
    encoding: str = UTF_8,
    delimiter: str = COMMA,
) -> Source:
    """Open the records of a file, each a dict with an "id".

    Args:
        path: The file, whose name determines its format; or a directory with an input log; or
            `zipf:N` for N generated documents. The other arguments apply to files only.
        id_field: The field with the id; by default "id", else "url", else the number.
        text_field: A field that is also available as "text".
        sections: Clean the wikitext in "text", and make each of its sections a document.
        encoding: The encoding of the file, by one of Python's names. A byte order mark of UTF-16 or
            UTF-32 replaces the default. XML names its encoding itself.
        delimiter: The character between two values of a `.csv` file.

    Returns:
        A source; only the beginning of the file has been read.

    Raises:
        Unavailable: If the file does not exist, is not a regular file or cannot be opened, or if N
            is not a number.
        InputError: If the file is empty, and its name says that it is XML.
        ValueError: If there is no such encoding, or the delimiter is not one character.
    """
    record_format = RecordFormat(id_field, text_field, sections, encoding, delimiter)
    if isinstance(path, str) and path.startswith(GENERATED):
        return _generated(path)
    path = Path(path)
    if not path.exists():
        raise Unavailable(f"{path}: there is no such file")
    if is_log(path):
        return LoggedSource(path)
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "not a regular file"
        raise Unavailable(f"{path} is {kind}; a source must be a file that can be read repeatedly")
    buffers = Buffers(path)
    try:
        beginning = next(iter(buffers), b"")
    except Broken as broken:
        beginning = b""
        if not buffers.read_bytes and path.stat().st_size:
            raise Unavailable(f"{path}: {broken}") from None
    rows = _format(path, beginning)
    if rows is page_rows and not path.stat().st_size:
        raise InputError(path.name, 1, "the file is empty; expected XML")
    if rows is not page_rows:
        if record_format.encoding == UTF_8:
            record_format = replace(record_format, encoding=detect_encoding(beginning))
        if warning := why_doubtful(beginning, record_format, is_csv=rows is csv_rows):
            log.warning("%s: %s", path, warning, extra=event_fields("input-format", name=path.name))
    return FileSource(path, rows, record_format)


def _generated(name: str) -> Source:
    count = name.removeprefix(GENERATED)
    if not count.isdecimal():
        raise Unavailable(f"{name}: expected {GENERATED}N, for N generated documents")
    return ZipfSource(int(count))


def has_known_format(path: Path) -> bool:
    """Return whether a file's name determines its format."""
    return _without_compression(path).suffix.lower() in _FORMATS


def _without_compression(path: Path) -> Path:
    """Return the name without its compression extension."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path


def _name_of(path: Path) -> str:
    """Return a file's name for storage in the state: bytes that are not UTF-8 are escaped."""
    return path.name.encode(errors="backslashreplace").decode()


def _format(path: Path, beginning: bytes) -> Format:
    looks_like_xml = beginning.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(
        (b"<?xml", b"<mediawiki", b"<pages")
    )
    suffix = _without_compression(path).suffix.lower()
    return _FORMATS.get(suffix, page_rows if looks_like_xml else text_rows)


class FileSource:
    """The records of one file."""

    def __init__(self, path: Path, rows: Format, record_format: RecordFormat) -> None:
        self.name = _name_of(path)
        self.path = path
        self.parse_rows = rows
        self.record_format = record_format
        self.skipped_after_break = "nothing after that is read"
        """Part of the error text if this file breaks off: which records are not read."""
        self._buffers = Buffers(path)  # of the latest `read`, for `progress`
        self._incomplete_line = b""

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """Yield all records with time >= `start`."""
        return self.read_numbered(1, 1, start)

    def read_numbered(
        self, row: int, time: int, start: int
    ) -> Generator[tuple[int, object] | BadRecord, None, tuple[int, int] | None]:
        """Yield all records with time >= `start`.

        `row`: the number of the file's first row; `time`: the time of its first record. Returns the
        next row number and time after the end of the file; None if the file breaks off.
        """
        self._buffers = Buffers(self.path)
        self._incomplete_line = b""
        current_time = time
        try:
            for parsed_row in self.parse_rows(self._buffers, self.record_format):
                for document in self.record_format.documents(row, parsed_row):
                    if current_time >= start:
                        if isinstance(document, Malformed):
                            yield self._bad(document, current_time, time)
                        else:
                            yield current_time, document
                    current_time += 1
                row += 1
        except Broken as broken:
            if current_time >= start:
                yield self.make_break_record(broken, current_time, time)
            return None
        is_utf_8 = self.record_format.encoding == UTF_8
        has_lines = (
            is_utf_8 and self.parse_rows is not page_rows and not self.record_format.sections
        )
        if current_time > time and has_lines:
            self._incomplete_line = self._buffers.incomplete_line()
        return row, current_time

    def make_break_record(self, broken: Broken, time: int, first_time: int = 1) -> BadRecord:
        """Return the bad record that ends the input: the file cannot be read from `time` on.

        `first_time`: the time of the file's first record.
        """
        bad = self._bad(Malformed(str(broken), ""), time, first_time)
        reason = f"{bad.reason}. {BREAKS_OFF}: {self.skipped_after_break}. {BAD_FILE_HINT}"
        return replace(bad, reason=reason, ends_input=True)

    def _bad(self, malformed: Malformed, time: int, first_time: int) -> BadRecord:
        bad = malformed.to_bad_record(time, self.name)
        if first_time == 1:
            return bad
        reason = f"{bad.reason} (it is record {time - first_time + 1} of this file)"
        return replace(bad, reason=reason)

    def describe_place(self, time: int) -> str:
        """Return the place of the record with this time, in words."""
        return f"record {time} of {self.path}"

    def incomplete_line(self) -> tuple[int, bytes] | None:
        """Return (offset, text) of the last line, if it is a record without a newline at its end.

        Precondition: the latest `read` has ended.
        """
        text = self._incomplete_line
        return (self._buffers.length - len(text), text) if text else None

    def line_at(self, time: int, offset: int, size: int) -> bytes:
        """Return the line at an offset, without its newline; a line longer than `size` may be cut.

        `offset`: the offset in the decompressed file. `time`: the time of the record; a single file
        does not need it.
        """
        line, buffers = b"", Buffers(self.path)
        with suppress(Broken):
            for buffer in buffers:
                line += buffer[max(0, offset - buffers.length + len(buffer)) :]
                if b"\n" in line or len(line) > size:
                    break
        return line.partition(b"\n")[0]

    def progress(self) -> tuple[int, int] | None:
        """Return (bytes on disk that the latest `read` has processed, size of the file)."""
        return self._buffers.processed_bytes, self.path.stat().st_size

    def identity(self) -> str:
        """Return a text that identifies the input by its name, file format and record format.

        The text omits directory and compression. It also omits the content, since a file may grow:
        `engine.sources.fingerprint` checks the records that a run has used.
        """
        kind = self.parse_rows.__name__.removesuffix("_rows")
        return f"{_name_of(_without_compression(self.path))} ({kind}{self.record_format.as_text()})"


class SeveralFiles:
    """The records of at least two files, one after the other, numbered over all files.

    A bad record names its file, its number in the file, and its number over all files. If a file
    breaks off, so does the input: the numbers of the records in later files are then unknown.

    Cost: `read(start)` reads all files before `start` to count their records, but each only once.
    """

    def __init__(self, files: Sequence[FileSource]) -> None:
        self.name = f"{files[0].name} and {len(files) - 1} more"
        self.files = files
        names = [file.name for file in files]
        for number, file in enumerate(files[:-1], 1):
            later = _format_names(names, number)
            file.skipped_after_break = f"the files after it are not read ({later})"
        self.sizes = [file.path.stat().st_size for file in files]
        self._starts = [(1, 1)]
        """(number of the first row, time of the first record) of each file, as far as known."""
        self._current_file = 0

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """Yield all records with time >= `start`."""
        first_file = bisect_right(self._starts, max(1, start), key=itemgetter(1)) - 1
        for number, file in enumerate(self.files[first_file:], first_file):
            self._current_file = number
            row, time = self._starts[number]
            next_start = yield from file.read_numbered(row, time, start)
            if next_start is None:
                return
            if len(self._starts) == number + 1:
                self._starts.append(next_start)

    def describe_place(self, time: int) -> str:
        """Return the place of the record with this time, in words. Precondition: it was read."""
        number = self._file_number(time)
        return self.files[number].describe_place(time - self._starts[number][1] + 1)

    def incomplete_line(self) -> tuple[int, bytes] | None:
        """Return `incomplete_line` of the last file. Precondition: the latest `read` has ended."""
        return self.files[self._current_file].incomplete_line()

    def line_at(self, time: int, offset: int, size: int) -> bytes:
        """Return `line_at` of the file with the record of this time. Precondition: it was read."""
        return self.files[self._file_number(time)].line_at(time, offset, size)

    def _file_number(self, time: int) -> int:
        return bisect_right(self._starts, time, key=itemgetter(1)) - 1

    def progress(self) -> tuple[int, int] | None:
        """Return (bytes on disk that the latest read has processed, bytes of all files)."""
        current = self.files[self._current_file].progress()
        earlier_bytes = sum(self.sizes[: self._current_file])
        current_bytes = current[0] if current is not None else 0
        return earlier_bytes + current_bytes, sum(self.sizes)

    def identity(self) -> str:
        """Return the identity of the first file, because files may be added after it later.

        If another file changes, the checksum over the records that a run has used changes.
        """
        return self.files[0].identity()


def _format_names(names: Sequence[str], first_index: int) -> str:
    """List the names from an index on: the first `NAMES_SHOWN`, and how many more there are."""
    more = len(names) - first_index - NAMES_SHOWN
    shown = ", ".join(names[first_index : first_index + NAMES_SHOWN])
    return shown + (f" and {more} more" if more > 0 else "")
