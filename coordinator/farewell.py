"""The farewell: who has not said goodbye yet, once a run is over.

Takes `Hello` and `Goodbye` (members) and the time; tells whether the master may end, too. It may
once every member has said goodbye, or those that have not are silent: dead ones that nobody will
start again, or ones that an earlier master has seen off.

A hello is of a process that does not know yet, so it undoes the goodbye of the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable


class Farewell:
    """The members of a run that is over; `silence_s` is how long they are waited for."""

    def __init__(self, members: Iterable[str], silence_s: float) -> None:
        self._waiting = dict.fromkeys(members, "")
        """Member -> its process, as far as it is known."""
        self._silence_s = silence_s
        self._silent_s = 0.0
        self._now = 0.0

    def hello(self, name: str, process: str) -> None:
        """A member is there that has to be told."""
        self._waiting[name] = process
        self._silent_s = 0.0

    def goodbye(self, name: str, process: str) -> None:
        """A member knows, and ends."""
        if self._waiting.get(name) in ("", process):
            del self._waiting[name]

    def over(self, now: float) -> bool:
        """Whether nobody has to be waited for any more."""
        # A master that stood still has not listened: time passes in steps as it usually looks.
        self._silent_s += min(now - self._now, self._silence_s / 4)
        self._now = now
        return not self._waiting or self._silent_s >= self._silence_s
