"""The profile: what each step of the data path costs, process by process.

The real parts (codec, chains, keyed operator, barrier, snapshots) are put together as a node
puts them together and are handed documents in blocks, all in this process; between two steps a
clock of this thread's CPU time is read. The parts of all nodes are there; they take turns to map a
block. Not in it: ZeroMQ, acknowledgements, waiting. For whole processes while they run there is
py-spy.
"""

import gc
from dataclasses import dataclass
from itertools import count
from time import thread_time

from rich.table import Table

from driftline.barrier.barrier import NOTHING
from driftline.bench.measuring.corpus import Documents
from driftline.deploy.node.components import Components
from driftline.deploy.work.assembly import Assembly
from driftline.deploy.work.blocks import Batch, Block, bounds, in_label_order
from driftline.deploy.work.leaving import Leaving, arrived_block, to_frame
from driftline.deploy.work.tracking import Acks
from driftline.engine.flow.plan import plan
from driftline.engine.labels import Label
from driftline.engine.operators.steps import Values
from driftline.engine.policy import SnapshotCut, policy
from driftline.engine.ui.consoles import new_table
from driftline.engine.wire.bundles import payload_columns
from driftline.engine.wire.messages import Frame, Header, Prepared, decode, encode
from driftline.index.flow import inverted_index

NODES = 2
"""Nodes that there are."""

FIELDS = 4
"""Width of a change record."""

STEPS = {
    "front encode": "front",
    "front decode": "node",
    "map and shuffle": "node",
    "shuffle encode": "node",
    "shuffle decode": "node",
    "label order": "node",
    "keyed and hold": "node",
    "barrier": "node",
    "bundle encode": "node",
    "consumer decode": "consumer",
    "settle": "node",
    "snapshot capture": "node",
}
"""Every step, in the order of the data path, and the process that it is done in."""

CLOSING = {True: "snapshot capture", False: "settle"}
"""In label order, what is closed is encoded for a snapshot; otherwise there is nothing to close."""

HEADER = Header("profile", 1, 1)


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds of CPU time per step."""

    policy: str
    documents: int
    elements: int
    """Elements that the keyed operator has worked off."""
    seconds: dict[str, float]

    def seconds_of(self, process: str) -> float:
        """CPU time of all steps of a process."""
        return sum(self.seconds[step] for step, where in STEPS.items() if where == process)

    def as_json(self) -> dict[str, object]:
        """What goes into the JSON file."""
        return {
            "policy": self.policy,
            "documents": self.documents,
            "elements": self.elements,
            "rows": [
                {
                    "process": process,
                    "step": step,
                    "document_us": round(self.seconds[step] / self.documents * 1e6, 3),
                    "element_us": round(self.seconds[step] / self.elements * 1e6, 5),
                }
                for step, process in STEPS.items()
            ],
        }

    def table(self) -> Table:
        """For a terminal."""
        whole = sum(self.seconds.values())
        table = new_table(
            f"CPU time of {self.policy}: {self.documents} documents, "
            f"{self.elements / self.documents:.0f} elements each",
            ["process", "step"],
            ["us/document", "us/element", "share"],
        )
        for step, process in STEPS.items():
            self._add(table, process, step, self.seconds[step], whole)
        table.add_section()
        for process in dict.fromkeys(STEPS.values()):
            self._add(table, process, "all", self.seconds_of(process), whole)
        return table

    def _add(self, table: Table, process: str, step: str, seconds: float, whole: float) -> None:
        table.add_row(
            process,
            step,
            f"{seconds / self.documents * 1e6:.1f}",
            f"{seconds / self.elements * 1e6:.3f}",
            f"{seconds / whole:.1%}",
        )


def profile_path(
    documents: Documents, policy_name: str, block: int, snapshot_every: int
) -> Profile:
    """Send documents through, `block` of them at a time; a snapshot every so many.

    Where nothing leaves before it is durable, every block is a snapshot.
    """
    path = _DataPath(policy_name)
    if path.policy.cut is SnapshotCut.PRODUCTIONS:
        snapshot_every = 1
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()  # as in the processes of a run
    try:
        last_snapshot = 0
        for start in range(0, len(documents), block):
            chunk = documents[start : start + block]
            path.feed(start + 1, chunk)
            done = start + len(chunk)
            if done - last_snapshot >= snapshot_every or done == len(documents):
                path.snapshot(done + 1)
                last_snapshot = done
    finally:
        if was_on:
            gc.enable()
    return Profile(policy_name, len(documents), path.elements, path.clock.seconds)


class _Clock:
    """Gives the time since it was last asked to a step."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STEPS, 0.0)
        self._last = thread_time()

    def start(self) -> None:
        """What has been done until now is no step."""
        self._last = thread_time()

    def lap(self, step: str) -> None:
        """What has been done since the last lap was this step."""
        now = thread_time()
        self.seconds[step] += now - self._last
        self._last = now


class _DataPath:
    """The parts of a node, without the node."""

    def __init__(self, policy_name: str) -> None:
        self.plan = plan(inverted_index())
        self.policy = policy(policy_name)
        self.source, self.keyed = self.plan.ports
        self.clock = _Clock()
        self.ids = count(1)
        self.numbers = count(1)
        self.turns = count()
        self.elements = 0
        new_id = self.ids.__next__
        self.assemblies = [
            Components(self.plan, self.policy, node, tuple(range(NODES)), new_id).assembly()
            for node in range(NODES)
        ]
        self.leaving = [Leaving(assembly) for assembly in self.assemblies]
        for assembly in self.assemblies:  # a consumer that has nothing yet
            assembly.barrier.last(NOTHING, 0, ())

    def feed(self, time: int, documents: Documents) -> None:
        """Send a block through, from the front to the consumer; the first has this time."""
        shuffled = self._shuffled(next(self.turns) % NODES, time, documents)
        clock, frontier = self.clock, time + len(documents)
        for assembly, blocks in zip(self.assemblies, shuffled, strict=True):
            if not blocks:
                continue  # nothing for this node in this block
            assembly.enter(self.keyed.number, blocks)
            batches = in_label_order(blocks)
            ordered = list(zip(batches, [*bounds(batches)[1:], frontier], strict=True))
            clock.lap("label order")
            for batch, bound in ordered:
                elements = batch.elements()
                clock.lap("shuffle decode")
                assembly.gates[self.keyed.number].push(*elements)
                clock.lap("keyed and hold")
                assembly.close(self.keyed.number, bound)
                clock.lap(CLOSING[self.policy.ordered])
                self.elements += len(batch.labels)
            assembly.barrier.advance(frontier)
            assembly.barrier.progress(frontier)
            clock.lap("barrier")
            self._deliver(assembly)
            assembly.settle(frontier)
            clock.lap("settle")

    def _shuffled(self, mapper: int, time: int, documents: Documents) -> list[list[Block]]:
        """What a node makes of a block, as it arrives at each node."""
        self._map(mapper, time, documents)
        shuffled: list[list[Block]] = [[] for _ in range(NODES)]
        for port, node, first, batches in self.leaving[mapper].take(self.source.number):
            head = port, first, next(self.ids)
            if node == mapper:
                shuffled[node].append(Block(*head, batches))
            else:
                sent = encode(HEADER, to_frame((self.source.number, *head, batches)))
                self.clock.lap("shuffle encode")
                shuffled[node].append(self._received(sent))
                self.clock.lap("shuffle decode")
        return shuffled

    def _map(self, mapper: int, time: int, documents: Documents) -> None:
        """Let a node work off a block of the front."""
        clock, assembly = self.clock, self.assemblies[mapper]
        values: Values = [{"id": document, "text": text} for document, text in documents]
        clock.start()
        labels: list[Label] = [(number, 0) for number in range(time, time + len(documents))]
        head = self.source.number, time, next(self.ids)
        sent = encode(HEADER, to_frame((0, *head, [Batch(labels, values, None)])))
        clock.lap("front encode")
        block = self._received(sent)
        clock.lap("front decode")
        assembly.enter(self.source.number, [block])
        for batch in block.batches:
            elements = batch.elements()
            clock.lap("front decode")
            assembly.gates[self.source.number].push(*elements)
            clock.lap("map and shuffle")
            self.leaving[mapper].pack(self.source.number)
            clock.lap("shuffle encode")

    def _received(self, data: bytes) -> Block:
        _, frame = decode(data)
        assert isinstance(frame, Frame)
        return arrived_block(frame)

    def _deliver(self, assembly: Assembly) -> None:
        """Let what may leave go to the consumer."""
        clock, barrier = self.clock, assembly.barrier
        bundle = barrier.take_bundle(1)
        if bundle is None:
            return
        sent = encode(HEADER, bundle)
        clock.lap("bundle encode")
        decode(sent)
        for blob in bundle.blobs:
            payload_columns(blob, FIELDS)
        clock.lap("consumer decode")
        barrier.stored(bundle.t_last)

    def snapshot(self, time: int) -> None:
        """Take one, as of a time below which all is delivered."""
        if self.policy.cut is SnapshotCut.NONE:
            return
        number = next(self.numbers)
        for assembly in self.assemblies:
            self._snapshot(assembly, time, number)

    def _snapshot(self, assembly: Assembly, time: int, number: int) -> None:
        clock, cut = self.clock, self.policy.cut
        clock.start()
        if cut is SnapshotCut.PRODUCTIONS:
            acks = Acks()
            acks.cover(self.source.number, (0, time), 0)
            assembly.end_turn(acks)
        elif cut is not SnapshotCut.LABEL:
            for port in self.plan.ports:
                assembly.enter(port.number, [])
                assembly.end_epoch(port.number, number)
        assembly.meta(time)
        capture = assembly.capture(time)
        while capture.step():
            pass
        clock.lap("snapshot capture")
        if cut is not SnapshotCut.LABEL:
            assembly.stored(Prepared(number, 0))
            assembly.commit(number, number - 1)
            clock.lap("barrier")
            self._deliver(assembly)
