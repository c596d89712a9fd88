"""Formats with one record a line: JSON objects, and plain text.

Lines are UTF-8 and end with a newline, which may follow a carriage return; the file may begin with
a byte order mark. Blank lines are skipped and take no number.
"""

import json
from collections.abc import Iterable, Iterator
from math import isfinite

from driftline.engine.sources.record import TEXT_CHARS, Malformed, Row
from driftline.engine.wire.limits import RECORD_BYTES_MAX

MAX_LINE_BYTES = 4 * RECORD_BYTES_MAX
"""Size of a line at most: a file without newlines must not fill the memory. JSON in ASCII writes a
character with three times as many bytes as the wire format, at most, unless it is a control
character."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def json_rows(buffers: Iterable[bytes]) -> Iterator[Row]:
    """The JSON object of each line that is not blank."""
    for line in lines(buffers):
        if line.strip():
            yield _object(line)


def text_rows(buffers: Iterable[bytes]) -> Iterator[Row]:
    """{"text": line} for each line that is not blank."""
    for line in lines(buffers):
        if line.strip():
            try:
                yield {"text": _decoded(line).removesuffix("\r")}
            except Malformed as malformed:
                yield malformed


def lines(buffers: Iterable[bytes]) -> Iterator[bytes]:
    """The lines without their newlines; lines that are too long are cut to MAX_LINE_BYTES + 1."""
    rest = _lines(buffers)
    for first in rest:
        yield first.removeprefix(_BYTE_ORDER_MARK)
        yield from rest


def _lines(buffers: Iterable[bytes]) -> Iterator[bytes]:
    begun: list[bytes] = []  # pieces of a line that continues in the next buffer
    room = MAX_LINE_BYTES + 1
    for buffer in buffers:
        *complete, rest = buffer.split(b"\n")
        for line in complete:
            yield b"".join([*begun, line[:room]]) if begun else line
            begun, room = [], MAX_LINE_BYTES + 1
        if rest and room:
            begun.append(rest[:room])
            room -= len(begun[-1])
    if begun:
        yield b"".join(begun)


def _object(line: bytes) -> Row:
    try:
        text = _decoded(line)
        value: object = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except Malformed as malformed:
        return malformed
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        return Malformed(f"malformed JSON: {what} at column {error.colno}", text)
    except (ValueError, RecursionError) as error:
        return Malformed(f"malformed JSON: {error}", text)
    if not isinstance(value, dict):
        kind = type(value).__name__
        return Malformed(f"expected a JSON object in each line, found a {kind}", text)
    return value


def _finite(literal: str) -> float:
    number = float(literal)
    if not isfinite(number):
        raise ValueError(f"{literal:.40} is too large for a float")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _decoded(line: bytes) -> str:
    beginning = line[: 4 * TEXT_CHARS].decode("utf-8", "replace")
    if len(line) > MAX_LINE_BYTES:
        raise Malformed(f"a line longer than {MAX_LINE_BYTES} bytes", beginning)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte 0x{line[error.start]:02x} at position {error.start}"
        raise Malformed(reason, beginning, line.decode("utf-8", "replace")) from None
