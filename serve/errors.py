"""The exceptions of what follows a flow."""

from __future__ import annotations

from driftline.engine.errors import DriftlineError
from driftline.engine.moments import time_in_words


class NoLongerRetained(DriftlineError):
    """What was asked for is as of a time before the oldest that is retained.

    Args:
        what: What was asked: the journal, a view.
        oldest: The least time that can be asked for.
    """

    def __init__(self, what: str, oldest: int = 0) -> None:
        super().__init__(
            f"{what} has nothing as of a time before {time_in_words(oldest)} any more: ask for "
            "that, or for a later one"
        )
        self.oldest = oldest


class BadToken(DriftlineError):
    """A text is not a token that Driftline has given."""
