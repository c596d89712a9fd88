"""Opens a run: compares its directories, makes its registry if there is none, begins a session.

The registry is made before any other directory and before any process. So a run that was killed at
any moment of its first start finds its own registry, whatever other directories it had made.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from pathlib import Path

from driftline.coordinator.registry import ClusterState, FileRegistry, check_identity
from driftline.deploy.host.process import wait_for_others
from driftline.deploy.run.looking import look
from driftline.deploy.run.survey import LOG, OUTPUT, STORE, DirectoryReport, problems
from driftline.engine.errors import StateMismatch
from driftline.engine.policy import Policy

log = logging.getLogger("driftline")

LARGE = 1 << 30
"""Bytes of outputs from which on a warning says that checking them takes a while."""


def open_run(
    state: Path, output: Path, identity: str, policy: Policy, nodes: int, logs: Sequence[int]
) -> ClusterState:
    """Open the run of a state directory, or begin one there.

    `logs`: the numbers of the inputs that have a log. Returns the contents of the registry. Raises
    StateMismatch if the directories do not fit together, Unavailable if another run is at work.
    """
    registry = FileRegistry(state / "registry")
    if state.is_dir():
        wait_for_others(state)
    run = check_identity(registry.read(), identity, str(state))
    if run.version or state.is_dir() or (output / ".driftline").is_dir():
        _compare(state, output, policy, run if run.version else None, nodes, logs)
    if not run.version:
        run = run.next(lineage=secrets.token_hex(8))
        registry.write(run)
    return run


def _compare(
    state: Path,
    output: Path,
    policy: Policy,
    run: ClusterState | None,
    nodes: int,
    logs: Sequence[int],
) -> None:
    """Compare the directories with the registry, `run`. Raises StateMismatch for a fatal problem,
    and logs the others."""
    size = sum(file.stat().st_size for file in output.glob("*.jsonl"))
    if size >= LARGE:
        log.warning("checking %.1f GB of outputs in %s", size / 1e9, output)
    reports = with_missing(look(state, output), state, output, nodes, logs)
    all_problems = problems(policy, str(state / "registry"), run, reports)
    for problem in all_problems:
        if not problem.fatal:
            log.warning("%s", problem.text)
    if fatal := [problem.text for problem in all_problems if problem.fatal]:
        raise StateMismatch("\n".join(fatal))


def with_missing(
    reports: Sequence[DirectoryReport],
    state: Path,
    output: Path | None,
    nodes: int,
    logs: Sequence[int],
) -> list[DirectoryReport]:
    """The reports, and an empty one for each missing directory of a run with so many nodes and
    these logs."""
    by_role = {report.role: report for report in reports}
    for role, path in (
        *((f"{STORE}-{index}", state / f"node-{index}") for index in range(nodes)),
        *((f"{LOG}-{index}", state / f"input-{index}") for index in logs),
        *((f"{OUTPUT}-{index}", output) for index in range(nodes)),
    ):
        if path is not None:
            by_role.setdefault(role, DirectoryReport(role, str(path)))
    return list(by_role.values())
