"""Status of a cluster: its agents and its flows.

Most of it is read from ZooKeeper. A flow's master reports progress and obstacles, and its nodes and
fronts report their figures, if they answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from time import monotonic

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from driftline.coordinator.registry import ClusterState
from driftline.deploy.cluster.records import AgentRecord, AgentRole, DesiredState, Submission
from driftline.deploy.cluster.submissions import (
    CANCELLED,
    has_ended,
    list_agents,
    list_submissions,
    registry_of,
    submission_of,
)
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.deploy.roles.event_time_status import EventTimeStatus, event_time_status
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.sockets.transport import LOCAL, TransportConfig
from driftline.engine.errors import StateMismatch
from driftline.engine.keygroups import Layout, node_names, owned_groups
from driftline.engine.labels import INFINITY
from driftline.engine.texts import counted, format_size
from driftline.engine.wire.kinds import FRONT, MASTER, NODE, POLLER
from driftline.engine.wire.messages import StatusReport

ANSWER_TIMEOUT_S = 2.0
"""Seconds that masters, nodes and fronts may take to answer."""

REQUEST_REPEAT_S = 0.5
"""Seconds until requests are repeated. An answer may go to another `driftline status` that runs at
the same time, as the pollers of both have the same role name."""


class MemberStatus(Struct, frozen=True):
    """Status of a node or a front; `figures`: those of its `StatusReport`."""

    name: str
    agent: str
    state: str
    figures: dict[str, int]
    key_groups: tuple[int, int] | None = None
    """First and last key group of a node; None for a front."""


class FlowStatus(Struct, frozen=True):
    """Status of a flow."""

    name: str
    flow: str
    state: str
    """For people, for example "running", "complete" or "failed: ..."."""
    over: bool
    policy: str
    nodes: tuple[MemberStatus, ...]
    inputs: tuple[MemberStatus, ...]
    """Fronts, one for each source."""
    incarnation: int
    recoveries: int
    frontier: int | None
    """All outputs below this time are delivered; None if it is unknown, if all outputs of the flow
    are delivered, or if the flow is over."""
    lag_s: float | None
    """Age of the oldest record whose outputs are not delivered; None if the flow is over, or if a
    front does not report it."""
    last_snapshot: dict[str, int] | None
    snapshot_age_s: float | None
    """Age of the last snapshot; None if the leading master does not answer or has taken none, or if
    the flow is over."""
    waits_for: str
    """What the flow waits for, apart from `obstacles`; "" if unknown."""
    held_back: tuple[str, ...]
    """Texts that name the members which take no input at the moment, with the reason."""
    obstacles: tuple[str, ...]
    """External causes for which the flow waits, such as full disks or unreachable consumers."""
    rescaling: str
    """Progress of a rescaling; "" without one."""
    refused: str
    """Why the flow cannot have the requested number of nodes; "" if it can."""
    output: str
    problems: tuple[str, ...]
    """Why the flow cannot run, for people: see `find_problems`."""
    event_time: EventTimeStatus | None
    """Watermarks; None if the flow is over, has no event times, or no node reports them."""

    def as_json(self) -> dict[str, object]:
        """Return the fields of `--json`, without `event_time` if it is None."""
        fields: dict[str, object] = to_builtins(self)
        if self.event_time is None:
            del fields["event_time"]
        return fields


class ClusterStatus(Struct, frozen=True):
    """Status of a cluster."""

    agents: tuple[AgentRecord, ...]
    flows: tuple[FlowStatus, ...]
    damaged: tuple[tuple[str, str], ...] = ()
    """(flow, why its submission cannot be read)"""
    only: str = ""
    """The one requested flow; "": all flows."""

    def as_json(self) -> dict[str, object]:
        """Return the fields of `--json`."""
        return {
            "flows": [flow.as_json() for flow in self.flows],
            "agents": [to_builtins(agent) for agent in self.agents],
            "damaged": dict(self.damaged),
        }


def status_of(
    tree: ZooKeeperTree,
    sockets: Path,
    network: TransportConfig = LOCAL,
    only: str = "",
    answer_s: float = ANSWER_TIMEOUT_S,
) -> ClusterStatus:
    """Return the status of a cluster.

    `sockets`: an empty folder for sockets of this command; `only`: the one flow to include; "":
    all; `answer_s`: how long to wait for reports of each flow. Raises Unavailable, also if there is
    no flow `only`; NotPermitted.
    """
    alive = list_agents(tree)
    unasked_reason = key_mismatch(network, alive)
    flows = []
    damaged: dict[str, str] = {}
    for submission in list_submissions(tree, damaged):
        if only in ("", submission.name):
            state, damage = _state_of(tree, submission)
            over = state is not None and has_ended(state, submission)
            reports: Mapping[str, StatusReport] = {}
            if not over and not unasked_reason:
                reports = request_reports(tree, submission, sockets, network, answer_s)
            status = flow_status(submission, state, reports, alive, unasked_reason)
            problems = (damage, *status.problems) if damage else status.problems
            flows.append(replace(status, problems=problems))
    unreadable = tuple(item for item in damaged.items() if only in ("", item[0]))
    if only and not flows and not unreadable:
        submission_of(tree, only)  # raises
    return ClusterStatus(tuple(alive), tuple(flows), unreadable, only)


def _state_of(tree: ZooKeeperTree, submission: Submission) -> tuple[ClusterState | None, str]:
    """Return (contents of a flow's registry, ""), or (None, what is wrong with it).

    Raises Unavailable.
    """
    try:
        return registry_of(tree, submission.name), ""
    except StateMismatch as error:
        return None, str(error)


def flow_status(
    submission: Submission,
    state: ClusterState | None,
    reports: Mapping[str, StatusReport],
    alive: Sequence[AgentRecord],
    unasked_reason: str = "",
) -> FlowStatus:
    """Return the status of one flow.

    `state`: the contents of its registry; `reports`: those of its processes; `unasked_reason`: why
    no reports were requested, or "".
    """
    over = state is not None and has_ended(state, submission)
    layout = submission.current_layout(state)
    master = reports.get(MASTER)
    figures = dict(master.figures) if master is not None else {}
    frontier = figures.get("delivered")
    frontier = None if over or frontier is None or frontier >= INFINITY else frontier
    age_ms = None if over else figures.get("snapshot_age_ms")
    snapshot = state.snapshots[0] if state is not None and state.snapshots else None
    if frontier is not None and snapshot is not None:  # a recovering master may report a lower one
        frontier = max(frontier, snapshot.time)
    absent = "over" if over else "not asked" if unasked_reason else "silent"
    return FlowStatus(
        name=submission.name,
        flow=submission.flow,
        state=_describe_state(submission, state, reports, unasked_reason),
        over=over,
        policy=submission.policy,
        nodes=tuple(_nodes(submission, layout, reports, absent)),
        inputs=tuple(
            _member(reports, absent, f"{FRONT}-{number}", agent)
            for number, agent in enumerate(submission.front_agents)
        ),
        incarnation=state.incarnation if state is not None else 0,
        recoveries=figures.get("recoveries", 0),
        frontier=frontier,
        lag_s=None if over else _lag_s(submission, reports),
        last_snapshot=None
        if snapshot is None
        else {"number": snapshot.number, "time": snapshot.time},
        snapshot_age_s=None if age_ms is None else age_ms / 1000,
        waits_for="" if master is None else _waits_for(master),
        held_back=tuple(_paused_members(reports)),
        obstacles=() if master is None else master.obstacles,
        rescaling="" if master is None else master.rescaling,
        refused="" if master is None else master.refused,
        output=submission.output,
        problems=() if over else tuple(find_problems(submission, layout, alive)),
        event_time=None if over else event_time_status(reports.values()),
    )


def _lag_s(submission: Submission, reports: Mapping[str, StatusReport]) -> float | None:
    """Return the largest lag of a front; None unless all fronts report theirs."""
    names = [f"{FRONT}-{number}" for number in range(len(submission.front_agents))]
    lags = [dict(reports[name].figures).get("lag_ms") for name in names if name in reports]
    known = [lag for lag in lags if lag is not None]
    return max(known) / 1000 if known and len(known) == len(names) else None


def _describe_state(
    submission: Submission,
    state: ClusterState | None,
    reports: Mapping[str, StatusReport],
    unasked_reason: str,
) -> str:
    """Describe the state of a flow, for people."""
    outcome = state.outcome if state is not None else None
    if outcome is not None and outcome.run == submission.run:
        if outcome.error == CANCELLED:
            return "cancelled"
        if outcome.error:
            return f"failed: {outcome.error}: {outcome.text}"
        return outcome.text or "complete"
    master = reports.get(MASTER)
    if master is not None:
        summary = master.state
    elif unasked_reason:
        summary = f"not known: {unasked_reason}"
    elif state is None or state.last_session < submission.session:
        summary = "starting: no master answers yet"
    else:
        summary = "no master answers"
    return f"stopping: {summary}" if submission.desired_state is DesiredState.STOP else summary


def _waits_for(master: StatusReport) -> str:
    """Return what a flow waits for, without the obstacles and the state: these are other fields."""
    text = master.waits_for
    for prefix in (*master.obstacles, master.state):
        text = text.removeprefix(prefix).removeprefix("; ")
    return text


def _nodes(
    submission: Submission, layout: Layout, reports: Mapping[str, StatusReport], absent: str
) -> Iterator[MemberStatus]:
    for position, (number, name) in enumerate(zip(layout, node_names(layout), strict=True)):
        groups = owned_groups(position, len(layout), submission.groups)
        node = _member(reports, absent, name, submission.agent_of(number))
        yield replace(node, key_groups=(groups[0], groups[-1]))


def _member(
    reports: Mapping[str, StatusReport], absent: str, name: str, agent: str
) -> MemberStatus:
    """Return the status of a member; `absent`: its state if it does not report."""
    report = reports.get(name)
    if report is None:
        return MemberStatus(name, agent, absent, {})
    return MemberStatus(name, agent, report.state, dict(report.figures))


def _paused_members(reports: Mapping[str, StatusReport]) -> Iterator[str]:
    """Yield which members take no input at the moment, and why."""
    for name, report in sorted(reports.items()):
        figures = dict(report.figures)
        if figures.get("held_back"):
            if figures.get("waiting_bytes"):  # checked first: a slow consumer delays snapshots, too
                size = format_size(figures["waiting_bytes"])
                yield f"{name} takes no input: its consumer is slow, {size} wait for it"
            else:
                size = format_size(figures.get("unsaved_bytes", 0))
                yield f"{name} takes no input: snapshots are slow, {size} wait for the next one"
        if figures.get("window_full"):
            in_flight = counted(figures.get("in_flight", 0), "record")
            yield f"{name} is at its maximum of {in_flight} in flight"


def find_problems(
    submission: Submission, layout: Layout, alive: Sequence[AgentRecord]
) -> list[str]:
    """Return the reasons why a flow that is not over cannot run, for people."""
    agents_by_text: dict[str, list[str]] = {}
    for agent in alive:
        for flow, text in agent.problems:
            if flow == submission.name:
                agents_by_text.setdefault(text, []).append(agent.name)
    problems = [f"{', '.join(names)}: {text}" for text, names in agents_by_text.items()]
    alive_names = {agent.name for agent in alive}
    needed = dict.fromkeys((*(submission.agent_of(n) for n in layout), *submission.front_agents))
    problems += [f"agent {name} is not running" for name in needed if name not in alive_names]
    if not any(AgentRole.MASTER in agent.roles for agent in alive):
        problems.append("there is no agent for masters")
    return problems


def request_reports(
    tree: ZooKeeperTree,
    submission: Submission,
    sockets: Path,
    network: TransportConfig,
    answer_s: float = ANSWER_TIMEOUT_S,
) -> Mapping[str, StatusReport]:
    """Return what the master, nodes and fronts of a flow report within `answer_s`.

    Without a master there are no reports, as only it knows the addresses of nodes and fronts.
    `sockets`: a folder for sockets of this command. Raises Unavailable.
    """
    with ExitStack() as stack:
        masters = tree.masters(submission.name, lambda: None)
        stack.callback(masters.close)
        _, address = masters.leader()
        if not address:
            return {}
        runtime = Runtime(transport=network.transport())
        stack.callback(runtime.close, linger_ms=0)
        poller = StatusPoller(inf, f"{POLLER}-status", (MASTER, NODE, FRONT))
        inbox = network.inbox(f"{POLLER}-{submission.name}", str(sockets))
        poller.address = runtime.add(poller, inbox)
        poller.addresses[MASTER] = address
        give_up_at, asked_count, repeat_at = monotonic() + answer_s, 0, 0.0
        while (now := monotonic()) < give_up_at:
            if len(poller.addresses) > asked_count or now >= repeat_at:
                asked_count = len(poller.addresses)  # first only the master; its answer adds others
                repeat_at = now + REQUEST_REPEAT_S
                poller.ask()
            runtime.step(wait_s=0.02)
            if poller.answered and len(poller.addresses) == asked_count:
                break
        return poller.reports


def key_mismatch(network: TransportConfig, alive: Sequence[AgentRecord]) -> str:
    """Return why the processes of a cluster would not answer this command; "" if they would.

    `network`: the command's transport options. Raises NotPermitted or Unavailable if its keys
    cannot be used.
    """
    with_keys = [agent.name for agent in alive if agent.public]
    if not with_keys:
        return ""
    if not (network.scheme == "tcp" and network.keys):
        return "this cluster has keys: give --bind and --keys"
    known = network.authorised()
    if all(known.find_key(agent.public) is None for agent in alive if agent.public):
        return "these --keys do not belong to this cluster"
    return ""
