"""Values of fields: conversion to keywords, numbers and dates, and sizes.

The input of a conversion is a JSON value, or a text in a query.

>>> value_of(Kind.KEYWORD, "tea"), value_of(Kind.NUMBER, 5)
(('tea',), 5.0)
>>> value_of(Kind.DATE, "1970-01-01T01:00:01+01:00")
1000000
>>> period_of("1970-01-01")
(0, 86399999999)
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import isfinite
from reprlib import Repr
from typing import Literal

Value = tuple[str, ...] | float | int
"""Value of a field: a tuple of keywords, a float, or a date as integer microseconds since 1970."""

DATE_MIN, DATE_MAX = -(2**63) + 1, 2**63 - 1
"""Bounds of open date ranges: less and greater than all dates."""

KEYWORD_BYTES_MAX = 1024
"""Largest size of a keyword, in bytes of UTF-8."""

LEVELS_MAX = 32
"""Largest nesting depth of lists and objects in a field."""

NO_DATE = -(2**63)
"""Value in a column of dates for a version without a date."""

_DATE = r"\d{4}-\d\d-\d\d"
_TIME = r"(?:[01]\d|2[0-3]):\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)?"
_DATE_OR_TIME = re.compile(f"{_DATE}(?P<time>[T ]{_TIME})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND, _DAY = timedelta(microseconds=1), timedelta(days=1)


class Kind(StrEnum):
    """Kind of a field."""

    TEXT = "text"
    KEYWORD = "keyword"
    NUMBER = "number"
    DATE = "date"
    STORED = "stored"


ValueKind = Literal[Kind.KEYWORD, Kind.NUMBER, Kind.DATE]
"""Kinds of value fields; text fields and stored fields are not value fields."""


def value_of(kind: ValueKind, value: object) -> Value:
    """Convert a JSON value of a field of this kind to a `Value`.

    Raises ValueError with a user message.
    """
    match kind, value:
        case Kind.KEYWORD, str():
            return (_keyword(value),)
        case Kind.KEYWORD, list() | tuple():
            return tuple(map(_keyword, value))
        case Kind.KEYWORD, _:
            raise ValueError(
                f"{short_repr(value)} is not a keyword; write a text or a list of texts"
            )
        case Kind.NUMBER, int() | float() if not isinstance(value, bool):
            return _number(value)
        case Kind.NUMBER, _:
            raise ValueError(f"{short_repr(value)} is not a number")
        case Kind.DATE, str():
            return period_of(value)[0]
    raise ValueError(f"{short_repr(value)} is not a date; write a text like 2020-01-31")


def number_of(text: str) -> float:
    """Parse a number. Raises ValueError with a user message."""
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.ASCII | re.IGNORECASE) is None:
        raise ValueError(f"{short_repr(text)} is not a number")
    return _number(float(text))


def period_of(text: str) -> tuple[int, int]:
    """Return the first and last microsecond, since 1970, of a date or a date-time.

    A date is the whole day; a date-time is one microsecond. Texts without a UTC offset are in UTC.
    Raises ValueError with a user message.
    """
    syntax = _DATE_OR_TIME.fullmatch(text)
    try:
        moment = datetime.fromisoformat(text) if syntax is not None else None
    except ValueError:  # such as the 31st of June
        moment = None
    if syntax is not None and moment is None:
        raise ValueError(
            f"{short_repr(text)} is not a date: there is no such day, or time of a day"
        )
    if syntax is None or moment is None:
        raise ValueError(
            f"{short_repr(text)} is not a date; write a text like 2020-01-31 or "
            "2020-01-31T12:00:00+01:00"
        )
    start = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    length = _MICROSECOND if syntax["time"] else _DAY
    first = (start - _EPOCH) // _MICROSECOND
    return first, first + length // _MICROSECOND - 1


def format_date(microseconds: int) -> str:
    """Format a date, given in microseconds since 1970, as ISO 8601 in UTC."""
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:  # a bound that datetime cannot represent
        return str(microseconds)
    return moment.isoformat().replace("+00:00", "Z")


def size_of(value: object, levels: int = LEVELS_MAX) -> int:
    """Return the size of a value in bytes: of strings in UTF-8, and 8 for any other value.

    A list or an object counts 8 in addition to its contents. `levels`: nesting levels allowed.
    Raises ValueError with a user message for values that JSON cannot represent, or that common JSON
    readers cannot read.
    """
    match value:
        case str():
            return len(utf8(value))
        case None | bool():
            return 8
        case int():
            if not -(2**63) <= value < 2**63:
                raise ValueError("an integer has more than 64 bits")
            return 8
        case float():
            _number(value)
            return 8
        case list() | tuple() | dict() if levels == 0:
            raise ValueError(f"the value is nested more than {LEVELS_MAX} levels deep")
        case list() | tuple():
            return 8 + sum(size_of(each, levels - 1) for each in value)
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise ValueError("a key of an object is not a text")
            pairs = (each for pair in value.items() for each in pair)
            return 8 + sum(size_of(each, levels - 1) for each in pairs)
    raise ValueError(f"{short_repr(value)} is not a JSON value")


def utf8(text: str) -> bytes:
    """Encode a text. Raises ValueError with a user message if it is not valid Unicode."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{short_repr(text)} is not valid Unicode: it has an unpaired surrogate"
        ) from None


def short_repr(value: object) -> str:
    """Format a value for an error, abbreviating long and deep ones."""
    return _SHORT.repr(value)


class _Short(Repr):
    """Formatter that writes booleans and None as JSON does."""

    def repr_bool(self, value: bool, level: int) -> str:
        return "true" if value else "false"

    def repr_NoneType(self, value: None, level: int) -> str:
        return "null"


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def _keyword(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{short_repr(value)} is not a keyword; write a text")
    size = len(utf8(value))
    if size > KEYWORD_BYTES_MAX:
        raise ValueError(f"a keyword has {size} bytes; the maximum is {KEYWORD_BYTES_MAX}")
    return value


def _number(value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("the number is too large") from None
    if not isfinite(number):
        raise ValueError(f"{short_repr(value)} is not a finite number")
    return number
