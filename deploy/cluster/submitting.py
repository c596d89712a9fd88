"""Submission of a flow: assigns its processes to agents of a cluster, and begins its run.

All checks precede the transaction that writes the registry and the submission. A flow that was
submitted before and is over resumes from its state, at the same agents.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from driftline.connectors.files.files import GENERATED
from driftline.connectors.inputs import PRODUCER_PREFIXES, inputs_by_source
from driftline.connectors.outputs import resolve_output
from driftline.connectors.registry import scheme_of
from driftline.coordinator.identity import Identity
from driftline.coordinator.registry import (
    ClusterState,
    SnapshotRecord,
    check_identity,
    encode_state,
)
from driftline.deploy.cluster.placement import (
    check_rescalable,
    choose_agents,
    used_slots,
    with_desired_nodes,
)
from driftline.deploy.cluster.records import AgentRecord, AgentRole, Submission
from driftline.deploy.cluster.submissions import (
    find_submission,
    has_ended,
    list_agents,
    list_submissions,
    path_of,
    registry_of,
    registry_path,
    removal_advice,
)
from driftline.deploy.cluster.wheels import store_wheel
from driftline.deploy.cluster.zookeeper_tree import (
    NAMES,
    NEW,
    WriteConflict,
    ZooKeeperNode,
    ZooKeeperTree,
    is_name,
)
from driftline.deploy.local.config import check_syntax
from driftline.deploy.runtime.config import LIMITS, Limits, Reading
from driftline.engine.errors import FlowError, StateMismatch, Unavailable
from driftline.engine.events import log
from driftline.engine.flow.code import Code, code_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.outline import make_outline
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import Policy, SnapshotCut
from driftline.engine.snapshots.savepoint_mapping import (
    EMPTY_STATE,
    FIRST_SNAPSHOT,
    Fitted,
    InitialState,
)

SERVED = "serve://"
"""Prefix of the input of a service's flow; the service's name follows. The front of this input runs
in `driftline serve`, which receives the records from its clients."""


def default_name(flow: Flow) -> str:
    """Return the default name of a flow in a cluster.

    >>> default_name(Flow("word count"))
    'word-count'
    """
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", flow.name)


class ServiceSpec(Struct, frozen=True):
    """Service whose flow is submitted: it contains the front, and consumes all outputs.

    `name`: name of the service, which the submission lists as the agent of the front; `consumer`:
    address of the consumer; `lineage`: lineage of the service's state directory.
    """

    name: str
    consumer: str
    lineage: str

    @property
    def input(self) -> str:
        """Input of the service's flow, as `--input` would name it."""
        return f"{SERVED}{self.name}"

    def check_same(
        self, tree: ZooKeeperTree, flow: str, lineage: str, fronts: Sequence[str]
    ) -> None:
        """Raise StateMismatch if the submitted flow `flow` does not belong to this service.

        `lineage`: the flow's lineage; `fronts`: the agents of its fronts.
        """
        if lineage != self.lineage or tuple(fronts) != (self.name,):
            raise StateMismatch(
                f"flow {flow!r} in {tree.where} does not belong to this state directory: it is of "
                f"agent {', '.join(fronts)}, or was begun with another state. Give another --name, "
                "or the --state that it was begun with"
            )


class SubmitRequest(Struct, frozen=True):
    """A user's request to run a flow."""

    name: str
    flow: str
    """The module or file that all processes of the flow import."""
    reading: Reading
    output: str
    """A directory on each host of a node, or the address of a sink."""
    nodes: int | None
    """Number of nodes; None: the current number of an existing flow, otherwise one."""
    policy: Policy
    snapshot_interval_s: float
    dead_letters: bool
    limits: Limits = LIMITS
    accept_changed_code: bool = False
    initial_state: InitialState = EMPTY_STATE
    wheel: Path | None = None
    service: ServiceSpec | None = None
    """The service whose flow this is, if any; `output` is then unused."""

    @property
    def resolved_output(self) -> str:
        """The output with an absolute path; "" if a service consumes the outputs."""
        return "" if self.service is not None else _absolute(self.output)


def submit(tree: ZooKeeperTree, flow: Flow, request: SubmitRequest) -> Submission:
    """Begin a run of a flow. Return its submission.

    Raises FlowError if the name, the inputs, the wheel or another option is invalid; StateMismatch
    if the flow runs already, its existing state does not fit the request, or another flow has the
    same output; WriteConflict if another command submits or removes the flow at the same moment;
    Unavailable if there are too few agents or slots; SnapshotDamaged.
    """
    if not is_name(request.name):
        raise FlowError(f"{request.name!r} cannot be the name of a flow: {NAMES}")
    flow.check_policy(request.policy)
    inputs = inputs_by_source(flow, request.reading.inputs)
    inputs = [[_absolute(text) for text in texts] for texts in inputs]
    if any(text == "-" or text.startswith("-.") for texts in inputs for text in texts):
        raise FlowError(
            "a flow in a cluster cannot read standard input: send records with a Producer"
        )
    service = request.service
    for text in (text for texts in inputs for text in texts):
        if text.startswith(PRODUCER_PREFIXES):
            check_syntax(text)
    is_sink = (
        not request.resolved_output
        or not resolve_output(request.resolved_output, Path()).is_directory
    )
    for other in list_submissions(tree):
        if (
            other.name != request.name
            and not is_sink
            and _is_same_path(other.output, request.resolved_output)
        ):
            raise StateMismatch(
                f"flow {other.name!r} has its outputs in {other.output}: give another --output"
            )
    previous, version, previous_state, registry_version = _read_previous(tree, request.name)
    current_nodes = 1 if previous is None else len(previous.current_layout(previous_state))
    nodes = request.nodes or current_nodes
    flow.check_nodes(nodes)
    if service is not None and previous is not None:
        service.check_same(tree, request.name, previous.lineage, previous.front_agents)
    initial_state, fitted = request.initial_state, None
    if initial_state.savepoint:
        fitted = _fitted(request, flow)
        savepoint = fitted.savepoint
        initial_state = replace(
            initial_state, savepoint=os.path.abspath(savepoint.path), title=savepoint.title
        )
    elif previous is not None:
        initial_state = previous.initial_state
    identity = Identity(
        make_outline(flow),
        make_plan(flow).identity(),
        request.policy.name,
        nodes if previous is None else previous.initial_nodes,
        tuple(" ".join(texts) for texts in inputs),
        initial_state.title,
    )
    alive = list_agents(tree)
    node_agents, front_agents = _assign_agents(tree, request, nodes, len(inputs), previous, alive)
    by_source = dict(zip((source.name for source in flow.sources), inputs, strict=True))
    first_snapshot = None
    if fitted is not None:
        time, event_times = fitted.savepoint.time, fitted.savepoint.event_times_of(flow)
        offsets = (time,) * len(flow.sources)
        first_snapshot = SnapshotRecord(FIRST_SNAPSHOT, time, offsets, event_times=event_times)
    state = _next_state(
        tree, request, identity, code_of(flow), previous, previous_state, first_snapshot
    )
    submission = Submission(
        name=request.name,
        flow=_absolute_flow(request.flow),
        output=request.resolved_output,
        initial_nodes=nodes if previous is None else previous.initial_nodes,
        node_agents=node_agents,
        front_agents=front_agents,
        policy=request.policy.name,
        ordering=request.policy.ordering if request.policy.ordered else "speculative",
        snapshot_interval_s=request.snapshot_interval_s,
        dead_letters=request.dead_letters,
        identity=identity.text,
        code=state.code.text,
        lineage=state.lineage,
        session=state.last_session + 1,
        run=secrets.token_hex(8),
        groups=flow.groups,
        reading=replace(request.reading, inputs=_named(by_source)),
        limits=request.limits,
        initial_state=initial_state,
        first_desired_node=len(node_agents),
        consumer="" if service is None else service.consumer,
    )
    if len(submission.current_layout(state)) != nodes:
        check_rescalable(request.name, request.policy)
        submission = with_desired_nodes(tree, submission, state, nodes)
    if request.wheel is not None:
        submission = replace(submission, wheel=store_wheel(tree, request.name, request.wheel))
    try:
        tree.write_together(
            {
                registry_path(request.name): ZooKeeperNode(encode_state(state), registry_version),
                path_of(request.name): ZooKeeperNode(submission.encode(), version),
            }
        )
    except WriteConflict:
        raise WriteConflict(
            f"flow {request.name!r}: another command submits or removes it at this moment"
        ) from None
    return submission


def _is_same_path(path: str, other: str) -> bool:
    """Return whether two paths are the same text once normalised.

    Links are not resolved, as the paths are on other hosts. An empty path equals only an empty one.
    """
    return os.path.normpath(path) == os.path.normpath(other) if path and other else path == other


def _fitted(request: SubmitRequest, flow: Flow) -> Fitted:
    """Return the savepoint that a flow begins from, mapped to its operators.

    Raises StateMismatch, SnapshotDamaged, Unavailable.
    """
    if request.policy.cut is SnapshotCut.NONE:
        raise StateMismatch(
            f"policy {request.policy.name} takes no snapshots: a flow cannot begin from a savepoint"
        )
    return request.initial_state.fitted(flow)


def _read_previous(
    tree: ZooKeeperTree, name: str
) -> tuple[Submission | None, int, ClusterState | None, int]:
    """Return (submission, its version, registry contents, their version) of a finished flow.

    If there is no flow of this name, the records are None and the versions NEW. With the versions,
    a later write detects a concurrent submission. Raises StateMismatch if the flow runs or a record
    is damaged, Unavailable.
    """
    registry_node, found = tree.read(registry_path(name)), find_submission(tree, name)
    if registry_node is None and found is None:
        return None, NEW, None, NEW
    state = registry_of(tree, name)
    if registry_node is None or found is None:
        raise StateMismatch(
            f"{tree.where} has only a part of the records of flow {name!r}. {removal_advice(name)}"
        )
    previous, version = found
    if not has_ended(state, previous):
        raise StateMismatch(
            f"flow {name!r} runs already: `driftline stop {name}` drains it, or give another --name"
        )
    return previous, version, state, registry_node.version


def _next_state(
    tree: ZooKeeperTree,
    request: SubmitRequest,
    identity: Identity,
    code: Code,
    previous: Submission | None,
    current: ClusterState | None,
    first_snapshot: SnapshotRecord | None,
) -> ClusterState:
    """Return the registry contents with which the new run begins.

    `code`: the code of the flow as loaded here; `previous`: the last submission; `current`: the
    current contents; `first_snapshot`: the snapshot that stands for the savepoint, if the flow
    begins from one. Raises StateMismatch if the request does not fit the existing state.
    """
    code.log_unseen()
    where = f"flow {request.name!r} in {tree.where}"
    rename_advice = "give another --name, and another --output"
    restart_advice = (
        f"start over with `driftline remove {request.name}`, which says what to remove then"
    )
    state = check_identity(current, identity.text, where, identity, restart_advice, rename_advice)
    if current is None:
        lineage = secrets.token_hex(8) if request.service is None else request.service.lineage
        state = state.next(lineage=lineage, code=code, output=request.resolved_output)
        if first_snapshot is not None:
            state = replace(state, snapshots=(first_snapshot,), base=FIRST_SNAPSHOT)
        return state
    if previous is not None and not _is_same_path(previous.output, request.resolved_output):
        raise StateMismatch(
            f"{where} has its outputs in {previous.output}, not in {request.resolved_output}: give "
            f"--output {previous.output}, or another --name"
        )
    changed = code.changed(state.code)
    if changed and state.incarnation and not request.accept_changed_code:
        raise StateMismatch(
            f"the code of operator {', '.join(map(repr, changed))} has changed since {where} ran "
            "last. --accept-changed-code continues with the new code; outputs of the old code stay"
        )
    if changed:
        log.warning("new code of %s", ", ".join(map(repr, changed)))
    code_from = state.incarnation + 1 if changed else state.code_from
    return state.next(code=code, code_from=code_from, output=request.resolved_output)


def _assign_agents(
    tree: ZooKeeperTree,
    request: SubmitRequest,
    nodes: int,
    fronts: int,
    previous: Submission | None,
    alive: Sequence[AgentRecord],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the agents of the nodes and of the fronts.

    `nodes`, `fronts`: their numbers; `previous`: the last submission, whose agents are kept;
    `alive`: the live agents. Raises Unavailable if there are too few agents or slots.
    """
    if not any(AgentRole.MASTER in agent.roles for agent in alive):
        raise Unavailable(f"{tree.where} has no agent for masters: start `driftline agent`")
    if previous is not None:
        return previous.node_agents, previous.front_agents
    taken = used_slots(tree)
    node_agents = choose_agents(alive, AgentRole.NODE, nodes, taken)
    if request.service is not None:
        return tuple(node_agents), (request.service.name,)
    taken |= {request.name: Counter(node_agents)}
    return tuple(node_agents), tuple(choose_agents(alive, AgentRole.FRONT, fronts, taken))


def _named(inputs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return inputs in the notation of users, `SOURCE=INPUT`; `inputs`: source -> its inputs."""
    return tuple(f"{name}={text}" for name, texts in inputs.items() for text in texts)


def _is_file(text: str) -> bool:
    return not scheme_of(text) and not text.startswith((GENERATED, "-"))


def _absolute(text: str) -> str:
    """Make the path in an input or output absolute, as agents have other working directories.

    Return addresses without a path unchanged.
    """
    if scheme_of(text) == "python":
        return f"python:{_absolute_flow(text.removeprefix('python:').removeprefix('//'))}"
    return os.path.abspath(text) if _is_file(text) else text


def _absolute_flow(text: str) -> str:
    module, colon, name = text.partition(":")
    return f"{os.path.abspath(module)}{colon}{name}" if module.endswith(".py") else text
