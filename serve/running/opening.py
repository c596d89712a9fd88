"""Opens the state directory of a service, or begins one there, and begins a session."""

from __future__ import annotations

import secrets
from pathlib import Path

from driftline.coordinator.identity import Identity
from driftline.coordinator.registry import ClusterState, FileRegistry, check_identity
from driftline.deploy.local.inputs.fronts import RECEIVED
from driftline.engine.errors import StateMismatch
from driftline.engine.events import log
from driftline.engine.flow.code import Code, code_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.outline import outline
from driftline.engine.flow.plan import Plan
from driftline.serve.running.directories import WHOLE_COPY, check_directories

POLICY = "exactly-once"
"""The only policy whose outputs are in one order."""

ANEW = "remove the directory, with all that the service holds"

WHOLE = f"{WHOLE_COPY}, or {ANEW}"
"""The ways out, where a part of the directory does not fit the others."""


def open_service(
    state: Path, flow: Flow, flow_plan: Plan, nodes: int, *, accept_changed_code: bool
) -> ClusterState:
    """Open the state of a service.

    Precondition: the caller has locked the directory, and the processes of an earlier session have
    ended. Returns the contents of the registry. Raises StateMismatch if the directory is of another
    flow, what is in it does not belong together, or the code of the flow has changed and that is
    not accepted; Unavailable.
    """
    registry = FileRegistry(state / "registry")
    before = registry.read()
    inputs = (RECEIVED,) * len(flow.sources)
    identity = Identity(outline(flow), flow_plan.identity(), POLICY, nodes, inputs)
    if before is not None:
        identity = identity.beginning_as(before.about)
    run = check_identity(before, identity.text, str(state), identity, ANEW, "give another --state")
    layout = run.layout or tuple(range(identity.nodes))
    known = run if run.version else None
    check_directories(state, str(state / "registry"), known, POLICY, layout, WHOLE)
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
            "--accept-changed-code goes on with the new code: what the old code has put out stays"
        )
    log.warning("new code of operator %s: it counts for what comes from now on", names)
    return run.next(code=code, code_from=run.incarnation + 1)
