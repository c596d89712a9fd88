"""Queue of blocks: elements of received frames that wait at their port.

`InputQueue` chooses the blocks that are worth applying now. At low load that is every block:
speculation saves latency. Under load, a block waits until the frontier of the previous stage passes
it, because its elements would often be undone if they were applied sooner. The choice affects only
speed: operators restore the order.

Takes: blocks, frontiers. Gives: the blocks to apply now. Invariant: each element is in exactly one
block, and no tombstone overtakes its element. `to_frame` encodes batches as a frame;
`arrived_block` turns a received frame into a block.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, groupby, pairwise
from operator import attrgetter, itemgetter

from driftline.deploy.node.tracking import NOTHING, Acknowledged
from driftline.engine.errors import MalformedMessage
from driftline.engine.flow.plan import Plan, Port
from driftline.engine.labels import INFINITY, Label
from driftline.engine.operators.steps import (
    BATCH_ELEMENTS_MIN,
    Elements,
    Signs,
    Values,
    select_elements,
    split_by_time,
)
from driftline.engine.wire.codec import pack_rows, unpack_rows
from driftline.engine.wire.label_columns import (
    EncodedLabels,
    Labels,
    decode_labels,
    divided,
    encode_labels,
    times,
)
from driftline.engine.wire.messages import Frame

_time_of, _roots_of, _first_of = attrgetter("time"), attrgetter("roots"), attrgetter("first")
_second = itemgetter(1)

SPECULATE_UP_TO = 4
"""If a port's waiting roots and its applied roots that are not final are at most this many
together, all its blocks are applied at once."""


class ElementBatch:
    """Columns of elements of one port. Payloads stay packed until the elements are applied.

    `first`, `last`: the smallest and the largest time of an element; 0 without elements.
    """

    __slots__ = ("first", "labels", "last", "payloads", "signs")

    def __init__(self, labels: Labels, payloads: bytes | Values, signs: Signs) -> None:
        self.labels = labels
        self.payloads = payloads
        self.signs = signs
        batch_times = times(labels)
        self.first, self.last = min(batch_times, default=0), max(batch_times, default=0)

    def packed(self) -> bytes:
        """Return the payloads in the wire format. Raises PayloadError."""
        return self.payloads if isinstance(self.payloads, bytes) else pack_rows(self.payloads)

    def elements(self) -> Elements:
        """Return the elements with decoded payloads. Raises MalformedMessage."""
        if not isinstance(self.payloads, bytes):
            return self.labels, self.payloads, self.signs
        values = unpack_rows(self.payloads)
        if len(values) != len(self.labels):
            raise MalformedMessage(f"{len(values)} payloads for {len(self.labels)} labels")
        return self.labels, values, self.signs

    def cut(self, count: int) -> tuple[ElementBatch, ElementBatch]:
        """Return the first `count` elements, and the remaining ones. Raises MalformedMessage."""
        labels, values, signs = self.elements()
        first, rest = divided(labels, count)
        return (
            ElementBatch(first, values[:count], signs and signs[:count]),
            ElementBatch(rest, values[count:], signs and signs[count:]),
        )


class Block:
    """Elements of a frame, or the unapplied part of them, that wait at their port.

    `time`, `id`: tracking time and id by which trackers know the block; `interval`: (since, until)
    of the times that a front's frame covers, else empty; `first`, `last`: the smallest and the
    largest time of an element; `roots`: the number of distinct times, which stands for the number
    of roots, or 0 if `InputQueue` has already counted these roots; `has_tombstones`: whether the
    block may contain tombstones.
    """

    __slots__ = (
        "batches",
        "first",
        "has_tombstones",
        "id",
        "interval",
        "last",
        "port",
        "roots",
        "time",
    )

    def __init__(
        self,
        port: int,
        time: int,
        id: int,
        batches: list[ElementBatch],
        interval: tuple[int, ...] = (),
    ) -> None:
        self.port = port
        self.time = time
        self.id = id
        self.batches = batches
        self.interval = interval
        self.has_tombstones = False
        distinct_times: set[int] = set()
        for batch in batches:
            self.has_tombstones |= batch.signs is not None
            distinct_times.update((batch.first, batch.last))
            if batch.last - batch.first > 1:
                distinct_times.update(times(batch.labels))
        self.roots = len(distinct_times)
        self.first = min(distinct_times)
        self.last = max(distinct_times)

    def below(self, time: int) -> Block:
        """Return the elements below a time, with the id and tracking time of this block."""
        return Block(self.port, self.time, self.id, self._chosen(time, below=True))

    def not_below(self, time: int) -> Block:
        """Return the elements from a time on, tracked under their smallest time; the id is 0."""
        block = Block(self.port, 0, 0, self._chosen(time, below=False))
        block.time = block.first
        return block

    def _chosen(self, time: int, below: bool) -> list[ElementBatch]:
        batches: list[ElementBatch] = []
        for batch in self.batches:
            selected = [(t < time) is below for t in times(batch.labels)]
            if all(selected):
                batches.append(batch)
            elif any(selected):
                batches.append(ElementBatch(*select_elements(batch.elements(), selected)))
        return batches


class InputQueue:
    """Blocks that wait at a node's ports; `hold_back`: whether blocks wait under load."""

    def __init__(self, plan: Plan, hold_back: bool) -> None:
        self._hold_back = hold_back
        self._blocks: list[list[Block]] = [[] for _ in range(plan.stages)]
        """Blocks per stage, in order of arrival."""
        self._stage_of = [port.stage for port in plan.ports]
        self._not_final: list[list[tuple[int, int]]] = [[] for _ in plan.ports]
        """Per port, (largest time, number of roots) of the chosen blocks that are not final."""

    def add(self, block: Block) -> None:
        """Queue a received block."""
        self._blocks[self._stage_of[block.port]].append(block)

    def put_back(self, port: int, rest: list[ElementBatch], id: int) -> Block:
        """Queue the unapplied rest of blocks as one block, and return this block.

        The block is tracked under its smallest time. It precedes all blocks that arrived since:
        they may contain tombstones for its elements.
        """
        block = Block(port, 0, id, rest)
        block.time = block.first
        block.roots = 0  # already counted when `choose` returned the elements
        self._blocks[self._stage_of[port]].insert(0, block)
        return block

    def has_several(self) -> bool:
        """Return whether at least two blocks wait: `choose` then needs current frontiers."""
        return sum(map(len, self._blocks)) > 1

    def has_blocks(self, stage: int = 0) -> bool:
        """Return whether a block waits in this stage or a later one."""
        return any(self._blocks[stage:])

    def has_blocks_at(self, stage: int) -> bool:
        """Return whether a block waits in this stage."""
        return bool(self._blocks[stage])

    def first(self, stage: int) -> int:
        """Return the smallest tracking time of the blocks of a stage; INFINITY without blocks."""
        return min(map(_time_of, self._blocks[stage]), default=INFINITY)

    def take(self, stage: int) -> dict[int, list[Block]]:
        """Remove the blocks of a stage. Return them by port, in order of arrival."""
        blocks, self._blocks[stage] = self._blocks[stage], []
        by_port: dict[int, list[Block]] = {}
        for block in blocks:
            by_port.setdefault(block.port, []).append(block)
        return by_port

    def choose(
        self, port: Port, blocks: list[Block], complete: int
    ) -> tuple[list[Block], list[Block]]:
        """Choose among the blocks of a port that `take` returned; queue the others again.

        `complete`: the frontier of the previous stage; at a port that loops, no element from this
        time on may be applied. Return the blocks to apply now, and the waiting blocks that were
        split off from them; the caller assigns ids to the latter.
        """
        if not self._hold_back or not port.upstreams:
            return blocks, []
        not_final = self._not_final[port.number]
        loops = port.vertex.operator.loops
        count = INFINITY if loops else sum(map(_second, not_final))
        ready, later = split_ready(blocks, count, complete)
        self._blocks[port.stage] += later
        not_final += [(block.last, block.roots) for block in ready if block.roots]
        return ready, [block for block in later if not block.id]

    def settle(self, frontier: int) -> None:
        """Stop counting the roots of chosen blocks below `frontier`, that of outputs: they are
        final."""
        for port, blocks in enumerate(self._not_final):
            self._not_final[port] = [block for block in blocks if block[0] >= frontier]


def split_ready(
    blocks: list[Block], not_final: int, complete: int
) -> tuple[list[Block], list[Block]]:
    """Return the blocks of one port that are worth applying now, and the blocks that have to wait.

    `not_final`: the number of roots that were applied at the port and are not final; `complete`:
    the frontier of the previous stage. A block with times on both sides of `complete` is split. A
    tombstone has the time of its element, so a split does not change their order.
    """
    if not_final + sum(map(_roots_of, blocks)) <= SPECULATE_UP_TO:
        return blocks, []
    ready: list[Block] = []
    later: list[Block] = []
    for block in blocks:
        if block.last < complete:
            ready.append(block)
        elif block.first >= complete:
            later.append(block)
        else:
            ready.append(block.below(complete))
            later.append(block.not_below(complete))
    return ready, later


def in_label_order(blocks: list[Block]) -> list[ElementBatch]:
    """Return the elements of one port's blocks as batches whose times never decrease.

    Batches stay unchanged, and thus packed, where possible. Otherwise they are cut by time, and
    small neighbours are merged. Elements with equal labels stay in the order of arrival: a
    tombstone must not overtake its element.
    """
    batches = [batch for block in blocks for batch in block.batches]
    if len(batches) == 1:
        return batches
    if any(block.has_tombstones for block in blocks):
        return [_merged(batches)]
    batches.sort(key=_first_label)
    if all(earlier.last <= later.first for earlier, later in pairwise(batches)):
        return batches
    single_time_batches = [smaller for batch in batches for smaller in _by_time(batch)]
    single_time_batches.sort(key=_first_label)
    ordered: list[ElementBatch] = []
    for is_small, neighbours in groupby(
        single_time_batches, key=lambda batch: len(batch.labels) < BATCH_ELEMENTS_MIN
    ):
        if is_small:
            ordered.append(_merged(neighbours))
        else:
            ordered += neighbours
    return ordered


def min_times_from(batches: list[ElementBatch]) -> list[int]:
    """Return for each batch the smallest time in it and in all batches after it."""
    return list(accumulate(map(_first_of, reversed(batches)), min))[::-1]


def _by_time(batch: ElementBatch) -> list[ElementBatch]:
    """Cut a batch into batches of one time each. A batch with a single time stays packed."""
    if batch.first == batch.last:
        return [batch]
    return [ElementBatch(*elements) for _, elements in split_by_time(batch.elements())]


def _merged(batches: Iterable[ElementBatch]) -> ElementBatch:
    """Merge batches in label order, stable for equal labels."""
    elements: list[tuple[Label, object, int]] = []
    for labels, values, signs in (batch.elements() for batch in batches):
        elements += zip(labels, values, signs or [1] * len(labels), strict=True)
    elements.sort(key=itemgetter(0))
    labels, values, signs = map(list, zip(*elements, strict=True))
    return ElementBatch(labels, values, None if min(signs) > 0 else signs)


def _first_label(batch: ElementBatch) -> Label:
    return batch.labels[0]


UnsentFrame = tuple[int, int, int, int, list[ElementBatch]]
"""(upstream, port, tracking time, id, batches) of a frame that is not encoded yet."""


def to_frame(unsent: UnsentFrame, acknowledged: Acknowledged = NOTHING) -> Frame:
    """Encode a frame as a message; `acknowledged`: the acknowledgement that it carries."""
    upstream, port, time, id, batches = unsent
    encoded = tuple(
        (encode_labels(batch.labels), batch.packed(), tuple(batch.signs or ())) for batch in batches
    )
    return Frame(upstream, port, time, id, encoded, (), *acknowledged)


def arrived_block(frame: Frame) -> Block:
    """Return the block of a received frame. Raises MalformedMessage."""
    if not frame.batches:
        raise MalformedMessage("a frame without elements")
    if len(frame.interval) not in (0, 2):
        raise MalformedMessage(f"the interval {frame.interval} of a frame is not a pair of times")
    try:
        batches = [_arrived_batch(*batch) for batch in frame.batches]
        return Block(frame.port, frame.time, frame.id, batches, frame.interval)
    except (TypeError, IndexError) as error:
        raise MalformedMessage(f"a frame with elements that cannot be read: {error}") from None


def _arrived_batch(labels: EncodedLabels, payloads: bytes, signs: tuple[int, ...]) -> ElementBatch:
    decoded = decode_labels(labels)
    if not decoded or (signs and len(signs) != len(decoded)):
        raise MalformedMessage("a frame without labels, or with columns of different lengths")
    if not isinstance(payloads, bytes):
        raise MalformedMessage("a frame with payloads that are not packed")
    if signs and set(map(type, signs)) != {int}:
        raise MalformedMessage("a frame with signs that are not integers")
    return ElementBatch(decoded, payloads, list(signs) or None)
