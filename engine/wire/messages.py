"""The messages of the protocol, each a small dataclass.

Messages of the running protocol are numbered per channel and belong to one incarnation.
*Control* messages (`control = True`) start and end incarnations, and go to and from consumers: they
are idempotent, name an incarnation themselves if they need one, and are never dropped as out of
order or as of an older incarnation. In their header the epoch of the newest master that the sender
knows of takes the place of the number.

A message names the roles that send it. Between the processes of one machine nobody asks for more.
Between hosts each message comes with a *voice*, the key of its sender
(`deploy.runtime.sockets.zap`), which speaks for some names only; and a name
sends only what its role sends: no consumer can stop a run.
"""

from __future__ import annotations

from driftline.engine.wire.kinds import (
    AGENT,
    CONSUMER,
    FRONT,
    MASTER,
    NODE,
    WATCH,
    message,
)
from driftline.engine.wire.kinds import MAGIC as MAGIC
from driftline.engine.wire.kinds import Batches as Batches
from driftline.engine.wire.kinds import Message as Message
from driftline.engine.wire.kinds import MessageHeader as MessageHeader
from driftline.engine.wire.kinds import decode as decode
from driftline.engine.wire.kinds import encode as encode

# Elements -------------------------------------------------------------------------------------


@message(1, NODE, FRONT)
class Frame(Message):
    """Elements from one chain on one node (or from a front) to one port on one node.

    `time`: the tracking time, at most the smallest time in the frame. `id`: random, 63 bits; 0 in a
    frame of a front. `covers`: only in a frame of a front, (since, until): all roots of the front
    with times in [since, until) have been worked off once this frame and the ones before it have.
    `cells`, `covered`: the fields of an `Acknowledge` of the node, which saves a message.
    """

    feeder: int
    port: int
    time: int
    id: int
    batches: Batches
    covers: tuple[int, ...] = ()
    cells: tuple[tuple[int, int, int], ...] = ()
    covered: tuple[tuple[int, int, int], ...] = ()


@message(2, NODE, FRONT)
class Marker(Message):
    """The end of an epoch on the channel from a feeder's chain on the sender to a port."""

    feeder: int
    port: int
    epoch: int


# Progress -------------------------------------------------------------------------------------


@message(10, FRONT)
class Promise(Message):
    """Front to trackers: all my records with times in [since, until) have been sent.

    A frame makes the same promise by its `covers`; this message is for times without frames.
    `durable`: records below this time will not be lost.
    """

    front: int
    since: int
    until: int
    durable: int


@message(11, NODE)
class Acknowledge(Message):
    """Node to trackers: what the node has worked off and sent; applied as a whole.

    `cells`: (stage, time, XOR of the ids of frames received and sent). `covered`: (front, since,
    until) of each front's frame worked off. `delivered`: the consumer has this node's outputs below
    this time.
    """

    cells: tuple[tuple[int, int, int], ...]
    covered: tuple[tuple[int, int, int], ...]
    delivered: int


@message(12, NODE)
class Delivered(Message):
    """Node to fronts and nodes, while the master is silent: the consumer has all outputs of mine
    below `time`."""

    time: int


@message(13, MASTER)
class Progress(Message):
    """Master to all: how far everything is processed and delivered.

    `processed`: roots below this time need no more work. `delivered`: the consumer has the outputs
    of roots below this time; no later snapshot has an earlier time.
    """

    processed: int
    delivered: int


@message(14, MASTER, NODE)
class AskPromise(Message):
    """To a front that alone holds the frontier back: promise up to `next` or more if you can."""

    next: int


@message(15, NODE, FRONT)
class Drained(Message):
    """Front to coordinator: the run is to end in good order, and I send no record from `time` on.

    `live`: 1 if the source is a live one. `ended`: 1 if it has ended; all its records are below
    `time` then, or have been delivered before.
    """

    time: int
    live: int
    ended: int


@message(16, MASTER)
class Drain(Message):
    """Coordinator to a front: send all records below `time`, and none from `time` on."""

    time: int


@message(17, NODE)
class Reached(Message):
    """Node to master, in label order: how far the node's own tracker and its consumer are.

    `processed`, `reached`: as in its tracker. `delivered`: the consumer has the node's outputs
    below this time. `oldest`: (time, stage) of the oldest work under way, empty if there is none.
    `waits`: 1 if work that is done waits for the input log of a front. `left`: no output with a
    later time has left the node, in any incarnation.
    """

    processed: int
    delivered: int
    reached: int
    oldest: tuple[int, ...]
    waits: int
    left: int = -1


# Snapshots ------------------------------------------------------------------------------------


@message(20, MASTER)
class Prepare(Message):
    """Coordinator to nodes: make the state as of `time` durable, as your part of a snapshot.

    `time`: the delivered frontier of the last `Progress`.
    """

    number: int
    time: int


@message(21, MASTER)
class BeginEpoch(Message):
    """Coordinator to fronts: send the marker of epoch `number`."""

    number: int


@message(22, NODE, FRONT)
class Prepared(Message):
    """Node or front to coordinator: my part of the snapshot is durable.

    `offset`: of a front, the time that it would go on from; of a node under strong productions, the
    number of its newest production.
    """

    number: int
    offset: int


@message(23, NODE)
class PrepareFailed(Message):
    """Node to coordinator: the snapshot could not be written; try a later one."""

    number: int
    reason: str


@message(24, MASTER)
class Committed(Message):
    """Coordinator to nodes and fronts: the snapshot is committed.

    `before`: the committed snapshot before it, to which a recovery may still go back; 0: none.
    `trim`: of a front: no recovery needs its inputs below this time any more. `offset`: of a front:
    the time that it goes on from after this snapshot.
    """

    number: int
    before: int
    trim: int
    offset: int


@message(25, NODE, FRONT)
class AskSnapshot(Message):
    """Node or front to coordinator: take a snapshot now, as what waits for it takes much memory."""


# Incarnations (control) -----------------------------------------------------------------------


@message(30, NODE, FRONT, control=True)
class Hello(Message):
    """Node or front to master, repeatedly: this process takes part, and has got this far.

    `process`: a token, new with each start. `ready`: 1 once a node has loaded the snapshot and the
    consumer has answered. `obstacle`: what it waits for outside the run, for people; "" if nothing.
    """

    address: str
    process: str
    incarnation: int
    ready: int
    obstacle: str = ""


@message(31, MASTER, control=True)
class Recover(Message):
    """Coordinator to a node: begin `incarnation` with snapshot `number` (0: the empty one).

    `taken`: the incarnation in which the snapshot was taken. `time`: the time of the snapshot. A
    node under strong productions loads its newest part, which must have at least this number.
    `addresses`: (name, address) of all members. `same_code`: 1 if the snapshot was taken by the
    code that runs now, 0 if the consumer has later outputs by other code. `layout`: the numbers of
    all nodes, in order; (): as before.
    """

    incarnation: int
    number: int
    taken: int
    time: int
    addresses: tuple[tuple[str, str], ...]
    same_code: int = 1
    layout: tuple[int, ...] = ()


@message(44, NODE, FRONT, control=True)
class Alive(Message):
    """Node or front to master: this process lives. `steps`: how many steps of work it has done.

    `busy`: 1 if it is in the middle of a step that takes long, or waits for a disk or a consumer.
    """

    process: str
    steps: int
    busy: int


@message(33, NODE, control=True)
class Unloadable(Message):
    """Node to coordinator: snapshot `number` is damaged here; use an older one."""

    incarnation: int
    number: int
    reason: str


@message(34, MASTER, control=True)
class Start(Message):
    """Coordinator to a front: begin `incarnation`, replay from `offset` on (-1: do not replay).

    `layout`: as in `Recover`.
    """

    incarnation: int
    offset: int
    addresses: tuple[tuple[str, str], ...]
    layout: tuple[int, ...] = ()


@message(35, NODE, FRONT, control=True)
class MessageLost(Message):
    """Member to coordinator: a message of this incarnation is lost; recover."""

    incarnation: int
    reason: str


@message(36, NODE, FRONT, CONSUMER, control=True)
class Failed(Message):
    """Member to coordinator, consumer to barrier: the flow cannot go on, a replay would not help.

    `error`: the name of a class of `engine.errors`; `text`: for people.
    """

    incarnation: int
    error: str
    text: str


@message(37, MASTER, control=True)
class Stop(Message):
    """Coordinator to a member: the run is over; the registry has its outcome.

    `run`: the run that is over; a process of another run ignores the message. `error`: empty if the
    run did what was asked.
    """

    run: str
    error: str
    text: str


@message(46, MASTER, control=True)
class Lead(Message):
    """Master to a member: I lead, in the same incarnation; tell me where you are.

    Also sent later, to find out who hears it.
    """


@message(47, NODE, FRONT, control=True)
class FollowsMaster(Message):
    """Member to master, in answer to `Lead`: I take nothing of the one before `epoch` any more.

    `asked`, `answered`: of a node, the numbers of the snapshots of this incarnation that it was
    asked for last, and has answered last; 0: none.
    """

    epoch: int
    incarnation: int
    asked: int
    answered: int


@message(32, NODE, FRONT, control=True)
class Goodbye(Message):
    """Node or front to master, in place of `Hello`: this process knows that the run is over."""

    process: str


# Consumers (control) --------------------------------------------------------------------------


@message(40, NODE, control=True)
class Bundle(Message):
    """Barrier to consumer: outputs in label order; store all of them with `t_last`, or nothing.

    `blobs`: the outputs of one time each (see `engine.wire.bundles`). `checksum`: over all blobs
    released so far. `groups`: the first and the last key group of the barrier's node.
    """

    barrier: str
    incarnation: int
    groups: tuple[int, int]
    blobs: tuple[bytes, ...]
    t_last: int
    checksum: int


@message(41, CONSUMER, control=True)
class BundleStored(Message):
    """Consumer to barrier: the bundle that ended with `t_last` is durable."""

    barrier: str
    incarnation: int
    t_last: int


@message(45, CONSUMER, control=True)
class Delayed(Message):
    """Consumer to barrier: what was asked cannot be done at the moment; ask again later."""

    barrier: str
    incarnation: int
    reason: str


@message(42, NODE, control=True)
class FetchLast(Message):
    """Barrier to consumer: which bundle of this barrier have you stored last?

    `number`: comes back in the answer, so the barrier recognises an answer that is out of date.
    """

    barrier: str
    incarnation: int
    groups: tuple[int, int]
    address: str
    number: int


@message(43, CONSUMER, control=True)
class LastBundle(Message):
    """Consumer to barrier: the last bundle; t_last -1 if there is none. `number`: as in the ask."""

    barrier: str
    incarnation: int
    number: int
    blobs: tuple[bytes, ...]
    t_last: int
    checksum: int


# Another number of nodes: see `coordinator.resizing` ----------------------------------------------


@message(60, WATCH, AGENT, control=True)
class Resize(Message):
    """Watch or agent to the master: the run is to have so many nodes. Answered by a `StatusReport`.

    `first`: the number of the first one of the next nodes, at least; of two requests that name one,
    the later has the larger; 0: whatever is next. Repeated until the report says so: a master that
    takes over knows nothing of an earlier request.
    """

    nodes: int
    first: int
    address: str


@message(61, MASTER, control=True)
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


@message(62, NODE, control=True)
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


@message(63, NODE, WATCH, control=True)
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


@message(64, NODE, control=True)
class Parts(Message):
    """Answer to `AskParts`: (part, key group, checksum) of each segment, in order."""

    number: int
    after: int
    segments: tuple[tuple[int, int, int], ...]


@message(65, NODE, control=True)
class NoParts(Message):
    """Answer to `AskParts`: these snapshots are not there, or not any more."""

    reason: str


@message(66, NODE, WATCH, control=True)
class AskSlice(Message):
    """Node of the next layout to a node: send the bytes of a segment from `offset` on."""

    address: str
    part: int
    group: int
    offset: int


@message(67, NODE, control=True)
class Slice(Message):
    """Answer to `AskSlice`. Fewer than `SLICE_BYTES` are the last of the segment."""

    part: int
    group: int
    offset: int
    data: bytes


SLICE_BYTES = 1 << 20
"""Bytes of a `Slice`."""


@message(68, MASTER)
class Pause(Message):
    """Coordinator to a front: send all records below `time`, and none from there on.

    -1: send none from now on. `number`: comes back in the answer, `Paused`.
    """

    number: int
    time: int


@message(69, FRONT)
class Paused(Message):
    """Front to coordinator: I send no record from `time` on. `ended`: 1 if there is none."""

    number: int
    time: int
    ended: int


@message(70, MASTER)
class Resume(Message):
    """Coordinator to a front: what `Pause` has asked for is over. May be repeated."""


# Agents and watches, which are no members (control) ----------------------------------------------


@message(48, AGENT, control=True)
class MasterAt(Message):
    """Agent to a member: say hello to this address; whoever leads says so himself (`Lead`)."""

    address: str


@message(49, AGENT, control=True)
class AskDrain(Message):
    """Agent to front: the run shall end in good order; repeated until it has ended."""


@message(38, WATCH, control=True)
class AskReport(Message):
    """Anybody to a member or the master: send a `StatusReport` to `address`."""

    address: str


@message(39, MASTER, NODE, FRONT, control=True)
class StatusReport(Message):
    """Member or master to the one who asked: its figures, by name, and its state in words.

    `waits_for`: the same at length; empty if there is no more to say. If it is the master,
    `addresses`: where all members can be asked, and `obstacles`: what the run waits for outside.
    `wanted`: the nodes that have to run, `layout`: those that run the flow, `resizing`: what
    becomes of the number of nodes, for people; "" if nothing; `refused`: why it cannot become what
    was asked for.
    """

    figures: tuple[tuple[str, int], ...]
    state: str
    waits_for: str
    addresses: tuple[tuple[str, str], ...]
    obstacles: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    layout: tuple[int, ...] = ()
    resizing: str = ""
    refused: str = ""
