"""The chronicle: tells people what the coordinator decides, and why.

Takes: decisions, and the time. Gives: log lines, and how long recoveries and snapshots took. A
recovery is told at its beginning, when nodes load, and when the run goes on; nodes and fronts tell
the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from driftline.coordinator.registry import SnapshotRecord
from driftline.engine.events import about, log
from driftline.engine.meters import Histogram
from driftline.engine.texts import time_in_words


class Chronicle:
    """The chronicle of one master."""

    def __init__(self) -> None:
        self.now = 0.0
        """The time (seconds, monotonic) of the last turn."""
        self._began = 0.0
        """When the run, or its newest recovery, began."""
        self._runs = False
        self._failed_at: float | None = None
        """When the recovery under way began; None: there is none."""
        self.recoveries = Histogram()
        """Of each recovery that is over: seconds from its reason until all nodes were ready."""
        self.snapshots = Histogram()
        """Of each snapshot that was committed: seconds since it was begun."""
        self.snapshots_failed = 0
        """Parts of snapshots that could not be written."""

    def recovering(self, reason: str, number: int, pause: float, nowhere: int) -> None:
        """A recovery is needed. `nowhere`: recoveries in a row without progress; `pause`: before
        this one, in seconds."""
        self._began, self._runs = self.now, False
        if self._failed_at is None:  # else the recovery has failed, and goes on
            self._failed_at = self.now
        wait = f"; no progress since {nowhere} recoveries, the next in {pause:g} s" if pause else ""
        told = about("recovery", reason=reason, number=number, pause=pause)
        log.warning("recovering: %s%s", reason, wait, extra=told)

    def loading(self, incarnation: int, start: SnapshotRecord) -> None:
        """All nodes load a snapshot."""
        if self._runs or not self._began:
            self._began, self._runs = self.now, False
        what = _named(start.number, start.time) if start.number else "no snapshot"
        told = about("load", incarnation=incarnation, snapshot=start.number, time=start.time)
        log.info("incarnation %d: nodes load %s", incarnation, what, extra=told)

    def taken_over(self, incarnation: int) -> None:
        """A new master goes on with the incarnation of the one before."""
        self._runs = True
        told = about("taken-over", incarnation=incarnation)
        text = "a new master has taken over; the run has gone on meanwhile"
        log.info("incarnation %d: %s", incarnation, text, extra=told)

    def running(self, incarnation: int) -> None:
        """All nodes are ready."""
        self._runs = True
        took = self.now - self._began
        if self._failed_at is not None:
            self.recoveries.add(self.now - self._failed_at)
            self._failed_at = None
        told = about("running", incarnation=incarnation, seconds=took)
        log.info("incarnation %d: all nodes are ready after %.1f s", incarnation, took, extra=told)

    def damaged(self, reason: str, snapshot: int) -> None:
        """A snapshot cannot be loaded."""
        told = about("snapshot-damaged", reason=reason, snapshot=snapshot)
        log.warning("%s; the previous snapshot is used", reason, extra=told)

    def snapshot_failed(self, number: int, node: str, reason: str) -> None:
        """A node could not write its part; its own process tells people of the disk."""
        self.snapshots_failed += 1
        told = about("snapshot-failed", snapshot=number, node=node, reason=reason)
        log.debug("snapshot %d has failed at %s: %s", number, node, reason, extra=told)

    def snapshot(self, number: int, time: int, begun: float) -> None:
        """A snapshot is committed; `begun`: when it was (seconds, monotonic)."""
        self.snapshots.add(max(0.0, self.now - begun))
        told = about("snapshot", snapshot=number, time=time)
        log.debug("%s is committed", _named(number, time), extra=told)

    def resizing(self, nodes: int, names: Sequence[str]) -> None:
        """Other nodes are to take over from the `nodes` of now."""
        told = about("resizing", nodes=nodes, wanted=len(names))
        log.info(
            "resizing from %d to %d nodes: %s",
            *(nodes, len(names), ", ".join(names)),
            extra=told,
        )

    def resizing_put_off(self, reason: str) -> None:
        """The nodes of now go on; another try follows."""
        told = about("resizing-put-off", reason=reason)
        log.warning("resizing: %s; the run goes on, and it is tried again", reason, extra=told)

    def resizing_given_up(self, reason: str) -> None:
        """There is no next layout any more."""
        told = about("resizing-given-up", reason=reason)
        log.warning("resizing is given up: %s", reason, extra=told)

    def resized(self, names: Sequence[str], time: int) -> None:
        """The next layout is the layout, from a time on."""
        told = about("resized", nodes=len(names), time=time)
        text = "resized: %s take over from %s on"
        log.info(text, ", ".join(names), time_in_words(time), extra=told)

    def makes_way(self, absent: Sequence[str], deaf: Sequence[str], seconds: float) -> None:
        """Another master is to lead, as this one does not reach some members."""
        joined = ", ".join
        told = about("makes-way", absent=joined(absent), deaf=joined(deaf), seconds=seconds)
        missed = [f"hears nothing of {joined(absent)}"] * bool(absent)
        missed += [f"has no answer of {joined(deaf)}, which it hears"] * bool(deaf)
        log.warning(
            "for %.0f s this master %s. It makes way for the next one, which may reach them: a "
            "network can fail in one direction, or between two hosts. A process that is dead, and "
            "that nobody starts again, looks the same",
            *(seconds, ", and ".join(missed)),
            extra=told,
        )

    def registry_failed(self, reason: object) -> None:
        """The registry holds something else than what this master has written."""
        told = about("registry-failed", reason=str(reason))
        log.error("the registry is not as it was left: %s; a new master begins", reason, extra=told)


def _named(number: int, time: int) -> str:
    """A snapshot, for people; without a time if it is a cut by epochs."""
    return f"snapshot {number}" + (f" (the state before {time_in_words(time)})" if time else "")
