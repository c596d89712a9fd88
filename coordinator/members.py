"""The members of a run that are there: which process each one is, where it is, when it was heard.

Takes what they say (`Hello`, `Alive`) and the time; gives who has been silent for too long.

A process that comes back from silence had only been busy, with something in which it could not even
be said to be alive; a replay brings it to the same place again. So it may be silent for twice that
time from then on: without that, a recovery would follow the other for ever.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

log = logging.getLogger("driftline")

LONGEST_S = 600.0
"""The longest silence that is waited for."""


@dataclass(slots=True)
class Member:
    """One that is there, or was."""

    process: str
    address: str
    seen: float


class Members:
    """Those that are there, by name; `usual_s`: how long they may be silent."""

    def __init__(self, usual_s: float) -> None:
        self._usual = usual_s
        self._there: dict[str, Member] = {}
        self._gone: dict[str, Member] = {}
        """Those that were silent for too long."""
        self._longer: dict[str, float] = {}
        """How long some may be silent."""

    def __contains__(self, name: object) -> bool:
        return name in self._there

    def __len__(self) -> int:
        return len(self._there)

    @property
    def addresses(self) -> tuple[tuple[str, str], ...]:
        """(name, address) of all."""
        return tuple((name, member.address) for name, member in sorted(self._there.items()))

    def hello(self, name: str, process: str, address: str, now: float) -> bool:
        """A member is there. Returns whether it is another process than the one before."""
        known = self._there.get(name)
        self._there[name] = Member(process, address, now)
        gone = self._gone.pop(name, None)
        restarted = known is not None and known.process != process
        if gone is not None or restarted:
            self._longer.pop(name, None)
        if gone is not None and gone.process == process:
            silent = now - gone.seen
            self._longer[name] = min(2 * silent, LONGEST_S)
            log.warning(
                "%s is there again after %.0f s of silence; it may be silent for %.0f s now",
                *(name, silent, self._longer[name]),
            )
        return restarted

    def alive(self, name: str, process: str, now: float) -> None:
        """A process lives."""
        known = self._there.get(name)
        if known is not None and known.process == process:
            known.seen = now

    def all_alive(self, now: float) -> None:
        """Whoever counts was away: what they have said meanwhile waits to be heard."""
        for member in self._there.values():
            member.seen = now

    def all_heard(self, since: float) -> bool:
        """Whether all that are there have said something since then."""
        return all(member.seen >= since for member in self._there.values())

    def silent_for(self, name: str) -> float:
        """How long a member may be silent."""
        return self._longer.get(name, self._usual)

    def take_silent(self, now: float) -> list[str]:
        """Who has been silent for too long; they are not there any more."""
        silent = [n for n, m in self._there.items() if now - m.seen > self.silent_for(n)]
        for name in silent:
            self._gone[name] = self._there.pop(name)
        return silent
