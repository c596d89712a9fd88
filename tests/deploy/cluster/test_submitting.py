"""Submissions, their records and outcomes: placement, rejections and concurrent writers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from driftline import Flow, ReducingState
from driftline.coordinator.registry import ClusterState, Registry
from driftline.deploy.cluster import submitting
from driftline.deploy.cluster.placement import choose_agents, rescale, used_slots
from driftline.deploy.cluster.records import AgentRecord, AgentRole, DesiredState, Submission
from driftline.deploy.cluster.submissions import (
    ATTEMPTS_MAX,
    CANCELLED,
    fail,
    has_ended,
    list_agents,
    path_of,
    submission_of,
    update_submission,
)
from driftline.deploy.cluster.submitting import SubmitRequest, submit
from driftline.deploy.cluster.zookeeper_tree import WriteConflict, ZooKeeperTree
from driftline.deploy.runtime.config import Reading
from driftline.engine.errors import FlowError, StateMismatch, Unavailable
from driftline.engine.policy import get_policy
from tests.zookeepers import show


def add(total: int, n: int) -> int:
    return total + n


def sums(n: int, total: ReducingState[int]) -> int:
    return total.add(n)


def key(n: int) -> int:
    return n


def flow() -> Flow:
    made = Flow("sums")
    made.source("numbers").key_by(key).scan(sums, ReducingState("total", add)).sink("out")
    return made


def submit_request(name: str = "sums", **changes: object) -> SubmitRequest:
    """Return a valid submit request with changes."""
    made = SubmitRequest(name, "a.py", Reading(("in.jsonl",)), f"/out/{name}", 1,
                 get_policy("exactly-once"), 1.0, dead_letters=False)  # fmt: skip
    return replace(made, **changes)


@pytest.fixture
def tree(empty_tree: ZooKeeperTree) -> ZooKeeperTree:
    """Provide a cluster with one agent for masters, two for nodes and one for fronts."""
    show(empty_tree, "m", AgentRole.MASTER)
    show(empty_tree, "a", AgentRole.NODE, slots=2)
    show(empty_tree, "b", AgentRole.NODE, slots=2)
    show(empty_tree, "f", AgentRole.FRONT, slots=3)
    return empty_tree


def test_processes_are_spread_over_agents_with_free_slots() -> None:
    alive = [
        AgentRecord(name, (AgentRole.NODE,), "h", slots) for name, slots in (("a", 2), ("b", 4))
    ]
    alive.append(AgentRecord("f", (AgentRole.FRONT,), "h", 9))
    assert choose_agents(alive, AgentRole.NODE, 4, {}) == ["b", "a", "b", "a"]
    assert choose_agents(alive, AgentRole.NODE, 5, {"one": Counter(a=1)}) == [
        "b",
        "a",
        "b",
        "b",
        "b",
    ]
    assert choose_agents(alive, AgentRole.NODE, 0, {"one": Counter(a=9)}) == []
    taken = {"one": Counter(a=1, b=1), "other": Counter(b=1), "third": Counter(f=1)}
    why = r"6 slots at 2 agents, of which 3 are taken by one \(2\), other \(1\): start another"
    with pytest.raises(Unavailable, match=f"4 node processes needed, and there are {why}"):
        choose_agents(alive, AgentRole.NODE, 4, taken)


def test_resubmitted_flow_keeps_its_agents_and_others_get_free_slots(
    tree: ZooKeeperTree,
) -> None:
    first = submit(tree, flow(), submit_request(nodes=3))
    assert (first.node_agents, first.front_agents) == (("a", "b", "a"), ("f",))
    assert used_slots(tree) == {first.name: Counter(a=2, b=1, f=1)}
    second = submit(tree, flow(), submit_request("other", nodes=1))
    assert second.node_agents == ("b",)
    with pytest.raises(Unavailable, match="there are 4 slots at 2 agents, of which 4 are taken"):
        submit(tree, flow(), submit_request("third"))
    assert tree.registry("third").read() is None, "a rejected flow leaves no records"
    assert fail(tree, first, "Unavailable", "a test")
    third = submit(tree, flow(), submit_request("third", nodes=3))
    again = submit(tree, flow(), submit_request(nodes=None))
    assert third.node_agents == ("a", "b", "a")
    assert again.node_agents == first.node_agents, "the agents have the flow's state"
    assert not again.desired_nodes, "the number of nodes stays"
    assert again.lineage == first.lineage
    assert again.run != first.run


def test_nodes_and_fronts_of_an_agent_share_its_slots(empty_tree: ZooKeeperTree) -> None:
    show(empty_tree, "one", *AgentRole, slots=3)
    first = submit(empty_tree, flow(), submit_request(nodes=2))
    assert (first.node_agents, first.front_agents) == (("one", "one"), ("one",))
    with pytest.raises(Unavailable, match="1 node process needed"):
        submit(empty_tree, flow(), submit_request("other"))
    show(empty_tree, "two", *AgentRole, slots=1)
    with pytest.raises(Unavailable, match="1 front process needed, and there are 4 slots at 2"):
        submit(empty_tree, flow(), submit_request("other"))
    with pytest.raises(Unavailable, match="4 node processes needed"):
        rescale(empty_tree, "sums", 4)
    wanted = rescale(empty_tree, "sums", 3)
    assert Counter(wanted.node_agents[2:]) == Counter(one=2, two=1), "the front keeps its slot"


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"name": "../a"}, "cannot be the name of a flow"),
    ({"name": ""}, "cannot be the name of a flow"),
    ({"name": ".a"}, "cannot be the name of a flow"),
    ({"name": "a" * 65}, "cannot be the name of a flow"),
    ({"nodes": 200}, "cannot run on 200 nodes: it has 128 key groups"),
    ({"reading": Reading(("-",))}, "cannot read standard input: send records"),
    ({"reading": Reading(("numbers=-.txt",))}, "cannot read standard input: send records"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_submit_rejects_invalid_options(
    tree: ZooKeeperTree, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(FlowError, match=message):
        submit(tree, flow(), submit_request(**changes))  # type: ignore[arg-type]
    assert tree.children("flows") == []


def test_submit_rejects_a_running_flow_and_another_flow_of_the_name(tree: ZooKeeperTree) -> None:
    first = submit(tree, flow(), submit_request())
    with pytest.raises(StateMismatch, match="'sums' runs already: `driftline stop sums` drains it"):
        submit(tree, flow(), submit_request())
    fail(tree, first, CANCELLED, "a test")
    with pytest.raises(
        StateMismatch,
        match="give another --name, and another --output, or start "
        "over with `driftline remove sums`",
    ):
        submit(tree, flow(), submit_request(reading=Reading(("other.jsonl",))))
    with pytest.raises(StateMismatch, match="has its outputs in /out/sums, not in /elsewhere"):
        submit(tree, flow(), submit_request(output="/elsewhere"))
    submit(tree, flow(), submit_request())


def test_of_two_concurrent_submissions_one_is_rejected(
    tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(tree: ZooKeeperTree) -> list[AgentRecord]:
        """Submit by another command after this one has read the tree."""
        monkeypatch.undo()
        made.append(submit(tree, flow(), submit_request()))
        return list_agents(tree)

    made: list[Submission] = []
    monkeypatch.setattr(submitting, "list_agents", meanwhile)
    with pytest.raises(WriteConflict, match="another command submits or removes it at this moment"):
        submit(tree, flow(), submit_request())
    assert submission_of(tree, "sums") == made[0]


def test_records_round_trip_and_malformed_records_are_rejected(tree: ZooKeeperTree) -> None:
    made = submit(tree, flow(), submit_request(nodes=2))
    assert Submission.decode(made.encode()) == made == submission_of(tree, "sums")
    agent = AgentRecord("a", (AgentRole.FRONT,), "h", 3, 7, (("sums", "it is\nbroken"),))
    agent = replace(agent, public="k", state="/s")
    assert AgentRecord.decode(agent.encode()) == agent
    wrong = [
        agent.encode().replace(b'"front"', b'"f"'),
        agent.encode().replace(b"slots", b"places"),
        agent.encode().replace(b'"slots": 3', b'"slots": "3"'),
        made.encode().replace(b'"exactly-once"', b'"once"'),
        made.encode().replace(b'"groups": 128', b'"groups": 0'),
        made.encode().replace(b'"f"', b"7"),
        b"[" * 200_000,
        b'{"name": ' + b"[" * 200_000,
    ]
    for data in (b"", b"[]", b"{}", b"\xff", made.encode()[:-2], *wrong):
        with pytest.raises(StateMismatch, match="another version"):
            AgentRecord.decode(data)
        with pytest.raises(StateMismatch, match="another version"):
            Submission.decode(data)


class ContendedRegistry:
    """Registry to which a master writes directly after others have read it."""

    def __init__(self, real: Registry, writes: int) -> None:
        self._real, self._writes = real, writes

    def read(self) -> ClusterState | None:
        state = self._real.read()
        if state is not None and self._writes:
            self._writes -= 1
            more = state.incarnation + 1
            self._real.write(state.next(incarnation=more, epoch=7, leader="master"))
        return state

    def write(self, state: ClusterState, *, again: bool = False) -> None:
        self._real.write(state, again=again)


def test_cancel_succeeds_against_concurrent_master_writes_and_fences_it(
    tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = submit(tree, flow(), submit_request())
    busy = ContendedRegistry(tree.registry("sums"), 3)
    with monkeypatch.context() as patch:
        patch.setattr(tree, "registry", lambda flow: busy)
        assert fail(tree, submission, CANCELLED, "by a test")
    state = tree.registry("sums").read()
    assert state is not None
    assert has_ended(state, submission)
    assert (state.incarnation, state.epoch) == (3, 8), "the epoch is later than the master's"
    late = replace(state, outcome=None, epoch=7, leader="master")
    with pytest.raises(StateMismatch):
        tree.registry("sums").write(late)
    assert not fail(tree, submission, CANCELLED, "again")
    other = submit(tree, flow(), submit_request("other"))
    busy = ContendedRegistry(tree.registry("other"), ATTEMPTS_MAX)
    with monkeypatch.context() as patch:
        patch.setattr(tree, "registry", lambda flow: busy)
        with pytest.raises(StateMismatch, match="it was written by another master"):
            fail(tree, other, CANCELLED, "by a test")


def test_change_retries_on_the_current_submission_after_conflict(
    tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that lost a race is applied again to the newer submission."""
    submit(tree, flow(), submit_request())
    tries: list[int] = []

    def stop(before: Submission) -> Submission:
        if len(tries) < 2:
            entry = tree.read(path_of("sums"))
            assert entry is not None
            tree.write(
                path_of("sums"),
                replace(before, desired_nodes=len(tries) + 1).encode(),
                entry.version,
            )
        tries.append(before.desired_nodes)
        return replace(before, desired_state=DesiredState.STOP)

    changed = update_submission(tree, "sums", stop)
    assert tries == [0, 1, 2]
    assert (changed.desired_nodes, changed.desired_state) == (2, DesiredState.STOP)
    assert submission_of(tree, "sums") == changed
    with pytest.raises(Unavailable, match="has no flow 'none'; it has sums"):
        update_submission(tree, "none", stop)


def test_submit_rejects_a_file_that_is_not_a_wheel(tree: ZooKeeperTree, tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    other.write_text("no wheel")
    with pytest.raises(FlowError, match="is not a wheel"):
        submit(tree, flow(), submit_request(wheel=other))


def test_two_flows_cannot_share_an_output_directory(tree: ZooKeeperTree) -> None:
    submit(tree, flow(), submit_request())
    for path in ("/out/sums", "/out/../out/sums", "/out//sums/."):
        with pytest.raises(StateMismatch, match="flow 'sums' has its outputs in /out/sums"):
            submit(tree, flow(), submit_request("other", output=path))
