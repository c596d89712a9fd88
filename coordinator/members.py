"""The members of a run: the process and the address of each, and when it was last heard.

Takes: `Hello` and `Alive` of members, and the time. Gives: which members were silent for too long,
and which are silent still.
Invariant: a member is either present or gone; `hello` makes it present, `take_silent` gone.

A process that comes back after a silence was busy, with work that stopped even the thread that says
`Alive`; a replay will bring it to the same work. So the process may be silent for twice as long
from then on: otherwise the same work would cause one recovery after the other for ever. Each minute
in which it is never silent for longer than usual halves that again: the next silence may be a hang.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from driftline.engine.events import about, log

LONGEST_S = 600.0
"""No member may be silent for longer than this."""

CALM_S = 60.0
"""A member that has not been silent for so long has less time for its next silence."""


@dataclass(slots=True)
class MemberRecord:
    """What the coordinator knows of a member; `seen`: when it was last heard."""

    process: str
    address: str
    seen: float


class Members:
    """The members that are present, by name; `usual_s`: how long a member may be silent."""

    def __init__(self, usual_s: float) -> None:
        self._usual_s = usual_s
        self._present: dict[str, MemberRecord] = {}
        self._gone: dict[str, MemberRecord] = {}
        """Members that were silent for too long."""
        self._extended_s: dict[str, float] = {}
        """Member that came back after a silence -> how long it may be silent."""
        self._calm_since: dict[str, float] = {}
        """Such a member -> since when it was never silent for longer than usual."""
        self._since = 0.0
        """Since when others are listened to."""

    def __contains__(self, name: object) -> bool:
        return name in self._present

    def __len__(self) -> int:
        return len(self._present)

    @property
    def addresses(self) -> tuple[tuple[str, str], ...]:
        """(name, address) of all members that are present."""
        return tuple((name, member.address) for name, member in sorted(self._present.items()))

    def hello(self, name: str, process: str, address: str, now: float) -> bool:
        """Note a member as present. Returns whether its process replaces one that was present."""
        known = self._present.get(name)
        self._present[name] = MemberRecord(process, address, now)
        gone = self._gone.pop(name, None)
        before = known or gone
        if before is not None and before.process == process:
            self._heard(name, now - before.seen, now, gone=known is None)
        else:
            self._extended_s.pop(name, None)
        return known is not None and known.process != process

    def alive(self, name: str, process: str, now: float) -> None:
        """Note that a process lives. One that is gone stays so until its `hello`."""
        known = self._present.get(name)
        before = known or self._gone.setdefault(name, MemberRecord(process, "", now))
        if before.process == process:
            self._heard(name, now - before.seen, now, gone=known is None)
            before.seen = now

    def _heard(self, name: str, silent_s: float, now: float, *, gone: bool) -> None:
        """A process is heard again, after a while: give it more time for a silence, or less."""
        if gone and silent_s > self.silent_for(name):
            self._extended_s[name] = min(2 * silent_s, LONGEST_S)
            log.warning(
                "%s is there again after %.0f s of silence; it may be silent for %.0f s now",
                *(name, silent_s, self._extended_s[name]),
                extra=about("back", name=name, seconds=silent_s),
            )
        if name not in self._extended_s:
            return
        if silent_s > self._usual_s:
            self._calm_since[name] = now
        elif now - self._calm_since[name] >= CALM_S:
            self._calm_since[name] = now
            self._extended_s[name] /= 2
            if self._extended_s[name] <= self._usual_s:
                del self._extended_s[name]

    def all_alive(self, now: float, away_s: float) -> None:
        """Count all present members as heard now; `away_s` do not count for those that are gone.

        For a caller that was suspended for so long: messages of the meantime wait to be read.
        """
        for member in self._present.values():
            member.seen = now
        self._since += away_s
        for member in self._gone.values():
            member.seen += away_s

    def all_heard(self, since: float) -> bool:
        """Whether every present member was heard at `since` or later."""
        return all(member.seen >= since for member in self._present.values())

    def forget(self, names: Iterable[str]) -> None:
        """These are no members any more."""
        for name in names:
            self._present.pop(name, None)
            self._gone.pop(name, None)

    def silent_for(self, name: str) -> float:
        """How long a member may be silent, in seconds."""
        return self._extended_s.get(name, self._usual_s)

    def take_silent(self, now: float) -> list[str]:
        """Move the members that were silent for too long to the gone ones. Returns their names."""
        silent = [n for n, m in self._present.items() if now - m.seen > self.silent_for(n)]
        for name in silent:
            self._gone[name] = self._present.pop(name)
        return silent

    def silent(self, names: Iterable[str], now: float) -> list[tuple[str, str, float]]:
        """(name, process, seconds of silence) of those `names` that are gone, and silent still.

        The process is "" for a member that was never heard, which may be starting.
        """
        found = []
        for name in names:
            if name in self._present:
                continue
            gone = self._gone.get(name, MemberRecord("", "", self._since))
            if now - gone.seen > self.silent_for(name):
                found.append((name, gone.process, now - gone.seen))
        return found
