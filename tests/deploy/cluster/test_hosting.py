"""What keeps a flow from running for a while ends no flow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from driftline.deploy.cluster.hosting import Host, Hosting
from driftline.deploy.cluster.records import Submission
from driftline.deploy.cluster.tree.folder import Folder
from driftline.deploy.cluster.tree.tree import Masters
from driftline.engine.errors import Unavailable


class Away(Folder):
    """A tree that cannot be reached when a flow is to begin."""

    def masters(self, flow: str, changed: Callable[[], None]) -> Masters:
        raise Unavailable("it does not answer")


def test_a_tree_that_cannot_be_reached_is_trouble_and_fails_no_flow(tmp_path: Path) -> None:
    submission = Submission(
        "sums", "a.py", "/out", 1, ("a",), ("f",), "exactly-once", "speculative", 1.0,
        dead_letters=False, identity="", code="", lineage="", session=1, run="r", groups=128,
    )  # fmt: skip
    host = Host("a", tmp_path, tmp_path)
    tree = Away(tmp_path / "reg")
    hosting = Hosting(submission, ["node-0"], (0,), host, tree, 1, lambda: None)
    hosting.start()
    hosting.join(30)
    assert (hosting.trouble, hosting.failed, hosting.over) == ("it does not answer", "", False)
