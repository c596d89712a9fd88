"""What a service refuses, as exceptions.

ServiceError
|-- Invalid            a document, an id or a parameter is wrong
|-- QueryRefused       a query cannot be understood: says where
|-- TooCostly          a query would take too long
|-- TooLarge           a document exceeds the limit
|-- NotAllowed         the access token is missing, unknown, or has not the right
|-- NotFound           there is no such document, watch or collection
|-- Conflict           the condition of a write does not hold: says which label is there
|-- NoLongerRetained   what was asked for is too old: says what is the oldest
|-- Busy               too much is asked at once: says when to ask again
|-- StorageFull        nothing can be stored: the disk of the service is full
`-- Unavailable        the service cannot be reached, or cannot answer now
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from driftline.engine import errors

SHOWN_MAX = 200
"""Characters that are shown of an answer that cannot be read."""


class ServiceError(errors.DriftlineError):
    """The service has refused something; the text says why, and what to do.

    Args:
        code: Which kind of reason it is, as the service names it.
        message: Why.
        details: What else the service says, as JSON.
    """

    def __init__(
        self, code: str, message: str, details: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: dict[str, object] = dict(details or {})

    def _text(self, name: str) -> str | None:
        found = self.details.get(name)
        return found if isinstance(found, str) else None


class Invalid(ServiceError):
    """A document, an id or a parameter is wrong."""

    @property
    def field(self) -> str | None:
        """The field of the document, or the parameter, that is wrong."""
        return self._text("field") or self._text("parameter")


class QueryRefused(ServiceError):
    """A query cannot be understood, or does not fit the collection."""

    def __str__(self) -> str:
        return f"{self.message}\n{self.picture}" if self.picture else self.message

    @property
    def position(self) -> int:
        """The place in the text of the query, from 0."""
        found = self.details.get("position")
        return found if isinstance(found, int) else 0

    @property
    def picture(self) -> str:
        """Two lines: the query, and marks below the place."""
        return self._text("picture") or ""


class TooCostly(ServiceError):
    """A query would take too long: ask for less."""


class TooLarge(ServiceError):
    """A document, or a request, exceeds the limit."""


class NotAllowed(ServiceError):
    """The access token is missing, unknown, or has not the right."""


class NotFound(ServiceError):
    """There is no such document, watch, collection or address."""


class Conflict(ServiceError):
    """The condition of a write does not hold: nothing was written."""

    @property
    def label(self) -> str | None:
        """The label of the document that is there; None: there is none."""
        return self._text("label")


class NoLongerRetained(ServiceError):
    """What was asked for is as of an older T than the service keeps."""

    @property
    def oldest(self) -> str | None:
        """The oldest T that can be asked for, as a label."""
        return self._text("oldest")


class Busy(ServiceError):
    """Too much is asked at once; `retry_after_s`: ask again after so long, in seconds."""

    retry_after_s = 0.0


class StorageFull(ServiceError):
    """Nothing can be stored: the disk of the service is full. Reads go on."""


class ServiceUnavailable(ServiceError, errors.Unavailable):
    """The service cannot be reached, or cannot answer now; `retry_after_s` as of `Busy`.

    A write may have been done all the same. Sent again with the same key, it is done once.
    """

    retry_after_s = 0.0


_KINDS: dict[str, type[ServiceError]] = {
    "invalid": Invalid,
    "method": Invalid,
    "query": QueryRefused,
    "costly": TooCostly,
    "large": TooLarge,
    "token": NotAllowed,
    "right": NotAllowed,
    "absent": NotFound,
    "path": NotFound,
    "changed": Conflict,
    "retained": NoLongerRetained,
    "busy": Busy,
    "full": StorageFull,
    "slow": ServiceUnavailable,
    "unavailable": ServiceUnavailable,
}

_OF_STATUS: dict[int, type[ServiceError]] = {
    408: ServiceUnavailable,
    429: Busy,
    502: ServiceUnavailable,
    503: ServiceUnavailable,
    504: ServiceUnavailable,
}
"""What a proxy before the service may answer."""


def error_in(told: object) -> ServiceError | None:
    """The error that a value of JSON tells of; None: it tells of none."""
    match told:
        case {"error": {"code": str(code), "message": str(message), **details}}:
            named = {str(name): value for name, value in details.items()}
            return _KINDS.get(code, ServiceError)(code, message, named)
    return None


def error_of(status: int, content: bytes, retry_after: str | None = None) -> ServiceError:
    """The error that an answer is; its status is no success."""
    try:
        error = error_in(json.loads(content))
    except ValueError:
        error = None
    if error is None:
        shown = content[:SHOWN_MAX].decode(errors="replace").strip()
        kind = _OF_STATUS.get(status, ServiceError)
        error = kind(str(status), f"the service has answered {status}: {shown or 'nothing more'}")
    if isinstance(error, Busy | ServiceUnavailable):
        error.retry_after_s = _seconds(retry_after)
    return error


def _seconds(text: str | None) -> float:
    """The seconds of a Retry-After; 0 if it is none, or a date."""
    return float(text) if text is not None and text.isdecimal() else 0.0
