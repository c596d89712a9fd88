"""When something is tried again: what may pass by itself, with growing pauses, for a while.

Takes: errors, and the time. Gives: how long to wait, or the error.
"""

from __future__ import annotations

from random import uniform

from driftline.index.client.errors import Busy, ServiceError, Unavailable

FOR_GOOD = "address", "answer", "certificate"
"""The codes of what stays as it is, however often it is tried."""

FIRST_PAUSE_S, PAUSE_S_MAX = 0.05, 2.0


class Attempts:
    """The attempts of one request.

    `within_s`: none begins later than this after the first, 0: there is only one.
    """

    def __init__(self, within_s: float, now: float) -> None:
        self._within_s = within_s
        self._until = now + within_s
        self._pause_s = FIRST_PAUSE_S

    def worked(self, now: float) -> None:
        """Something has come: a failure after it is a new one."""
        self._until = now + self._within_s
        self._pause_s = FIRST_PAUSE_S

    def pause_s(self, error: ServiceError, now: float) -> float:
        """How long to wait before the next attempt. Raises the error if there is to be none.

        Pauses differ, so that many clients do not come back at the same moment.
        """
        if not isinstance(error, Busy | Unavailable) or error.code in FOR_GOOD:
            raise error
        pause = max(uniform(0.5, 1.0) * self._pause_s, error.retry_after_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        if now + pause > self._until:
            raise error
        return pause
