"""A run whose front and consumer are in the process of the test; other roles have their own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

from msgspec.structs import replace

from driftline import run_reference
from driftline.connectors.sinks.consumer import NO_BUNDLE, LastStored, items_of
from driftline.deploy.roles.consumer import ConsumerServer
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.process import new_id
from driftline.deploy.runtime.sockets.transport import LOCAL, TransportConfig
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy
from driftline.engine.sources import BadRecord
from driftline.engine.wire.messages import Bundle

FLOW = """
from driftline import Flow, ValueState

def joined(record, text):
    text.set((text.get() or "")[-20:] + record["text"])
    return record["key"], text.get()

flow = Flow("joined")
flow.source("records").key_by("key").scan(joined, ValueState("text")).sink("texts")
"""

LIMIT_S = 90.0
"""Upper bound on all waits."""


class KeyedRecords:
    """Source of records for several keys, without a rate limit."""

    name = "records"

    def __init__(self, last: int, keys: int = 7) -> None:
        self.last, self.keys = last, keys

    def record(self, number: int) -> dict[str, object]:
        return {"key": number % self.keys, "text": f"{number} "}

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        number = start
        while number <= self.last:
            yield number, self.record(number)
            number += 1

    def progress(self) -> tuple[int, int] | None:
        return None

    def identity(self) -> str:
        return self.name


class ValuesByKey:
    """Consumer that keeps all values in memory, by key."""

    def __init__(self) -> None:
        self.values: dict[object, list[object]] = {}
        self.count = 0
        self._last: dict[str, LastStored] = {}

    def deliver(self, bundle: Bundle) -> None:
        for item in items_of(bundle):
            assert isinstance(item.value, tuple)
            self.values.setdefault(item.value[0], []).append(item.value[1])
            self.count += 1
        self._last[bundle.barrier] = LastStored(bundle.t_last, bundle.checksum, bundle.blobs)

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        return self._last.get(barrier, NO_BUNDLE)

    def close(self) -> None:
        pass


class HostedRun:
    """Run of the flow; `start` starts the master and the nodes."""

    def __init__(
        self,
        folder: Path,
        stack: ExitStack,
        source: KeyedRecords,
        *,
        network: TransportConfig = LOCAL,
        nodes: int = 2,
    ) -> None:
        """Prepare a run; `network` is that of this process."""
        (folder / "flow.py").write_text(FLOW)
        self.flow = load_flow(str(folder / "flow.py"))
        self.consumer, self.source = ValuesByKey(), source
        self.sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="driftline-"))
        plan, policy = make_plan(self.flow), get_policy("exactly-once")
        self.config = ProcessConfig(
            flow=str(folder / "flow.py"), nodes=nodes, policy="exactly-once",
            snapshot_interval_s=0.2, ordering="speculative", state=str(folder / "state"),
            sockets=self.sockets, identity=plan.identity(), run="test", dead_letters=False,
        )  # fmt: skip
        here = replace(self.config, network=network)
        self.runtime = Runtime(transport=here.transport())
        stack.callback(self.runtime.close, linger_ms=0)
        self.front = Front(
            0, nodes, plan, policy, source, new_id, process="f", run="test", window=50
        )
        self.front.address = self.runtime.add(self.front, here.inbox("front-0"))
        self.front.addresses["master"] = here.address("master")
        self.runtime.add(ConsumerServer(lambda barrier: self.consumer), here.inbox("consumer"))
        self.watch = StatusPoller(every_s=0.05)
        self._stack = stack

    def start(self, cluster: LocalCluster) -> None:
        self.cluster = self._stack.enter_context(cluster)

    def supervise(self) -> None:
        """Check the processes once."""
        self.cluster.supervise(self.front.completed, self.front.max_sent_time, self.watch)

    def run_until(self, until: Callable[[], bool], what: str = "it happens") -> None:
        """Run until a condition holds."""
        give_up_at = monotonic() + LIMIT_S
        while not until():
            report = self.watch.reports.get("master")
            assert monotonic() < give_up_at, f"not within {LIMIT_S} s: {what}; {report}"
            self.runtime.step(wait_s=0.01)
            self.supervise()

    def await_outputs(self, more: int) -> None:
        """Wait for this many more outputs."""
        least = self.consumer.count + more
        self.run_until(lambda: self.consumer.count >= least, f"{least} outputs")

    def kill(self, name: str) -> None:
        self.cluster._processes[name].kill()

    def finish(self) -> None:
        """Wait for the end, and compare the outputs with the reference interpreter."""
        self.run_until(lambda: self.front.stopped, "the end")
        source = self.source
        records = [source.record(number) for number in range(1, source.last + 1)]
        expected: dict[object, list[object]] = {}
        for item in run_reference(self.flow, [records]):
            assert isinstance(item.value, tuple)
            expected.setdefault(item.value[0], []).append(item.value[1])
        assert self.consumer.values == expected
