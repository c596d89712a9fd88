"""Start of a session of a service on a cluster, and the checks before it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from driftline import Flow, ValueState
from driftline.connectors.logs.inputlog import InputLog
from driftline.coordinator.registry import RunOutcome
from driftline.deploy.cluster.records import AgentRole, Submission
from driftline.deploy.cluster.submissions import find_submission, remove
from driftline.deploy.cluster.submitting import SubmitRequest, submit
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.deploy.runtime.config import Reading
from driftline.deploy.runtime.sockets.keys import add_keys
from driftline.deploy.runtime.sockets.transport import LOCAL, TransportConfig
from driftline.engine.errors import DriftlineError, StateMismatch
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy
from driftline.engine.storage.ownership import DirectoryOwner
from driftline.serve.gateway.server import ListenAddress
from driftline.serve.journal import Journal
from driftline.serve.running.deployment import ServiceOptions, deploy_locally
from driftline.serve.running.session import SessionStart, journal_network
from tests.zookeepers import show

Function = Callable[[str, ValueState[int]], int]


def count_word(word: str, count: ValueState[int]) -> int:
    count.set((count.get() or 0) + 1)
    return count.get() or 0


def count_plus_one(word: str, count: ValueState[int]) -> int:
    return 1 + count_word(word, count)


def flow(function: Function = count_word) -> Flow:
    made = Flow("words")
    made.source("words").key_by(str).scan(function, ValueState("count")).sink("counts")
    return made


@pytest.fixture
def tree(empty_tree: ZooKeeperTree) -> ZooKeeperTree:
    """Return the tree of a cluster with one agent for masters and nodes."""
    show(empty_tree, "n", AgentRole.MASTER, AgentRole.NODE)
    return empty_tree


def service_options(state: Path, **changes: object) -> ServiceOptions:
    address = ListenAddress("::1", 0)
    made = ServiceOptions("words.py", (), cast(Callable[..., object], None), state, address)  # type: ignore[arg-type]
    state.mkdir(exist_ok=True)
    return replace(made, **changes)


def begin_session(
    tree: ZooKeeperTree, state: Path, name: str = "web", made: Flow | None = None, **changes: object
) -> Submission:
    session_start = SessionStart(tree, name, LOCAL, None)
    return session_start.begin(service_options(state, **changes), made or flow(), state)


def end_run(tree: ZooKeeperTree, submission: Submission, directory: Path) -> None:
    """Record a normal end of a run with three nodes; `directory`: that of its front."""
    paths = directory / "flows" / submission.name / "input-0", directory / "journal"
    InputLog(paths[0], "words 0", DirectoryOwner(submission.lineage, "input-0", 1)).close()
    owner = DirectoryOwner(submission.lineage, "journal", 1)
    Journal(paths[1], flow(), submission.identity, owner).close()
    registry = tree.registry(submission.name)
    state = registry.read()
    assert state is not None
    outcome = RunOutcome(submission.run, "", "drained on request")
    registry.write(state.next(outcome=outcome, incarnation=1, last_session=1, layout=(1, 2, 3)))


def test_unfinished_run_is_resumed_and_a_finished_one_replaced(
    tree: ZooKeeperTree, tmp_path: Path
) -> None:
    first = begin_session(tree, tmp_path / "s")
    assert (first.front_agents, first.output) == (("web",), "")
    assert first.consumer == f"ipc://{tmp_path}/s/journal.socket"
    assert first.reading.inputs == ("words=serve://web",)
    assert begin_session(tree, tmp_path / "s", nodes=2) == first
    end_run(tree, replace(first, node_agents=("n",) * 4), tmp_path / "s")
    second = begin_session(tree, tmp_path / "s")
    assert (second.lineage, second.session) == (first.lineage, 2)
    assert second.run != first.run
    assert not second.desired_nodes, "the new run keeps the number of nodes"


def test_changed_code_cancels_the_run_and_starts_another(
    tree: ZooKeeperTree, tmp_path: Path
) -> None:
    first = begin_session(tree, tmp_path / "s")
    other = begin_session(tree, tmp_path / "s", made=flow(count_plus_one), accept_changed_code=True)
    assert (other.lineage, other.run != first.run) == (first.lineage, True)
    state = tree.registry("web").read()
    assert state is not None
    assert state.outcome is not None
    assert (state.outcome.run, state.outcome.error) == (first.run, "Cancelled")


def test_state_directory_of_another_service_is_rejected(
    tree: ZooKeeperTree, tmp_path: Path
) -> None:
    first = begin_session(tree, tmp_path / "s")
    with pytest.raises(StateMismatch, match="does not belong to this state directory"):
        begin_session(tree, tmp_path / "other")
    with pytest.raises(StateMismatch, match="belongs to the service 'web': give --name web"):
        begin_session(tree, tmp_path / "s", "shop")
    end_run(tree, first, tmp_path / "s")
    with pytest.raises(StateMismatch, match="does not belong to this state directory"):
        begin_session(tree, tmp_path / "another")
    remove(tree, "web")
    with pytest.raises(StateMismatch, match="flow 'web' of this service is no longer in"):
        begin_session(tree, tmp_path / "s")


def test_state_directory_is_bound_to_cluster_or_single_machine(
    tree: ZooKeeperTree, tmp_path: Path
) -> None:
    begin_session(tree, tmp_path / "s")
    made, local = flow(), tmp_path / "local"
    arguments = made, make_plan(made), tmp_path
    with pytest.raises(StateMismatch, match="of a service on a cluster"), ExitStack() as stack:
        deploy_locally(service_options(tmp_path / "s"), *arguments, stack)
    with ExitStack() as stack:
        deploy_locally(service_options(local), *arguments, stack)
    with pytest.raises(StateMismatch, match="belongs to a service that runs without a cluster"):
        begin_session(tree, local)


def test_name_of_another_flow_is_rejected(tree: ZooKeeperTree, tmp_path: Path) -> None:
    show(tree, "f", AgentRole.FRONT, slots=1)
    show(tree, "web", AgentRole.FRONT, slots=0)
    reading, output = Reading(("in.jsonl",)), str(tmp_path / "out")
    order = SubmitRequest("web", "a.py", reading, output, 1, get_policy("exactly-once"), 1.0, False)
    made = submit(tree, flow(), order)
    assert made.front_agents == ("f",), "the agent of a service accepts no other fronts"
    with pytest.raises(StateMismatch, match="it is of agent f"):
        begin_session(tree, tmp_path / "s")


def test_missing_input_log_is_detected_before_submission(
    tree: ZooKeeperTree, tmp_path: Path
) -> None:
    first = begin_session(tree, tmp_path / "s")
    end_run(tree, first, tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "flows" / "web" / "input-0")
    gone = r"input-0 .* is empty or missing.* `driftline remove web`"
    with pytest.raises(StateMismatch, match=gone):
        begin_session(tree, tmp_path / "s")
    (found, _) = find_submission(tree, "web") or (None, 0)
    assert found == first


def test_journal_port_is_stable_across_sessions(tree: ZooKeeperTree, tmp_path: Path) -> None:
    session_start = SessionStart(tree, "web", TransportConfig("tcp", "127.0.0.1"), None)
    first = session_start.begin(service_options(tmp_path / "s"), flow(), tmp_path)
    end_run(tree, first, tmp_path / "s")
    second = session_start.begin(service_options(tmp_path / "s"), flow(), tmp_path)
    assert first.consumer.startswith("tcp://127.0.0.1:")
    assert (second.consumer, second.run != first.run) == (first.consumer, True)


def test_journal_needs_its_own_key_if_keys_are_used(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    add_keys(keys, ["a"], consumers={"all": ["*"], "less": ["others"]})
    add_keys(tmp_path / "foreign", ["b"], consumers={"foreign": ["*"]})
    (tmp_path / "foreign" / "foreign.key").rename(keys / "foreign.key")
    network = TransportConfig("tcp", "127.0.0.1", keys=str(keys / "a.key"))
    for key, message in (
        ("", r"keys DIR --consumer journal=\*"),
        ("a", "the key a may not take counts"),
        ("less", "the key less may not take counts"),
        ("foreign", "the key foreign is not in"),
    ):
        with pytest.raises(DriftlineError, match=message):
            journal_network(network, keys / f"{key}.key" if key else None, ("counts",))
    found = journal_network(network, keys / "all.key", ("counts",))
    assert found.keys == str(keys / "all.key")
