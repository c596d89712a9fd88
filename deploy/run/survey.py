"""What fits together: the rules by which the directories of a run are compared before it goes on.

`problems` is handed what the registry and each directory say of themselves, and gives sentences. It
touches nothing: `deploy.run.looking` reads the directories, `deploy.run.opening` refuses a run.

The registry is the measure. Whatever it says was decided when every directory was open and durable;
so, once it names a session in which all were, a directory that is new, older than that session, or
of another run was lost, restored or moved afterwards. Copies from within a session are told by
their numbers: a store by its newest part, a log by the times that it has reserved, outputs by what
the consumer had (the nodes compare that, see `barrier`).

Only where the outcome is provably the same the run may go on: a lost store is computed again from
an input that can be read from its beginning, where outputs are the same again or may come twice;
there, a damaged one goes back to the snapshot before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from driftline.coordinator.registry import ClusterState
from driftline.engine.policy import Output, Policy, SnapshotCut
from driftline.engine.wire.marks import Mark

STORE, LOG, OUTPUT = "node", "input", "output"
"""What a part begins with; then come a dash and its index."""

_NAMES = {STORE: "the state of node", LOG: "the log of input", OUTPUT: "the outputs of node"}


@dataclass(frozen=True, slots=True)
class Found:
    """What a directory says of itself."""

    part: str
    path: str
    mark: Mark | None = None
    """None: it is not there, or nothing was ever written to it."""
    damage: str = ""
    """What cannot be read, or was changed."""
    deadly: bool = False
    """Whether the damage ends a process that reads it."""
    newest: int = 0
    """Of a store: the number of its newest part."""
    reserved: int = 0
    """Of a log: every time that it has given is below."""
    trimmed: int = 0
    """Of a log: entries below are gone."""
    t_last: int = -1
    """Of outputs."""
    holds: str = ""
    """What is in it, for people."""

    @property
    def kind(self) -> str:
        return self.part.partition("-")[0]

    @property
    def index(self) -> int:
        return int(self.part.partition("-")[2])

    def __str__(self) -> str:
        return f"{self.path} ({_NAMES[self.kind]} {self.index})"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that does not fit; a run may go on with one that is not `fatal`."""

    text: str
    fatal: bool = True


def problems(
    policy: Policy, registry: str, state: ClusterState | None, found: Sequence[Found]
) -> list[Problem]:
    """What does not fit together. `registry`: where it is; `state`: what is in it, if anything."""
    begin_anew = _begin_anew(registry, found)
    again = policy.output in (Output.AT_ONCE, Output.FRONTIER)
    ways = f"Restore it from a copy of the same moment, or {begin_anew}"
    if deadly := [here for here in found if here.deadly]:  # what comes after it was not looked at
        return [Problem(f"{here.damage}. {ways}") for here in deadly]
    damaged = [
        Problem(f"{here.damage}; the snapshot before it is tried", fatal=False)
        if here.kind == STORE and again
        else Problem(here.damage if here.kind == OUTPUT else f"{here.damage}. {ways}")
        for here in found
        if here.damage
    ]
    found = [here for here in found if not here.damage]
    if state is None:
        strays = [
            Problem(
                f"{here} is {here.mark}, but registry {registry} is not there: it was removed, or "
                f"this is another run's. Restore the registry from a copy, or {begin_anew}"
            )
            for here in found
            if here.mark is not None and here.mark.lineage
        ]
        return damaged + strays[:1]
    by_time = [here.t_last for here in found] if policy.output is Output.FRONTIER else []
    again = _replayable(policy, state, found)
    rules = _Rules(policy, registry, state, again, begin_anew, max(by_time, default=-1))
    return damaged + [problem for here in found for problem in rules.of(here)]


def _replayable(policy: Policy, state: ClusterState, found: Sequence[Found]) -> bool:
    """Whether a lost state is computed again, with the same outputs or with some twice."""
    if policy.output not in (Output.AT_ONCE, Output.FRONTIER) or state.base:
        return False
    return not any(here.trimmed for here in found if here.kind == LOG)


def _begin_anew(registry: str, found: Sequence[Found]) -> str:
    outputs = sorted({here.path for here in found if here.kind == OUTPUT})
    state = registry.rpartition("/")[0] or "."
    whole = " and ".join([state, *outputs])
    lost = [here.path for here in found if here.kind == LOG and here.mark is not None]
    warning = f" (what producers have sent, in {', '.join(lost)}, would be lost)" if lost else ""
    return f"begin anew by removing all of {whole}{warning}"


@dataclass(frozen=True, slots=True)
class _Rules:
    policy: Policy
    registry: str
    state: ClusterState
    replayable: bool
    begin_anew: str
    t_last: int
    """All outputs with times up to here have left, where they have times."""

    def of(self, here: Found) -> list[Problem]:
        """What is wrong with one directory, the gravest only."""
        problem = self._of_another(here) or self._of_age(here) or self._of_numbers(here)
        return [problem] if problem is not None else []

    def _of_another(self, here: Found) -> Problem | None:
        mark, mine = here.mark, self.state.lineage
        if mark is None or (mark.lineage, mark.part) == (mine, here.part):
            return None
        if mark.lineage != mine:
            said = f"{here} is {mark}, but registry {self.registry} is run {mine[:8]}'s"
        else:
            said = f"{here} is {mark}: it was moved or copied there"
        return Problem(f"{said}. {self._ways(here)}")

    def _of_age(self, here: Found) -> Problem | None:
        opened = self.state.opened
        if here.mark is None:
            if opened:
                return self._lost(here, "is gone: it has been there, and is empty or missing now")
        elif here.mark.session < opened:
            told = f"is an old copy: it was used last in session {here.mark.session} of this run, "
            return self._lost(here, f"{told}but registry {self.registry} knows session {opened}")
        elif here.mark.session > opened + 1:
            return Problem(
                f"registry {self.registry} is an old copy: it knows session {opened} of this run, "
                f"but {here} was used in session {here.mark.session}. Restore the registry, or "
                f"everything, from a copy of the same moment, or {self.begin_anew}"
            )
        return None

    def _of_numbers(self, here: Found) -> Problem | None:
        if here.mark is None:
            return None
        if here.kind == LOG and here.reserved <= self.t_last:
            told = f"is an old copy: it has given no time from {here.reserved} on, but there are"
            return self._lost(here, f"{told} outputs up to {self.t_last}")
        if not self.state.snapshots:
            return None
        last = self.state.snapshots[0]
        knows = f"but registry {self.registry} knows"
        if here.kind == STORE and self.policy.cut is not SnapshotCut.NONE:
            needed = last.number
            if self.policy.goes_on:
                needed = last.parts[here.index] if last.parts else 0
            if here.newest < needed:
                told = f"is an old copy: its newest part is {here.newest}, {knows} {needed}"
                return self._lost(here, told)
        elif here.kind == LOG and here.index < len(last.offsets):
            offset = last.offsets[here.index]
            if here.reserved < offset:
                told = f"is an old copy: it has given no time from {here.reserved} on, {knows}"
                return self._lost(here, f"{told} that all up to {offset} is processed")
        elif here.kind == OUTPUT and self.policy.output is Output.COMMIT:
            epochs = last.number
            if here.t_last > epochs:
                return Problem(
                    f"registry {self.registry} is an old copy: it knows {epochs} committed epochs, "
                    f"but {here} has the outputs of epoch {here.t_last}. Restore everything from "
                    f"copies of the same moment, or {self.begin_anew}"
                )
        return None

    def _lost(self, here: Found, what: str) -> Problem:
        if here.kind == STORE and self.replayable:
            again = "its state is computed again, from the beginning of the input"
            return Problem(f"{here} {what}; {again}", fatal=False)
        return Problem(f"{here} {what}. {self._ways(here)}")

    def _ways(self, here: Found) -> str:
        ways = f"Restore it from a copy of the same moment, or {self.begin_anew}"
        if here.kind == STORE and self.replayable:
            ways += f"; or remove {here.path} alone: it is computed again from the input"
        return ways
