"""A node of the next layout copies the state of its keys from nodes of the current one."""

from __future__ import annotations

from itertools import count

import pytest

from driftline import Flow, ValueState
from driftline.deploy.node.node import Node
from driftline.deploy.node.state_transfer import RETRY_AFTER_S
from driftline.engine.errors import DriftlineError
from driftline.engine.flow.plan import make_plan
from driftline.engine.keygroups import Owners
from driftline.engine.policy import get_policy
from driftline.engine.snapshots.jobs import ALL_GROUPS, LoadSnapshot, MergeParts, StoreSnapshot
from driftline.engine.snapshots.store import PartStore
from driftline.engine.state.changelog import encode_chunk
from driftline.engine.wire.codec import pack
from driftline.engine.wire.messages import (
    Join,
    Joined,
    Message,
    Recover,
    Slice,
    decode,
    encode,
)
from driftline.engine.wire.role import IOJob
from driftline.simulation.world.disks import MemoryKeyValue

flow = Flow("kept")
kept: ValueState[object] = ValueState("kept")
flow.source("in").key_by("key").scan(lambda record, kept: record, kept, name="keep").sink("out")

KEYS = [f"key {n}" for n in range(40)]
MINE = {
    key
    for key, place in zip(KEYS, Owners(2, flow.groups).owners_of(KEYS), strict=True)
    if place == 1
}
LAYOUT = 1, 2


def node(index: int) -> Node:
    return Node(
        index,
        1,
        make_plan(flow),
        get_policy("exactly-once"),
        count(1).__next__,
        process=f"node-{index}#1",
    )


class TransferPair:
    """A serving node and a joining node, with their messages and disks."""

    def __init__(self) -> None:
        self.stores = {name: PartStore(MemoryKeyValue(name), flow) for name in ("node-0", "node-2")}
        self.nodes = {"node-0": node(0), "node-2": node(2)}
        self.messages: list[Message] = []
        self.damage = b""
        """Replacement for the first byte of a slice."""
        self.now = 0.0
        self._state: dict[str, object] = {}

    def snapshot(self, number: int, changes: dict[str, object]) -> None:
        self._state |= changes
        rows: list[tuple[object, ...]] = [(key, "", value) for key, value in changes.items()]
        segments = {ALL_GROUPS: encode_chunk("keep", "kept", rows)}
        self.stores["node-0"].execute_job(StoreSnapshot(number, segments, pack(0), 1))

    def join(self, number: int, epoch: int = 1) -> None:
        message = Join(LAYOUT, number, 1, (("node-0", "at node-0"),))
        self.nodes["node-2"].receive(encode(("master", 0, epoch), message))
        self.run_until_idle()

    def run_until_idle(self) -> None:
        """Run until no node has work left."""
        busy = True
        while busy:
            busy = False
            for name, each in self.nodes.items():
                each.now = self.now
                busy |= each.turn()
                jobs, each.jobs = each.jobs, []
                for job in jobs:
                    busy = True
                    each.on_job_done(job, self.execute_job(name, job))
                out, each.outbox = each.outbox, []
                for to, data in out:
                    busy |= self.deliver(to, data)

    def execute_job(self, name: str, job: IOJob) -> object:
        try:
            return self.stores[name].execute_job(job)
        except DriftlineError as error:
            return error

    def deliver(self, to: str, data: bytes) -> bool:
        header, message = decode(data)
        if isinstance(message, Slice) and self.damage:
            changed = self.damage + message.data[1:]
            message = Slice(message.part, message.group, message.offset, changed)
            data, self.damage = encode(header, message), b""
        if to in self.nodes:
            self.nodes[to].receive(data)
            return True
        self.messages.append(message)
        return False

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.nodes["node-2"].tick(self.now)
        self.run_until_idle()

    @property
    def reported_snapshots(self) -> list[int]:
        """Return the snapshots that the joining node has reported as complete."""
        found = [message.number for message in self.messages if isinstance(message, Joined)]
        return list(dict.fromkeys(found))

    def recover(self, number: int, time: int) -> None:
        recover = Recover(2, number, 1, time, (), 1, LAYOUT)
        self.nodes["node-2"].receive(encode(("master", 2, 1), recover))

    def check(self) -> None:
        """Check that the joining node's pipeline has the state of its keys."""
        table = self.nodes["node-2"].pipeline.tables["keep"]
        found = {str(key): dict(table.states(key)[0].slots()) for key in table}
        assert {key: value for key, [value] in ((k, v.values()) for k, v in found.items())} == {
            key: value for key, value in self._state.items() if key in MINE
        }


@pytest.fixture
def pair() -> TransferPair:
    made = TransferPair()
    made.snapshot(1, dict.fromkeys(KEYS, "first"))
    made.snapshot(2, dict.fromkeys(KEYS[::3], "second"))
    return made


def test_joining_node_follows_snapshots_and_starts_from_the_last(pair: TransferPair) -> None:
    pair.join(2)
    pair.snapshot(3, {KEYS[0]: "third", KEYS[1]: "third"})
    pair.join(3)
    assert pair.reported_snapshots == [2, 3]
    pair.recover(3, 100)
    assert not any(isinstance(job, LoadSnapshot) for job in pair.nodes["node-2"].jobs)
    pair.check()
    barrier = pair.nodes["node-2"].barrier
    barrier.handle_last_bundle(-1, 0, ())
    assert (barrier.name, barrier.delivered) == ("barrier-2", 100)


def test_restarted_joining_node_loads_transferred_state_from_disk(pair: TransferPair) -> None:
    pair.join(2)
    pair.snapshot(3, dict.fromkeys(KEYS[::7], "third"))
    pair.join(3)
    pair.nodes["node-2"] = node(2)  # a new process
    pair.recover(3, 100)
    assert any(isinstance(job, LoadSnapshot) for job in pair.nodes["node-2"].jobs)
    pair.run_until_idle()
    pair.check()


def test_damaged_transfer_is_fetched_again(pair: TransferPair) -> None:
    pair.damage = b"?"
    pair.join(2)
    assert pair.reported_snapshots == []
    assert "of node-0 is damaged" in pair.nodes["node-2"].obstacle
    pair.wait(RETRY_AFTER_S)
    assert (pair.reported_snapshots, pair.nodes["node-2"].obstacle) == ([2], "")
    pair.recover(2, 100)
    pair.check()


def test_transfer_restarts_if_its_snapshot_was_compacted(pair: TransferPair) -> None:
    pair.join(2)
    for number in range(3, 40):
        pair.snapshot(number, {KEYS[number]: number})
    pair.stores["node-0"].execute_job(MergeParts(39, 38))
    pair.join(39)
    pair.wait(RETRY_AFTER_S)
    assert pair.reported_snapshots == [2, 39]
    pair.recover(39, 100)
    pair.check()


def test_join_from_an_older_master_does_not_clear_the_store(pair: TransferPair) -> None:
    pair.join(2, epoch=5)
    pair.nodes["node-2"] = node(2)  # a new process, which knows of no master
    pair.messages.clear()
    pair.join(2, epoch=4)
    pair.wait(RETRY_AFTER_S)
    assert pair.reported_snapshots == []
    assert pair.stores["node-2"].read_snapshot(2).segments, "the store may belong to the run by now"
