"""Messages of the protocol, each a small dataclass.

Messages of the running protocol are numbered per channel and belong to one incarnation.
*Control* messages (`control = True`) start and end incarnations, and go to and from consumers: they
are idempotent, name an incarnation themselves if they need one, and are never dropped as out of
order or as of an older incarnation. Instead of a number, their header contains the epoch of the
newest master known to the sender.

Each message class names the roles that send it. Processes of one machine trust each other. Between
hosts each message comes with a *voice*, the key of its sender (`deploy.runtime.sockets.zap`), which
speaks only for some names; and a name may send only the messages of its role: no consumer can stop
a run.
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
    with times in [since, until) are processed once this frame and the previous ones are.
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
    """Front to trackers: all records of the front with times in [since, until) have been sent.

    A frame makes the same promise with its `covers`; this message is for times without frames.
    `durable`: records below this time survive a crash of the front.
    """

    front: int
    since: int
    until: int
    durable: int


@message(11, NODE)
class Acknowledge(Message):
    """Node to trackers: the frames that the node processed and sent; applied as a whole.

    `cells`: (stage, time, XOR of the ids of frames received and sent). `covered`: (front, since,
    until) of each processed frame of a front. `delivered`: the consumer has this node's outputs
    below this time.
    """

    cells: tuple[tuple[int, int, int], ...]
    covered: tuple[tuple[int, int, int], ...]
    delivered: int


@message(12, NODE)
class Delivered(Message):
    """Node to fronts and nodes, while the master is silent: the consumer has all outputs of this
    node below `time`."""

    time: int


@message(13, MASTER)
class Progress(Message):
    """Master to all: the processed and the delivered frontier.

    `processed`: roots below this time need no more work. `delivered`: the consumer has the outputs
    of roots below this time; no later snapshot has a smaller time.
    """

    processed: int
    delivered: int


@message(14, MASTER, NODE)
class AskPromise(Message):
    """To a front that alone holds the frontier back: promise up to `next` or more if possible."""

    next: int


@message(15, NODE, FRONT)
class Drained(Message):
    """Front to coordinator: drain the run; this front sends no record from `time` on.

    `live`: 1 if the source is a live one. `ended`: 1 if it has ended; then all its records are
    below `time`, or were delivered before.
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
    """Node to master, in label order: the progress of the node's own tracker and its consumer.

    `processed`, `reached`: as in its tracker. `delivered`: the consumer has the node's outputs
    below this time. `oldest`: (time, stage) of the oldest work under way, empty if there is none.
    `waits_for_logs`: 1 if processed elements wait for the input log of a front. `last_sent`: no
    output with a later time has left the node, in any incarnation.
    """

    processed: int
    delivered: int
    reached: int
    oldest: tuple[int, ...]
    waits_for_logs: int
    last_sent: int = -1


# Snapshots ------------------------------------------------------------------------------------


@message(20, MASTER)
class Prepare(Message):
    """Coordinator to nodes: make the state as of `time` durable, as a part of a snapshot.

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
    """Node or front to coordinator: the sender's part of the snapshot is durable.

    `offset`: of a front, the time at which it would resume; of a node under strong productions, the
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

    `before`: the previous committed snapshot, which a recovery may still use; 0: none.
    `trim`: of a front: no recovery needs its inputs below this time any more. `offset`: of a front:
    the time at which it resumes after this snapshot.
    """

    number: int
    before: int
    trim: int
    offset: int


@message(25, NODE, FRONT)
class AskSnapshot(Message):
    """Node or front to coordinator: take a snapshot now, because waiting data takes much memory."""


# Incarnations (control) -----------------------------------------------------------------------


@message(30, NODE, FRONT, control=True)
class Hello(Message):
    """Node or front to master, repeatedly: this process takes part, with this progress.

    `process`: a token, new with each start. `ready`: 1 once a node has loaded the snapshot and the
    consumer has answered. `obstacle`: what blocks it outside the run, human-readable; "" if none.
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
    `addresses`: (name, address) of all members. `same_code`: 1 if the running code took the
    snapshot, 0 if the consumer has later outputs by other code. `layout`: the numbers of all nodes,
    in order; (): unchanged.
    """

    incarnation: int
    number: int
    snapshot_incarnation: int
    time: int
    addresses: tuple[tuple[str, str], ...]
    same_code: int = 1
    layout: tuple[int, ...] = ()


@message(44, NODE, FRONT, control=True)
class Alive(Message):
    """Heartbeat of a node or front to the master. `steps`: number of steps of work done so far.

    `busy`: 1 during a long step, or while it waits for a disk or a consumer.
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
    """Coordinator to a front: begin `incarnation`, replay from `offset` (-1: do not replay).

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
    """Member to coordinator, consumer to barrier: the flow has failed, and a replay cannot help.

    `error`: the name of a class of `engine.errors`; `text`: for users.
    """

    incarnation: int
    error: str
    text: str


@message(37, MASTER, control=True)
class Stop(Message):
    """Coordinator to a member: the run is over; the registry has its outcome.

    `run`: the run that is over; a process of another run ignores the message. `error`: empty unless
    the run failed.
    """

    run: str
    error: str
    text: str


@message(46, MASTER, control=True)
class Lead(Message):
    """Master to a member: this master leads, in the same incarnation; answer `FollowsMaster`.

    Also sent later, to check which members receive it.
    """


@message(47, NODE, FRONT, control=True)
class FollowsMaster(Message):
    """Member to master, in answer to `Lead`: the member rejects masters before `epoch` from now on.

    `asked`, `answered`: of a node, the numbers of the snapshots of this incarnation that it was
    last asked for, and last answered; 0: none.
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
    """Barrier to consumer: outputs in label order; store all of them with `t_last`, or none.

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
    """Consumer to barrier: the request cannot be met at the moment; retry later."""

    barrier: str
    incarnation: int
    reason: str


@message(42, NODE, control=True)
class FetchLast(Message):
    """Barrier to consumer: send the last stored bundle of this barrier.

    `number`: comes back in the answer, so the barrier recognises an outdated answer.
    """

    barrier: str
    incarnation: int
    groups: tuple[int, int]
    address: str
    number: int


@message(43, CONSUMER, control=True)
class LastBundle(Message):
    """Consumer to barrier: the last bundle; t_last -1: none. `number`: as in the request."""

    barrier: str
    incarnation: int
    number: int
    blobs: tuple[bytes, ...]
    t_last: int
    checksum: int


# Resizing: see `coordinator.resizing` -------------------------------------------------------------


@message(60, WATCH, AGENT, control=True)
class Resize(Message):
    """Watch or agent to the master: set the number of nodes. Answered by a `StatusReport`.

    `first`: the least number of the first of the next nodes, larger in a later request; 0: any.
    Repeated until the report confirms it: a master that takes over does not know earlier requests.
    """

    nodes: int
    first: int
    address: str


@message(61, MASTER, control=True)
class Join(Message):
    """Coordinator to a node of the next layout: fetch the state of its key groups as of a snapshot.

    `layout`: the numbers of the nodes of that layout, in order. `number`, `taken`: the committed
    snapshot, and the incarnation in which it was taken. `sources`: (name, address) of the nodes
    that have it. A later `Join` names a later snapshot.
    """

    layout: tuple[int, ...]
    number: int
    snapshot_incarnation: int
    sources: tuple[tuple[str, str], ...]


@message(62, NODE, control=True)
class Joined(Message):
    """Node of the next layout to coordinator: that state is in memory, and on the node's disk.

    `process`: the process that has it. `epoch`: of the master that asked for it: if a later one
    asks, the node starts over, with an empty disk. `bytes`: the size of the step from the previous
    snapshot.
    """

    layout: tuple[int, ...]
    process: str
    epoch: int
    number: int
    snapshot_incarnation: int
    bytes: int


@message(63, NODE, WATCH, control=True)
class AskParts(Message):
    """Node of the next layout to a node: list what snapshot `number` has beyond `after`.

    `address`: for the answer. See `ListParts` for the other fields.
    """

    address: str
    number: int
    snapshot_incarnation: int
    after: int
    after_incarnation: int
    groups: tuple[int, int]


@message(64, NODE, control=True)
class Parts(Message):
    """Answer to `AskParts`: (part, key group, checksum) of each segment, in order."""

    number: int
    after: int
    segments: tuple[tuple[int, int, int], ...]


@message(65, NODE, control=True)
class NoParts(Message):
    """Answer to `AskParts`: these snapshots do not exist, or no longer exist."""

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
    """Answer to `AskSlice`. Fewer than `SLICE_BYTES` end the segment."""

    part: int
    group: int
    offset: int
    data: bytes


SLICE_BYTES = 1 << 20
"""Size of a full `Slice`."""


@message(68, MASTER)
class Pause(Message):
    """Coordinator to a front: send all records below `time`, and pause from there on.

    -1: pause now. `number`: comes back in the answer, `Paused`.
    """

    number: int
    time: int


@message(69, FRONT)
class Paused(Message):
    """Front to coordinator: paused; no record from `time` on. `ended`: 1 if none remains."""

    number: int
    time: int
    ended: int


@message(70, MASTER)
class Resume(Message):
    """Coordinator to a front: end the pause that `Pause` began. May be repeated."""


# Agents and watches, which are not members (control) ----------------------------------------------


@message(48, AGENT, control=True)
class MasterAt(Message):
    """Agent to a member: send `Hello` to this address; a leader there answers with `Lead`."""

    address: str


@message(49, AGENT, control=True)
class AskDrain(Message):
    """Agent to front: drain the run; repeated until it has ended."""


@message(38, WATCH, control=True)
class AskReport(Message):
    """Any process to a member or the master: send a `StatusReport` to `address`."""

    address: str


@message(39, MASTER, NODE, FRONT, control=True)
class StatusReport(Message):
    """Member or master to the requester: its figures, by name, and its human-readable state.

    `waits_for`: the state in detail; empty if there are no details. From the master only:
    `addresses`: of all members, for requests; `obstacles`: what blocks the run from outside.
    `wanted`: the nodes that have to run, `layout`: those that run the flow, `resizing`: the
    human-readable state of a resizing, "" without one; `refused`: why a requested number of nodes
    is not possible.
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
