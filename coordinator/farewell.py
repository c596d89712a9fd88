"""The farewell: which members the master still waits for once a run is over.

Takes: `Hello` and `Goodbye` of members, and the time. Gives: whether the master may end.
Invariant: the master ends only when every member has said goodbye, or when no member has said hello
for `silence_s`. A silent member is dead and will not be started again, or has already said goodbye
to an earlier master.

A member says hello until it knows that the run is over. So a hello after a goodbye comes from a new
process of the member, and the master waits for that process, too.
"""

from __future__ import annotations

from collections.abc import Iterable


class Farewell:
    """The members of a run that is over; `silence_s`: how long to wait for silent members."""

    def __init__(self, members: Iterable[str], silence_s: float) -> None:
        self._waiting = dict.fromkeys(members, "")
        """Member that has not said goodbye -> its process; "" if it has not said hello, either."""
        self._silence_s = silence_s
        self._silent_s = 0.0
        self._now = 0.0

    def hello(self, name: str, process: str) -> None:
        """Wait for a process that does not know yet that the run is over."""
        self._waiting[name] = process
        self._silent_s = 0.0

    def goodbye(self, name: str, process: str) -> None:
        """Stop waiting for a member: this process of it knows that the run is over."""
        if self._waiting.get(name) in ("", process):
            del self._waiting[name]

    def over(self, now: float) -> bool:
        """Whether the master may end."""
        # A master that was suspended has not listened meanwhile: a long step counts as a usual one.
        self._silent_s += min(now - self._now, self._silence_s / 4)
        self._now = now
        return not self._waiting or self._silent_s >= self._silence_s
