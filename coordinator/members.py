"""The members of a run: a lease for each, and the pause between recoveries.

Takes: `Hello`, `Alive` and answers of members, that they were asked, the progress of the run, and
the time. Gives: which members were silent for too long, which are heard but do not answer, and how
long to wait before the next recovery. Invariant: a member is either present or gone; `hello` makes
it present, `take_silent` gone.

A process that returns after a silence was busy with work that a replay will bring it to again. So
it may be silent for twice as long from then on; each minute in which it is never silent for longer
than usual halves that again.

A member that does not hear the master says `Hello` and never answers. Only time between two close
`Hello` counts against it: a busy member is not deaf.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from driftline.engine.events import about, log

LONGEST_S = 600.0
"""No member may be silent for longer than this."""

CALM_S = 60.0
"""A member that has not been silent for so long has less time for its next silence."""

HELLO_GAP_S = 1.0
"""A member that says no `Hello` for longer has read nothing meanwhile, either: it may be busy."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
"""The first pause before a recovery, which doubles from then on, and the longest one."""


@dataclass(slots=True)
class Lease:
    """What the master knows of the process of a member."""

    process: str
    address: str
    seen: float
    """When it was last heard."""
    said_hello: float
    """When it said its last `Hello`."""
    allowed_s: float
    """How long it may be silent."""
    present: bool = True
    calm_since: float = 0.0
    """Since when it was never silent for longer than usual."""
    is_asked: bool = False
    """Whether it owes an answer."""
    unanswered_s: float = 0.0
    """For how long it has said `Hello` meanwhile."""


class Members:
    """The leases of all members, by name; `usual_s`: how long a member may be silent."""

    def __init__(self, usual_s: float) -> None:
        self._usual_s = usual_s
        self._leases: dict[str, Lease] = {}

    def __contains__(self, name: object) -> bool:
        lease = self._leases.get(str(name))
        return lease is not None and lease.present

    def addresses(self, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """(name, address) of those `names` that are present."""
        return tuple((name, self._leases[name].address) for name in sorted(names) if name in self)

    def hello(self, name: str, process: str, address: str, now: float) -> bool:
        """Note a member as present. Returns whether its process replaces one that was present."""
        lease = self._leases.get(name)
        if lease is None or lease.process != process:
            self._leases[name] = Lease(process, address, now, now, self._usual_s)
            return lease is not None and lease.present
        if lease.is_asked:
            gap_s = now - lease.said_hello
            lease.unanswered_s = lease.unanswered_s + gap_s if gap_s <= HELLO_GAP_S else 0.0
        self._heard(name, lease, now)
        lease.address, lease.said_hello, lease.present = address, now, True
        return False

    def alive(self, name: str, process: str, now: float) -> None:
        """Note that a process lives. One that is gone stays so until its `hello`."""
        lease = self._leases.get(name)
        if lease is not None and lease.process == process:
            self._heard(name, lease, now)

    def _heard(self, name: str, lease: Lease, now: float) -> None:
        """A process is heard again, after a while: give it more time for a silence, or less."""
        silent_s, lease.seen = now - lease.seen, now
        if not lease.present and silent_s > lease.allowed_s:
            lease.allowed_s = min(2 * silent_s, LONGEST_S)
            log.warning(
                "%s is there again after %.0f s of silence; it may be silent for %.0f s now",
                *(name, silent_s, lease.allowed_s),
                extra=about("back", name=name, seconds=silent_s),
            )
        if silent_s > self._usual_s:
            lease.calm_since = now
        elif lease.allowed_s > self._usual_s and now - lease.calm_since >= CALM_S:
            lease.calm_since = now
            lease.allowed_s = max(lease.allowed_s / 2, self._usual_s)

    # Silences.

    def all_alive(self, now: float, away_s: float) -> None:
        """Count all present members as heard now; `away_s` do not count for those that are gone.

        For a caller that was suspended for so long: messages of the meantime wait to be read.
        """
        for lease in self._leases.values():
            lease.seen = now if lease.present else lease.seen + away_s

    def all_heard(self, names: Iterable[str], since: float) -> bool:
        """Whether all those `names` that are present were heard at `since` or later."""
        return all(self._leases[name].seen >= since for name in names if name in self)

    def heard_at(self, name: str) -> float:
        """When a member was heard last. Precondition: it was heard."""
        return self._leases[name].seen

    def renew(self, names: Iterable[str], now: float) -> None:
        """Count these members as present now. Precondition: all of them were heard."""
        for name in names:
            self._leases[name].seen, self._leases[name].present = now, True

    def forget(self, names: Iterable[str]) -> None:
        """These are no members any more."""
        for name in names:
            self._leases.pop(name, None)

    def allowed_s(self, name: str) -> float:
        """How long a member may be silent, in seconds."""
        lease = self._leases.get(name)
        return self._usual_s if lease is None else lease.allowed_s

    def take_silent(self, names: Iterable[str], now: float) -> list[str]:
        """Count those `names` that were silent for too long as gone. Returns them."""
        silent = []
        for name in names:
            lease = self._leases.get(name)
            if lease is not None and lease.present and now - lease.seen > lease.allowed_s:
                lease.present = False
                silent.append(name)
        return silent

    # Answers.

    def asked(self, names: Iterable[str]) -> None:
        """These members were asked for an answer."""
        for name in names:
            if name in self._leases:
                self._leases[name].is_asked = True

    def answered(self, name: str) -> None:
        """A member has heard the question."""
        if (lease := self._leases.get(name)) is not None:
            lease.is_asked, lease.unanswered_s = False, 0.0

    @property
    def deaf(self) -> dict[str, float]:
        """Member that says `Hello` and owes an answer -> for how many seconds it has."""
        return {n: lease.unanswered_s for n, lease in self._leases.items() if lease.unanswered_s}


class Backoff:
    """The pause before a recovery, which grows while recoveries bring no progress.

    There is no pause if the run has made progress since the recovery before. Progress is a time
    that the run had never reached, or a committed snapshot; a replay is not progress.
    """

    def __init__(self) -> None:
        self.nowhere = 0
        """Recoveries in a row before which the run had made no progress."""
        self._furthest: tuple[int, ...] = ()
        self._at_last_recovery: tuple[int, ...] | None = None
        """`_furthest` at the time of the last recovery."""

    def moved(self, *progress: int) -> None:
        """Note the progress of the run: numbers that never shrink but in a replay."""
        self._furthest = tuple(map(max, self._furthest or progress, progress))

    def pause_s(self) -> float:
        """Count a recovery that is needed now. Returns the pause before it, in seconds."""
        progressed = self._furthest != self._at_last_recovery
        self._at_last_recovery = self._furthest
        self.nowhere = 0 if progressed else self.nowhere + 1
        if not self.nowhere:
            return 0.0
        return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self.nowhere - 1)))
