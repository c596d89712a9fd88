"""Schemas: the collections of an index, their fields, and which documents they accept.

A TOML file has a table for each collection:

    [collections.articles]
    others = "stored"  # fields not named here are stored, but not indexed

    [collections.articles.fields]
    title = {kind = "text", analyser = "english", weight = 2.0}
    text = {kind = "text", analyser = "english"}
    tags = {kind = "keyword"}
    year = {kind = "number"}
    published = {kind = "date"}
    source = {kind = "stored"}

The default of `others` is "refused": a document with other fields is rejected. The default
analyser is `plain`. Text fields and value fields (keyword, number, date) are numbered separately,
in the order of their names, so the order of fields in the file has no effect on their numbers.
"""

from __future__ import annotations

import re
import tomllib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Literal

from msgspec import Struct

from driftline.engine.errors import DriftlineError
from driftline.engine.texts import did_you_mean
from driftline.engine.wire.codec import pack
from driftline.index.documents.analysis import Analyser, UnknownAnalyser, analyser
from driftline.index.documents.values import Kind, ValueKind, short_repr, size_of, utf8, value_of

DOCUMENT_BYTES_MAX = 1 << 20
"""Largest size of a document, in bytes: of its field names and values, as `size_of` counts them."""

FIELDS_MAX = 256
"""Largest number of fields of a document, and of a collection."""

WEIGHT_MAX = 1_000_000
"""Largest weight of a text field."""

ID_BYTES_MAX = 512
"""Largest size of an id, in bytes of UTF-8."""

ID = "id"
"""Reserved field name: the id of a document is not one of its fields."""

Others = Literal["stored", "refused"]
"""Treatment of document fields that a collection does not name."""


class SchemaError(DriftlineError):
    """Raised for an invalid schema; the message names file, collection and field."""


class DocumentRefused(DriftlineError):
    """Raised if a document, an id or another part of a write is invalid.

    Args:
        problem: What is wrong. The text of the error also names the field.
        field: Name of the invalid field; "" if the problem is not in one field.
    """

    def __init__(self, problem: str, field: str = "") -> None:
        super().__init__(f"field {short_repr(field)}: {problem}" if field else problem)
        self.field = field


class DocumentTooLarge(DocumentRefused):
    """Raised if a document exceeds the size limit."""


class TextField(Struct, frozen=True):
    """A text field, searched by its words; `number`: index among the collection's text fields.

    `weight`: factor of the field's share in scores.
    """

    name: str
    number: int
    analyser: Analyser
    weight: float


class ValueField(Struct, frozen=True):
    """A keyword, number or date field; `number`: index among the collection's value fields."""

    name: str
    number: int
    kind: ValueKind


class StoredField(Struct, frozen=True):
    """A field that is stored, but not indexed."""

    name: str


Field = TextField | ValueField | StoredField


@dataclass(frozen=True)
class Collection:
    """A collection: its name, its fields in file order, and the treatment of other fields."""

    name: str
    fields: tuple[Field, ...]
    others: Others

    @cached_property
    def text_fields(self) -> tuple[TextField, ...]:
        """The text fields, by number."""
        fields = (field for field in self.fields if isinstance(field, TextField))
        return tuple(sorted(fields, key=attrgetter("number")))

    @cached_property
    def value_fields(self) -> tuple[ValueField, ...]:
        """The keyword, number and date fields, by number."""
        fields = (field for field in self.fields if isinstance(field, ValueField))
        return tuple(sorted(fields, key=attrgetter("number")))

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        """The fields by name."""
        return {field.name: field for field in self.fields}

    def check(self, id: object, document: object) -> None:
        """Validate a document and its id. Raises DocumentRefused if one is invalid.

        A null field counts as missing.
        """
        check_id(id)
        if not isinstance(document, dict):
            raise DocumentRefused(
                f"{short_repr(document)} is not a document; a document is a JSON object"
            )
        if len(document) > FIELDS_MAX:
            raise DocumentRefused(
                f"the document has {len(document)} fields; the maximum is {FIELDS_MAX}"
            )
        size = 0
        for name, value in document.items():
            if not isinstance(name, str):
                raise DocumentRefused(
                    f"{short_repr(name)} is not a name of a field; use a text as name"
                )
            try:
                size += size_of(name) + size_of(value)
                self._check_field(name, value)
            except ValueError as error:
                raise DocumentRefused(str(error), name) from None
        if size > DOCUMENT_BYTES_MAX:
            raise DocumentTooLarge(
                f"the document has {size} bytes; the maximum is {DOCUMENT_BYTES_MAX}: "
                "split it into several documents"
            )

    def _check_field(self, name: str, value: object) -> None:
        """Raise ValueError with a user message for an invalid field."""
        field = self.by_name.get(name)
        if name == ID:
            raise ValueError(
                "the id is given beside the document; remove this field from the document"
            )
        if field is None and self.others == "refused":
            raise ValueError(
                f"the collection {self.name!r} has no such field"
                f"{did_you_mean(name[:64], self.by_name)}; it has {', '.join(self.by_name)}"
            )
        if value is None:
            return
        if isinstance(field, TextField) and not isinstance(value, str):
            raise ValueError(f"{short_repr(value)} is not a text")
        if isinstance(field, ValueField):
            value_of(field.kind, value)

    def fingerprint(self) -> str:
        """Return a digest of all settings that affect how documents are stored and searched."""
        return _digest((self.others, *sorted(map(_settings_of, self.fields))))


@dataclass(frozen=True)
class Schema:
    """Collections by name."""

    collections: Mapping[str, Collection]

    def fingerprint(self) -> str:
        """Return a digest of the names and fingerprints of all collections."""
        named = sorted(self.collections.items())
        return _digest([(name, collection.fingerprint()) for name, collection in named])


def load_schema(path: Path) -> Schema:
    """Read a schema from a TOML file. Raises SchemaError."""
    try:
        return read_schema(path.read_bytes(), str(path))
    except OSError as error:
        raise SchemaError(f"{path}: {error.strerror}") from None


def read_schema(data: bytes, where: str) -> Schema:
    """Read a schema from TOML; `where`: its origin, for errors. Raises SchemaError."""
    try:
        root = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{where} is not valid TOML: {_why(error, data)}") from None
    _check_keys(root, ("collections",), where)
    tables = _table(root.get("collections"), f"{where}: the table [collections]")
    return Schema({name: _collection(name, table, where) for name, table in tables.items()})


def _why(error: Exception, data: bytes) -> str:
    """Return why `data` is not valid TOML."""
    match error:
        case UnicodeDecodeError():
            return f"byte {error.start} is not UTF-8"
        case _ if data.startswith(BOM_UTF8):
            return "it begins with a byte-order mark; save it as UTF-8 without one"
        case tomllib.TOMLDecodeError():
            return str(error)
        case RecursionError():
            return "it is nested too deep"
    return "a number in it has thousands of digits"  # `int` raises ValueError for these


def _collection(name: str, value: object, origin: str) -> Collection:
    where = f"{origin}, collection {short_repr(name)}"
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name) is None:
        raise SchemaError(
            f"{where}: a name has at most 64 of the characters a-z, 0-9, - and _, and begins "
            "with a letter or a digit"
        )
    table = _table(value, where)
    _check_keys(table, ("fields", "others"), where)
    others = table.get("others", "refused")
    if others not in ("stored", "refused"):
        raise SchemaError(
            f'{where}: others is {short_repr(others)}; it can be "stored" or "refused"'
        )
    tables = _table(table.get("fields"), f"{where}: the table of its fields")
    if len(tables) > FIELDS_MAX:
        raise SchemaError(f"{where}: it has {len(tables)} fields; the maximum is {FIELDS_MAX}")
    texts, values = count(), count()
    fields = {each: _field(each, tables[each], where, texts, values) for each in sorted(tables)}
    return Collection(name, tuple(fields[each] for each in tables), others)


def _field(
    name: str,
    value: object,
    where: str,
    text_numbers: Iterator[int],
    value_numbers: Iterator[int],
) -> Field:
    """Parse a field; `text_numbers`, `value_numbers`: counters that number the fields."""
    where = f"{where}, field {short_repr(name)}"
    if re.fullmatch(r"[^\W\d][\w.-]{0,63}", name) is None or name == ID:
        raise SchemaError(
            f"{where}: a name has at most 64 letters, digits, _, - and ., begins with a letter "
            f"or _, and is not {ID!r}"
        )
    table = _table(value, where)
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in tuple(Kind):
        hint = did_you_mean(kind, map(str, Kind)) if isinstance(kind, str) else ""
        problem = "it has no kind" if kind is None else f"its kind is {short_repr(kind)}"
        raise SchemaError(
            f"{where}: {problem}{hint}; the kinds are {', '.join(Kind)}; write for example "
            f'{name} = {{kind = "text"}}'
        )
    _check_keys(table, ("kind", "analyser", "weight") if kind == Kind.TEXT else ("kind",), where)
    match Kind(kind):
        case Kind.TEXT:
            analyser_name, weight = table.get("analyser", "plain"), table.get("weight", 1.0)
            return TextField(
                name,
                next(text_numbers),
                _analyser(analyser_name, where),
                _weight(weight, where),
            )
        case Kind.STORED:
            return StoredField(name)
        case other:
            return ValueField(name, next(value_numbers), other)


def _analyser(name: object, where: str) -> Analyser:
    if not isinstance(name, str):
        raise SchemaError(
            f'{where}: the analyser is {short_repr(name)}; write a name, such as "english"'
        )
    try:
        return analyser(name)
    except UnknownAnalyser as error:
        raise SchemaError(f"{where}: {error}") from None


def _weight(weight: object, where: str) -> float:
    if (
        isinstance(weight, bool)
        or not isinstance(weight, (int, float))
        or not 0 < weight <= WEIGHT_MAX
    ):
        raise SchemaError(
            f"{where}: the weight is {short_repr(weight)}; write a number above 0, up to "
            f"{WEIGHT_MAX}"
        )
    return float(weight)


def _table(value: object, where: str) -> dict[str, object]:
    """Return a value that must be a non-empty table. Raises SchemaError."""
    if value is None:
        raise SchemaError(f"{where} is missing")
    if not isinstance(value, dict):
        raise SchemaError(f"{where} is {short_repr(value)}; it has to be a table")
    if not value:
        raise SchemaError(f"{where} is empty")
    return value


def _check_keys(table: Iterable[str], allowed: Sequence[str], where: str) -> None:
    for key in table:
        if key not in allowed:
            raise SchemaError(
                f"{where}: there is no key {short_repr(key)}{did_you_mean(key, allowed)}; "
                f"the possible keys are: {', '.join(allowed)}"
            )


def _settings_of(field: Field) -> tuple[object, ...]:
    match field:
        case TextField():
            return field.name, Kind.TEXT.value, field.number, field.analyser.name, field.weight
        case ValueField():
            return field.name, field.kind.value, field.number
        case StoredField():
            return field.name, Kind.STORED.value


def _digest(value: object) -> str:
    return blake2b(pack(value), digest_size=8).hexdigest()


def check_id(id: object) -> None:
    """Validate the id of a document or a watch. Raises DocumentRefused if it is invalid."""
    if not isinstance(id, str):
        raise DocumentRefused(f"the id {short_repr(id)} is not a text")
    try:
        size = len(utf8(id))
    except ValueError as error:  # the message begins with the id
        raise DocumentRefused(f"the id {error}") from None
    if not 1 <= size <= ID_BYTES_MAX:
        raise DocumentRefused(f"the id has {size} bytes; it can have 1 to {ID_BYTES_MAX}")
    if _CONTROL.search(id) is not None:
        raise DocumentRefused(f"the id {short_repr(id)} has a control character")


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

DEFAULT_FILE = b"""\
[collections.documents]
others = "stored"

[collections.documents.fields]
title = {kind = "text", weight = 2.0}
text = {kind = "text"}
"""
"""Content of the schema file that an index gets if it is created without one."""

DEFAULT = read_schema(DEFAULT_FILE, "the default schema")
"""Schema of an index that was created without a schema file."""
