"""How far a run has come, as its registry shows: complete, ended on request, failed, interrupted.

A verdict for people, and a word for programs. It is about the last call of the command: an input
that has grown since makes no complete run incomplete.

The master writes to the registry how a run ends. Only an error that the command itself meets, such
as a process that dies again and again, is written by the command, once no process is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from driftline.connectors.sinks.lines import DEAD_LETTERS, count_bad_records
from driftline.coordinator.draining import IN_GOOD_ORDER
from driftline.coordinator.registry import ClusterState, FileRegistry, RunOutcome, SnapshotRecord
from driftline.deploy.local.directories.survey import OUTPUT, DirectoryReport, Problem
from driftline.deploy.local.inputs.fronts import has_log
from driftline.engine.errors import IF_CODE, DriftlineError
from driftline.engine.policy import BY_TIME, POLICIES, Output, Policy, SnapshotCut
from driftline.engine.texts import counted, time_in_words


class How(StrEnum):
    """How the last call of a run's command ended; the values are words of `--json`."""

    COMPLETE = "complete"
    ASKED = "asked-to-end"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NOT_BEGUN = "not-begun"
    UNKNOWN = "unknown"


def how_ended(run: ClusterState) -> How:
    """How the last call ended that has written to the registry."""
    match run.outcome:
        case RunOutcome(error="", text=text) if text == IN_GOOD_ORDER:
            return How.ASKED
        case RunOutcome(error=""):
            return How.COMPLETE
        case RunOutcome():
            return How.FAILED
    return How.INTERRUPTED if run.incarnation else How.NOT_BEGUN


@dataclass(frozen=True, slots=True)
class Ending:
    """How far a run has come."""

    how: How
    text: str
    """A sentence, or some, that begin with how the run ended."""
    error: str = ""
    """Of a run that failed: the kind of the error, and what it says."""
    snapshot: SnapshotRecord | None = None
    """The snapshot from which the same command goes on; None: it begins with an empty state, or
    problems keep it from going on from there. Its time is 0 if it is not cut by time."""
    delivered: int | None = None
    """No output that the consumer has is later than this time, which may be the end of an idle
    while; None if it has none, or if outputs are not delivered by time."""
    set_aside: int = 0
    """Bad records, and failed elements that are delivered, among the dead letters."""
    refused: bool = False
    """Whether the same command is refused until problems are mended."""

    def as_json(self) -> dict[str, object]:
        """The fields of `--json`."""
        last = self.snapshot
        return {
            "how": self.how.value,
            "text": self.text,
            "error": self.error or None,
            "snapshot": None if last is None else {"number": last.number, "time": last.time},
            "delivered": self.delivered,
            "set_aside": self.set_aside,
            "refused": self.refused,
        }


def asked_to_end(policy: Policy, beside_file: Sequence[str] = ()) -> str:
    """What a run does that is asked to end. `beside_file`: names of live inputs beside a file."""
    snapshot = "" if policy.cut is SnapshotCut.NONE else ", and a last snapshot is written"
    but = ""
    if beside_file:
        but = (
            f" (but for records of {' and '.join(beside_file)} that are later than the place in "
            "the file: they wait in the input log for the next call)"
        )
    return (
        f"no more records are taken; those that were are delivered{but}{snapshot}. Another signal "
        "ends the run at once"
    )


def after_good_order(policy: Policy, inputs: Sequence[str]) -> str:
    """What the same command does after a run that ended in good order on request.

    `inputs`: the identities of its inputs.
    """
    if policy.replay:
        return "goes on from here, and replays nothing"
    return _anew(inputs, asked=True)


@contextmanager
def error_noted(state: Path, lineage: str, run: str) -> Iterator[None]:
    """Write an error that leaves this context to the registry, as the outcome of a run.

    `run`: the name of this call of the command. If the registry has an outcome of it, or is of
    another `lineage` by now, it stays as it is. No process of the run may be at work when the
    context is left.
    """
    try:
        yield
    except DriftlineError as error:
        registry = FileRegistry(state / "registry")
        with suppress(DriftlineError):  # the error itself matters more
            before = registry.read()
            known = before is not None and before.outcome is not None and before.outcome.run == run
            if before is not None and before.lineage == lineage and not known:
                outcome = RunOutcome(run, type(error).__name__, str(error))
                registry.write(before.next(outcome=outcome))
        raise


def ending_of(
    run: ClusterState | None,
    reports: Sequence[DirectoryReport],
    output: Path | None,
    found: Sequence[Problem] = (),
) -> Ending:
    """How far the run of a registry has come; `run`: None if the registry cannot be read.

    `reports`: on its directories; `output`: its output directory, None if it is not known; `found`:
    the problems of its directories, which people are told before.
    """
    refused = any(problem.fatal for problem in found)
    if run is None or run.about is None:
        text = "how far the run has come is not known without its registry"
        return Ending(How.UNKNOWN, text, refused=refused)
    policy, inputs = POLICIES[run.about.policy], run.about.inputs
    delivered = _delivered(policy, reports)
    snapshot = run.snapshots[0] if run.snapshots else None
    failures = sum(report.failures for report in reports if report.kind == OUTPUT)
    set_aside = 0 if output is None else failures + count_bad_records(output)
    if any(report.mark is not None and report.mark.session > run.opened for report in reports):
        run = replace(run, outcome=None)  # of the call before: the last one did not get so far
    how = how_ended(run)
    error = f"{run.outcome.error}: {run.outcome.text}" if how is How.FAILED and run.outcome else ""
    goes_on = _goes_on(how, policy, snapshot, inputs)
    text = _told(how, error, policy, delivered)
    if refused:
        text += " So says its registry, which does not fit what was found."
        goes_on = "The same command is refused until that is mended, see above"
    elif found and policy.replay:
        goes_on = "The same command goes on in the way that is said above"
    elif how is How.FAILED:
        goes_on += f", once the cause is mended{IF_CODE}"
    if found or how is not How.COMPLETE:
        text += f" {goes_on}."
    if set_aside:
        letters = f"{counted(set_aside, 'dead letter')} {'is' if set_aside == 1 else 'are'}"
        text += f" {letters} in {output}/{DEAD_LETTERS}."
    return Ending(how, text, error, None if found else snapshot, delivered, set_aside, refused)


def _told(how: How, error: str, policy: Policy, delivered: int | None) -> str:
    # Not "the last one is of": a bundle has its time, and outputs may have ended before it.
    until = "" if delivered is None else f"; no output is later than {time_in_words(delivered)}"
    missing = "Outputs may be missing"
    if delivered is not None:
        missing += (
            f" after those that are there, which end with {time_in_words(delivered)} or before"
        )
    missing += "."
    match how:
        case How.ASKED:
            return (
                "ended on request, before the end of its input: what it had read is delivered"
                f"{until}."
            )
        case How.COMPLETE:
            return f"complete: the run has come to the end of its input, and {_all(policy)}{until}."
        case How.FAILED:
            return f"ended with an error, before the end of its input: {error}\n{missing}"
        case How.NOT_BEGUN:
            return "not begun: nothing has been worked off."
    return (
        "interrupted on its way: the run was killed, or ended at once by a second signal, or its "
        f"last call could not begin. {missing}"
    )


def _goes_on(
    how: How, policy: Policy, snapshot: SnapshotRecord | None, inputs: Sequence[str]
) -> str:
    if not policy.replay:
        return f"The same command {_anew(inputs, asked=how is How.ASKED)}"
    if snapshot is None:
        return "The same command goes on from the beginning of its input"
    of = f" (the state before {time_in_words(snapshot.time)})" if policy.cut in BY_TIME else ""
    replaying = ", without a replay" if how is How.ASKED else ""
    return f"The same command goes on from snapshot {snapshot.number}{of}{replaying}"


def _anew(inputs: Sequence[str], *, asked: bool) -> str:
    """How a command begins that keeps no snapshots; `asked`: it was asked to end before."""
    received = [each for each in inputs if has_log(each)]
    does = ["begins with an empty state"]
    if len(received) < len(inputs):
        does.append(f"reads its {'files' if received else 'input'} from the beginning again")
    if received:
        again = "no received record again" if asked else "the received records that its log has"
        does.append(f"reads {again}")
    return f"{', '.join(does[:-1])}, and {does[-1]}"


def _all(policy: Policy) -> str:
    if not policy.replay:
        return f"its outputs are delivered; with {policy.name}, a failure may have cost some"
    if policy.output is Output.AT_ONCE:
        return f"all outputs are delivered; with {policy.name}, a failure repeats some"
    return "all outputs are delivered"


def _delivered(policy: Policy, reports: Sequence[DirectoryReport]) -> int | None:
    """The greatest time up to which outputs are delivered; only where they leave by time."""
    if policy.output is not Output.FRONTIER:
        return None
    times = [report.t_last for report in reports if report.kind == OUTPUT]
    return max((time for time in times if time >= 0), default=None)
