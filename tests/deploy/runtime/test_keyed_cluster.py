"""Real processes that speak by TCP with keys: kills and strangers leave the outputs as they are.

The master and the nodes have the key of one host; the front and the consumer, in this process, that
of another one.
"""

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
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.process import new_id
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy
from driftline.engine.sources import BadRecord
from driftline.engine.wire.addresses import parse
from driftline.engine.wire.messages import Bundle
from tests.deploy.runtime.networks import networks
from tests.deploy.runtime.raw_peer import Peer, head
from tests.deploy.runtime.test_strangers_at_members import CURVE_GREETING

FLOW = """
from driftline import Flow, ValueState

def joined(record, text):
    text.set((text.get() or "")[-20:] + record["text"])
    return record["key"], text.get()

flow = Flow("joined")
flow.source("records").key_by("key").scan(joined, ValueState("text")).sink("texts")
"""

RECORDS = [{"key": n % 7, "text": f"{n} "} for n in range(4000)]


class Given:
    """The records as a source, as fast as they are taken."""

    name = "given"

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        for number in range(start, len(RECORDS) + 1):
            yield number, RECORDS[number - 1]

    def progress(self) -> tuple[int, int] | None:
        return None

    def identity(self) -> str:
        return self.name


class Kept:
    """A consumer in memory, with all values by key."""

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


def is_there(address: str) -> bool:
    """Whether somebody listens."""
    try:
        Peer(parse(address).endpoint, shaken=False).close()
    except ConnectionRefusedError:
        return False
    return True


def stranger(address: str) -> None:
    """Someone without a key, who claims to have much to say."""
    with Peer(parse(address).endpoint, shaken=False) as peer:
        peer.try_to_send(CURVE_GREETING + head(1 << 30) + bytes(1 << 16))
        assert peer.is_closed()


def test_cluster_with_keys_delivers_once_despite_kills_and_strangers(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    flow = load_flow(str(tmp_path / "flow.py"))
    flow_plan, chosen, kept = make_plan(flow), get_policy("exactly-once"), Kept()
    with ExitStack() as stack:
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="driftline-"))
        of_nodes, of_ends = networks(tmp_path)
        config = ProcessConfig(
            flow=str(tmp_path / "flow.py"), nodes=2, policy="exactly-once", checkpoint_s=0.2,
            ordering="speculative", state=str(tmp_path / "state"), sockets=sockets,
            identity=flow_plan.identity(), run="test", dead_letters=False, network=of_nodes,
        )  # fmt: skip
        here = replace(config, network=of_ends)
        runtime = Runtime(transport=here.transport())
        stack.callback(runtime.close, linger_ms=0)
        front = Front(0, 2, flow_plan, chosen, Given(), new_id, process="f", run="test", window=50)
        front.address = runtime.add(front, here.inbox("front-0"))
        front.addresses["master"] = here.address("master")
        runtime.add(ConsumerServer(lambda barrier: kept), here.inbox("consumer"))
        cluster = stack.enter_context(LocalCluster(config))

        def go(until: Callable[[], bool]) -> None:
            give_up_at = monotonic() + 60
            while not until():
                assert monotonic() < give_up_at, f"{kept.count} outputs"
                runtime.step(wait_s=0.01)
                cluster.supervise(front.settled, front.furthest)

        for number, victim in enumerate(("node-1", "master", "node-0"), 1):
            go(lambda number=number: kept.count >= 800 * number)  # type: ignore[misc]
            for party in ("node-0", "node-1"):
                stranger(front.addresses[party])
            stranger(front.address)
            go(lambda: is_there(config.address("master")))  # outputs go on without one
            stranger(config.address("master"))
            cluster._processes[victim].kill()
        go(lambda: front.stopped)
    expected: dict[object, list[object]] = {}
    for item in run_reference(flow, [RECORDS]):
        assert isinstance(item.value, tuple)
        expected.setdefault(item.value[0], []).append(item.value[1])
    assert kept.values == expected
    assert cluster.restarts >= 3
