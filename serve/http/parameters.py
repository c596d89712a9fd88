"""Declarations of request parameters.

The server uses them to parse parameters and to reject unknown ones. They are also part of the
OpenAPI description.

>>> LIMIT = Parameter("limit", integer_between(1, 100), 10, "How many.", {"type": "integer"})
>>> values = parse_query(b"limit=20", [LIMIT])
>>> values[LIMIT]
20
>>> parse_query(b"limit=0", [LIMIT])
Traceback (most recent call last):
...
driftline.serve.errors.ApiError: limit: '0' is not a whole number from 1 to 100
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import unquote_plus

from driftline.engine.texts import did_you_mean
from driftline.serve.errors import ApiError, BadToken
from driftline.serve.http.content import Json
from driftline.serve.views.tokens import time_of

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

VALUES_MAX = 64
"""Limit of parameters in the query of a request, with repetitions."""


@dataclass(frozen=True, eq=False)
class Parameter(Generic[T_co]):
    """A parameter of a request.

    `read`: parses the text; raises ValueError or BadToken with a message for the client. `default`:
    the value if the request lacks the parameter. `schema`: the JSON Schema of the text. The
    declaration of a header is used only for the description: handlers parse headers.
    """

    name: str
    read: Callable[[str], T_co]
    default: T_co
    description: str
    schema: dict[str, Json]
    required: bool = False
    place: Literal["query", "path", "header"] = "query"
    example: Json = None


class RepeatedParameter(Parameter[tuple[str, ...]]):
    """A repeatable parameter; its value is a tuple of strings."""

    def __init__(self, name: str, description: str) -> None:
        schema: dict[str, Json] = {"type": "array", "items": {"type": "string"}, "maxItems": 32}
        super().__init__(name, lambda text: (text,), (), description, schema)


class ParameterValues:
    """The parameter values of a request."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        """Name -> parsed value."""

    def __getitem__(self, parameter: Parameter[T]) -> T:
        value: T = self.values.get(parameter.name, parameter.default)
        return value


def parse_query(query: bytes, parameters: Sequence[Parameter[object]]) -> ParameterValues:
    """Parse the query of a URL. Raises ApiError."""
    return _read(_split_query(query), _parameters_in("query", tuple(parameters)))


def parse_path(
    values: Iterable[tuple[str, str]], parameters: Sequence[Parameter[object]]
) -> ParameterValues:
    """Parse the parameters in a path. Raises ApiError."""
    return _read(values, _parameters_in("path", tuple(parameters)))


@cache
def _parameters_in(
    place: str, parameters: tuple[Parameter[object], ...]
) -> Mapping[str, Parameter[object]]:
    """Return the parameters with this `Parameter.place`, by name."""
    return {each.name: each for each in parameters if each.place == place}


def _read(
    pairs: Iterable[tuple[str, str]], known: Mapping[str, Parameter[object]]
) -> ParameterValues:
    values: dict[str, object] = {}
    for name, text in pairs:
        parameter = known.get(name)
        if parameter is None:
            rest = f"known parameters: {', '.join(known)}" if known else "none is allowed here"
            raise ApiError(
                "invalid",
                f"there is no parameter {name[:64]!r}{did_you_mean(name[:64], known)}; {rest}",
                {"parameter": name[:64]},
            )
        value = _value(parameter, text)
        if isinstance(parameter, RepeatedParameter):
            previous = values.get(name, ())
            assert isinstance(previous, tuple)
            values[name] = (*previous, text)
        elif name in values:
            raise ApiError("invalid", f"{name} is given twice", {"parameter": name})
        else:
            values[name] = value
    for parameter in known.values():
        if parameter.required and parameter.name not in values:
            text = f"the parameter {parameter.name} is missing. {parameter.description}"
            raise ApiError("invalid", text, {"parameter": parameter.name})
    return ParameterValues(values)


def _value(parameter: Parameter[object], text: str) -> object:
    try:
        return parameter.read(text)
    except (ValueError, BadToken) as error:
        message = f"{parameter.name}: {error}"
        raise ApiError("invalid", message, {"parameter": parameter.name}) from None


def _split_query(query: bytes) -> list[tuple[str, str]]:
    try:
        parts = [part.partition("=") for part in query.decode().split("&") if part]
        pairs = [(_unquote(name), _unquote(text)) for name, _, text in parts]
    except UnicodeDecodeError:
        raise ApiError("invalid", "the parameters are not percent-encoded UTF-8") from None
    if len(pairs) > VALUES_MAX:
        raise ApiError("invalid", f"there are more than {VALUES_MAX} parameters")
    return pairs


def _unquote(text: str) -> str:
    return unquote_plus(text, errors="strict") if "%" in text or "+" in text else text


def integer_between(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of an integer within bounds."""

    def read(text: str) -> int:
        if re.fullmatch("[0-9]{1,12}", text) is None or not least <= int(text) <= most:
            raise ValueError(f"{text[:40]!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


def flag(text: str) -> bool:
    """Parse 0 or 1."""
    if text not in ("0", "1"):
        raise ValueError(f"{text[:40]!r} is neither 0 nor 1")
    return text == "1"


def choice(*texts: str) -> Callable[[str], str]:
    """Return a parser that accepts only these texts."""

    def read(text: str) -> str:
        if text not in texts:
            raise ValueError(f"{text[:40]!r} is not {' or '.join(texts)}")
        return text

    return read


def text_up_to(
    most: int, unit: Literal["characters", "bytes"] = "characters"
) -> Callable[[str], str]:
    """Return a parser of a text of limited length, in characters or in UTF-8 bytes."""

    def read(text: str) -> str:
        size = len(text) if unit == "characters" else len(text.encode(errors="replace"))
        if size > most:
            raise ValueError(f"it has {size} {unit}; the limit is {most}")
        return text

    return read


LABEL: dict[str, Json] = {
    "type": "string",
    "pattern": "^[0-9a-hjkmnp-tv-z]{14}$",
    "description": "A position in the order of all writes: the label of a write, or the T as of "
    "which an answer holds. Labels are compared as strings: a later write has a larger label.",
}
LABEL_REF: dict[str, Json] = {"$ref": "#/components/schemas/Label"}
"""Reference to the schema of a label or a T."""

AT = Parameter[int | None](
    "at",
    time_of,
    None,
    "Answer as of this label, for example the `at` of an earlier answer. Default: the newest T.",
    LABEL_REF,
)
AFTER = Parameter[int](
    "after",
    time_of,
    0,
    "Wait until the write with this label, and all earlier writes, can be seen.",
    LABEL_REF,
)
FROM = Parameter[int | None](
    "from",
    time_of,
    None,
    "Send all events with a larger label. Default: only new events.",
    LABEL_REF,
)
LAST_EVENT_ID = Parameter[int | None](
    "Last-Event-ID",
    time_of,
    None,
    "The `id` of the last event received: later events follow. Takes precedence over `from`.",
    LABEL_REF,
    place="header",
)
