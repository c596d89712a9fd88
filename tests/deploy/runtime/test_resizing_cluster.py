"""Real processes come to other numbers of nodes while records come, and die meanwhile."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep

import pytest

from driftline import run_reference
from driftline.deploy.roles.consumer import ConsumerServer
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.config import LIMITS, Limits, ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.process import new_id
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy
from driftline.engine.sources import BadRecord
from tests.deploy.runtime.test_keyed_cluster import FLOW, Kept

KEYS = 700


class Endless:
    """Records as fast as they are taken, until it is told to end."""

    name = "endless"

    def __init__(self) -> None:
        self.last = 1 << 60
        self.wait_s = 0.0
        """Before each record."""

    def record(self, number: int) -> dict[str, object]:
        return {"key": number % KEYS, "text": f"{number} "}

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        number = start
        while number <= self.last:
            sleep(self.wait_s)
            yield number, self.record(number)
            number += 1

    def progress(self) -> tuple[int, int] | None:
        return None

    def identity(self) -> str:
        return self.name


class Run:
    """A run of one node, at first; the front and the consumer are in this process."""

    def __init__(self, folder: Path, stack: ExitStack, limits: Limits = LIMITS) -> None:
        (folder / "flow.py").write_text(FLOW)
        self.flow = load_flow(str(folder / "flow.py"))
        flow_plan, chosen = make_plan(self.flow), get_policy("exactly-once")
        self.kept, self.source = Kept(), Endless()
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="driftline-"))
        config = ProcessConfig(
            flow=str(folder / "flow.py"), nodes=1, policy="exactly-once", checkpoint_s=0.2,
            ordering="speculative", state=str(folder / "state"), sockets=sockets,
            identity=flow_plan.identity(), run="test", dead_letters=False, limits=limits,
        )  # fmt: skip
        self.runtime = runtime = Runtime(transport=config.transport())
        stack.callback(runtime.close, linger_ms=0)
        self.front = front = Front(
            0, 1, flow_plan, chosen, self.source, new_id, process="f", run="test", window=50
        )
        front.address = runtime.add(front, config.inbox("front-0"))
        front.addresses["master"] = config.address("master")
        self.watch = watch = StatusPoller(every_s=0.05)
        watch.address = runtime.add(watch, config.inbox("watch"))
        watch.addresses["master"] = config.address("master")
        runtime.add(ConsumerServer(lambda barrier: self.kept), config.inbox("consumer"))
        self.cluster = stack.enter_context(LocalCluster(config))

    def go(self, until: Callable[[], bool]) -> None:
        give_up_at = monotonic() + 60
        while not until():
            told = self.watch.reports.get("master")
            assert monotonic() < give_up_at, f"{self.kept.count} outputs; {told}"
            self.runtime.step(wait_s=0.01)
            self.cluster.supervise(self.front.settled, self.front.furthest, self.watch)

    def nodes(self) -> tuple[int, ...]:
        reports = self.watch.reports
        return reports["master"].layout if "master" in reports else ()

    def outputs(self, more: int) -> None:
        least = self.kept.count + more
        self.go(lambda: self.kept.count >= least)

    def ends(self) -> None:
        source = self.source
        source.last = self.front.furthest
        self.go(lambda: self.front.stopped)
        expected: dict[object, list[object]] = {}
        for item in run_reference(
            self.flow, [[source.record(n) for n in range(1, source.last + 1)]]
        ):
            assert isinstance(item.value, tuple)
            expected.setdefault(item.value[0], []).append(item.value[1])
        assert self.kept.values == expected


def test_cluster_rescales_despite_kills(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as stack:
        run = Run(tmp_path, stack)
        cluster, go, nodes = run.cluster, run.go, run.nodes
        run.outputs(500)
        in_the_way = tmp_path / "state" / "node-1"
        in_the_way.write_text("no directory")
        cluster.resize(2)
        with caplog.at_level("ERROR"):
            go(lambda: "The run keeps its 1 node" in caplog.text)
        run.outputs(500)
        assert nodes() == (0,)
        in_the_way.unlink()
        cluster.resize(3)
        go(lambda: nodes() == (1, 2, 3))
        run.outputs(500)
        cluster.resize(2)
        go(lambda: "node-4" in run.watch.addresses)  # on its way
        cluster._processes["node-2"].kill()
        go(lambda: nodes() == (4, 5))
        run.outputs(500)
        cluster._processes["node-4"].kill()
        cluster._processes["master"].kill()
        run.outputs(500)
        go(lambda: {"node-1", "node-2", "node-3"}.isdisjoint(cluster.pids))
        stores = [path.name for path in sorted((tmp_path / "state").glob("node-*/"))]
        assert stores == ["node-4", "node-5"], "state that nobody needs any more is removed"
        run.ends()
        assert cluster.restarts >= 3


@pytest.mark.soak
def test_joining_node_that_hangs_is_replaced_without_recovery(
    tmp_path: Path,
) -> None:
    """The simulation has the same case in seconds."""
    with ExitStack() as stack:
        run = Run(tmp_path, stack, Limits(missing_after_s=1.0))
        run.outputs(500)
        run.cluster.resize(3)
        coming = {"node-1", "node-2", "node-3"}
        run.go(lambda: not coming.isdisjoint(run.watch.addresses))
        name = min(coming & run.watch.addresses.keys())
        run.cluster._processes[name].send_signal(signal.SIGSTOP)
        run.source.wait_s = 0.001
        run.go(lambda: run.nodes() == (1, 2, 3))
        run.outputs(500)
        assert run.cluster.restarts_of[name] == 1
        assert run.watch.master_figure("recoveries") == 0
        run.ends()
