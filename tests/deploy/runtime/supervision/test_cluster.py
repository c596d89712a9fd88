"""Stores of nodes before the layout are removed, and no others."""

from __future__ import annotations

from pathlib import Path

from driftline.deploy.runtime.supervision.cluster import remove_outdated


def test_only_stores_of_nodes_before_the_layout_that_do_not_run_are_removed(
    tmp_path: Path,
) -> None:
    for number in (0, 1, 2, 5, 6, 7, 10):
        (tmp_path / f"node-{number}").mkdir()
        (tmp_path / f"node-{number}" / "data").write_text("state")
    for name in ("node-2.lock", "input-0", "node-x"):
        (tmp_path / name).touch()
    remove_outdated(tmp_path, (5, 6), {"node-1", "node-5"})
    found = {path.name for path in tmp_path.iterdir()}
    stores = {"node-1", "node-5", "node-6", "node-7", "node-10"}
    assert found == stores | {"node-2.lock", "input-0", "node-x"}
