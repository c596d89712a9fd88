"""The exceptions of what follows a flow."""

from __future__ import annotations

from collections.abc import Mapping

from driftline.engine.errors import DriftlineError
from driftline.engine.texts import time_in_words


class RetentionExceeded(DriftlineError):
    """What was asked for is as of a time before the oldest that is retained.

    Args:
        text: What is no longer retained, and what is.
        oldest: The least time that can be asked for.
    """

    def __init__(self, text: str, oldest: int = 0) -> None:
        super().__init__(text)
        self.oldest = oldest

    @staticmethod
    def by(what: str, oldest: int) -> RetentionExceeded:
        """What a journal or a view says."""
        text = f"{what} has nothing as of a time before {time_in_words(oldest)} any more"
        return RetentionExceeded(f"{text}: ask for that, or for a later one", oldest)


class BadToken(DriftlineError):
    """A text is not a token that Driftline has given."""


class ApiError(DriftlineError):
    """A question or a write that is not answered as it was meant.

    Args:
        code: Which kind of reason: "query", "costly", "retained", "absent", "invalid", "busy",
            "unavailable", ...
        text: Why, and what to do.
        details: More for programs: values that travel.
    """

    def __init__(self, code: str, text: str, details: Mapping[str, object] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.details = dict(details or {})
