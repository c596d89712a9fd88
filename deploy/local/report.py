"""Reports of a run: how its last call ended, how this call resumes it, and its final figures.

A call is one execution of the run's command. Only the registry records how a run ended: the master
writes the outcome. The command writes an outcome only for errors that it detects itself, such as
the crash loop of a process, after all processes have ended. A complete run stays complete even if
its input grows later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from signal import Signals as Signal

from msgspec import Struct
from msgspec.structs import asdict, replace

from driftline.coordinator.draining import ENDED_ON_REQUEST
from driftline.coordinator.registry import ClusterState, FileRegistry, RunOutcome, SnapshotRecord
from driftline.coordinator.snapshots import snapshot_name
from driftline.deploy.local.directories.survey import HISTORY, DirectoryReport, Problem
from driftline.engine.errors import CODE_CHANGE_HINT, DriftlineError
from driftline.engine.events import event_fields, log
from driftline.engine.policy import POLICIES, Policy
from driftline.engine.sources import RetainedSource, Source


class EndStatus(StrEnum):
    """How the last call of a run's command ended; the values appear in `--json`."""

    COMPLETE = "complete"
    DRAINED = "drained"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NOT_BEGUN = "not-begun"
    UNKNOWN = "unknown"


_TEXTS = {
    EndStatus.COMPLETE: "complete: the end of the input is reached, and all outputs are delivered",
    EndStatus.DRAINED: "drained on request, before the end of the input; the outputs of all "
    "records that were read are delivered",
    EndStatus.FAILED: "failed before the end of the input; some outputs are not delivered yet",
    EndStatus.INTERRUPTED: "interrupted before the end of the input; some outputs are not "
    "delivered yet",
    EndStatus.NOT_BEGUN: "not begun: no record was read",
    EndStatus.UNKNOWN: "how far the run has come is not known without its registry",
}


def end_status_of(run: ClusterState) -> EndStatus:
    """Return how the last call that wrote to the registry ended."""
    match run.outcome:
        case RunOutcome(error="", text=text) if text == ENDED_ON_REQUEST:
            return EndStatus.DRAINED
        case RunOutcome(error=""):
            return EndStatus.COMPLETE
        case RunOutcome():
            return EndStatus.FAILED
    return EndStatus.INTERRUPTED if run.incarnation else EndStatus.NOT_BEGUN


class Ending(Struct, frozen=True):
    """How far a run has come, and how its last call ended."""

    status: EndStatus
    text: str
    """Sentences for the user; the first one describes how the run ended."""
    error: str = ""
    """Kind and text of the error of a failed run."""
    snapshot: SnapshotRecord | None = None
    """The snapshot from which the same command resumes; its time is 0 if it is not a cut by label.

    None if the command begins with empty state, or if its directories have problems.
    """
    rejected: bool = False
    """Whether the same command is rejected until problems are repaired."""

    def as_json(self) -> dict[str, object]:
        """Return the fields of `--json`."""
        last = self.snapshot
        return {
            "status": self.status.value,
            "text": self.text,
            "error": self.error or None,
            "snapshot": None if last is None else {"number": last.number, "time": last.time},
            "rejected": self.rejected,
        }


def ending_of(
    run: ClusterState | None, reports: Sequence[DirectoryReport], problems: Sequence[Problem] = ()
) -> Ending:
    """Return how far a run has come, and how its last call ended.

    `run`: the contents of the registry; None if it is missing or cannot be read. `reports`,
    `problems`: those of the run's directories.
    """
    rejected = any(problem.fatal for problem in problems)
    identity = None if run is None else run.identity_details
    if run is None and {report.kind for report in reports} == {HISTORY}:
        return Ending(EndStatus.NOT_BEGUN, "not begun: no run has continued the outputs of Spark.")
    if run is None or identity is None:
        return Ending(EndStatus.UNKNOWN, f"{_TEXTS[EndStatus.UNKNOWN]}.", rejected=rejected)
    if any(
        report.owner is not None and report.owner.session > run.last_session for report in reports
    ):
        run = replace(run, outcome=None)  # the outcome is of an earlier call; the last wrote none
    status, policy = end_status_of(run), POLICIES[identity.policy]
    snapshot = run.snapshots[0] if run.snapshots and not problems else None
    error = (
        f"{run.outcome.error}: {run.outcome.text}"
        if status is EndStatus.FAILED and run.outcome
        else ""
    )
    parts = [f"{'problems: see above. The run itself: ' * rejected}{_TEXTS[status]}.", error]
    if rejected:
        parts.append("The command of the run is rejected until the problems above are fixed.")
    elif problems and policy.replay:
        parts.append("The command of the run resumes as described above.")
    elif status is not EndStatus.COMPLETE:
        condition = f", once the cause is fixed{CODE_CHANGE_HINT}" if error else ""
        parts.append(f"The command of the run {_describe_resumption(run, policy)}{condition}.")
    text = ("\n" if error else " ").join(filter(None, parts))
    return Ending(status, text, error, snapshot, rejected)


def _describe_resumption(run: ClusterState, policy: Policy) -> str:
    """Describe where the next call resumes, as a predicate: "resumes from ..."."""
    if not policy.replay:
        return "begins with an empty state"
    if not run.snapshots:
        return "resumes at the beginning of its input (there is no snapshot yet)"
    return f"resumes from {snapshot_name(run.snapshots[0].number, run.snapshots[0].time)}"


@contextmanager
def record_error(state: Path, lineage: str, call_token: str) -> Iterator[None]:
    """Record a DriftlineError that leaves this context in the registry, as the outcome of a run.

    `call_token`: identifies this call of the command. The registry stays unchanged if it already
    has an outcome of this call or belongs to another `lineage` by now. Precondition: no process of
    the run is alive when the error leaves the context.
    """
    try:
        yield
    except DriftlineError as error:
        registry = FileRegistry(state / "registry")
        with suppress(DriftlineError):  # the error itself matters more
            run = registry.read()
            has_outcome = (
                run is not None and run.outcome is not None and run.outcome.run == call_token
            )
            if run is not None and run.lineage == lineage and not has_outcome:
                outcome = RunOutcome(call_token, type(error).__name__, str(error))
                registry.write(run.next(outcome=outcome))
        raise


# How this call resumes the run.


def find_start_time(
    before: ClusterState, policy: Policy, number: int, source: Source | RetainedSource
) -> int:
    """Return the time from which the front of input `number` reads.

    `before`: the registry's contents before this call.
    """
    if not policy.replay:
        return max(1, source.trimmed) if isinstance(source, RetainedSource) else 1
    return max(1, before.snapshots[0].offsets[number]) if before.snapshots else 1


def log_resumption(before: ClusterState, policy: Policy) -> None:
    """Log from where this call resumes the run, if an earlier call has started processing."""
    if before.incarnation:
        status = end_status_of(before)
        number = before.snapshots[0].number if before.snapshots and policy.replay else 0
        log.info(
            "the run %s; the previous call: %s",
            *(_describe_resumption(before, policy), _previous_call(status)),
            extra=event_fields("resumed", snapshot=number, ended=status.value),
        )


def _previous_call(status: EndStatus) -> str:
    if status is EndStatus.COMPLETE:
        return "complete (this call reads only records that were added since, if any)"
    return _TEXTS[status]


# Final figures of a call.


class RunReport(Struct, frozen=True):
    """Figures of a call of the command, after the run has ended."""

    records: int
    """Records that this call has read."""
    outputs: int
    """Outputs that this call has delivered, without dead letters."""
    seconds: float
    bad_records: int
    """Unreadable records that this call has set aside."""
    dead_letters: int
    """Dead letters that this call has set aside."""
    kills: int = 0
    restarts: int = 0
    late_elements: int = 0
    """Late elements of this call that were dropped, because the flow does not use `late`."""
    ended_by: Signal | None = None
    """The signal that drained the run before the end of its input; None if the input ended."""

    def as_json(self) -> dict[str, int | float]:
        """Return the figures of `--json`."""
        figures = asdict(self) | {"seconds": round(self.seconds, 3)}
        del figures["ended_by"]
        return figures
