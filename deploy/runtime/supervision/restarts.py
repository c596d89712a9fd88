"""Decisions about the children of a supervisor: restart or give up, and which children hang.

The classes start no process, and read no pipe or clock. `RestartPolicy` takes exits and the
progress of the run, and returns the time of the next start. `HangDetector` takes signs of life, and
returns the children to kill.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

from msgspec import Struct

from driftline.engine.events import event_fields, log

STOPPED = 80
"""Exit status of a process that stopped on request."""

CANNOT_START = 2
"""Exit status of a process that has logged why it cannot start or continue."""

BROKEN = 3
"""Exit status of a master that can no longer lead: a later master has replaced it, or its session
with ZooKeeper has expired."""

STEPPED_DOWN = 4
"""Exit status of a master that stepped down, because it could not reach all members."""

DIED = 1
"""Exit status of a process after an unexpected exception, which it logs."""

CRASHES_MAX = 5
"""Default number of crashes of one process, without progress of the run, that ends the run."""

CAREFUL_CRASHES = 2
"""Number of crashes after which a restarted process applies records one by one. The cause of a
first crash is usually not a record but a kill, for example, and applying a few hundred records one
by one takes seconds."""

FIRST_PAUSE_S, PAUSE_S_MAX = 0.1, 5.0
"""Pause before the second restart in a row, doubled for each further one; and the longest pause."""

LONG_LIFE_S = 600.0
"""A process that has run for longer (seconds) is not in a crash loop, even if the run made no
progress because it was idle."""


class RestartPolicy:
    """Restarts of the processes of one run: the first at once, the next after growing pauses.

    A record that crashes a process is in flight at that moment. So the run has passed the record
    once all records in flight at the first crash are completed; crashes before that are counted.
    After `CAREFUL_CRASHES` of them, and before the last restart in any case, the restarted process
    is careful with these records: it processes them one by one, and first writes a note about each.
    """

    def __init__(self, limit: float = CRASHES_MAX, long_life_s: float = LONG_LIFE_S) -> None:
        """`limit`: number of crashes of a process without progress that ends the run; inf: no
        limit. `long_life_s`: see `LONG_LIFE_S`."""
        self.limit = limit
        self._long_life_s = long_life_s
        self._completed = self._sent = 0
        self._counts: dict[str, int] = {}
        """Process -> number of counted crashes."""
        self._in_flight: dict[str, int] = {}
        """Process -> the last time that was in flight at its first counted crash."""
        self._started: dict[str, float] = {}
        self._step_downs: dict[str, tuple[int, int]] = {}
        """Master -> number of futile step-downs in a row; `_completed` at its last step-down."""

    def record_start(self, name: str, now: float) -> None:
        """Record the start of a process."""
        self._started[name] = now

    def record_progress(self, completed: int, sent: int) -> None:
        """Record progress: all records below `completed` are completed; `sent`: the last time sent.

        Both may decrease in a replay, so the largest values so far are used.
        """
        self._completed = max(self._completed, completed)
        self._sent = max(self._sent, sent)
        for name in [name for name, last in self._in_flight.items() if last < self._completed]:
            del self._in_flight[name], self._counts[name]

    def count_crashes(self, name: str) -> int:
        """Return how often a process has died since the last progress of the run."""
        return self._counts.get(name, 0)

    def record_step_down(self, name: str) -> None:
        """Record that a master stepped down, because it could not reach all members."""
        futile, completed = self._step_downs.get(name, (0, -1))
        self._step_downs[name] = (
            (futile + 1 if completed == self._completed else 0),
            self._completed,
        )

    def count_futile_step_downs(self, name: str) -> int:
        """Return how often in a row a master stepped down without progress since its previous
        step-down."""
        return self._step_downs.get(name, (0, -1))[0]

    def record_crash(self, name: str, now: float) -> float | None:
        """Return when to restart a dead process; None: it has died too often."""
        if now - self._started.get(name, now) > self._long_life_s:
            self._counts.pop(name, None)
            self._in_flight.pop(name, None)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        self._in_flight.setdefault(name, self._sent)
        if count >= self.limit:
            return None
        doublings = min(count - 2, 10)  # 10: beyond the longest pause
        return now + (min(PAUSE_S_MAX, FIRST_PAUSE_S * 2**doublings) if count > 1 else 0.0)

    def find_suspect_times(self, name: str) -> tuple[int, int]:
        """Return the (first, last) time of the records with which a restarted process is careful:
        those that were in flight at its first crash and are not completed; (-1, -1): none."""
        last, crashes = self._in_flight.get(name), self.count_crashes(name)
        if last is None or crashes < min(CAREFUL_CRASHES, self.limit - 1):
            return -1, -1
        return self._completed, last


_HINTS = {
    signal.SIGKILL: " (out of memory? See the kernel log)",
    signal.SIGSEGV: " (a crash in C code that a function calls, or a damaged file)",
    signal.SIGBUS: " (a truncated file, or a full disk)",
    signal.SIGABRT: " (C code called abort, for example because of a damaged file)",
}

MAY_BE_DAMAGE = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)
"""Exit statuses that a damaged file may cause; SIGKILL comes from other processes."""

KILLED_SILENT = "was killed because it gave no sign of life"
"""Description of the exit of a child that its supervisor killed."""


def describe_exit(status: int) -> str:
    """Return how a process ended, for people; `status`: its exit status."""
    if status < 0:
        try:
            number = signal.Signals(-status)
        except ValueError:
            return f"ended by signal {-status}"
        return f"ended by {number.name}{_HINTS.get(number, '')}"
    if status == 0:
        return "exited with status 0 (something in it called exit)"
    return f"exited with status {status}"


SILENCE_TIMEOUT_S = 10.0
"""Minimum time in seconds from noticing a silence to killing the process."""

GAP_S = 1.0
"""A longer interval (seconds) between two checks means that this process was suspended."""


class RunningProcess(Struct, frozen=True):
    """Running process; `token`: its token, new with each start."""

    token: str
    pid: int


class HangDetector:
    """Detector of silent children of one supervisor.

    A thread of each child regularly writes to a pipe to the supervisor, even while the child's loop
    is busy (`lifeline.KeepAlive`, `deploy.runtime.loop.heartbeat`). So a slow network, process or
    function is not mistaken for a hang: a child is silent only if it was stopped, gets no CPU time,
    or runs a C function that holds the interpreter lock. A child whose `Heartbeat` has a
    `hung_after_s` is also silent while a turn takes longer than that.

    Invariants: a child is killed only after its first sign of life, because its start may take any
    time; and only after a silence of `missing_after_s` plus its patience (`patience_s`). Time in
    which the supervisor itself was suspended does not count: the children may have been, too. The
    patience doubles with each crash without progress, so that work that holds the lock either
    completes, or ends the run with an error that names its record, like a crash loop.
    """

    def __init__(self, missing_after_s: float) -> None:
        self._missing_after_s = missing_after_s
        self._last_signs: dict[str, tuple[str, float]] = {}
        """Child -> token of its process, and the time of its last sign of life."""
        self._logged_silent: set[str] = set()
        """Children whose silence was logged."""
        self._checked_at = 0.0

    def record_sign(self, name: str, process: str, now: float) -> None:
        """Record a sign of life of a child; `process`: its token."""
        self._last_signs[name] = process, now

    def has_heard(self, name: str, process: str) -> bool:
        """Return whether this process of a child has given a sign of life; `process`: its token."""
        return self._last_signs.get(name, ("", 0.0))[0] == process

    def find_hung(
        self, now: float, running: Mapping[str, RunningProcess], crashes: Callable[[str], int]
    ) -> list[str]:
        """Return the children to kill now. Log these, and children that have become silent.

        `crashes`: returns the number of a child's crashes without progress.
        """
        interval_s, self._checked_at = now - self._checked_at, now
        if interval_s > GAP_S:
            self._last_signs = {
                n: (p, min(now, at + interval_s)) for n, (p, at) in self._last_signs.items()
            }
        hung = []
        for name, each in running.items():
            silent_s = now - self._last_signs.get(name, ("", now))[1]
            if not self.has_heard(name, each.token) or silent_s <= self._missing_after_s:
                self._logged_silent.discard(name)
                continue
            patience_s = self.patience_s(crashes(name))
            if name not in self._logged_silent:
                self._logged_silent.add(name)
                _log_silence(name, each, silent_s, patience_s)
            elif silent_s > self._missing_after_s + patience_s:
                self._logged_silent.discard(name)
                del self._last_signs[name]
                hung.append(name)
                log.warning(
                    "%s (pid %d) gave no sign of life for %.0f s: killing and restarting it",
                    *(name, each.pid, silent_s),
                    extra=event_fields("process-hung", name=name, pid=each.pid, seconds=silent_s),
                )
        return hung

    def patience_s(self, crashes: int) -> float:
        """Return how long a noticed silence may continue, in seconds, after this many crashes."""
        return float(max(SILENCE_TIMEOUT_S, self._missing_after_s) * 2 ** min(crashes, 10))


def _log_silence(name: str, each: RunningProcess, silent_s: float, patience_s: float) -> None:
    fields = event_fields(
        "process-silent", name=name, pid=each.pid, seconds=silent_s, patience=patience_s
    )
    log.warning(
        "%s (pid %d) has given no sign of life for %.0f s. If it stays silent for another %.0f s, "
        "it will be killed and restarted. It may have been stopped (kill -CONT %d resumes it), "
        "lack memory or CPU time, or run a C function that holds the interpreter lock",
        *(name, each.pid, silent_s, patience_s, each.pid),
        extra=fields,
    )
