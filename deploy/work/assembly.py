"""The assembly: chains, gates and barrier of a node in one incarnation, and its snapshots.

This base cuts snapshots by label; `epochs` and `productions` are the other ways to cut them.
`deploy/node/components.py` chooses one.

Takes: blocks, frontiers, and the moments of snapshots. Gives: captures of the state, meta data of
snapshots, and messages to send. Invariant: each final change is in exactly one capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from driftline.barrier.barrier import Barrier
from driftline.barrier.ordered import OrderedBarrier
from driftline.deploy.work.blocks import Block
from driftline.deploy.work.gates import Gate
from driftline.deploy.work.tracking import Acks
from driftline.engine.compared.alignment import Alignment
from driftline.engine.flow.chains import Chains
from driftline.engine.flow.plan import Plan
from driftline.engine.operators.ends import Outbound
from driftline.engine.operators.keyed import Keyed
from driftline.engine.snapshots.jobs import Capture, CommitSnapshot
from driftline.engine.snapshots.merging import restoring
from driftline.engine.state.table import StateTable
from driftline.engine.wire.codec import pack
from driftline.engine.wire.messages import Frame, Message, Prepared, PrepareFailed

Post = list[tuple[str, Message]]
"""(receiver, message), to be sent in this order."""


@dataclass(slots=True)
class Assembly:
    """The chains, gates and barrier of one incarnation; snapshots are cut by label."""

    plan: Plan
    barrier: Barrier
    chains: Chains
    keyed: dict[str, Keyed]
    gates: list[Gate]
    alignments: dict[int, Alignment[Block]] = field(default_factory=dict)
    """Port -> its channels, if epochs end with markers."""
    outbounds: dict[int, list[tuple[int, list[Outbound]]]] = field(init=False)
    """Feeder -> (port, outbounds to it: one for each node)"""
    storing: bool = False
    """Whether a production is being written, which frames and outputs wait for."""

    def __post_init__(self) -> None:
        self.outbounds = {port.number: [] for port in self.plan.ports}
        for (feeder, port), outbounds in self.chains.outbounds.items():
            self.outbounds[feeder].append((port, outbounds))

    def load(self, segments: Iterable[bytes], start: int) -> Iterator[None]:
        """Restore the states from the segments of a snapshot, in steps; yields after each.

        `start`: the time of the snapshot. Raises SnapshotDamaged.
        """
        return restoring(self.tables, segments)

    def admit(self, sender: str, feeder: int, block: Block) -> Block | None:
        """A block has come. Returns the block to add to its port: all of it, some of it, or None.

        `sender`, `feeder`: the channel that the block has come on.
        """
        return block

    def enter(self, port: int, blocks: list[Block]) -> None:
        """The elements of these blocks are about to be applied at a port."""

    def keep(self, to: str, frame: Frame) -> bool:
        """Keep a new frame for node `to` if it may not leave yet. Returns whether it is kept."""
        return False

    def end_turn(self, acks: Acks, unfinished: bool = False) -> int:
        """A turn has ended. `acks`: its work; `unfinished`: whether a block has a rest.

        Returns the number of the snapshot to begin now; 0 if there is none.
        """
        return 0

    def progress(self, processed: int) -> Post:
        """All nodes have worked off all elements below this time. Returns messages to send."""
        self.barrier.progress(processed)
        return []

    def stored(self, answer: Prepared | PrepareFailed) -> Post:
        """A part was written, or failed to be. Returns messages to send."""
        return [("master", answer)]

    def close(self, port: int, frontier: int) -> None:
        """No element with a time below the frontier will come to a port any more."""
        if self.gates[port].holds_back:
            return  # elements below the frontier may wait at the gate
        step = self.keyed.get(self.plan.ports[port].vertex.name)
        if step is not None:
            step.close(frontier)

    def settle(self, frontier: int) -> None:
        """Elements below the frontier are final: move their changes to the changelogs.

        No snapshot will be as of an earlier time.
        """
        self.barrier.settle(frontier)
        for step in self.keyed.values():
            step.settle(frontier)

    def encode_early(self, rows: int) -> bool:
        """Encode at most `rows` rows of each state that has many. Returns whether one had."""
        done = [step.changelog.encode_early(rows) for step in self.keyed.values()]
        return any(done)

    def capture(self, time: int) -> Capture:
        """Take all changes below a time. Precondition: all outputs below it are delivered."""
        capture = Capture()
        for step in self.keyed.values():
            step.settle(time, exactly=True)
            capture.take(step.changelog)
        return capture

    @property
    def tables(self) -> dict[str, StateTable]:
        """Operator -> its states."""
        return {name: step.table for name, step in self.keyed.items()}

    def figures(self) -> dict[str, int]:
        """The counters of all keyed operators, added up."""
        keyed = self.keyed.values()
        return {
            "elements": sum(step.elements for step in keyed),
            "late": sum(step.late for step in keyed),
            "reapplied": sum(step.reapplied for step in keyed),
            "keys": sum(len(step.table) for step in keyed),
        }

    def meta(self, time: int) -> bytes:
        """The meta data of a part: the barrier's checksum over all outputs below the time."""
        assert isinstance(self.barrier, OrderedBarrier)
        return pack(self.barrier.checksum_before(time))

    @property
    def durable(self) -> int | None:
        """The newest production that is durable; None in other policies."""
        return None

    def may_prepare(self) -> bool:
        """Whether the part may be written now."""
        return True

    @property
    def unsaved_bytes(self) -> int:
        """Bytes of the changes, and of the outputs, that wait for the next snapshot."""
        return sum(step.changelog.bytes for step in self.keyed.values())

    @property
    def waits_for_snapshot(self) -> bool:
        """Whether the next snapshot needs nothing of this node but what it has done already."""
        return True

    def end_epoch(self, port: int, epoch: int) -> bool:
        """The epoch has ended at a port. Returns whether it has now ended at all ports."""
        raise AssertionError("only policies with markers have epochs")

    def commit(self, number: int, before: int) -> CommitSnapshot:
        """Snapshot `number` is committed; `before`: the committed one before it. Returns a job."""
        return CommitSnapshot(number, before)

    def validate(self) -> None:
        """Assert the invariants of the barrier and the operators."""
        self.barrier.validate()
        for step in self.keyed.values():
            step.validate()
