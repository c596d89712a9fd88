"""Real processes rescale several times under load, and are killed meanwhile."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from driftline.deploy.runtime.supervision.cluster import LocalCluster
from tests.deploy.runtime.hosted_run import HostedRun, KeyedRecords

KEYS = 700


def test_cluster_rescales_despite_kills(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as stack:
        run = HostedRun(tmp_path, stack, KeyedRecords(1 << 60, KEYS), nodes=1)
        watch = run.watch
        watch.address = run.runtime.add(watch, run.config.inbox("poller"))
        watch.addresses["master"] = run.config.address("master")
        run.start(LocalCluster(run.config))
        cluster, run_until = run.cluster, run.run_until

        def nodes() -> tuple[int, ...]:
            return watch.reports["master"].layout if "master" in watch.reports else ()

        run.await_outputs(300)
        in_the_way = tmp_path / "state" / "node-1"
        in_the_way.write_text("no directory")
        cluster.rescale(2)
        with caplog.at_level("ERROR"):
            run_until(lambda: "The run keeps its 1 node" in caplog.text)
        run.await_outputs(300)
        assert nodes() == (0,)
        in_the_way.unlink()
        cluster.rescale(3)
        run_until(lambda: nodes() == (1, 2, 3))
        run.await_outputs(300)
        cluster.rescale(2)
        run_until(lambda: "node-4" in watch.addresses)  # while the rescaling is in progress
        run.kill("node-2")
        run_until(lambda: nodes() == (4, 5))
        run.await_outputs(300)
        run.kill("node-4")
        run.kill("master")
        run.await_outputs(300)
        run_until(lambda: {"node-1", "node-2", "node-3"}.isdisjoint(cluster.pids))
        stores = [path.name for path in sorted((tmp_path / "state").glob("node-*/"))]
        assert stores == ["node-4", "node-5"], "obsolete state is removed"
        run.source.last = run.front.max_sent_time
        run.finish()
        assert cluster.restarts >= 3
