"""Opens a run: compares its directories, makes its registry if there is none, begins a session.

The registry is the first thing that is made, before any other directory and any process: a run that
is killed at any moment of its first start finds its own registry, and whatever else there is.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from pathlib import Path

from driftline.coordinator.registry import ClusterState, FileRegistry, check_identity
from driftline.deploy.host.process import wait_for_others
from driftline.deploy.run.looking import look
from driftline.deploy.run.survey import LOG, OUTPUT, STORE, Found, problems
from driftline.engine.errors import StateMismatch
from driftline.engine.policy import Policy

log = logging.getLogger("driftline")

LARGE = 1 << 30
"""Bytes from which on it is said that checking them takes a while."""


def open_run(
    state: Path, output: Path, identity: str, policy: Policy, nodes: int, logs: Sequence[int]
) -> ClusterState:
    """The state of the run to go on with; `logs`: the inputs that are received.

    Raises StateMismatch for what does not fit together, Unavailable if another run is at work.
    """
    registry = FileRegistry(state / "registry")
    if state.is_dir():
        wait_for_others(state)
    found = check_identity(registry.read(), identity, str(state))
    if found.version or state.is_dir() or (output / ".driftline").is_dir():
        _compare(state, output, policy, found if found.version else None, nodes, logs)
    if not found.version:
        found = found.next(lineage=secrets.token_hex(8))
        registry.write(found)
    return found


def _compare(
    state: Path,
    output: Path,
    policy: Policy,
    found: ClusterState | None,
    nodes: int,
    logs: Sequence[int],
) -> None:
    size = sum(file.stat().st_size for file in output.glob("*.jsonl"))
    if size >= LARGE:
        log.warning("checking %.1f GB of outputs in %s", size / 1e9, output)
    there = with_missing(look(state, output), state, output, nodes, logs)
    told = problems(policy, str(state / "registry"), found, there)
    for problem in told:
        if not problem.fatal:
            log.warning("%s", problem.text)
    if refused := [problem.text for problem in told if problem.fatal]:
        raise StateMismatch("\n".join(refused))


def with_missing(
    found: Sequence[Found], state: Path, output: Path | None, nodes: int, logs: Sequence[int]
) -> list[Found]:
    """What is found, and what is not there of all that a run has."""
    there = {here.part: here for here in found}
    for part, path in (
        *((f"{STORE}-{index}", state / f"node-{index}") for index in range(nodes)),
        *((f"{LOG}-{index}", state / f"input-{index}") for index in logs),
        *((f"{OUTPUT}-{index}", output) for index in range(nodes)),
    ):
        if path is not None:
            there.setdefault(part, Found(part, str(path)))
    return list(there.values())
