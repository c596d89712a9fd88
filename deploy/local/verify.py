"""Verifies a run: its checksums, whether its directories fit together, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable
from os.path import realpath
from pathlib import Path

from msgspec import Struct

from driftline.connectors.outputs import COMMIT_RECORDS
from driftline.connectors.sinks.directory import why_not_writable
from driftline.connectors.sinks.jsonl import FOREIGN
from driftline.coordinator.registry import FRESH_START_ADVICE, ClusterState, FileRegistry
from driftline.deploy.local.directories.inspection import inspect_directories
from driftline.deploy.local.directories.opening import with_missing
from driftline.deploy.local.directories.survey import (
    HISTORY,
    JOURNAL,
    DirectoryReport,
    Problem,
    problems,
)
from driftline.deploy.local.inputs.fronts import has_log
from driftline.deploy.local.report import Ending, ending_of
from driftline.deploy.runtime.claims import claim, wait_for_others
from driftline.engine.durable import translate_os_errors
from driftline.engine.errors import InUse, StateMismatch, Unavailable
from driftline.engine.policy import POLICIES


class Verdict(Struct, frozen=True):
    """The directories that were checked, their problems, and how far the run has come."""

    checked: list[DirectoryReport]
    problems: list[str]
    ending: Ending
    note: str = ""
    """Harmless findings, and parts that `verify` skipped; may be empty."""


class ServiceContents(Struct, frozen=True):
    """The contents of a state directory that belong to a service rather than to its run."""

    required: tuple[DirectoryReport, ...] = ()
    """Parts that have to fit the registry, too."""
    derived: tuple[DirectoryReport, ...] = ()
    """Parts that the service can rebuild from the `required` ones."""
    fresh_start_advice: str = FRESH_START_ADVICE
    """How to start from scratch."""
    problems: tuple[Problem, ...] = ()
    """Other problems that keep a service from starting."""
    damage: tuple[str, ...] = ()
    """Sentences on damage that does not keep a service from starting."""
    note: str = ""
    """Harmless findings, and parts that `verify` skipped; may be empty."""
    is_alone: bool = False
    """Whether the registry is elsewhere, so that the contents cannot be compared with it."""


InspectService = Callable[[Path, ClusterState | None], ServiceContents | None]
"""Function that reads a state directory, given its registry's contents, and changes nothing.

Returns None if no service uses the directory. Raises Unavailable.
"""


def verify_run(directory: Path, state: Path | None, inspect_service: InspectService) -> Verdict:
    """Check the directories of a run.

    `directory`: an output directory, or a state directory to check alone; `state`: the state
    directory, if it is not below the outputs; `inspect_service`: reads the contents of a service in
    a state directory that is checked alone. Raises InUse if a run is active there, Unavailable if
    there is nothing to check.
    """
    output: Path | None = directory
    parent = Path(realpath(directory)).parent
    if directory.name == JOURNAL and (parent / "run.lock").exists():
        raise Unavailable(f"{directory} is a part of a state directory: verify {parent}")
    if state is None:
        state = directory / ".driftline" / "state"
        if (directory / "registry").exists() or not (directory / ".driftline").is_dir():
            output, state = None, directory
    if state.is_dir():
        try:
            if (lock_path := state / "run.lock").exists():
                claim(lock_path).release()
            wait_for_others(state)
        except InUse:
            raise InUse(
                f"the run of {state} is still active: nothing was checked. Verify it after its "
                "end, or end it with SIGTERM first"
            ) from None
    all_problems: list[Problem] = []
    registry = state / "registry"
    try:
        run = FileRegistry(registry).read()
    except StateMismatch as error:
        run = None
        all_problems.append(Problem(str(error)))
    if output is None and run is not None and Path(run.output).name == COMMIT_RECORDS:
        output = state / COMMIT_RECORDS  # outputs go to a sink; the run's own records are here
    checked = inspect_directories(state, output)
    service = inspect_service(state, run) if output is None else None
    if not checked and not registry.exists() and service is None:
        with translate_os_errors("output", directory):
            reason = why_not_writable(directory, FOREIGN)
        raise Unavailable(
            reason or f"{directory} has no outputs and no state: it is not the directory of a run"
        )
    service = service or ServiceContents()
    checked += service.required
    if all_problems or service.is_alone:
        all_problems += _damage(checked)
    else:
        all_problems = _problems(registry, run, checked, state, output, service.fresh_start_advice)
    all_problems += service.problems
    note = service.note
    if not state.is_dir() and {report.kind for report in checked} != {HISTORY}:
        note = (
            f"no state was checked: {state} does not exist; if the state is elsewhere, give "
            "--state DIR. For a flow of a cluster give its name, and --zookeeper"
        )
    ending = ending_of(run, checked, all_problems)
    texts = [*(problem.text for problem in all_problems), *service.damage]
    return Verdict([*checked, *service.derived], texts, ending, note)


def _problems(
    registry: Path,
    run: ClusterState | None,
    checked: list[DirectoryReport],
    state: Path,
    output: Path | None,
    restart_advice: str,
) -> list[Problem]:
    """Return the problems of directories that are damaged or do not fit the registry.

    `run`: the contents of the registry; `restart_advice`: how to start over.
    """
    if run is None and not state.is_dir():  # outputs whose state is elsewhere
        return _damage(checked)
    policy = POLICIES["exactly-once"]
    if run is not None and run.identity_details is not None:
        policy = POLICIES[run.identity_details.policy]
        logs = [i for i, source in enumerate(run.identity_details.inputs) if has_log(source)]
        layout = run.layout or tuple(range(run.identity_details.nodes))
        checked = with_missing(checked, state, output, layout, logs)
    return problems(policy, str(registry), run, checked, restart_advice)


def _damage(checked: list[DirectoryReport]) -> list[Problem]:
    return [Problem(report.damage) for report in checked if report.damage]
