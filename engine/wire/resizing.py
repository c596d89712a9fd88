"""The messages by which a run comes to another number of nodes; see `coordinator.resizing`."""

from __future__ import annotations

from driftline.engine.wire.kinds import Message, message


@message(60, control=True)
class Resize(Message):
    """Watch or agent to the master: the run is to have so many nodes. Answered by a `Report`.

    `first`: the number of the first one of the next nodes, at least; of two requests that name one,
    the later has the larger; 0: whatever is next. Repeated until the report says so: a master that
    takes over knows nothing of an earlier request.
    """

    nodes: int
    first: int
    address: str


@message(61, control=True)
class Join(Message):
    """Coordinator to a node of the next layout: get the state of your key groups as of a snapshot.

    `layout`: the numbers of the nodes of that layout, in order. `number`, `taken`: the committed
    snapshot, and the incarnation in which it was taken. `sources`: (name, address) of the nodes
    that have it. A later `Join` names a later snapshot.
    """

    layout: tuple[int, ...]
    number: int
    taken: int
    sources: tuple[tuple[str, str], ...]


@message(62, control=True)
class Joined(Message):
    """Node of the next layout to coordinator: I have that state in memory, and on my disk.

    `process`: the process that has it. `epoch`: of the master that has asked for it: when a later
    one asks, the node begins anew, with an empty disk. `bytes`: what it took to get there from the
    snapshot before.
    """

    layout: tuple[int, ...]
    process: str
    epoch: int
    number: int
    taken: int
    bytes: int


@message(63, control=True)
class AskParts(Message):
    """Node of the next layout to a node: what is in snapshot `number`, and not in `after`?

    `address`: for the answer. See `ListParts` for the others.
    """

    address: str
    number: int
    taken: int
    after: int
    after_taken: int
    groups: tuple[int, int]


@message(64, control=True)
class Parts(Message):
    """Answer to `AskParts`: (part, key group, checksum) of each segment, in order."""

    number: int
    after: int
    segments: tuple[tuple[int, int, int], ...]


@message(65, control=True)
class NoParts(Message):
    """Answer to `AskParts`: these snapshots are not there, or not any more."""

    reason: str


@message(66, control=True)
class AskSlice(Message):
    """Node of the next layout to a node: send the bytes of a segment from `offset` on."""

    address: str
    part: int
    group: int
    offset: int


@message(67, control=True)
class Slice(Message):
    """Answer to `AskSlice`. Fewer than `SLICE_BYTES` are the last of the segment."""

    part: int
    group: int
    offset: int
    data: bytes


SLICE_BYTES = 1 << 20
"""Bytes of a `Slice`."""


@message(68)
class Hold(Message):
    """Coordinator to a front: send all records below `time`, and none from there on.

    -1: send none from now on. `number`: comes back in the answer, `Held`.
    """

    number: int
    time: int


@message(69)
class Held(Message):
    """Front to coordinator: I send no record from `time` on. `ended`: 1 if there is none."""

    number: int
    time: int
    ended: int


@message(70)
class GoOn(Message):
    """Coordinator to a front: what `Hold` has asked for is over. May be repeated."""
