"""Exceptions of the journal, the views and the gateway."""

from __future__ import annotations

from collections.abc import Mapping

from driftline.engine.errors import DriftlineError
from driftline.engine.texts import format_time


class RetentionExceeded(DriftlineError):
    """Rejection of a read whose time, or start time, is no longer retained.

    Args:
        text: The error message.
        oldest: The smallest time that can be read.
    """

    def __init__(self, text: str, oldest: int = 0) -> None:
        super().__init__(text)
        self.oldest = oldest

    @staticmethod
    def of(what: str, oldest: int) -> RetentionExceeded:
        """Return the error of a journal or a view; `what`: the name of the journal or view."""
        text = f"{what} no longer has states before {format_time(oldest)}"
        return RetentionExceeded(f"{text}: request that time or a later one", oldest)


class BadToken(DriftlineError):
    """Rejection of a string that is not a valid token (`serve.views.tokens`)."""


class ApiError(DriftlineError):
    """Rejection of a read or a write.

    Args:
        code: The error code, a key of `serve.http.content.HTTP_STATUS`: "query", "costly",
            "retained", "absent", "invalid", "busy", "unavailable", ...
        text: The reason, and what to do.
        details: Further fields for programs; the values have types of the wire format.
    """

    def __init__(self, code: str, text: str, details: Mapping[str, object] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.details = dict(details or {})
