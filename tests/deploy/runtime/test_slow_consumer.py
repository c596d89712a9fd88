"""Real processes, large records, and a consumer that stands still: memory is bounded, and the run
goes on afterwards."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import psutil
import pytest

from driftline.connectors.sinks import LastStored
from driftline.connectors.sinks.consumer import NO_BUNDLE, items_of
from driftline.deploy.roles.consumer import ConsumerServer
from driftline.deploy.roles.front import Front
from driftline.deploy.runtime.config import Limits, ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.process import new_id
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy
from driftline.engine.sources import BadRecord
from driftline.engine.wire.messages import Bundle

FLOW = """
from driftline import Flow, ValueState

def count(record, seen):
    seen.set((seen.get() or 0) + 1)
    return record

flow = Flow("large")
flow.source("records").key_by(len).scan(count, ValueState("seen")).sink()
"""

RECORDS, MEGABYTE = 250, 1_000_000

STALLED_S = 1.0
"""Work that stands still for so long counts as lost."""


class Large:
    """A source of records of a megabyte, which it makes when they are read."""

    name = "large"

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        for time in range(start, RECORDS + 1):
            yield time, f"{time} ".ljust(MEGABYTE, "x")

    def progress(self) -> tuple[int, int] | None:
        return None

    def identity(self) -> str:
        return self.name


class Numbers:
    """A consumer that keeps the numbers of the records alone."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._last: dict[str, LastStored] = {}

    def deliver(self, bundle: Bundle) -> None:
        self.numbers += [int(str(item.value).split()[0]) for item in items_of(bundle)]
        self._last[bundle.barrier] = LastStored(bundle.t_last, bundle.checksum, ())

    def last(self, barrier: str, groups: tuple[int, int]) -> LastStored:
        return self._last.get(barrier, NO_BUNDLE)

    def close(self) -> None:
        pass


class Heard(logging.Handler):
    """Keeps the text of all log lines, also those of the processes."""

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record.getMessage())


class Run:
    """A cluster of two nodes; its front and its consumer are in this process, in two loops."""

    def __init__(self, directory: Path, name: str, stack: ExitStack) -> None:
        (directory / "flow.py").write_text(FLOW)
        spec = str(directory / "flow.py")
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="driftline-"))
        flow_plan = make_plan(load_flow(spec))
        self.config = ProcessConfig(
            flow=spec, nodes=2, policy=name, ordering="speculative", checkpoint_s=0.2,
            state=str(directory / "state"), sockets=sockets, identity=flow_plan.identity(),
            run="test", dead_letters=False, limits=Limits(stalled_after_s=STALLED_S),
        )  # fmt: skip
        self.runtime, self.consuming = Runtime(), Runtime()
        for runtime in (self.runtime, self.consuming):
            stack.callback(runtime.close, linger_ms=0)
        self.front = Front(
            0, 2, flow_plan, get_policy(name), Large(), new_id, process="front", run="test"
        )
        self.front.address = self.runtime.add(self.front, self.config.address("front-0"))
        self.front.addresses["master"] = self.config.address("master")
        self.consumer = Numbers()
        server = ConsumerServer(lambda barrier: self.consumer)
        self.consuming.add(server, self.config.address("consumer"))
        self.said: list[str] = []
        heard = Heard(self.said)
        logging.getLogger("driftline").addHandler(heard)
        stack.callback(logging.getLogger("driftline").removeHandler, heard)
        self.cluster = stack.enter_context(LocalCluster(self.config))

    def go(self, until: Callable[[], bool], consume: bool = True) -> None:
        """Run until a condition holds; without `consume` the consumer stands still."""
        give_up_at = monotonic() + 100
        while not until():
            assert monotonic() < give_up_at, self.said
            self.runtime.step(wait_s=0.005)
            if consume:
                self.consuming.step(wait_s=0.005)
            self.cluster.supervise()

    @property
    def held_back(self) -> bool:
        """Whether a node has said so."""
        return bool(re.search("holds its input back", " ".join(self.said)))

    def node_megabytes(self) -> list[float]:
        """Resident memory of each node."""
        return [
            psutil.Process(pid).memory_info().rss / MEGABYTE
            for name, pid in self.cluster.pids.items()
            if name.startswith("node-")
        ]


@pytest.mark.parametrize(
    "name", ["exactly-once", pytest.param("two-phase", marks=pytest.mark.soak)]
)
def test_a_consumer_that_stands_still_holds_the_input(tmp_path: Path, name: str) -> None:
    with ExitStack() as stack:
        run = Run(tmp_path, name, stack)
        run.go(lambda: len(run.consumer.numbers) >= 5)
        # In label order records are under way until they are delivered: the window holds them.
        by_window = name == "exactly-once"
        run.go(lambda: run.front.window.full and (by_window or run.held_back), consume=False)
        until = monotonic() + 3 * STALLED_S
        run.go(lambda: monotonic() > until, consume=False)
        assert run.front.sent_records < RECORDS - 20
        assert len(run.node_megabytes()) == 2
        assert max(run.node_megabytes()) < 700
        run.go(lambda: run.front.stopped)
        assert sorted(run.consumer.numbers) == list(range(1, RECORDS + 1))
        assert not re.search("recovering", " ".join(run.said))
