"""The profile: what each step of the data path costs, process by process.

The real parts (codec, segments, keyed operator, barrier, snapshots) are put together as a node
puts them together and are handed documents in blocks, all in this process; between two steps a
clock of this thread's CPU time is read. One node stands for all: it works off what the map makes,
whichever node owns it. Not in it: ZeroMQ, acknowledgements, waiting. For whole processes while
they run there is py-spy.
"""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from time import thread_time

from rich import box
from rich.table import Table

from barrier.barrier import NOTHING
from bench.floor import Documents
from deploy.assembly import assemble
from deploy.blocks import Block, in_order
from deploy.tracking import Acks
from engine.bundles import payload_columns
from engine.codec import from_columns, labels_to_columns, to_columns
from engine.labels import Label
from engine.messages import Frame, Header, Prepared, columns, decode, encode
from engine.operators import Labels, Signs, Values
from engine.plan import plan
from engine.policy import SnapshotCut, policy
from index.flow import inverted_index

NODES = 2
"""Nodes that the shuffle sends to."""

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
        table = Table(
            title=f"CPU time of {self.policy}: {self.documents} documents, "
            f"{self.elements / self.documents:.0f} elements each",
            box=box.SIMPLE_HEAD,
            title_justify="left",
        )
        table.add_column("process")
        table.add_column("step")
        for name in ("us/document", "us/element", "share"):
            table.add_column(name, justify="right")
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
        self.elements = 0
        self.assembly = assemble(self.plan, self.policy, 0, NODES, lambda: next(self.ids))
        self.assembly.barrier.last(NOTHING, 0, ())  # a consumer that has nothing yet

    def feed(self, time: int, documents: Documents) -> None:
        """Send a block through, from the front to the consumer; the first has this time."""
        blocks = list(self._shuffled(self._mapped(time, documents)))
        clock, assembly = self.clock, self.assembly
        assembly.enter(self.keyed.number, blocks)
        ordered = in_order(blocks) if blocks else []
        clock.lap("label order")
        for block in ordered:
            assembly.gates[self.keyed.number].push(block)
            self.elements += len(block.labels)
        clock.lap("keyed and hold")
        frontier = time + len(documents)
        assembly.barrier.advance(frontier)
        clock.lap("barrier")
        self._deliver()
        assembly.settle(frontier)
        clock.lap("settle")

    def _mapped(self, time: int, documents: Documents) -> list[tuple[Labels, Values, Signs]]:
        """What the first segment makes of a block: the elements for each node."""
        clock, assembly = self.clock, self.assembly
        values: Values = [{"id": document, "text": text} for document, text in documents]
        clock.start()
        labels: list[Label] = [(number, 0) for number in range(time, time + len(documents))]
        sent = self._frame(self.source.number, labels, values)
        clock.lap("front encode")
        block = self._received(sent)
        clock.lap("front decode")
        assembly.enter(self.source.number, [block])
        assembly.gates[self.source.number].push(block)
        outbounds = assembly.segments.outbounds[self.source.number, self.keyed.number]
        made = [outbound.take() for outbound in outbounds]
        clock.lap("map and shuffle")
        return made

    def _shuffled(self, made: Sequence[tuple[Labels, Values, Signs]]) -> Iterator[Block]:
        for labels, values, _ in made:
            if labels:
                sent = self._frame(self.keyed.number, labels, values)
                self.clock.lap("shuffle encode")
                block = self._received(sent)
                self.clock.lap("shuffle decode")
                yield block

    def _frame(self, port: int, labels: Labels, values: Values) -> bytes:
        coded = labels_to_columns(labels), to_columns(values)
        return encode(HEADER, Frame(0, port, labels[0][0], next(self.ids), *coded, (), ()))

    def _received(self, data: bytes) -> Block:
        _, frame = decode(data)
        assert isinstance(frame, Frame)
        labels = from_columns(columns(frame.labels))
        values = from_columns(columns(frame.values))
        return Block(frame.port, frame.time, frame.id, labels, values, None)  # type: ignore[arg-type]

    def _deliver(self) -> None:
        """Let what may leave go to the consumer."""
        clock, barrier = self.clock, self.assembly.barrier
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
        clock, assembly, cut = self.clock, self.assembly, self.policy.cut
        clock.start()
        number = next(self.numbers)
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
            assembly.commit(number)
            clock.lap("barrier")
            self._deliver()
