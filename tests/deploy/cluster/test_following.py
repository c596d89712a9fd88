"""An elastic flow that cannot follow the agents: it is told once, and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.deploy.cluster.agent import Agent, AgentConfig
from driftline.deploy.cluster.records import Role
from driftline.deploy.cluster.status import status_of
from driftline.deploy.cluster.submissions import CANCELLED, fail, submission_of
from driftline.deploy.cluster.submitting import submit
from driftline.deploy.cluster.tree import Tree
from driftline.engine.events import FIELDS, TOLD_EVERY_S
from tests.deploy.cluster.test_submitting import flow, order
from tests.zookeepers import SESSION_S, show


@pytest.fixture
def tree(empty_tree: Tree) -> Tree:
    """A cluster whose two agents for nodes have a slot each, both taken."""
    tree = empty_tree
    for name, role in (("m", Role.MASTER), ("a", Role.NODE), ("b", Role.NODE), ("f", Role.FRONT)):
        show(tree, name, role, slots=1 + (name == "f"))
    submit(tree, flow(), order(elastic=True))
    submit(tree, flow(), order("other"))
    registry = tree.registry("sums")
    state = registry.read()
    assert state is not None
    registry.write(state.next(incarnation=1))
    return tree


def test_a_flow_without_free_slots_is_told_once_and_shown(
    tree: Tree, tmp_path: Path, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "c").mkdir()
    other = Tree(tree.zookeeper, SESSION_S)
    request.addfinalizer(other.close)
    agents = [
        Agent(AgentConfig(name, (Role.NODE,), tmp_path / "c", 0), each, tmp_path)
        for name, each in (("c", tree), ("d", other))
    ]

    def events(now: float) -> list[str]:
        caplog.clear()
        for agent in agents:
            agent._look(now)
        return [getattr(record, FIELDS)["event"] for record in caplog.records]

    caplog.set_level("WARNING", "driftline")
    events(0.0)
    events(0.5)  # each has seen the other one
    assert not any(events(1 + n / 4) for n in range(40))
    why = "it cannot follow the agents: 4 node processes needed, and there are 2 slots at 2 agents"
    [told] = [text for text in status_of(tree, tmp_path, only="sums", answer_s=0).flows[0].trouble
              if "follow" in text]  # fmt: skip
    assert told.startswith(f"c, d: {why}")
    assert events(TOLD_EVERY_S + 1) == ["cannot-follow"] * 2
    show(tree, "e", Role.NODE, slots=0)
    assert events(TOLD_EVERY_S + 2) == ["cannot-follow"] * 2, "another cause"
    fail(tree, submission_of(tree, "other"), CANCELLED, "by a test")
    show(tree, "e", Role.NODE, slots=9)
    assert events(TOLD_EVERY_S + 3) == ["cannot-follow-over"] * 2
    assert submission_of(tree, "sums").wanted == 5
    for agent in agents:
        agent.close()
