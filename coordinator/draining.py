"""Orderly end of a run, at the end of its inputs or on request; all members learn the outcome.

Inputs of `Draining`: `EndOfInput` messages of the fronts, the end of all inputs, the progress of
the run, and committed snapshots. Outputs: the time in the `Drain` message to the fronts, when the
last snapshot is due, and whether the run may end. Invariant: let E be the time in `Drain`, or the
time below which all records are, once all inputs have ended. When the run ends, the consumer has
all outputs below E, and a committed snapshot (if the policy has snapshots) contains everything
below E. So the next start replays nothing, and a savepoint is complete.

E is the maximum of the times that the fronts report. If a file has not ended, only the fronts of
files count: live records have clock times, which are far larger. Live records from E on stay in the
input log, for the next run.

`ShutdownWait` tracks which members the master still waits for once the run is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from driftline.engine.labels import INFINITY
from driftline.engine.policy import Policy

ENDED_ON_REQUEST = "drained on request"
"""Text of the outcome of a run that ended before its input, without an error."""


class Draining:
    """State of draining a run, within one incarnation of the run."""

    def __init__(self, fronts: Sequence[str], policy: Policy) -> None:
        self._waiting = set(fronts)
        """The fronts that have not sent `EndOfInput`."""
        self._front_count = len(fronts)
        self._policy = policy
        self._file_ends: list[int] = []
        """The finite times that fronts of files reported: all records that a front sends are below
        its time."""
        self._live_ends: list[int] = []
        """The same for fronts of live sources."""
        self._has_open_file = self._has_open_live = False
        """Whether a front reported a file that has not ended; the same for a live source."""
        self._input_end: int | None = None
        """The time below which all records are; None until all inputs are processed."""
        self._snapshot_before_last = -1
        """Number of the newest snapshot when the last one of the run became due; -1 until then."""

    def on_end_of_input(self, front: str, time: int, live: bool, ended: bool) -> None:
        """Handle a front's report of the time below which its records end. May be repeated."""
        if front in self._waiting:
            self._waiting.remove(front)
            if live:
                self._has_open_live |= not ended
            else:
                self._has_open_file |= not ended
            if time < INFINITY:
                (self._live_ends if live else self._file_ends).append(time)

    def on_inputs_ended(self, time: int) -> None:
        """Note that all inputs have ended, and that all their records are processed.

        `time`: all records are below it. May be repeated.
        """
        self._input_end = time

    @property
    def has_ended(self) -> bool:
        """Whether all inputs have ended, and all elements are processed."""
        return self._input_end is not None

    @property
    def reason_suffix(self) -> str:
        """Why the run is about to end, as a suffix for messages; empty if it is not."""
        if self.has_ended:
            return ", at the end of its input"
        if len(self._waiting) == self._front_count:
            return ""
        return ", and asked to end (a second signal, or a `cancel`, ends it at once)"

    @property
    def end_time(self) -> int | None:
        """The time E of the module docstring; None until all fronts reported or all inputs ended.

        INFINITY if all sources have ended, but not all of their elements are processed.
        """
        if self._input_end is not None:
            return self._input_end
        if self._waiting:
            return None
        if self._has_open_file:
            return max(self._file_ends, default=INFINITY)
        return (
            max(self._file_ends + self._live_ends, default=INFINITY)
            if self._has_open_live
            else INFINITY
        )

    def request_last_snapshot(self, processed: int, delivered: int, newest: int) -> bool:
        """Return True once, when the last snapshot is due.

        `newest`: number of the newest snapshot that was begun.
        """
        end_time = self.end_time
        if end_time is None or self._snapshot_before_last >= 0:
            return False
        if (delivered if self._policy.cuts_at_frontier else processed) < end_time:
            return False
        self._snapshot_before_last = newest
        return True

    def is_over(self, delivered: int, committed: int, time: int) -> bool:
        """Return whether the run may end. `committed`, `time`: number and time of the newest
        committed snapshot."""
        end_time = self.end_time
        if end_time is None or self._snapshot_before_last < 0 or delivered < end_time:
            return False
        if not self._policy.has_snapshots or (self._policy.cuts_at_frontier and time >= end_time):
            return True
        return committed > self._snapshot_before_last


class ShutdownWait:
    """Members of a run that is over; `silence_s`: how long to wait for silent members.

    The master process exits only when every member has said goodbye, or when no member has said
    hello for `silence_s`. A silent member is dead and will not be restarted, or has already said
    goodbye to an earlier master. A member says hello until it knows that the run is over. So a
    hello after a goodbye comes from a new process of the member; the master waits for it, too.
    """

    def __init__(self, members: Iterable[str], silence_s: float) -> None:
        self._waiting = dict.fromkeys(members, "")
        """Member that has not said goodbye -> its process; "" if it has not said hello yet."""
        self._silence_s = silence_s
        self._silent_s = 0.0
        """Seconds since the last hello. A suspension of the master counts only in part."""
        self._now = 0.0

    def hello(self, name: str, process: str) -> None:
        """Handle a process that does not know yet that the run is over: wait for it."""
        self._waiting[name] = process
        self._silent_s = 0.0

    def goodbye(self, name: str, process: str) -> None:
        """Handle a process that knows that the run is over: do not wait for it any more."""
        if self._waiting.get(name) in ("", process):
            del self._waiting[name]

    def is_over(self, now: float) -> bool:
        """Return whether the master process may exit."""
        # A suspended master receives nothing, so a long gap between two calls counts only in part.
        self._silent_s += min(now - self._now, self._silence_s / 4)
        self._now = now
        return not self._waiting or self._silent_s >= self._silence_s
