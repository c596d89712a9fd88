"""Formats of text files: JSON objects, plain text, tables, and XML of pages.

Lines end with a newline, which may follow a carriage return; the file may begin with a byte order
mark. Blank lines are skipped, and do not count as records. A file in an encoding other than UTF-8
is converted to UTF-8 before it is cut into lines.

The first line of a table names the fields; the delimiter of a `.csv` is the comma by default:

    id,word
    1,"to, be"      ->  {"id": "1", "word": "to, be"}

A value in a `.csv` may be quoted, and may then contain commas, quotes (doubled) and newlines. In a
`.tsv` a quote is an ordinary character, because quotes are common in texts; a value cannot contain
a tab or a newline.

XML is a Wikimedia dump, or the simple format `<pages><page id="" title="">text</page>`. The root
element shows which. A page of a dump becomes {"id": 12, "title": "Anarchism", "text": the
wikitext of its latest revision}. Redirects and pages outside the article namespace are skipped, and
do not count as records.

Memory: the largest page; at most two revisions of a page are in memory, even for a dump with the
full history. External entities are not resolved (ElementTree never does), and expat stops
at a document whose entities expand without bound.
"""

import codecs
import csv
import json
import re
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Literal
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

import msgspec

from driftline.connectors.files.buffers import Broken
from driftline.engine.sources.record import (
    DEFAULT_FORMAT,
    TEXT_CHARS,
    UTF_8,
    Malformed,
    RecordFormat,
    Row,
)
from driftline.engine.wire.codec import RECORD_BYTES_MAX

MAX_LINE_BYTES = 4 * RECORD_BYTES_MAX
"""Maximum size of a line, so that a file without newlines does not fill the memory.

The factor 4 is for JSON in ASCII: an escaped character, such as `\\u00e9`, has at most three times
as many bytes as in the wire format. (Control characters have six times as many; a line of these
only may be too long.)
"""

_UTF_8_BOM = b"\xef\xbb\xbf"

_BOMS = {
    codecs.BOM_UTF32_LE: "utf-32",  # must precede the mark of UTF-16, which is a prefix of it
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_BE: "utf-16",
}


def detect_encoding(beginning: bytes) -> str:
    """Return the encoding of a file's byte order mark, or UTF-8."""
    names = (name for mark, name in _BOMS.items() if beginning.startswith(mark))
    return next(names, UTF_8)


def why_doubtful(beginning: bytes, record_format: RecordFormat, *, is_csv: bool) -> str:
    """Return why the format is probably wrong for a file that begins like this; "" if it fits."""
    even, odd = beginning[::2].count(0), beginning[1::2].count(0)
    is_one_sided = 8 * min(even, odd) < max(even, odd) > len(beginning) // 32
    if record_format.encoding == UTF_8 and is_one_sided:
        name = "utf-16-le" if odd > even else "utf-16-be"
        return (
            "the file is read as UTF-8, but has NUL bytes where UTF-16 has them; if it is UTF-16, "
            f"give --encoding {name} (in Python encoding={name!r})"
        )
    header = beginning.decode(record_format.encoding, "replace").partition("\n")[0]
    delimiters = [mark for mark in ",;|\t" if mark in header]
    if is_csv and delimiters and record_format.delimiter not in header:
        return (
            f"its header is one column that contains {delimiters[0]!r}; if that separates columns, "
            f"give --delimiter {delimiters[0]!r} (in Python delimiter={delimiters[0]!r})"
        )
    return ""


def json_rows(
    buffers: Iterable[bytes], record_format: RecordFormat = DEFAULT_FORMAT
) -> Iterator[Row]:
    """Yield the JSON object of each line that is not blank."""
    encoding = record_format.encoding
    for line in lines(buffers, encoding):
        if line.strip():
            yield _object(line, encoding)


def text_rows(
    buffers: Iterable[bytes], record_format: RecordFormat = DEFAULT_FORMAT
) -> Iterator[Row]:
    """Yield {"text": line} for each line that is not blank."""
    encoding = record_format.encoding
    for line in lines(buffers, encoding):
        if line.strip():
            try:
                yield {"text": _decoded(line, encoding).removesuffix("\r")}
            except Malformed as malformed:
                yield malformed


def lines(buffers: Iterable[bytes], encoding: str = UTF_8) -> Iterator[bytes]:
    """Yield the lines in UTF-8, without their newlines.

    The byte order mark is removed. Lines that are too long are cut to MAX_LINE_BYTES + 1. A line
    that cannot be decoded from its encoding becomes malformed UTF-8.
    """
    cut_lines = _lines(buffers if encoding == UTF_8 else _transcoded(buffers, encoding))
    first = next(cut_lines, None)
    if first is not None:
        yield first.removeprefix(_UTF_8_BOM)
        yield from cut_lines


def _lines(buffers: Iterable[bytes]) -> Iterator[bytes]:
    partial: list[bytes] = []  # pieces of a line that continues in the next buffer
    room = MAX_LINE_BYTES + 1
    for buffer in buffers:
        *complete, rest = buffer.split(b"\n")
        for line in complete:
            yield b"".join([*partial, line[:room]]) if partial else line
            partial, room = [], MAX_LINE_BYTES + 1
        if rest and room:
            partial.append(rest[:room])
            room -= len(partial[-1])
    if partial:
        yield b"".join(partial)


def _transcoded(buffers: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the buffers in UTF-8; an undecodable byte becomes a byte that UTF-8 does not use."""
    decoder = codecs.getincrementaldecoder(encoding)(_DAMAGE_HANDLER)
    for buffer in _with_end(buffers):
        try:
            text = decoder.decode(buffer, final=not buffer)
        except (
            UnicodeError
        ) as error:  # without a call of the handler, e.g. if the byte order mark is missing
            hint = f"; name {encoding}-le or {encoding}-be" if encoding in _BOMS.values() else ""
            raise Broken(f"the file cannot be decoded as {encoding}: {error}{hint}") from None
        yield text.encode("utf-8", _DAMAGE_HANDLER)


def _mark_damage(error: UnicodeError) -> tuple[str | bytes, int]:
    """Decode an invalid byte to a lone surrogate, and encode a lone surrogate to the byte 0xff."""
    if isinstance(error, UnicodeEncodeError):
        return b"\xff", error.end
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", error.end


_DAMAGE_HANDLER = "driftline-mark-damage"
codecs.register_error(_DAMAGE_HANDLER, _mark_damage)


_decode_json = msgspec.json.Decoder().decode


def _object(line: bytes, encoding: str) -> Row:
    if len(line) <= MAX_LINE_BYTES:
        try:
            quickly_decoded = _decode_json(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # the `json` module names the column, and accepts half a surrogate pair
        else:
            if isinstance(quickly_decoded, dict):
                return quickly_decoded
    try:
        text = _decoded(line, encoding)
        value: object = json.loads(text, parse_constant=_reject_constant, parse_float=_finite)
    except Malformed as malformed:
        return malformed
    except json.JSONDecodeError as error:
        problem = error.msg.removesuffix(" at")
        return Malformed(f"malformed JSON: {problem} at column {error.colno}", text)
    except (ValueError, RecursionError) as error:
        return Malformed(f"malformed JSON: {error}", text)
    if not isinstance(value, dict):
        kind = type(value).__name__
        return Malformed(f"expected a JSON object in each line, found a value of type {kind}", text)
    return value


def _finite(literal: str) -> float:
    number = float(literal)
    if not isfinite(number):
        raise ValueError(f"{literal:.40} is too large for a float")
    return number


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _decoded(line: bytes, encoding: str) -> str:
    beginning = line[: 4 * TEXT_CHARS].decode("utf-8", "replace")
    if len(line) > MAX_LINE_BYTES:
        raise Malformed(f"a line longer than {MAX_LINE_BYTES} bytes", beginning)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte 0x{line[error.start]:02x} at position {error.start}"
        if encoding != UTF_8:
            number = len(line[: error.start].decode("utf-8")) + 1
            reason = f"not {encoding.upper()}: character {number} cannot be decoded"
        raise Malformed(reason, beginning, line.decode("utf-8", "replace")) from None


# The default limit of 128 kB is too small for a long article. The limit is global to the process.
csv.field_size_limit(MAX_LINE_BYTES)


def csv_rows(
    buffers: Iterable[bytes], record_format: RecordFormat = DEFAULT_FORMAT
) -> Iterator[Row]:
    """Parse values separated by commas or by the delimiter of the record format."""
    return _rows(_Table(buffers, record_format.encoding, record_format.delimiter, has_quotes=True))


def tsv_rows(
    buffers: Iterable[bytes], record_format: RecordFormat = DEFAULT_FORMAT
) -> Iterator[Row]:
    """Parse tab-separated values."""
    return _rows(_Table(buffers, record_format.encoding, "\t", has_quotes=False))


def _rows(table: "_Table") -> Iterator[Row]:
    values = iter(table)
    header = next(values, [])
    if isinstance(header, Malformed):
        raise Broken(f"the header cannot be read: {header.reason}")
    if len({*header, ""}) != len(header) + 1:
        raise Broken(f"the header has a field twice or without a name: {header}")
    for row in values:
        if isinstance(row, Malformed):
            yield row
        elif len(row) != len(header):
            yield table.malformed(f"{len(row)} columns where the header has {len(header)}")
        else:
            yield dict(zip(header, row, strict=True))


class _Table:
    """The rows of a table, as an iterable; stores the lines of the latest row for errors."""

    def __init__(
        self, buffers: Iterable[bytes], encoding: str, delimiter: str, *, has_quotes: bool
    ) -> None:
        self._encoding = encoding
        self._delimiter = delimiter
        self._has_quotes = has_quotes
        self._lines: list[str] = []
        self._is_damaged = False
        """Whether one of these lines cannot be decoded."""
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE
        texts = self._texts(lines(buffers, encoding))
        self._reader = csv.reader(texts, delimiter=delimiter, quoting=quoting, strict=True)

    def __iter__(self) -> Iterator[list[str] | Malformed]:
        while True:
            self._lines.clear()
            self._is_damaged = False
            try:
                row = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield self.malformed(self._explain(str(error)))
                continue
            if self._is_damaged:
                yield self.malformed(f"not {self._encoding.upper()}")
            elif row:
                yield row

    def malformed(self, reason: str) -> Malformed:
        """Return the latest row as a malformed one; appends its line numbers to the reason."""
        last = self._reader.line_num
        first = last - len(self._lines) + 1
        place = f"lines {first} to {last}" if first < last else f"line {last}"
        raw = "".join(self._lines)
        if self._is_damaged:
            raw = raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return Malformed(f"{reason} ({place})", raw.rstrip("\r\n"))

    def _explain(self, error: str) -> str:
        """Describe the damage of the latest row. `error`: the text of the csv reader."""
        if error.startswith("new-line character"):
            return "a carriage return inside a line; convert line ends to \\n"
        row = "".join(self._lines)
        count = row.count("\n", _find_bad_quote(row, self._delimiter)) if self._has_quotes else 0
        if count < 2:
            return f"malformed row: {error}"
        line = self._reader.line_num - count + 1
        return f"malformed row: {error}; the quote opened in line {line} swallows {count} lines"

    def _texts(self, encoded: Iterable[bytes]) -> Iterator[str]:
        """Yield the lines for the csv reader.

        Invalid bytes pass as surrogates: an exception would end the reader.
        """
        for line in encoded:
            if len(line) > MAX_LINE_BYTES:
                raise Broken(f"a line longer than {MAX_LINE_BYTES} bytes")
            try:
                text = line.decode("utf-8") + "\n"
            except UnicodeDecodeError:
                text = line.decode("utf-8", "surrogateescape") + "\n"
                self._is_damaged = True
            self._lines.append(text)
            yield text


def _find_bad_quote(row: str, delimiter: str) -> int:
    """Return the position of the quoted value at which the csv reader has failed.

    Return the length of the row if no quoted value is malformed. The values before the malformed
    one are well-formed, because the reader has accepted them.
    """
    at = 0
    while True:
        if row.startswith('"', at):
            end = row.find('"', at + 1)
            while end >= 0 and row.startswith('""', end):
                end = row.find('"', end + 2)
            if end < 0 or not row.startswith(delimiter, end + 1):
                return at
            at = end + 2
        else:
            at = row.find(delimiter, at) + 1
            if not at:
                return len(row)


MAX_PAGE_BYTES = 2**26
"""Maximum size of a revision in a dump, or of a page in the simple format; MediaWiki itself allows
2 MiB."""

_CANONICAL_INT = re.compile(r"0|-?[1-9][0-9]{0,17}")


def page_rows(
    buffers: Iterable[bytes], record_format: RecordFormat = DEFAULT_FORMAT
) -> Iterator[Row]:
    """Yield the pages of a dump or a simple XML file.

    `record_format` is not used: XML names its encoding itself.
    """
    for root, child in _children(buffers):
        if _name(child) == "page":
            yield from _wiki_page(child) if root == "mediawiki" else _simple_page(child)


def _wiki_page(page: Element) -> Iterator[Row]:
    if page.find("{*}redirect") is not None or page.findtext("{*}ns", "0").strip() != "0":
        return
    title = page.findtext("{*}title", "").strip()
    number = page.findtext("{*}id", "").strip()
    revision = page.find("{*}revision")
    if not _CANONICAL_INT.fullmatch(number):
        yield Malformed("a page without a numeric <id>", title)
    elif not title:
        yield Malformed("a page without <title>", f"page {number}")
    elif revision is None:
        yield Malformed("a page without <revision>", title)
    else:
        text = revision.findtext("{*}text", "")
        yield {"id": int(number), "title": title, "text": text}


def _simple_page(page: Element) -> Iterator[Row]:
    text = "".join(page.itertext())
    page_id = page.get("id")
    if page_id is None:
        yield Malformed('a page without the attribute "id"', text.strip())
    else:
        is_int = _CANONICAL_INT.fullmatch(page_id)
        number_or_text = int(page_id) if is_int else page_id
        yield {"id": number_or_text, "title": page.get("title", ""), "text": text}


def _children(buffers: Iterable[bytes]) -> Iterator[tuple[str, Element]]:
    """Yield (name of the root, child) for each child of the root; a child is freed afterwards."""
    parser: XMLPullParser[Element] = XMLPullParser(["start", "end"])
    path: list[Element] = []  # the elements that are open
    pending_bytes = 0
    for buffer in _with_end(buffers):
        pending_bytes += len(buffer)
        for event, element in _events(parser, buffer):
            if event == "start":
                path.append(element)
                if len(path) == 1:
                    _check_root(element)
                continue
            path.pop()
            if len(path) == 1:
                yield _name(path[0]), element
                path[0].clear()
            elif len(path) == 2:
                _forget_older_revisions(path[1])
            if len(path) <= 2:
                pending_bytes = 0
        if pending_bytes > MAX_PAGE_BYTES:
            raise Broken(f"a page of more than {MAX_PAGE_BYTES} bytes")


def _with_end(buffers: Iterable[bytes]) -> Iterator[bytes]:
    yield from filter(None, buffers)
    yield b""


def _events(parser: "XMLPullParser[Element]", buffer: bytes) -> Iterator[tuple[str, Element]]:
    """Yield (event, element) of the parser for the next buffer; an empty buffer ends the file."""
    try:
        if buffer:
            parser.feed(buffer)
        else:
            parser.close()
        for event in parser.read_events():
            if len(event) == 2 and isinstance(event[1], Element):
                yield event[0], event[1]
    except (ParseError, ValueError, LookupError) as error:  # the last two: an unknown encoding
        problem = "malformed XML" if buffer else "the XML ends too early"
        raise Broken(f"{problem}: {error}") from None


def _check_root(root: Element) -> None:
    if _name(root) not in ("mediawiki", "pages"):
        raise Broken(f"the root element is <{_name(root)}>, not <mediawiki> or <pages>")


def _forget_older_revisions(page: Element) -> None:
    revisions = page.findall("{*}revision")
    if len(revisions) > 1:
        older = min(revisions, key=lambda revision: revision.findtext("{*}timestamp", ""))
        page.remove(older)


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]
