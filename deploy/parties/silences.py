"""Silences: decides which processes of a local run are ended because nothing is heard of them.

Takes: the processes that run, how often each has died without progress, the answers that the watch
has, and the time. Gives: the names of processes to be killed, and log lines.
Invariants: a process is ended only after it was heard, as starting may take as long as it likes;
and only after a silence of `missing_after_s` (of the master 3 s at least, as it is asked once a
second), or longer where the master gives it more time, and of `patience_s` beyond. Time in which
this process itself stood still does not count: the whole machine may have been suspended.

The master says which nodes are silent; a node with slow work still says `Alive`. One that answers
the watch does not hang, whatever the master hears: the network between them may have a hole. And a
silence goes on while masters change. What is heard of the master itself are its answers. Code in C
that keeps the interpreter's lock looks like a hang: the patience doubles with each death without
progress, so that such work gets to its end, or ends the run as a crash loop does, with its record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from driftline.deploy.parties.standstill import Standstill
from driftline.deploy.parties.watch import SILENT_AFTER_S, Watch
from driftline.engine.events import about, log

PATIENCE_S = 10.0
"""The shortest time from the moment in which a silence is noticed to the end of the process."""

GAP_S = 1.0
"""A longer time between two looks means that this process, or the machine, stood still."""


@dataclass(frozen=True, slots=True)
class Running:
    """A process that runs; `process`: its name, new with each start."""

    process: str
    pid: int


@dataclass(slots=True)
class Silence:
    """A silence that was noticed at a time, in seconds."""

    process: str
    noticed: float
    master: str
    """The process of the master that has said so."""


class Silences:
    """The silences of one run; `missing_after_s`: silence after which a process counts as gone."""

    def __init__(self, missing_after_s: float) -> None:
        self._missing_after_s = missing_after_s
        self._noticed: dict[str, Silence] = {}
        self._looked = 0.0
        self._awake_since = 0.0
        """Since when this process has not stood still."""
        self._standstill = Standstill()

    def look(
        self,
        now: float,
        running: Mapping[str, Running],
        watch: Watch,
        deaths: Callable[[str], int],
    ) -> list[str]:
        """The processes that are to be killed now; `deaths`: of a process, without progress."""
        if now - self._looked > GAP_S:
            self._awake_since = now
            self._noticed.clear()
        self._looked = now
        self._look_for_standstill(now, running, watch)
        silent = dict(self._silent(now, running, watch))
        self._noticed = {
            name: silence
            for name, silence in self._noticed.items()
            if name in running
            and silence.process == running[name].process
            and (name in silent or not self._is_over(name, silence, now, watch))
        }
        due = []
        for name, seconds in silent.items():
            each = running[name]
            patience_s = self.patience_s(deaths(name))
            if name not in self._noticed:
                self._noticed[name] = Silence(each.process, now, watch.process_of("master"))
                _tell_noticed(name, each, seconds, patience_s)
            elif now - self._noticed[name].noticed >= patience_s:
                del self._noticed[name]
                due.append(name)
                _tell_due(name, each, seconds)
        return due

    def patience_s(self, deaths: int) -> float:
        """How long a silence may go on after it was noticed."""
        return float(max(PATIENCE_S, self._missing_after_s) * 2**deaths)

    def _is_over(self, name: str, silence: Silence, now: float, watch: Watch) -> bool:
        """Whether a process that nobody calls silent now was heard; a new master may only not have
        missed it for long enough."""
        if name == "master" or watch.heard_at(name, silence.process) > silence.noticed:
            return True
        is_fresh = now - watch.heard_at("master") <= SILENT_AFTER_S
        return is_fresh and silence.master == watch.process_of("master")

    def _silent(
        self, now: float, running: Mapping[str, Running], watch: Watch
    ) -> Iterator[tuple[str, float]]:
        """(name, seconds of silence) of the processes that were heard, and are silent now."""
        master = running.get("master")  # None: it runs on another machine
        heard = watch.heard_at("master", master.process if master else "")
        if heard == -inf:
            return
        missing_after_s = max(self._missing_after_s, SILENT_AFTER_S)
        if master is not None and now - max(heard, self._awake_since) > missing_after_s:
            yield "master", now - heard
        if now - heard > SILENT_AFTER_S:
            return  # what the master has said of nodes may be over
        for name, process, ms in watch.reports["master"].silent:
            if name not in running:
                continue
            seconds, runs = ms / 1000 + now - heard, running[name].process
            unheard = now - watch.heard_at(name, runs)
            # If the master has last heard another one, none, or a late message of one before, then
            # what counts is what the watch has heard of this one.
            if unheard > self._missing_after_s and (runs == process or unheard < inf):
                yield name, min(seconds, unheard)

    def _look_for_standstill(
        self, now: float, running: Mapping[str, Running], watch: Watch
    ) -> None:
        """The master tells of standstills, but not of its own."""
        master, what = running.get("master"), ""
        if master is not None:
            what = f"nothing is heard of the master (pid {master.pid})"
            if watch.heard_at("master", master.process) == -inf:
                what += ", which is starting"
        progress = watch.heard_at("master"), self._awake_since
        self._standstill.look(now, progress, master is not None, what)


def _tell_noticed(name: str, each: Running, seconds: float, patience_s: float) -> None:
    log.warning(
        "%s (pid %d) is silent, for %.0f s now. Unless it is heard, it is killed in %.0f s and "
        "started again. It may have been stopped (kill -CONT %d lets it go on), be short of memory "
        "or of processor time, or be in a function in C that keeps the interpreter's lock",
        *(name, each.pid, seconds, patience_s, each.pid),
        extra=about(
            "process-silent", name=name, pid=each.pid, seconds=seconds, patience=patience_s
        ),
    )


def _tell_due(name: str, each: Running, seconds: float) -> None:
    log.warning(
        "%s (pid %d) was silent for %.0f s: it is killed, and started again",
        *(name, each.pid, seconds),
        extra=about("process-hung", name=name, pid=each.pid, seconds=seconds),
    )
