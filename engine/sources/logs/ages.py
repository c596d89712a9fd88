"""The ages of records: for how long they have been there, since they were taken from outside.

Takes: the time (of the label) of each record as it is taken, in their order; two clocks. Gives:
ages in seconds; and what the log has to keep, so that a later call knows them, too.

    >>> ages = Ages(lambda: 0, steady_s=iter((100.0, 101.0, 105.0)).__next__, by_time=False)
    >>> _ = ages.take(1)  # at 101 s
    >>> ages.of(1)
    4.0

In the call that takes a record its age is by a steady clock: one that is never set. Over calls it
is by the time of day: that is the time of a record, unless times are numbers or the clock was set
back; then the log keeps it beside the record. A record of an earlier call is never younger than
this call. Invariant: an age is never too small by the steady clock, and too large by `GRAIN_S` at
most, or by a thousandth of the largest. Memory: `MARKS_MAX` marks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from driftline.engine.sources.logs.inputlog import Entry

GRAIN_S = 0.05
"""Records that are taken within so many seconds have one mark."""

MARKS_MAX = 4096
"""Marks that are kept."""

NEAR_US = 100_000
"""A time that is as near to the time of day says when its record was taken."""


class Ages:
    """The ages of the records of one source."""

    def __init__(
        self,
        now_us: Callable[[], int],
        steady_s: Callable[[], float] | None = None,
        *,
        by_time: bool = True,
    ) -> None:
        """`now_us`: the time of day, in microseconds; `steady_s`: a clock that is never set, in
        seconds, by default that of the day; `by_time`: whether times of records are times of day,
        about."""
        self._now_us = now_us
        self._steady_s = steady_s or (lambda: now_us() / 1e6)
        self._by_time = by_time
        self._since = self._steady_s()
        self._times: list[int] = []
        self._taken: list[float] = []
        """Of each mark: the time of its first record, and when that was taken."""
        self._grain_s = GRAIN_S
        self._stored: tuple[int, int | None] = (-1, None)
        """(time, time of day at which it was taken, if it is known) of a record of earlier calls"""

    @property
    def marks(self) -> int:
        """How many marks there are."""
        return len(self._times)

    def take(self, time: int) -> int:
        """A record is taken now. Returns the time of day for the log; 0: the record's time is."""
        now = self._steady_s()
        if not self._taken or now - self._taken[-1] >= self._grain_s:
            self._times.append(time)
            self._taken.append(now)
            if len(self._times) > MARKS_MAX:
                self._thin_out()
        today = self._now_us()
        return 0 if self._by_time and abs(time - today) < NEAR_US else today

    def forget(self, below: int) -> None:
        """Nobody will ask for records below a time."""
        unneeded = max(0, bisect_right(self._times, below) - 1)
        del self._times[:unneeded], self._taken[:unneeded]
        if len(self._times) < MARKS_MAX // 4:
            self._grain_s = GRAIN_S

    def of(self, time: int) -> float | None:
        """The age of the record with this time; None: this call has not taken it."""
        mark = bisect_right(self._times, time) - 1
        return self._steady_s() - self._taken[mark] if mark >= 0 else None

    def of_stored(self, time: int, read: Callable[[], Sequence[Entry]]) -> float:
        """The age of a record that an earlier call has taken. `read`: gives its entry, or a later
        one; asked only if the record is another one than the last time."""
        if self._stored[0] != time:
            entry = next((each for each in read() if each.time == time), None)
            said = entry.taken_us if entry is not None else 0
            self._stored = time, said or (time if self._by_time else None)
        taken_us = self._stored[1]
        here_s = self._steady_s() - self._since
        return here_s if taken_us is None else max(here_s, (self._now_us() - taken_us) / 1e6)

    def _thin_out(self) -> None:
        """Drop half of the marks, or more, so that the others are about as far apart."""
        self._grain_s = max(2 * self._grain_s, 2 * (self._taken[-1] - self._taken[0]) / MARKS_MAX)
        times, taken = self._times[:1], self._taken[:1]
        for time, at in zip(self._times, self._taken, strict=True):
            if at - taken[-1] >= self._grain_s:
                times.append(time)
                taken.append(at)
        self._times, self._taken = times, taken
