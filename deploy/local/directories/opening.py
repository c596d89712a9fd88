"""Opens a run: compares its directories, creates a missing registry, and begins a session.

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
    Raises StateMismatch if the directories do not fit together, or if the code has changed and that
    is not accepted; Unavailable.
    """
    code.log_unseen()
    registry = FileRegistry(state / "registry")
    before = registry.read()
    if before is not None and policy.can_rescale:
        identity = identity.with_initial_nodes(before.identity_details)
    run = check_identity(before, identity.text, str(state), identity)
    outputs_to = -1
    if run.version or state.is_dir() or (output / ".driftline").is_dir():
        found = run if run.version else None
        layout = run.layout or tuple(range(identity.nodes))
        outputs_to = _compare(state, output, policy, found, layout, logs)
        _remove_leftovers(state, run.layout)
    where = realpath(output)
    if not run.version:
        with translate_os_errors("output", output):
            lack = why_not_writable(output, FOREIGN, identity.text)
        if lack:
            raise StateMismatch(lack)
        run = run.next(lineage=secrets.token_hex(8), code=code, output=where)
        registry.write(run)
    elif run.code != code:
        run = _with_code(run, code, policy, outputs_to, str(state), accept_changed_code)
        registry.write(run)
    if run.output != where:
        run = run.next(output=where)
        registry.write(run)
    return run


def _with_code(
    run: ClusterState,
    code: Code,
    policy: Policy,
    outputs_to: int,
    where: str,
    accept: bool,
) -> ClusterState:
    """Return the registry's contents for a session with changed code.

    `outputs_to`: the consumer's greatest t_last. Raises StateMismatch if operators have changed and
    that is not accepted.
    """
    changed = code.changed(run.code)
    if run.code.python != code.python:
        log.warning(
            "the run was begun by %s, and this is %s: it cannot be seen whether the code of the "
            "flow has changed; the run continues as if it had not",
            *(run.code.python, code.python),
        )
    has_left_nothing = not run.snapshots and outputs_to < 0
    if not changed or not run.incarnation or has_left_nothing:
        return run.next(code=code)
    operators = f"operator{'s' * (len(changed) > 1)} {', '.join(map(repr, changed))}"
    if not accept:
        raise StateMismatch(
            f"the code of {operators} has changed since the last snapshot in {where}. "
            "--accept-changed-code continues with the new code: outputs of the old code stay. "
            f"Or give the old code back, or {FRESH_START_ADVICE}. "
            "(In Python: accept_changed_code=True, fresh=True.)"
        )
    since = "the last snapshot"
    if policy.output is Output.FRONTIER:
        since = format_time(max(1, run.snapshots[0].time if run.snapshots else 1))
    log.warning(
        "new code of %s: it applies from %s on; outputs that have been delivered stay as they are",
        *(operators, since),
    )
    return run.next(code=code, code_from=run.incarnation + 1)


def _compare(
    state: Path,
    output: Path,
    policy: Policy,
    run: ClusterState | None,
    layout: Layout,
    logs: Sequence[int],
) -> int:
    """Compare the directories with the registry, `run`.

    Returns the consumer's greatest t_last, or -1 without outputs. Raises StateMismatch for a fatal
    problem, and logs the others.
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

    `layout`: the run's nodes; `logs`: the numbers of its inputs with a log. Stores of other nodes
    are left out, as they are unused.
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
