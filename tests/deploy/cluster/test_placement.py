"""Node placement under racing rescale requests: running nodes never move."""

from __future__ import annotations

import pytest

from driftline.coordinator.registry import ClusterState
from driftline.deploy.cluster import placement as rescaling
from driftline.deploy.cluster.placement import cancel_rescale, rescale, used_slots
from driftline.deploy.cluster.records import AgentRecord, AgentRole, Submission
from driftline.deploy.cluster.submissions import (
    CANCELLED,
    RunReplaced,
    fail,
    list_agents,
    submission_of,
)
from driftline.deploy.cluster.submitting import submit
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.engine.errors import StateMismatch, Unavailable
from tests.deploy.cluster.test_submitting import flow, submit_request
from tests.zookeepers import show


class PlacementCluster:
    """Flow in a ZooKeeper tree, and the commits of its master."""

    def __init__(self, tree: ZooKeeperTree) -> None:
        self.tree = tree
        for name, role in (("m", AgentRole.MASTER), ("a", AgentRole.NODE), ("b", AgentRole.NODE),
                           ("f", AgentRole.FRONT)):  # fmt: skip
            show(tree, name, role, slots=3)
        submit(tree, flow(), submit_request(nodes=1))
        self.runs = {0: self.submission.agent_of(0)}
        """Node that runs, or has run -> its agent."""

    @property
    def submission(self) -> Submission:
        return submission_of(self.tree, "sums")

    @property
    def state(self) -> ClusterState:
        state = self.tree.registry("sums").read()
        assert state is not None
        return state

    def commit(self, request: Submission) -> None:
        """Commit the layout of a rescale request, perhaps an earlier one, as the master does."""
        numbers = tuple(
            range(request.first_desired_node, request.first_desired_node + request.desired_nodes)
        )
        self.tree.registry("sums").write(self.state.next(layout=numbers))
        self.runs |= {number: request.agent_of(number) for number in numbers}

    def check(self) -> None:
        """Check that no node has moved and that each requested node has an agent."""
        made, layout = self.submission, self.submission.current_layout(self.state)
        assert {number: made.agent_of(number) for number in self.runs} == self.runs
        if made.desired_nodes not in (0, len(layout)):
            wanted = made.next_layout(layout)
            assert len(wanted) == made.desired_nodes
            assert all(made.agent_of(number) in "ab" for number in wanted)


@pytest.fixture
def cluster(empty_tree: ZooKeeperTree) -> PlacementCluster:
    return PlacementCluster(empty_tree)


def test_withdrawn_rescale_may_still_be_committed(cluster: PlacementCluster) -> None:
    request = rescale(cluster.tree, "sums", 3)
    stay = rescale(cluster.tree, "sums", 1)
    cluster.commit(request)
    cluster.check()
    assert (stay.desired_nodes, stay.first_desired_node) == (1, 4)
    assert list(cluster.submission.next_layout((1, 2, 3))) == [4]
    cluster.commit(stay)
    cluster.check()


@pytest.mark.parametrize(("late", "then"), [(2, 1), (3, 2), (2, 3)])
def test_rescale_after_a_concurrent_commit_keeps_node_placement(
    cluster: PlacementCluster, late: int, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another rescale is requested and committed after this command has read the tree."""

    def meanwhile(tree: ZooKeeperTree) -> list[AgentRecord]:
        monkeypatch.undo()
        cluster.commit(rescale(tree, "sums", 4))
        cluster.check()
        return list_agents(tree)

    monkeypatch.setattr(rescaling, "list_agents", meanwhile)
    rescale(cluster.tree, "sums", late)
    cluster.check()
    cluster.commit(cluster.submission)
    rescale(cluster.tree, "sums", then)
    cluster.check()


def test_second_rescale_is_rejected_and_repeated_rescale_is_idempotent(
    cluster: PlacementCluster,
) -> None:
    request = rescale(cluster.tree, "sums", 3)
    assert rescale(cluster.tree, "sums", 3) == request
    with pytest.raises(StateMismatch, match="is being rescaled to 3 nodes"):
        rescale(cluster.tree, "sums", 2)
    assert sum(used_slots(cluster.tree)["sums"][name] for name in "ab") == 1 + 3
    cluster.commit(request)
    assert sum(used_slots(cluster.tree)["sums"][name] for name in "ab") == 3
    with pytest.raises(Unavailable, match="7 node processes needed"):
        rescale(cluster.tree, "sums", 7)


def test_agent_withdraws_only_the_rescale_request_it_has_seen(cluster: PlacementCluster) -> None:
    request = rescale(cluster.tree, "sums", 3)
    cancel_rescale(cluster.tree, request)
    assert cluster.submission.desired_nodes == 1
    later = rescale(cluster.tree, "sums", 2)
    cancel_rescale(cluster.tree, request)
    assert cluster.submission == later
    cluster.check()


def test_rescale_is_rejected_if_the_flow_was_resubmitted(
    cluster: PlacementCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(tree: ZooKeeperTree) -> list[AgentRecord]:
        monkeypatch.undo()
        assert fail(tree, cluster.submission, CANCELLED, "by another command")
        submit(tree, flow(), submit_request(nodes=1))
        return list_agents(tree)

    monkeypatch.setattr(rescaling, "list_agents", meanwhile)
    with pytest.raises(RunReplaced):
        rescale(cluster.tree, "sums", 2)
    assert cluster.submission.desired_nodes == 0
