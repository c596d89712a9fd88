"""Decides whether the directories of a run fit together, before the run continues.

Each directory has an owner: the lineage of its run (a random token), its role, and the last session
(one start of the command, numbered from 1) that opened it. The registry is the reference, as it
names a session only after all directories of that session were open and durable. The run is refused
in these cases:

1. A directory has another lineage than the registry, or another role than its path.
2. The registry is an old copy: a directory is more than one session ahead of it, or records after
   its newest snapshot have been removed from a log.
3. A directory is an old copy: an earlier session was its last, or it is a log that ends before
   records that were used.
4. A directory is missing or empty, although an earlier session had it.

Exception: a store that is lost or an old copy is recomputed, if the input can be read from its
beginning, and the policy filters repeated outputs or permits them. Under such a policy, a node
whose newest snapshot is damaged tries the one before it.

`problems` does no I/O: `inspection` reads the directories, `opening` refuses a run.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from driftline.coordinator.registry import FRESH_START_ADVICE, ClusterState
from driftline.engine.errors import StateMismatch
from driftline.engine.events import log
from driftline.engine.policy import Output, Policy
from driftline.engine.storage.ownership import DirectoryOwner
from driftline.engine.texts import format_time

STORE, LOG, OUTPUT, USED, JOURNAL, VIEW = "node", "input", "output", "used", "journal", "view"
HISTORY = "history"
"""The kinds of directories. A role is a kind, a dash and an index: `node-0`.

`USED` is a file with a checksum of the records used from an input; it may be missing or old. The
journal of a service contains all its outputs and has no index. A view, derived from the journal,
has a name instead of an index. The history contains the outputs of Spark before the run.
"""

OTHER_DIRECTORY = "give the --state of these outputs, or another --output"
"""Advice if a directory holds outputs whose state directory was not given."""

_NAMES = {
    STORE: "the state of node",
    LOG: "the log of input",
    OUTPUT: "the outputs of node",
    USED: "the used records of input",
    JOURNAL: "the journal",
    HISTORY: "the outputs of Spark",
    VIEW: "a view",
}


class DirectoryReport(Struct, frozen=True):
    """Findings about one directory of a run: its owner, its contents, and any damage."""

    role: str
    """`node-0`, `input-1`, `output-0`, ..."""
    path: str
    owner: DirectoryOwner | None = None
    """None if the directory has no readable owner: it is missing, empty or damaged."""
    damage: str = ""
    """A sentence on changed or unreadable data; empty if the directory is intact."""
    crashes_reader: bool = False
    """Whether a process that reads the directory crashes."""
    unopenable: bool = False
    """Whether the directory cannot be read at all, so no earlier snapshot in it can be used."""
    reserved: int = 0
    """Of a log: larger than all times that it has assigned to records."""
    trimmed: int = 0
    """Of a log: entries with smaller times have been removed."""
    t_last: int = -1
    """Of outputs: the consumer has stored everything up to this number.

    The policy determines what it counts: times, epochs, productions or bundles.
    """
    failures: int = 0
    """Of outputs: number of dead letters of failed functions at the consumer."""
    summary: str = ""
    """A summary of the contents, in words."""

    @property
    def kind(self) -> str:
        return self.role.partition("-")[0]

    @property
    def index(self) -> int:
        return int(self.role.partition("-")[2] or 0)

    def __str__(self) -> str:
        number = "" if self.kind in (JOURNAL, VIEW, HISTORY) else f" {self.index}"
        return f"{self.path} ({_NAMES[self.kind]}{number})"


class Problem(Struct, frozen=True):
    """A directory that does not fit. A run may continue unless the problem is `fatal`."""

    text: str
    fatal: bool = True


def problems(
    policy: Policy,
    registry: str,
    state: ClusterState | None,
    reports: Sequence[DirectoryReport],
    restart_advice: str = FRESH_START_ADVICE,
) -> list[Problem]:
    """Compare the directories of a run with its registry.

    `registry`: the path of the registry; `state`: its contents, None if it is missing;
    `restart_advice`: how to start over. Returns at most one problem for each directory.
    """
    advice = f"Restore it from a copy of the same moment, or {restart_advice}"
    if crashing := [
        report for report in reports if report.crashes_reader
    ]:  # the process that crashed did not read the directories after this one
        return [Problem(f"{report.damage}. {advice}") for report in crashing]
    intact = [report for report in reports if not report.damage]
    replayable = state is not None and _replayable(policy, state, intact)
    damaged = [
        _damage_problem(report, policy, advice, replayable) for report in reports if report.damage
    ]
    if state is None:
        has_outputs = any(report.kind == OUTPUT and report.owner for report in intact)
        remedy = OTHER_DIRECTORY if has_outputs else restart_advice
        strays = [
            Problem(
                f"{report} is {report.owner}, but registry {registry} is not there: it was "
                "removed, or the directory belongs to another run. Restore the registry from a "
                f"copy, or {remedy}"
            )
            for report in intact
            if report.owner is not None and report.owner.lineage
        ]
        return damaged + strays[:1]
    used_up_to = max((report.t_last for report in intact), default=-1)
    if policy.output is not Output.FRONTIER:  # t_last is not a time
        used_up_to = -1
    rules = _Rules(policy, registry, state, replayable, restart_advice, used_up_to)
    return damaged + [problem for report in intact for problem in rules.check(report)]


def raise_if_fatal(all_problems: Sequence[Problem]) -> None:
    """Log the problems with which a run may continue. Raise StateMismatch for the fatal ones."""
    for problem in all_problems:
        if not problem.fatal:
            log.warning("%s", problem.text)
    if fatal := [problem.text for problem in all_problems if problem.fatal]:
        raise StateMismatch("\n".join(fatal))


def _damage_problem(
    report: DirectoryReport, policy: Policy, advice: str, replayable: bool
) -> Problem:
    if report.kind in (OUTPUT, USED, HISTORY):
        return Problem(report.damage)
    if report.kind != STORE or policy.output not in (Output.AT_ONCE, Output.FRONTIER):
        return Problem(f"{report.damage}. {advice}")
    if report.unopenable:
        return Problem(f"{report.damage}. {advice}{_describe_removal(report, replayable)}")
    text = f"{report.damage}; the previous snapshot is used instead"
    if not replayable:
        text += f"; if that cannot be loaded either, the start is rejected. {advice}"
    return Problem(text, fatal=False)


def _describe_removal(report: DirectoryReport, replayable: bool) -> str:
    """Return the advice to remove only a node's store, if its state can be recomputed; else ""."""
    if report.kind != STORE or not replayable:
        return ""
    return f"; or remove {report.path} alone: it is computed again from the input"


def _replayable(policy: Policy, state: ClusterState, reports: Sequence[DirectoryReport]) -> bool:
    """Return whether a run recomputes a lost state and emits the same outputs, perhaps twice."""
    if policy.output not in (Output.AT_ONCE, Output.FRONTIER) or state.base:
        return False  # a run with a base began from a savepoint, not at the beginning of the input
    if not policy.replay:
        return True  # every call begins with an empty state
    return not any(report.trimmed for report in reports if report.kind == LOG)


class _Rules(Struct, frozen=True):
    """The checks 1 to 4 of the module docstring, for undamaged directories."""

    policy: Policy
    registry: str
    state: ClusterState
    replayable: bool
    restart_advice: str
    """How to start over, for the texts."""
    used_up_to: int
    """Largest t_last of the outputs: records up to this time were used.

    -1 if there are no outputs, or if t_last is not a time.
    """

    def check(self, report: DirectoryReport) -> list[Problem]:
        """Return the most serious problem of one directory, if it has any."""
        problem = (
            self._check_owner(report) or self._check_session(report) or self._check_log(report)
        )
        return [problem] if problem is not None else []

    def _check_owner(self, report: DirectoryReport) -> Problem | None:
        """Return the problem of a directory that belongs to another run or was moved."""
        owner, lineage = report.owner, self.state.lineage
        if owner is None or (owner.lineage, owner.role) == (lineage, report.role):
            return None
        if owner.lineage != lineage:
            text = f"{report} is {owner}, but registry {self.registry} is run {lineage[:8]}'s"
            if report.kind == OUTPUT:
                return Problem(f"{text}. {self._advise_other_output(report)}")
        else:
            text = f"{report} is {owner}: it was moved or copied there"
        return Problem(f"{text}. {self._advise_restore(report)}")

    def _check_session(self, report: DirectoryReport) -> Problem | None:
        """Return the problem of a directory that is lost or from another session."""
        last_session = self.state.last_session
        if report.kind in (USED, HISTORY):
            return None
        if report.kind == OUTPUT and self._is_of_earlier_layout(report):
            return None
        if report.owner is None:
            if last_session and report.kind == OUTPUT and self.state.output != report.path:
                text = f"{report.path} has no outputs of node {report.index} of this run"
                return Problem(f"{text}. {self._advise_other_output(report)}")
            if last_session:
                text = "is empty or missing, but an earlier session had it"
                return self._unusable_problem(report, text)
        elif report.owner.session < last_session:
            session = report.owner.session
            return self._unusable_problem(
                report,
                f"is an old copy: it was used last in session {session} of this run, but registry "
                f"{self.registry} knows session {last_session}",
            )
        elif report.owner.session > last_session + 1:
            return self._old_registry_problem(
                f"it knows session {last_session} of this run, "
                f"but {report} was used in session {report.owner.session}"
            )
        return None

    def _is_of_earlier_layout(self, report: DirectoryReport) -> bool:
        """Return whether a node of an earlier layout wrote these outputs: later sessions do not
        open them."""
        return bool(self.state.layout) and report.index not in self.state.layout

    def _check_log(self, report: DirectoryReport) -> Problem | None:
        """Return the problem of a log without records that a replay needs or that were used."""
        if report.kind != LOG or report.owner is None:
            return None
        offsets = self.state.snapshots[0].offsets if self.state.snapshots else ()
        resume_times = offsets[report.index : report.index + 1]
        if self.policy.replay and resume_times and report.trimmed > resume_times[0]:
            needed = format_time(resume_times[0])
            return self._old_registry_problem(
                f"its newest snapshot needs the records of {report} from {needed} on, but "
                f"those before {format_time(report.trimmed)} were removed"
            )
        used = max([self.used_up_to + 1, *resume_times])
        if report.reserved >= used:
            return None
        return self._unusable_problem(
            report,
            "is an old copy, or its end is missing: it ends before "
            f"{format_time(report.reserved)}, but all records before {format_time(used)} are used",
        )

    def _old_registry_problem(self, why: str) -> Problem:
        return Problem(
            f"registry {self.registry} is an old copy: {why}. Restore the registry, or everything, "
            f"from a copy of the same moment, or {self.restart_advice}"
        )

    def _unusable_problem(self, report: DirectoryReport, predicate: str) -> Problem:
        if report.kind == STORE and self.replayable:
            remedy = "its state is computed again, from the beginning of the input"
            if not self.policy.replay:
                remedy = f"with {self.policy.name} every call begins with an empty state"
            return Problem(f"{report} {predicate}; {remedy}", fatal=False)
        return Problem(f"{report} {predicate}. {self._advise_restore(report)}")

    def _advise_other_output(self, report: DirectoryReport) -> str:
        """Return the remedy for an output directory that may belong to another run."""
        last_output = self.state.output
        was_elsewhere = last_output and last_output != report.path
        hint = f" (they were last in {last_output})" if was_elsewhere else ""
        return (
            f"Give the --output of this run{hint}, or restore its outputs from a copy of the same "
            f"moment; or, for another run in {report.path}, give another --state"
        )

    def _advise_restore(self, report: DirectoryReport) -> str:
        advice = f"Restore it from a copy of the same moment, or {self.restart_advice}"
        return f"{advice}{_describe_removal(report, self.replayable)}"
