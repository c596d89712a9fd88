"""Members of a run: a lease for each, and the back-off between recoveries.

Inputs: `Hello`, `Alive` and answers of members, the `Lead` messages sent to them, the progress of
the run, and the time. Outputs: which members timed out, which send `Hello` but do not answer
`Lead`, and how long to wait before the next recovery. Invariant: a member is either present or
gone; `hello` and `renew` mark it as present, `expire_silent` marks it as gone.

A process that returns after a timeout was probably busy. A replay repeats its work, and so the
silence. Therefore its timeout becomes twice that silence. Each minute without an unusual silence
halves the timeout again, down to the usual one.

A member that does not receive the master's messages sends `Hello` and never answers `Lead`.
`Lease.unanswered_s` counts the seconds of this. A gap longer than HELLO_GAP_S between two `Hello`
resets the count, since the member may just be too busy to answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from driftline.engine.events import event_fields, log

TIMEOUT_MAX_S = 600.0
"""Upper bound of a member's timeout."""

CALM_S = 60.0
"""A member's timeout shrinks after this many seconds without an unusual silence."""

HELLO_GAP_S = 1.0
"""After a longer gap (in seconds) between two `Hello`, the member may just have been too busy to
answer."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
"""The first and the longest pause before a recovery, in seconds; the pause doubles each time."""


class Lease(Struct):
    """Lease of a member's process, as the master knows it."""

    process: str
    address: str
    last_heard_at: float
    """When the last `Hello` or `Alive` arrived, or the lease was renewed (the master's clock)."""
    last_hello_at: float
    """When the last `Hello` arrived."""
    timeout_s: float
    """The member is gone after a longer silence."""
    present: bool = True
    """False from a timeout until the next `Hello` or `renew`."""
    calm_since: float = 0.0
    """When its last unusual silence ended, or its timeout was last halved."""
    owes_answer: bool = False
    """Whether it has not answered the last `Lead`."""
    unanswered_s: float = 0.0
    """Seconds for which it has sent `Hello` without long gaps while it owes the answer."""


class Members:
    """The leases of all members, by name; `usual_s`: the usual timeout of a member."""

    def __init__(self, usual_s: float) -> None:
        self._usual_s = usual_s
        self._leases: dict[str, Lease] = {}

    def __contains__(self, name: object) -> bool:
        lease = self._leases.get(str(name))
        return lease is not None and lease.present

    def addresses(self, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return (name, address) of those `names` that are present."""
        return tuple((name, self._leases[name].address) for name in sorted(names) if name in self)

    def hello(self, name: str, process: str, address: str, now: float) -> bool:
        """Mark a member as present. Return whether its process replaces one that was present."""
        lease = self._leases.get(name)
        if lease is None or lease.process != process:
            self._leases[name] = Lease(process, address, now, now, self._usual_s)
            return lease is not None and lease.present
        if lease.owes_answer:
            gap_s = now - lease.last_hello_at
            lease.unanswered_s = lease.unanswered_s + gap_s if gap_s <= HELLO_GAP_S else 0.0
        self._note_message(name, lease, now)
        lease.address, lease.last_hello_at, lease.present = address, now, True
        return False

    def alive(self, name: str, process: str, now: float) -> None:
        """Note a heartbeat. A process that is gone stays gone until its `hello`."""
        lease = self._leases.get(name)
        if lease is not None and lease.process == process:
            self._note_message(name, lease, now)

    def _note_message(self, name: str, lease: Lease, now: float) -> None:
        """Note a message of a process, and adapt its timeout to its silence before the message."""
        silent_s, lease.last_heard_at = now - lease.last_heard_at, now
        if not lease.present and silent_s > lease.timeout_s:
            lease.timeout_s = min(2 * silent_s, TIMEOUT_MAX_S)
            log.warning(
                "%s is back after %.0f s of silence; its timeout is now %.0f s",
                *(name, silent_s, lease.timeout_s),
                extra=event_fields("member-back", name=name, seconds=silent_s),
            )
        if silent_s > self._usual_s:
            lease.calm_since = now
        elif lease.timeout_s > self._usual_s and now - lease.calm_since >= CALM_S:
            lease.calm_since = now
            lease.timeout_s = max(lease.timeout_s / 2, self._usual_s)

    # Timeouts.

    def renew_after_suspension(self, now: float, away_s: float) -> None:
        """Treat all present members as heard now; exclude `away_s` from the silence of gone ones.

        The caller was suspended for `away_s`, and has not yet read the messages sent meanwhile.
        """
        for lease in self._leases.values():
            lease.last_heard_at = now if lease.present else lease.last_heard_at + away_s

    def all_heard(self, names: Iterable[str], since: float) -> bool:
        """Return whether all present `names` were heard at `since` or later."""
        return all(self._leases[name].last_heard_at >= since for name in names if name in self)

    def heard_at(self, name: str) -> float:
        """Return when a member was last heard (the master's clock). Precondition: it was heard."""
        return self._leases[name].last_heard_at

    def renew(self, names: Iterable[str], now: float) -> None:
        """Mark these members as present now. Precondition: all of them were heard."""
        for name in names:
            self._leases[name].last_heard_at, self._leases[name].present = now, True

    def forget(self, names: Iterable[str]) -> None:
        """Remove these members."""
        for name in names:
            self._leases.pop(name, None)

    def timeout_s(self, name: str) -> float:
        """Return the timeout of a member, in seconds."""
        lease = self._leases.get(name)
        return self._usual_s if lease is None else lease.timeout_s

    def expire_silent(self, names: Iterable[str], now: float) -> list[str]:
        """Mark those `names` that timed out as gone. Return them."""
        silent = []
        for name in names:
            lease = self._leases.get(name)
            if lease is not None and lease.present and now - lease.last_heard_at > lease.timeout_s:
                lease.present = False
                silent.append(name)
        return silent

    # Answers.

    def expect_answers(self, names: Iterable[str]) -> None:
        """Note that these members owe an answer."""
        for name in names:
            if name in self._leases:
                self._leases[name].owes_answer = True

    def mark_answered(self, name: str) -> None:
        """Note that a member has answered."""
        if (lease := self._leases.get(name)) is not None:
            lease.owes_answer, lease.unanswered_s = False, 0.0

    @property
    def unresponsive_s(self) -> dict[str, float]:
        """Member that sends `Hello` but owes an answer -> seconds for which it has done so."""
        return {n: lease.unanswered_s for n, lease in self._leases.items() if lease.unanswered_s}


class Backoff:
    """Back-off before a recovery: the pause grows while recoveries bring no progress.

    There is no pause if the run made progress since the previous recovery. Progress is a time that
    the run had never reached, or a committed snapshot; a replay is not progress.
    """

    def __init__(self) -> None:
        self.fruitless_recoveries = 0
        """Number of consecutive recoveries, each without progress since the previous one."""
        self._furthest: tuple[int, ...] = ()
        """The maximum of each number that `note_progress` received."""
        self._at_last_recovery: tuple[int, ...] | None = None
        """`_furthest` at the time of the last recovery."""

    def note_progress(self, *progress: int) -> None:
        """Note the progress of the run: numbers that decrease only in a replay."""
        self._furthest = tuple(map(max, self._furthest or progress, progress))

    def next_pause_s(self) -> float:
        """Count a recovery that is needed now. Return the pause before it, in seconds."""
        progressed = self._furthest != self._at_last_recovery
        self._at_last_recovery = self._furthest
        self.fruitless_recoveries = 0 if progressed else self.fruitless_recoveries + 1
        if not self.fruitless_recoveries:
            return 0.0
        return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self.fruitless_recoveries - 1)))
