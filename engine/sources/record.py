"""Conversion of rows of a file into the documents of a flow, and checks of records.

Whatever the format of the file, a document is a dict with an "id" that is a str or an int. Its
values have the types that they have after a shuffle (`engine.wire.codec`): a user function must not
see lists on one node and tuples on another.

    >>> [*RecordFormat().documents(5, {"text": "to be"})]
    [{'text': 'to be', 'id': 5}]
    >>> page = {"id": 7, "title": "Cat", "text": "A ''cat''.\\n== Food ==\\nMice."}
    >>> [document["title"] for document in RecordFormat(sections=True).documents(1, page)]
    ['Cat', 'Cat: Food']
"""

import codecs
import json
from collections.abc import Iterator
from copy import copy
from itertools import chain
from reprlib import Repr

from msgspec import Struct
from msgspec.structs import force_setattr

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.sources.source import BadRecord
from driftline.engine.texts import reraise_interrupt, safe_repr, truncate
from driftline.engine.wire.codec import (
    ATOMS,
    RECORD_BYTES_MAX,
    pack_rows,
    unpack_rows,
    why_invalid_record,
)

TEXT_CHARS = 200
"""Maximum number of characters of a bad record in errors and log lines."""

RAW_CHARS = 1 << 20
"""Maximum number of characters of a bad record in the file of bad records."""

UTF_8, COMMA = "utf-8", ","
"""Default encoding and delimiter of a file."""

_REPR = Repr()
_REPR.maxstring = TEXT_CHARS // 2


class Malformed(Exception):
    """Error for an invalid row, raised or yielded. File sources convert it to a `BadRecord`."""

    def __init__(self, reason: str, text: str, raw: str | None = None) -> None:
        """`text`: the row for messages; `raw`: the whole row, if it differs from `text`. Both are
        truncated if they are long."""
        super().__init__(reason)
        self.reason = reason
        self.text = text[:TEXT_CHARS]
        self.raw = truncate_raw(text if raw is None else raw)

    def to_bad_record(self, time: int, file: str) -> BadRecord:
        """Return the bad record for this row."""
        return BadRecord(time, file, self.reason, self.text, self.raw)


def truncate_raw(raw: str) -> str:
    """Return the text of a bad record; if it is too long, truncate it and append a remark."""
    if len(raw) <= RAW_CHARS:
        return raw
    remark = f" [truncated: the record has {len(raw)} characters]"
    return raw[: RAW_CHARS - len(remark)] + remark


Row = dict[str, object] | Malformed
"""A valid row or document, or the error for an invalid one."""


class RecordFormat(Struct, frozen=True):
    """Options for parsing a file into rows, and rows into documents.

    `id_field`: the field with the id; None: the field "id", or else "url", or else the row's
    number. `text_field`: the field to copy to "text", if any. `sections`: whether each section of
    the text becomes a document. `encoding`: the encoding of a file that is not XML; an alias is
    replaced with Python's main name. `delimiter`: the character between two values of a `.csv`
    file. Raises ValueError for an unknown encoding or an invalid delimiter.
    """

    id_field: str | None = None
    text_field: str | None = None
    sections: bool = False
    encoding: str = UTF_8
    delimiter: str = COMMA

    def __post_init__(self) -> None:
        try:
            "a".encode(self.encoding)  # raises for a codec that does not encode text
            codecs.getincrementaldecoder(self.encoding)("surrogateescape").decode(b"a")
            main_name = codecs.lookup(self.encoding).name
        except (LookupError, ValueError):
            raise ValueError(
                f"unknown encoding {self.encoding!r}; name one of Python's text encodings, such as "
                "utf-16-le, cp1252 or shift_jis"
            ) from None
        force_setattr(self, "encoding", main_name)
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ValueError(
                f"the delimiter is {self.delimiter!r}, but must be one character, neither a quote "
                "nor the end of a line"
            )

    def as_text(self) -> str:
        """Describe the options that differ from the defaults, for messages; empty if none does."""
        parts = [f", id from {self.id_field!r}"] if self.id_field else []
        parts += [f", text from {self.text_field!r}"] if self.text_field else []
        parts += [", in sections"] if self.sections else []
        parts += [f", encoded as {self.encoding}"] if self.encoding != UTF_8 else []
        parts += [f", delimited by {self.delimiter!r}"] if self.delimiter != COMMA else []
        return "".join(parts)

    def documents(self, number: int, row: Row) -> Iterator[Row]:
        """Yield the documents of a row: one, or one per section; `Malformed` for an invalid row.

        `number`: the row's number, from 1.
        """
        if isinstance(row, Malformed):
            yield row
            return
        try:
            record = self._normalised(number, row)
            yield from _sections(record) if self.sections else [record]
        except Malformed as malformed:
            yield malformed

    def _normalised(self, number: int, row: dict[str, object]) -> dict[str, object]:
        record = {**row, "id": self._id(number, row)}
        if self.text_field is not None:
            record["text"] = _field(row, self.text_field, "--text-field (in Python text_field)")
        try:
            value = validate_payload(record)
        except PayloadError as error:
            raise _malformed(str(error), row) from None
        assert isinstance(value, dict)
        return value

    def _id(self, number: int, row: dict[str, object]) -> int | str:
        if self.id_field is not None:
            name = self.id_field
            value = _field(row, name, "--id-field (in Python id_field)")
        else:
            name = "id" if "id" in row else "url"
            value = row.get(name, number)
        if isinstance(value, bool) or not isinstance(value, int | str):
            kind = type(value).__name__
            raise _malformed(
                f"the id in field {name!r} must be a str or an int, but is of type {kind}",
                row,
            )
        return value


DEFAULT_FORMAT = RecordFormat()


def _field(row: dict[str, object], name: str, option: str = "") -> object:
    """Return the value of a field; `option`: the option that named the field, if any."""
    if name not in row:
        if not option:
            raise _malformed(f"field {name!r} is missing", row)
        fields = f"the record has {_names(row)}"
        raise _malformed(f"field {name!r}, which {option} names, is missing: {fields}", row)
    return row[name]


def _names(row: dict[str, object]) -> str:
    if not row:
        return "no fields"
    return "the fields " + truncate(", ".join(map(repr, row)), TEXT_CHARS)


def validate_payload(payload: object) -> object:
    """Return a record with the types that a user function receives.

    Raises PayloadError if the record is too large or nested too deeply, or if a value in it cannot
    be encoded.
    """
    data = pack_rows([payload])
    items = chain(payload, payload.values()) if type(payload) is dict else (payload,)
    if len(data) <= RECORD_BYTES_MAX and ATOMS.issuperset(map(type, items)):
        return copy(payload)  # most records: decoding would change no type
    if reason := why_invalid_record(payload, len(data)):
        raise PayloadError(reason)
    try:
        return unpack_rows(data)[0]
    except MalformedMessage as error:
        raise PayloadError(str(error)) from None


def validate_record(time: int, payload: object, file: str) -> tuple[int, object] | BadRecord:
    """Return (time, validated payload), or a bad record. `file`: name of the input, for errors."""
    try:
        return time, validate_payload(payload)
    except PayloadError as error:
        return make_bad_record(time, payload, file, str(error))


def make_bad_record(time: int, payload: object, file: str, reason: str) -> BadRecord:
    """Return the bad record that replaces an invalid one."""
    return _malformed(reason, payload).to_bad_record(time, file)


def _malformed(reason: str, row: object) -> Malformed:
    try:
        raw = json.dumps(row)
    except BaseException as error:  # methods of a user's class may raise anything
        reraise_interrupt(error)
        raw = _abbreviate(row)
    return Malformed(reason, _abbreviate(row), raw)


def _abbreviate(row: object) -> str:
    """Return a short repr of the row, for errors."""
    return safe_repr(_REPR.repr, row)


def _sections(page: dict[str, object]) -> Iterator[dict[str, object]]:
    """Yield a document per section that has words.

    The id is the page's id and `#n`, where n is the section's number in MediaWiki (`section=n`).
    """
    from driftline.engine.sources.wikitext import clean, sections  # rarely used; slow to import

    text = _field(page, "text")
    if not isinstance(text, str):
        kind = type(text).__name__
        raise _malformed(f"field 'text' cannot have sections: it is of type {kind}", page)
    title = page.get("title")
    for n, (heading, wikitext) in enumerate(sections(text)):
        body = clean(wikitext)
        if any(map(str.isalnum, body)):
            titles = (title if isinstance(title, str) else "", clean(heading))
            yield {
                "id": f"{page['id']}#{n}",
                "title": ": ".join(filter(None, titles)),
                "text": body,
            }
