"""Exceptions for the errors that a service returns, and for an unreachable service.

ServiceError
|-- Invalid             a document, an id or a parameter is wrong
|-- QueryRefused        a query cannot be parsed; contains the position
|-- TooCostly           a query would take too long
|-- TooLarge            a document or a request exceeds the limit
|-- NotAllowed          the access token is missing, unknown, or lacks the required right
|-- NotFound            there is no such document, watch, collection or URL
|-- Conflict            the condition of a write does not hold; contains the current label
|-- NoLongerRetained    the requested T is too old; contains the oldest retained T
|-- Busy                too many requests; contains the time to wait before a retry
|-- StorageFull         the disk of the service is full
`-- ServiceUnavailable  the service cannot be reached, or cannot answer now
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from driftline.engine import errors

EXCERPT_BYTES_MAX = 200
"""Largest number of bytes that an error shows of an answer without a JSON error."""


class ServiceError(errors.DriftlineError):
    """Raised if a request fails.

    Args:
        code: The error code of the service, or of this client if the service sent none.
        message: What is wrong, and what to do.
        details: Other fields of the error, as JSON values.
    """

    def __init__(
        self, code: str, message: str, details: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: dict[str, object] = dict(details or {})

    def _text(self, name: str) -> str | None:
        value = self.details.get(name)
        return value if isinstance(value, str) else None


class Invalid(ServiceError):
    """A document, an id or a parameter is wrong."""

    @property
    def field(self) -> str | None:
        """Name of the invalid field of the document, or of the invalid parameter."""
        return self._text("field") or self._text("parameter")


class QueryRefused(ServiceError):
    """A query cannot be parsed, or does not fit the collection."""

    def __str__(self) -> str:
        return f"{self.message}\n{self.picture}" if self.picture else self.message

    @property
    def position(self) -> int:
        """Position of the error in the query, in characters from 0."""
        value = self.details.get("position")
        return value if isinstance(value, int) else 0

    @property
    def picture(self) -> str:
        """Two lines: the query, and marks below the error; "" if the service sent none."""
        return self._text("picture") or ""


class TooCostly(ServiceError):
    """A query would take too long: make it more specific, or request fewer hits."""


class TooLarge(ServiceError):
    """A document, or a request, exceeds the limit."""


class NotAllowed(ServiceError):
    """The access token is missing, unknown, or lacks the required right."""


class NotFound(ServiceError):
    """There is no such document, watch, collection or URL."""


class Conflict(ServiceError):
    """The condition of a write does not hold: nothing was written."""

    @property
    def label(self) -> str | None:
        """Label of the current document; None if there is no document."""
        return self._text("label")


class NoLongerRetained(ServiceError):
    """The request is as of an older T than the service retains."""

    @property
    def oldest(self) -> str | None:
        """Oldest T that the service retains."""
        return self._text("oldest")


class Busy(ServiceError):
    """Too many requests; `retry_after_s`: seconds to wait before a retry."""

    retry_after_s = 0.0


class StorageFull(ServiceError):
    """The disk of the service is full, so it cannot store anything. Reads continue."""


class ServiceUnavailable(ServiceError, errors.Unavailable):
    """The service cannot be reached, or cannot answer now; `retry_after_s` as in `Busy`.

    A write may have succeeded nevertheless. A retry with the same key does not apply it twice.
    """

    retry_after_s = 0.0


_CLASS_OF_CODE: dict[str, type[ServiceError]] = {
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

_CLASS_OF_STATUS: dict[int, type[ServiceError]] = {
    408: ServiceUnavailable,
    429: Busy,
    502: ServiceUnavailable,
    503: ServiceUnavailable,
    504: ServiceUnavailable,
}
"""Exception class by HTTP status, for answers without a JSON error, such as those of a proxy."""


def parse_error(data: object) -> ServiceError | None:
    """Return the error that a decoded JSON value describes; None if it describes no error."""
    match data:
        case {"error": {"code": str(code), "message": str(message), **details}}:
            by_name = {str(name): value for name, value in details.items()}
            return _CLASS_OF_CODE.get(code, ServiceError)(code, message, by_name)
    return None


def error_of_response(status: int, content: bytes, retry_after: str | None = None) -> ServiceError:
    """Return the error of an unsuccessful answer; `retry_after`: its Retry-After header."""
    try:
        error = parse_error(json.loads(content))
    except ValueError:
        error = None
    if error is None:
        excerpt = content[:EXCERPT_BYTES_MAX].decode(errors="replace").strip() or "(empty answer)"
        error_class = _CLASS_OF_STATUS.get(status, ServiceError)
        error = error_class(str(status), f"the service answered with status {status}: {excerpt}")
    if isinstance(error, Busy | ServiceUnavailable):
        error.retry_after_s = _seconds(retry_after)
    return error


def _seconds(text: str | None) -> float:
    """Parse a Retry-After header in seconds; return 0 if it is missing, invalid or a date."""
    return float(text) if text is not None and text.isdecimal() else 0.0
