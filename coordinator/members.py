"""The members of a run: the process and the address of each, and when it was last heard.

Takes: `Hello` and `Alive` of members, and the time. Gives: which members were silent for too long.
Invariant: a member is either present or gone; `hello` makes it present, `take_silent` gone.

A process that comes back after a silence was busy, with work that stopped even the thread that says
`Alive`; a replay will bring it to the same work. So the process may be silent for twice as long
from then on: otherwise the same work would cause one recovery after the other for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from driftline.engine.events import about, log

LONGEST_S = 600.0
"""No member may be silent for longer than this."""


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
        restarted = known is not None and known.process != process
        if gone is not None or restarted:
            self._extended_s.pop(name, None)
        if gone is not None and gone.process == process:
            silent_s = now - gone.seen
            self._extended_s[name] = min(2 * silent_s, LONGEST_S)
            log.warning(
                "%s is there again after %.0f s of silence; it may be silent for %.0f s now",
                *(name, silent_s, self._extended_s[name]),
                extra=about("back", name=name, seconds=silent_s),
            )
        return restarted

    def alive(self, name: str, process: str, now: float) -> None:
        """Note that a process lives."""
        known = self._present.get(name)
        if known is not None and known.process == process:
            known.seen = now

    def all_alive(self, now: float) -> None:
        """Count all present members as heard now.

        For a caller that was suspended: messages of the meantime wait to be read.
        """
        for member in self._present.values():
            member.seen = now

    def all_heard(self, since: float) -> bool:
        """Whether every present member was heard at `since` or later."""
        return all(member.seen >= since for member in self._present.values())

    def silent_for(self, name: str) -> float:
        """How long a member may be silent, in seconds."""
        return self._extended_s.get(name, self._usual_s)

    def take_silent(self, now: float) -> list[str]:
        """Move the members that were silent for too long to the gone ones. Returns their names."""
        silent = [n for n, m in self._present.items() if now - m.seen > self.silent_for(n)]
        for name in silent:
            self._gone[name] = self._present.pop(name)
        return silent
