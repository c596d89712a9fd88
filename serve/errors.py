"""The exceptions of what follows a flow."""

from __future__ import annotations

from driftline.engine.errors import DriftlineError
from driftline.engine.moments import time_in_words


class NoLongerRetained(DriftlineError):
    """What was asked for is as of a time before the oldest that is retained.

    Args:
        text: What is no longer retained, and what is.
        oldest: The least time that can be asked for.
    """

    def __init__(self, text: str, oldest: int = 0) -> None:
        super().__init__(text)
        self.oldest = oldest

    @staticmethod
    def by(what: str, oldest: int) -> NoLongerRetained:
        """What a journal or a view says."""
        text = f"{what} has nothing as of a time before {time_in_words(oldest)} any more"
        return NoLongerRetained(f"{text}: ask for that, or for a later one", oldest)


class BadToken(DriftlineError):
    """A text is not a token that Driftline has given."""
