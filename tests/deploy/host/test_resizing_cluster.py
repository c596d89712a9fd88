"""Real processes come to other numbers of nodes while records come, and die meanwhile."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest

from driftline import run_reference
from driftline.deploy.host.config import ProcessConfig
from driftline.deploy.host.process import new_id
from driftline.deploy.host.runtime import Runtime
from driftline.deploy.host.supervisor import LocalCluster
from driftline.deploy.parties.consumer import ConsumerServer
from driftline.deploy.parties.front import Front
from driftline.deploy.parties.watch import Watch
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import plan
from driftline.engine.policy import policy
from driftline.engine.sources import BadRecord
from tests.deploy.host.test_keyed_cluster import FLOW, Kept

KEYS = 700


class Endless:
    """Records as fast as they are taken, until it is told to end."""

    name = "endless"

    def __init__(self) -> None:
        self.last = 1 << 60

    def record(self, number: int) -> dict[str, object]:
        return {"key": number % KEYS, "text": f"{number} "}

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        number = start
        while number <= self.last:
            yield number, self.record(number)
            number += 1

    def progress(self) -> tuple[int, int] | None:
        return None

    def identity(self) -> str:
        return self.name


def test_a_cluster_comes_to_other_numbers_of_nodes_whatever_dies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    flow = load_flow(str(tmp_path / "flow.py"))
    flow_plan, chosen, kept, source = plan(flow), policy("exactly-once"), Kept(), Endless()
    with ExitStack() as stack:
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="driftline-"))
        config = ProcessConfig(
            flow=str(tmp_path / "flow.py"), nodes=1, policy="exactly-once", checkpoint_s=0.2,
            ordering="speculative", state=str(tmp_path / "state"), sockets=sockets,
            identity=flow_plan.identity(), run="test", dead_letters=False,
        )  # fmt: skip
        runtime = Runtime(transport=config.transport())
        stack.callback(runtime.close, linger_ms=0)
        front = Front(0, 1, flow_plan, chosen, source, new_id, process="f", run="test", window=50)
        front.address = runtime.add(front, config.inbox("front-0"))
        front.addresses["master"] = config.address("master")
        watch = Watch(every_s=0.2)
        watch.address = runtime.add(watch, config.inbox("watch"))
        watch.addresses["master"] = config.address("master")
        runtime.add(ConsumerServer(lambda barrier: kept), config.inbox("consumer"))
        cluster = stack.enter_context(LocalCluster(config))

        def go(until: Callable[[], bool]) -> None:
            give_up_at = monotonic() + 60
            while not until():
                told = watch.reports.get("master")
                assert monotonic() < give_up_at, f"{kept.count} outputs; {told}"
                runtime.step(wait_s=0.01)
                cluster.supervise(front.settled, front.furthest, watch)

        def nodes() -> tuple[int, ...]:
            return watch.reports["master"].layout if "master" in watch.reports else ()

        def outputs(more: int) -> None:
            least = kept.count + more
            go(lambda: kept.count >= least)

        outputs(500)
        in_the_way = tmp_path / "state" / "node-1"
        in_the_way.write_text("no directory")
        cluster.resize(2)
        with caplog.at_level("ERROR"):
            go(lambda: "The run keeps its 1 node" in caplog.text)
        outputs(500)
        assert nodes() == (0,)
        in_the_way.unlink()
        cluster.resize(3)
        go(lambda: nodes() == (1, 2, 3))
        outputs(500)
        cluster.resize(2)
        go(lambda: "node-4" in watch.addresses)  # on its way
        cluster._processes["node-2"].kill()
        go(lambda: nodes() == (4, 5))
        outputs(500)
        cluster._processes["node-4"].kill()
        cluster._processes["master"].kill()
        outputs(500)
        go(lambda: {"node-1", "node-2", "node-3"}.isdisjoint(cluster.pids))
        stores = [path.name for path in sorted((tmp_path / "state").glob("node-*/"))]
        assert stores == ["node-4", "node-5"], "state that nobody needs any more is removed"
        source.last = front.furthest
        go(lambda: front.stopped)
        assert cluster.restarts >= 3
    expected: dict[object, list[object]] = {}
    for item in run_reference(flow, [[source.record(n) for n in range(1, source.last + 1)]]):
        assert isinstance(item.value, tuple)
        expected.setdefault(item.value[0], []).append(item.value[1])
    assert kept.values == expected
