"""`driftline verify` for a flow in a cluster: checks the flow's directories on this host.

The state and outputs of a flow are on the hosts of its agents. The checks are those of
`deploy.local.verify`. Directories on other hosts are only listed, with the hosts on which to run
the same command.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from driftline.connectors.outputs import COMMIT_RECORDS, resolve_output
from driftline.connectors.registry import scheme_of
from driftline.coordinator.registry import ClusterState
from driftline.deploy.cluster.records import AgentRecord, Submission
from driftline.deploy.cluster.submissions import has_ended, list_agents, registry_of, submission_of
from driftline.deploy.cluster.zookeeper_tree import FLOWS, ZooKeeperTree
from driftline.deploy.local.directories.inspection import inspect_directories
from driftline.deploy.local.directories.survey import (
    LOG,
    OUTPUT,
    STORE,
    USED,
    DirectoryReport,
    problems,
)
from driftline.deploy.local.report import ending_of
from driftline.deploy.local.verify import Verdict
from driftline.deploy.runtime.claims import wait_for_others
from driftline.engine.errors import InUse, Unavailable
from driftline.engine.policy import POLICIES


def verify_flow(tree: ZooKeeperTree, name: str) -> Verdict:
    """Check the directories of a finished flow on this host.

    Raises InUse if the flow still runs; Unavailable if this host has none of its directories, or if
    ZooKeeper cannot be reached; StateMismatch if its submission or registry is damaged, or its
    registry is missing.
    """
    submission = submission_of(tree, name)
    state = registry_of(tree, name)
    if not has_ended(state, submission):
        raise InUse(
            f"flow {name!r} is still running: nothing was checked. Verify it once it has finished; "
            f"`driftline stop {name}` drains and stops it"
        )
    directories = _directories_by_agent(submission, state)
    alive = {agent.name: agent for agent in list_agents(tree)}
    here = {agent: roles for agent, roles in directories.items() if _is_here(alive.get(agent))}
    service = submission.front_agents[0] if submission.consumer else ""
    elsewhere = [
        _describe_location(roles, agent, alive.get(agent), service)
        for agent, roles in directories.items()
        if agent not in here
    ]
    if not here:
        raise Unavailable(
            f"no running agent on this host has directories of flow {name!r}:{''.join(elsewhere)}"
        )
    reports = list(_inspect_directories(submission, state, here, alive))
    policy = POLICIES[submission.policy]
    where = f"{tree.where}, {FLOWS}/{name}"
    restart_advice = (
        f"start over: `driftline remove {name}` says what to remove; then submit it again"
    )
    found_problems = problems(policy, where, state, reports, restart_advice)
    note = f"Not checked, as it is not on this host:{''.join(elsewhere)}" if elsewhere else ""
    ending = ending_of(state, reports, found_problems)
    return Verdict(reports, [problem.text for problem in found_problems], ending, note)


def _directories_by_agent(submission: Submission, state: ClusterState) -> dict[str, list[str]]:
    """Return, for each agent, the roles (such as `node-0`) of its directories of a flow."""
    roles: dict[str, list[str]] = {}
    for number in submission.current_layout(state):
        agent_roles = roles.setdefault(submission.agent_of(number), [])
        agent_roles.append(f"{STORE}-{number}")
        if not submission.consumer:
            agent_roles.append(f"{OUTPUT}-{number}")
    for number, agent in enumerate(submission.front_agents):
        roles.setdefault(agent, []).append(f"{LOG}-{number}")
    return roles


def _is_here(agent: AgentRecord | None) -> bool:
    """Return whether this host has the state of an agent."""
    return agent is not None and agent.host == socket.gethostname() and Path(agent.state).is_dir()


def _describe_location(
    roles: Sequence[str], name: str, agent: AgentRecord | None, service: str
) -> str:
    """Return a text that says where these directories are, and how to verify them.

    `roles`: the roles of the directories; `name`: their agent; `agent`: its record, None if it is
    not alive; `service`: name of the `driftline serve` that owns the flow, "" if there is none.
    """
    names = ", ".join(roles)
    if name == service:
        return (
            f"\n  {names}, journal: in the --state directory of `driftline serve`; give that "
            "directory to `driftline verify`"
        )
    if agent is None:
        return f"\n  {names}: agent {name} is not running; start it, then verify on its host"
    return f"\n  {names}: agent {name}, on host {agent.host}; run this command there"


def _inspect_directories(
    submission: Submission,
    state: ClusterState,
    here: Mapping[str, Sequence[str]],
    alive: Mapping[str, AgentRecord],
) -> Iterator[DirectoryReport]:
    """Yield a report on each directory that this host has or should have.

    The output directory may be shared by hosts: reports on outputs of other nodes in it are
    included. `here`: agent of this host -> the roles of its directories; `alive`: agent -> record.
    Raises InUse, Unavailable.
    """
    live = [number for number, text in enumerate(_inputs(state)) if scheme_of(text)]
    output = _directory_of(submission)
    reports = () if output is None else inspect_directories(None, output)
    outputs = {report.role: report for report in reports}
    for agent, roles in here.items():
        folder = Path(alive[agent].state) / FLOWS / submission.name
        wait_for_others(folder)
        records = folder / COMMIT_RECORDS if output is None and not submission.consumer else None
        stored = {report.role: report for report in inspect_directories(folder, records)}
        for role in roles:
            kind, _, number = role.partition("-")
            if kind == OUTPUT:
                output_reports = outputs if records is None else stored
                yield output_reports.pop(role, DirectoryReport(role, str(records or output)))
            elif kind == STORE or int(number) in live:
                yield stored.get(role, DirectoryReport(role, str(folder / role)))
            elif (used := f"{USED}-{number}") in stored:
                yield stored[used]
        if records is not None:  # also the outputs of nodes of earlier layouts
            yield from (each for role, each in stored.items() if role.startswith(f"{OUTPUT}-"))
    yield from outputs.values()  # outputs of nodes on other hosts, or of earlier layouts


def _directory_of(submission: Submission) -> Path | None:
    """Return the output directory of a flow; None if its outputs go to a service or a sink."""
    if submission.consumer:
        return None
    output = resolve_output(submission.output, Path())
    return output.directory if output.is_directory else None


def _inputs(state: ClusterState) -> tuple[str, ...]:
    return state.identity_details.inputs if state.identity_details is not None else ()
