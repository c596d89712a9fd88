"""What keeps a flow from running for a while ends no flow."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.deploy.cluster.flow_runner import FlowRunner, HostResources
from driftline.deploy.cluster.records import Submission
from driftline.deploy.cluster.zookeeper_tree import ZooKeeperTree
from driftline.engine.errors import Unavailable


def away(*given: object) -> None:
    raise Unavailable("it does not answer")


def test_unreachable_zookeeper_is_reported_and_does_not_fail_the_flow(
    empty_tree: ZooKeeperTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = Submission(
        "sums", "a.py", "/out", 1, ("a",), ("f",), "exactly-once", "speculative", 1.0,
        dead_letters=False, identity="", code="", lineage="", session=1, run="r", groups=128,
    )  # fmt: skip
    host = HostResources("a", tmp_path, tmp_path)
    monkeypatch.setattr(empty_tree, "masters", away)
    hosting = FlowRunner(submission, ["node-0"], (0,), host, empty_tree, 1, lambda: None)
    hosting.start()
    hosting.join(30)
    assert (hosting.transient_error, hosting.fatal_error, hosting.is_done) == (
        "it does not answer",
        "",
        False,
    )
