"""Savepoints of running flows: write a flow's last snapshot as a directory of files.

The reader asks the master for the addresses of the nodes (`AskReport`, answered by `StatusReport`).
Then it reads the part of each node, as nodes of a next layout do (`deploy.node.state_transfer`): it
sends `AskParts` and `AskSlice`, and gets `Parts`, `Slice` or `NoParts`. The flow continues
meanwhile. If nodes remove the snapshot while it is being read, `save` reads the newest one instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from math import inf
from pathlib import Path
from time import monotonic

from driftline.connectors.inputs import is_named_address
from driftline.coordinator.registry import ClusterState, SnapshotRecord
from driftline.deploy.cluster.records import Submission
from driftline.deploy.cluster.status import key_mismatch
from driftline.deploy.cluster.submissions import has_ended, list_agents, registry_of, submission_of
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.deploy.node.state_transfer import StateFetch
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.sockets.transport import TransportConfig
from driftline.engine.errors import SnapshotDamaged, StateMismatch, Unavailable
from driftline.engine.flow.flow import Flow
from driftline.engine.keygroups import GroupCache, node_names
from driftline.engine.policy import POLICIES, SnapshotCut
from driftline.engine.snapshots.merging import restore
from driftline.engine.snapshots.savepoint import (
    Savepoint,
    create_savepoint_directory,
    write_manifest,
    write_table,
)
from driftline.engine.state.table import StateTable
from driftline.engine.wire.kinds import MASTER, POLLER
from driftline.engine.wire.messages import AskParts, Message, NoParts, Parts, Slice

ANSWER_TIMEOUT_S = 10.0
"""If no message arrives from the flow for this many seconds, `save` gives up."""

ATTEMPTS_MAX = 5
"""Attempts to read a snapshot: a newer one may replace it meanwhile."""


def save(
    tree: ZooKeeperTree,
    name: str,
    flow: Flow,
    output: Path,
    sockets: Path,
    network: TransportConfig,
) -> Savepoint:
    """Write the last snapshot of a running flow into a new directory.

    `flow`: the flow as loaded here; `sockets`: an empty folder for sockets. Raises Unavailable if
    the flow does not run, has no snapshot yet, or does not answer; StateMismatch if its policy
    takes no snapshots that can be exported, or if `output` is not empty; SnapshotDamaged.
    """
    submission = submission_of(tree, name)
    if POLICIES[submission.policy].cut is not SnapshotCut.LABEL:
        raise StateMismatch(
            f"flow {name!r} runs with {submission.policy}, whose snapshots are not cuts by label: "
            "only a flow with exactly-once can have savepoints"
        )
    alive = list_agents(tree)
    _check_agents_alive(
        submission, _read_running_state(tree, submission), {agent.name for agent in alive}
    )
    if reason := key_mismatch(network, alive):
        raise Unavailable(f"cannot read the state of flow {name!r}: {reason}")
    create_savepoint_directory(output)
    for attempts_left in reversed(range(ATTEMPTS_MAX)):
        state = _read_running_state(tree, submission)
        try:
            with ExitStack() as stack:
                runtime = Runtime(transport=network.transport())
                stack.callback(runtime.close, linger_ms=0)
                reader = SnapshotReader(submission.groups)
                reader.address = runtime.add(reader, network.inbox(reader.name, str(sockets)))
                masters = tree.masters(name, lambda: None)
                stack.callback(masters.close)
                _, reader.addresses[MASTER] = masters.leader()
                if not reader.addresses[MASTER]:
                    raise Unavailable(f"no master of flow {name!r} runs: see `driftline status`")
                segments = reader.read(runtime, state.snapshots[0], node_names(state.layout))
        except SnapshotDamaged:
            if not attempts_left:
                raise
            continue
        _write(output, flow, segments)
        live = _live_source_names(submission)
        numbered = {source.name: source.name not in live for source in flow.sources}
        newest = state.snapshots[0]
        return write_manifest(output, flow, newest.time, numbered, newest.event_times)
    raise AssertionError("the last attempt returns or raises")


class SnapshotReader(StatusPoller):
    """Reader of a snapshot's parts from all nodes; `groups`: number of key groups."""

    def __init__(self, groups: int) -> None:
        super().__init__(every_s=inf, name=f"{POLLER}-savepoint")
        self._groups = groups
        self._fetches: dict[str, StateFetch] = {}
        self._last_message_at = 0.0
        """When the last message arrived (seconds, monotonic)."""
        self._damage = ""
        """Why a node cannot send its part; "" if every node can."""
        self.segments: dict[str, list[bytes]] = {}
        """Node -> the segments of its part, in order."""

    def read(
        self, runtime: Runtime, record: SnapshotRecord, nodes: list[str]
    ) -> dict[str, list[bytes]]:
        """Read the snapshot `record` from these nodes. Return node -> the segments of its part.

        Raises SnapshotDamaged if a node cannot send its part, Unavailable.
        """
        self.ask()
        self._await(runtime, lambda: [] if MASTER in self.reports else ["the master"])
        self._await(runtime, lambda: [node for node in nodes if node not in self.addresses])
        groups = 0, self._groups - 1
        question = AskParts(self.address, record.number, record.incarnation, 0, 0, groups)
        self._fetches = {node: StateFetch(node, question) for node in nodes}
        self.segments = {node: [] for node in nodes}
        self._await(runtime, lambda: [n for n, fetch in self._fetches.items() if not fetch.is_over])
        return self.segments

    def handle(self, sender: str, message: Message) -> None:
        self._last_message_at = self.now
        fetch = self._fetches.get(sender)
        if isinstance(message, NoParts):
            self._damage = f"{sender}: {message.reason}"
        elif isinstance(message, Parts | Slice):
            if fetch is not None and (segment := fetch.take(message)):
                self.segments[sender].append(segment)
        else:
            super().handle(sender, message)

    def turn(self) -> bool:
        for node, fetch in self._fetches.items():
            if (question := fetch.question(self.now)) is not None:
                self.send(node, question)
        return False

    def _await(self, runtime: Runtime, list_missing: Callable[[], list[str]]) -> None:
        """Wait until `list_missing` returns no member. Raises SnapshotDamaged, Unavailable."""
        self._last_message_at = monotonic()
        while missing := list_missing():
            runtime.step(wait_s=0.1)
            if self._damage:
                damage, self._damage = self._damage, ""
                raise SnapshotDamaged(damage)
            if monotonic() > self._last_message_at + ANSWER_TIMEOUT_S:
                raise Unavailable(
                    f"{', '.join(missing)} of the flow did not answer for {ANSWER_TIMEOUT_S:g} s: "
                    "`driftline status` shows what is wrong"
                )


def _check_agents_alive(submission: Submission, state: ClusterState, alive: set[str]) -> None:
    """Raise Unavailable if the agent of a current node is not alive: its host stores the node's
    part of the state. `alive`: the names of live agents."""
    layout = submission.current_layout(state)
    for number, name in zip(layout, node_names(layout), strict=True):
        if (agent := submission.agent_of(number)) not in alive:
            raise Unavailable(
                f"agent {agent} is not running, and has the state of {name}: start it, and try "
                "again once `driftline status` shows that the flow runs"
            )


def _read_running_state(tree: ZooKeeperTree, submission: Submission) -> ClusterState:
    """Return the registry contents of a running flow.

    Raises Unavailable if the flow is over or has no snapshot yet; StateMismatch if the registry is
    damaged.
    """
    state = registry_of(tree, submission.name)
    if has_ended(state, submission):
        raise Unavailable(
            f"flow {submission.name!r} does not run, and only its nodes can read its state: submit "
            "it again first"
        )
    if not state.snapshots:
        raise Unavailable(f"flow {submission.name!r} has no snapshot yet: try again in a while")
    return state


def _write(output: Path, flow: Flow, segments: Mapping[str, list[bytes]]) -> None:
    groups = GroupCache(flow.groups)
    for node_segments in segments.values():
        tables = {v.name: StateTable(v.states, []) for v in flow.vertices if v.is_keyed}
        restore(tables, node_segments)
        for vertex in flow.vertices:
            if vertex.is_keyed:
                write_table(output, vertex, tables[vertex.name], groups)


def _live_source_names(submission: Submission) -> set[str]:
    """Return the names of the sources of live records."""
    return {text.partition("=")[0] for text in submission.reading.inputs if is_named_address(text)}
