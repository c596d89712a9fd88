"""Opens a run: compares its directories with its registry, and creates a missing registry.

The registry is created before all other directories and all processes. So a run that was killed
during its first start finds its registry, whichever other directories it had already created.

`open_run` also detects code that has changed since the last session. If the user accepts the
change, the registry records the first incarnation with the new code before any process runs it.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from os.path import realpath
from pathlib import Path

from driftline.connectors.sinks.directory import why_not_writable
from driftline.connectors.sinks.jsonl import FOREIGN
from driftline.coordinator.identity import Identity
from driftline.coordinator.registry import (
    FRESH_START_ADVICE,
    ClusterState,
    FileRegistry,
    check_identity,
)
from driftline.deploy.local.directories.inspection import inspect_directories
from driftline.deploy.local.directories.survey import (
    LOG,
    OUTPUT,
    STORE,
    DirectoryReport,
    problems,
    raise_if_fatal,
)
from driftline.deploy.runtime.supervision.cluster import stores_in
from driftline.engine.durable import translate_os_errors
from driftline.engine.errors import StateMismatch
from driftline.engine.events import log
from driftline.engine.flow.code import Code
from driftline.engine.keygroups import Layout
from driftline.engine.policy import Output, Policy
from driftline.engine.texts import format_time


def open_run(
    state: Path,
    output: Path,
    identity: Identity,
    code: Code,
    policy: Policy,
    logs: Sequence[int],
    *,
    accept_changed_code: bool = False,
) -> ClusterState:
    """Open the run of a state directory, or begin one there.

    `logs`: the numbers of the inputs that have a log. Precondition: the caller has locked the state
    directory, and the processes of earlier runs have ended. Returns the contents of the registry.
    Raises StateMismatch if the directories do not fit together, if a new run may not write into the
    output directory, or if the code has changed and the change is not accepted; Unavailable.
    """
    code.log_unseen()
    registry = FileRegistry(state / "registry")
    stored = registry.read()
    if stored is not None and policy.can_rescale:
        identity = identity.with_initial_nodes(stored.identity_details)
    run = check_identity(stored, identity.text, str(state), identity)
    delivered_up_to = -1
    if run.version or state.is_dir() or (output / ".driftline").is_dir():
        existing_run = run if run.version else None
        layout = run.layout or tuple(range(identity.nodes))
        delivered_up_to = _compare(state, output, policy, existing_run, layout, logs)
        _remove_leftovers(state, run.layout)
    real_output = realpath(output)
    if not run.version:
        with translate_os_errors("output", output):
            reason = why_not_writable(output, FOREIGN, identity.text)
        if reason:
            raise StateMismatch(reason)
        run = run.next(lineage=secrets.token_hex(8), code=code, output=real_output)
        registry.write(run)
    elif run.code != code:
        run = _with_code(run, code, policy, delivered_up_to, str(state), accept_changed_code)
        registry.write(run)
    if run.output != real_output:
        run = run.next(output=real_output)
        registry.write(run)
    return run


def current_nodes(state: Path) -> int:
    """Return the number of nodes of the run in a state directory; 1 if there is no run.

    Raises StateMismatch or Unavailable if the registry cannot be read.
    """
    run = FileRegistry(state / "registry").read()
    if run is None:
        return 1
    initial = run.identity_details
    return len(run.layout) or (1 if initial is None else initial.nodes)


def _with_code(
    run: ClusterState,
    code: Code,
    policy: Policy,
    delivered_up_to: int,
    state: str,
    is_accepted: bool,
) -> ClusterState:
    """Return the registry's contents for a session with changed code.

    `delivered_up_to`: the greatest t_last of the outputs; -1 without outputs. Raises StateMismatch
    if operators have changed and `is_accepted` is false.
    """
    changed = code.changed(run.code)
    if run.code.python != code.python:
        log.warning(
            "the run was started with %s, and this is %s: changes of the flow's code cannot be "
            "detected; the run continues as if there were none",
            *(run.code.python, code.python),
        )
    has_no_results = not run.snapshots and delivered_up_to < 0
    if not changed or not run.incarnation or has_no_results:
        return run.next(code=code)
    operators = f"operator{'s' * (len(changed) > 1)} {', '.join(map(repr, changed))}"
    if not is_accepted:
        raise StateMismatch(
            f"the code of {operators} has changed since the last start of the run in {state}. "
            "--accept-changed-code continues with the new code: outputs of the old code stay. "
            f"Or restore the old code, or {FRESH_START_ADVICE}. "
            "(In Python: accept_changed_code=True, fresh=True.)"
        )
    start = "the last snapshot"
    if policy.output is Output.FRONTIER:
        start = format_time(max(1, run.snapshots[0].time if run.snapshots else 1))
    delivered = ""
    if policy.output is Output.FRONTIER and delivered_up_to >= 0:
        delivered = (
            f"; some nodes have delivered outputs up to {format_time(delivered_up_to)}: these stay "
            "as they are, and outputs that the new code adds up to there may be missing"
        )
    log.warning("new code of %s: it applies from %s on%s", operators, start, delivered)
    return run.next(code=code, code_from=run.incarnation + 1)


def _compare(
    state: Path,
    output: Path,
    policy: Policy,
    run: ClusterState | None,
    layout: Layout,
    logs: Sequence[int],
) -> int:
    """Compare the directories with `run`, the registry's contents; None: there is no registry.

    Returns the greatest t_last of the outputs, or -1 without outputs. Raises StateMismatch for
    fatal problems; logs the other problems.
    """
    reports = with_missing(inspect_directories(state, output), state, output, layout, logs)
    raise_if_fatal(problems(policy, str(state / "registry"), run, reports))
    return max((report.t_last for report in reports if report.kind == OUTPUT), default=-1)


def _remove_leftovers(state: Path, layout: Layout) -> None:
    """Remove the stores of nodes of earlier layouts, and of a layout that was never committed."""
    for number, store in stores_in(state) if layout else ():
        if number not in layout:
            shutil.rmtree(store, ignore_errors=True)


def with_missing(
    reports: Sequence[DirectoryReport],
    state: Path,
    output: Path | None,
    layout: Layout,
    logs: Sequence[int],
) -> list[DirectoryReport]:
    """Complete the reports with an empty one for each missing directory of the run.

    `layout`: the run's nodes; `logs`: the numbers of its inputs with a log. The result omits the
    stores of other nodes, which are unused.
    """
    needed = {f"{STORE}-{index}" for index in layout}
    reports = [report for report in reports if report.kind != STORE or report.role in needed]
    by_role = {report.role: report for report in reports}
    for role, path in (
        *((f"{STORE}-{index}", state / f"node-{index}") for index in layout),
        *((f"{LOG}-{index}", state / f"input-{index}") for index in logs),
        *((f"{OUTPUT}-{index}", output) for index in layout),
    ):
        if path is not None:
            by_role.setdefault(role, DirectoryReport(role, str(path)))
    return list(by_role.values())
