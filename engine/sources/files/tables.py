"""Tables: comma-separated values, and tab-separated values. The first line names the fields.

    id,word            {"id": "1", "word": "to, be"}
    1,"to, be"   ->

A value in a `.csv` may be quoted, and may then hold commas, quotes (doubled) and newlines. In a
`.tsv` a quote is an ordinary character, as texts are full of them; a value there cannot hold a tab
or a newline.
"""

import csv
from collections.abc import Iterable, Iterator
from typing import Literal

from driftline.engine.sources.files.buffers import Broken
from driftline.engine.sources.files.lines import MAX_LINE_BYTES, lines
from driftline.engine.sources.record import TEXT_CHARS, Malformed, Row

# The default limit of 128 kB is too small for a long article. There is one limit for all readers.
csv.field_size_limit(MAX_LINE_BYTES)


def csv_rows(buffers: Iterable[bytes]) -> Iterator[Row]:
    """Comma-separated values."""
    return _rows(buffers, ",", has_quotes=True)


def tsv_rows(buffers: Iterable[bytes]) -> Iterator[Row]:
    """Tab-separated values."""
    return _rows(buffers, "\t", has_quotes=False)


def _rows(buffers: Iterable[bytes], delimiter: str, *, has_quotes: bool) -> Iterator[Row]:
    values = _values(buffers, delimiter, has_quotes)
    header = next(values, [])
    if isinstance(header, Malformed):
        raise Broken(f"the header cannot be read: {header.reason}")
    if len({*header, ""}) != len(header) + 1:
        raise Broken(f"the header has a field twice or without a name: {header}")
    for row in values:
        if isinstance(row, Malformed):
            yield row
        elif len(row) != len(header):
            reason = f"{len(row)} columns where the header has {len(header)}"
            yield Malformed(reason, delimiter.join(row))
        else:
            yield dict(zip(header, row, strict=True))


def _values(
    buffers: Iterable[bytes], delimiter: str, has_quotes: bool
) -> Iterator[list[str] | Malformed]:
    begun: list[str] = []  # the beginning of the row that is being read, for errors
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE
    reader = csv.reader(_texts(buffers, begun), delimiter=delimiter, quoting=quoting, strict=True)
    while True:
        begun.clear()
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Malformed(f"malformed row: {error}", _shown("".join(begun)))
            continue
        if any(map(_is_damaged, row)):
            yield Malformed("not UTF-8", _shown("".join(begun)))
        elif row:
            yield row


def _texts(buffers: Iterable[bytes], begun: list[str]) -> Iterator[str]:
    """The lines for the csv reader, and in `begun` the beginning of a row.

    Invalid bytes pass as surrogates: an exception would end the reader.
    """
    for line in lines(buffers):
        if len(line) > MAX_LINE_BYTES:
            raise Broken(f"a line longer than {MAX_LINE_BYTES} bytes")
        text = line.decode("utf-8", "surrogateescape") + "\n"
        if not begun:
            begun.append(text[:TEXT_CHARS])
        yield text


def _is_damaged(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _shown(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").rstrip("\r\n")
