"""Open the state directory of a service, if its parts belong together.

The rules are those of a run (`deploy.local.directories.survey`), with the journal in place of
outputs. The caller's process reads the journal itself. Records of the journal have checksums, so a
damaged journal cannot crash the process, as a damaged LMDB file could.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from msgspec.structs import replace

from driftline.connectors.sinks.directory import IDENTITY, identity_lines, owner_file_of
from driftline.coordinator.identity import Identity
from driftline.coordinator.registry import ClusterState, FileRegistry, check_identity
from driftline.deploy.local.directories.inspection import inspect_directories
from driftline.deploy.local.directories.opening import with_missing
from driftline.deploy.local.directories.survey import (
    JOURNAL,
    STORE,
    DirectoryReport,
    problems,
    raise_if_fatal,
)
from driftline.deploy.local.inputs.fronts import RECEIVED
from driftline.engine.durable import translate_os_errors
from driftline.engine.errors import StateMismatch
from driftline.engine.events import log
from driftline.engine.flow.code import Code, code_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.outline import make_outline
from driftline.engine.flow.plan import Plan
from driftline.engine.keygroups import Layout
from driftline.engine.policy import POLICIES
from driftline.engine.storage.ownership import read_owner
from driftline.engine.storage.segment_log import LogDamaged
from driftline.engine.texts import counted
from driftline.serve.hosting.config import JOURNAL as JOURNAL_FOLDER
from driftline.serve.journal.consumer import identity_of
from driftline.serve.journal.entries import inspect_journal

INPUT_FOLDER, LOG_NUMBERS = "input-0", (0,)
"""The directory of a service's only input log, and the numbers of all its input logs."""

RESTORE_ADVICE = "restore the whole state directory of the service from one copy"
"""The advice if a part of the directory does not fit the others."""

POLICY = "exactly-once"
"""The only policy with totally ordered outputs."""

REMOVE_ADVICE = "remove the directory, which deletes all data of the service"

RECOVERY_ADVICE = f"{RESTORE_ADVICE}, or {REMOVE_ADVICE}"
"""The advice if a part does not fit and starting from scratch is an option."""


def open_service(
    state: Path, flow: Flow, flow_plan: Plan, nodes: int | None, *, accept_changed_code: bool
) -> ClusterState:
    """Check the state directory of a service, and return the contents of its registry.

    Creates the registry at the first start. `nodes`: the number of nodes that the user demands;
    None: that of the service, initially one. Precondition: the caller has locked the directory, and
    the processes of earlier sessions have ended. Raises StateMismatch if the directory belongs to
    another flow, its parts do not belong together, it has another number of nodes, or the code of
    the flow has changed and `accept_changed_code` is false; Unavailable.
    """
    registry = FileRegistry(state / "registry")
    previous = registry.read()
    inputs = (RECEIVED,) * len(flow.sources)
    identity = Identity(make_outline(flow), flow_plan.identity(), POLICY, nodes or 1, inputs)
    if previous is not None:
        identity = identity.with_initial_nodes(previous.identity_details)
    run = check_identity(
        previous, identity.text, str(state), identity, REMOVE_ADVICE, "give another --state"
    )
    layout = run.layout or tuple(range(identity.nodes))
    if nodes not in (None, len(layout)):
        raise StateMismatch(
            f"the service in {state} has {counted(len(layout), 'node')}, a number that cannot "
            "change: give this number or no --nodes, or start anew with another --state"
        )
    known = run if run.version else None
    check_directories(state, str(state / "registry"), known, POLICY, layout, RECOVERY_ADVICE)
    code = code_of(flow)
    if not run.version:
        run = run.next(lineage=secrets.token_hex(8), code=code, output=str(state))
        registry.write(run)
    elif run.code != code:
        run = _with_code(run, code, state, accept_changed_code)
        registry.write(run)
    return run


def _with_code(run: ClusterState, code: Code, state: Path, accept: bool) -> ClusterState:
    changed = code.changed(run.code)
    if not changed or not run.incarnation:
        return run.next(code=code)
    names = ", ".join(map(repr, changed))
    if not accept:
        raise StateMismatch(
            f"the code of operator {names} has changed since {state} was written. "
            "--accept-changed-code continues with the new code; outputs of the old code stay"
        )
    log.warning("new code of operator %s: it applies from now on", names)
    return run.next(code=code, code_from=run.incarnation + 1)


def check_directories(
    state: Path,
    registry: str,
    run: ClusterState | None,
    policy: str,
    layout: Layout,
    start_over_advice: str,
    flow_directory: Path | None = None,
) -> None:
    """Compare the contents of a state directory with the registry.

    `registry`: the place of the registry, for errors; `run`: the contents of the registry, None if
    there is no registry; `layout`: the nodes whose stores are in the directory;
    `start_over_advice`: how to start over, for errors that also advise to restore one part from a
    copy; `flow_directory`: the directory of the input log and of stores, if not `state`.

    Logs problems with which the service can continue. Raises StateMismatch if a part does not fit;
    Unavailable.
    """
    flow_directory = flow_directory or state
    if run is None and not (
        (flow_directory / INPUT_FOLDER).exists() or (state / JOURNAL_FOLDER).exists()
    ):
        return
    reports = inspect_directories(flow_directory, None)
    if not layout:  # the stores of nodes are on their hosts
        reports = [report for report in reports if report.kind != STORE]
    reports = with_missing(reports, flow_directory, None, layout, LOG_NUMBERS)
    journal, torn = report_on_journal(state / JOURNAL_FOLDER, run)
    reports.append(journal)
    if torn:
        log.warning("%s", torn)
    raise_if_fatal(problems(POLICIES[policy], registry, run, reports, start_over_advice))


def report_on_journal(
    path: Path, run: ClusterState | None, *, all_segments: bool = False
) -> tuple[DirectoryReport, str]:
    """Return a report on the journal (owner, t_last, damage) and a sentence on a torn end (or "").

    `all_segments`: read all segments instead of only the last one. Raises Unavailable.
    """
    report = DirectoryReport(JOURNAL, str(path))
    with translate_os_errors("journal", path):
        if not path.is_dir():
            return report, ""
        try:
            report = replace(report, owner=read_owner(owner_file_of(path, 0), f"output {path}"))
            _check_identity(path, run, has_owner=report.owner is not None)
            contents = inspect_journal(path, all_segments=all_segments)
            if not contents.segments and run is not None and run.last_session:
                raise StateMismatch(f"{path} has been written to, but all its segments are gone")
        except LogDamaged as error:
            return replace(report, damage=error.problem), ""
        except StateMismatch as error:
            return replace(report, damage=str(error)), ""
    entries, segments = counted(contents.entries, "record"), counted(contents.segments, "segment")
    torn = contents.torn and (
        f"{contents.torn}. A crash can leave such an end. If it is damage, the service ends as "
        f"soon as a node notices that outputs are missing: then {RESTORE_ADVICE}"
    )
    return replace(report, t_last=contents.t_last, summary=f"{entries} in {segments}"), torn


def _check_identity(path: Path, run: ClusterState | None, *, has_owner: bool) -> None:
    file = path / ".driftline" / IDENTITY
    if not file.exists():
        if has_owner:
            raise StateMismatch(f"{file}, which names the flow of the journal, is missing")
    elif run is not None and file.read_bytes() != identity_lines(identity_of(run.identity)):
        raise StateMismatch(
            f"{file}, which names the flow of the journal, is damaged or names another flow"
        )
