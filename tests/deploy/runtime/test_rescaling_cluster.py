"""Real processes come to other numbers of nodes while records come, and die meanwhile."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from driftline.deploy.runtime.supervision.cluster import LocalCluster
from tests.deploy.runtime.hosted_run import HostedRun, Records

KEYS = 700


def test_cluster_rescales_despite_kills(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as stack:
        run = HostedRun(tmp_path, stack, Records(1 << 60, KEYS), nodes=1)
        watch = run.watch
        watch.address = run.runtime.add(watch, run.config.inbox("poller"))
        watch.addresses["master"] = run.config.address("master")
        run.start(LocalCluster(run.config))
        cluster, go = run.cluster, run.go

        def nodes() -> tuple[int, ...]:
            return watch.reports["master"].layout if "master" in watch.reports else ()

        run.outputs(300)
        in_the_way = tmp_path / "state" / "node-1"
        in_the_way.write_text("no directory")
        cluster.rescale(2)
        with caplog.at_level("ERROR"):
            go(lambda: "The run keeps its 1 node" in caplog.text)
        run.outputs(300)
        assert nodes() == (0,)
        in_the_way.unlink()
        cluster.rescale(3)
        go(lambda: nodes() == (1, 2, 3))
        run.outputs(300)
        cluster.rescale(2)
        go(lambda: "node-4" in watch.addresses)  # on its way
        run.kill("node-2")
        go(lambda: nodes() == (4, 5))
        run.outputs(300)
        run.kill("node-4")
        run.kill("master")
        run.outputs(300)
        go(lambda: {"node-1", "node-2", "node-3"}.isdisjoint(cluster.pids))
        stores = [path.name for path in sorted((tmp_path / "state").glob("node-*/"))]
        assert stores == ["node-4", "node-5"], "state that nobody needs any more is removed"
        run.source.last = run.front.max_sent_time
        run.ends()
        assert cluster.restarts >= 3
