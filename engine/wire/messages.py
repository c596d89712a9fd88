"""Messages of the protocol, each a small dataclass.

An ordinary message has a sequence number on its channel and belongs to one incarnation. A *control*
message (`control = True`) starts or ends an incarnation, or is sent to or by a process outside it,
such as a consumer. Control messages are idempotent. A role never drops one because of its order or
its incarnation; a control message that concerns one incarnation has a field for it. Instead of a
sequence number, its header contains the epoch of the newest master known to the sender.

Each message class names the roles that send it. Processes of one machine trust each other. Between
hosts, each message comes with a *voice*: the key of its sender (`deploy.runtime.sockets.zap`). A
key may send in certain names only, and a name may send only the messages of its role. So no
consumer can stop a run.
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
from driftline.engine.wire.kinds import Outgoing as Outgoing
from driftline.engine.wire.kinds import decode as decode
from driftline.engine.wire.kinds import encode as encode

# Elements -------------------------------------------------------------------------------------


@message(1, NODE, FRONT)
class Frame(Message):
    """Elements that a chain of one node, or a front, sends to a port of one node.

    `feeder`: the port of that chain; of a front: its number. `time`: the tracking time, at most the
    smallest time in the frame. `id`: random, 63 bits; 0 in a frame of a front. `covers`: only in a
    frame of a front, (since, until): once this frame and all earlier ones are processed, so are all
    roots of the front with times in [since, until). `cells`, `covered`, `event_times`: an
    acknowledgement by the sending node, as in `Acknowledge`, which saves a message.
    """

    feeder: int
    port: int
    time: int
    id: int
    batches: Batches
    covers: tuple[int, ...] = ()
    cells: tuple[tuple[int, int, int], ...] = ()
    covered: tuple[tuple[int, int, int], ...] = ()
    event_times: tuple[tuple[int, int, int], ...] = ()


@message(2, NODE, FRONT)
class Marker(Message):
    """End of an epoch on the channel from the sender's chain at port `feeder` to a port.

    `epoch`: the number of the snapshot that the marker cuts.
    """

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
    """Node to trackers: the frames that it processed and sent. A tracker applies all or nothing.

    `cells`: (stage, time, XOR of the ids of frames received and sent). `covered`: (front, since,
    until) of each processed frame of a front, and of what an operator that waits for the frontier
    has emitted. `delivered`: the consumer has stored this node's outputs below this time.
    `event_times`: (front, time, event time) of the records in these frames with the largest event
    times so far.
    """

    cells: tuple[tuple[int, int, int], ...]
    covered: tuple[tuple[int, int, int], ...]
    delivered: int
    event_times: tuple[tuple[int, int, int], ...] = ()


@message(12, NODE)
class Delivered(Message):
    """Node to fronts and nodes, while the master is silent: the consumer has stored all outputs of
    this node below `time`."""

    time: int


@message(13, MASTER)
class Progress(Message):
    """Master to all: the processed and the delivered frontier.

    `processed`: all work for roots below this time is done. `delivered`: the consumer has stored
    the outputs of roots below this time; no later snapshot has a smaller time.
    """

    processed: int
    delivered: int


@message(14, MASTER, NODE)
class AskPromise(Message):
    """To a front that alone blocks the frontier: promise all times below `next`, or more."""

    next: int


@message(15, NODE, FRONT)
class Drained(Message):
    """Front to coordinator: drain the run; this front sends no record from `time` on.

    `live`: 1 if its source is live. `ended`: 1 if its source has ended; then each of its records is
    below `time`, or was delivered before.
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
    """Node to master, under policies with label order: its progress and that of its consumer.

    `processed`, `reached`: as in its `acker.tracker.Tracker`. `delivered`: the consumer has stored
    the node's outputs below this time. `oldest`: (time, stage) of the oldest work under way, empty
    if there is none. `waits_for_logs`: 1 if processed elements wait for the input log of a front.
    `last_sent`: the latest time of an output that may have left the node, in any incarnation.
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
    """Coordinator to nodes: make the state as of `time` durable, as a part of snapshot `number`.

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
    number of its newest production. `event_times`: of a node, see `engine.event_time.Clock.as_of`;
    () if the flow does not need them. `late`: of a node, see `NodePipeline.late_before`.
    """

    number: int
    offset: int
    event_times: tuple[tuple[int, int], ...] = ()
    late: int = 0


@message(23, NODE)
class PrepareFailed(Message):
    """Node to coordinator: the snapshot could not be written; try a later one."""

    number: int
    reason: str


@message(24, MASTER)
class Committed(Message):
    """Coordinator to nodes and fronts: the snapshot is committed.

    `previous`: the previous committed snapshot, which a recovery may still use; 0: none. For a
    front: no recovery needs its inputs below `trim` any more, and `offset` is the time at which it
    resumes after a recovery from this snapshot.
    """

    number: int
    previous: int
    trim: int
    offset: int


@message(25, NODE, FRONT)
class AskSnapshot(Message):
    """Node or front to coordinator: take a snapshot now, because waiting data takes much memory."""


# Incarnations (control) -----------------------------------------------------------------------


@message(30, NODE, FRONT, control=True)
class Hello(Message):
    """Node or front to master, repeatedly: this process takes part, with this progress.

    `process`: a token that differs after each start. `ready`: 1 once a node has loaded the snapshot
    and the consumer has answered. `obstacle`: what blocks the process from outside the run,
    human-readable; "" if none.
    """

    address: str
    process: str
    incarnation: int
    ready: int
    obstacle: str = ""


@message(31, MASTER, control=True)
class Recover(Message):
    """Coordinator to a node: begin `incarnation` with snapshot `number` (0: the empty one).

    `snapshot_incarnation`: the incarnation in which the snapshot was taken. `time`: the time of the
    snapshot. A node under strong productions loads its newest part, which must have at least this
    number. `addresses`: (name, address) of all members. `same_code`: 1 if the code that runs now
    took the snapshot; 0 if the consumer may have later outputs of other code. `layout`: the numbers
    of all nodes, in order; (): unchanged. `event_times`, `late`: those of the snapshot, see
    `Prepared`.
    """

    incarnation: int
    number: int
    snapshot_incarnation: int
    time: int
    addresses: tuple[tuple[str, str], ...]
    same_code: int = 1
    layout: tuple[int, ...] = ()
    event_times: tuple[tuple[int, int], ...] = ()
    late: int = 0


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

    `addresses`, `layout`: as in `Recover`.
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
    """Coordinator to a member: the run has ended, or continues without this member.

    If the run has ended, the registry contains its outcome. `run`: the identity of the run; a
    process of another run ignores the message. `error`: as in `Failed`; empty unless the run
    failed. `text`: for users.
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

    `asked`, `answered`: of a node, the numbers of the last snapshot of this incarnation that the
    coordinator requested, and of the last one that the node answered; 0: none.
    """

    epoch: int
    incarnation: int
    asked: int
    answered: int


@message(32, NODE, FRONT, control=True)
class Goodbye(Message):
    """Node or front to master, in place of `Hello`: this process knows that the run has ended."""

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

    `address`: where to send the answer. `number`: the answer repeats it, so the barrier recognises
    an outdated answer.
    """

    barrier: str
    incarnation: int
    groups: tuple[int, int]
    address: str
    number: int


@message(43, CONSUMER, control=True)
class LastBundle(Message):
    """Consumer to barrier: the last stored bundle; none if `t_last` is -1.

    `number`: as in the `FetchLast`.
    """

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

    `first`: the smallest number that the new nodes may have, larger in a later request; 0: any. The
    sender repeats the request until the report confirms it, as a master that takes over does not
    know earlier requests.
    """

    nodes: int
    first: int
    address: str


@message(61, MASTER, control=True)
class Join(Message):
    """Coordinator to a node of the next layout: fetch the state of its key groups as of a snapshot.

    `layout`: the numbers of the nodes of the next layout, in order. `number`,
    `snapshot_incarnation`: the committed snapshot, and the incarnation in which it was taken.
    `sources`: (name, address) of the nodes that have it. A later `Join` names a later snapshot.
    """

    layout: tuple[int, ...]
    number: int
    snapshot_incarnation: int
    sources: tuple[tuple[str, str], ...]


@message(62, NODE, control=True)
class Joined(Message):
    """Node of the next layout to coordinator: it has the requested state in memory and on its disk.

    `process`: as in `Hello`. `epoch`: of the master that sent the `Join`; if a later master sends
    one, the node starts over with an empty disk. `number`, `snapshot_incarnation`: the snapshot.
    `bytes`: the size of its rows that the previously fetched snapshot did not have.
    """

    layout: tuple[int, ...]
    process: str
    epoch: int
    number: int
    snapshot_incarnation: int
    bytes: int


@message(63, NODE, WATCH, control=True)
class AskParts(Message):
    """Node of the next layout to a node: list the segments of a snapshot that `base` lacks.

    `address`: where to send the answer. The other fields: see `engine.snapshots.jobs.ListParts`.
    """

    address: str
    number: int
    snapshot_incarnation: int
    base: int
    base_incarnation: int
    groups: tuple[int, int]


@message(64, NODE, control=True)
class Parts(Message):
    """Answer to `AskParts`: (part, key group, checksum) of each segment, in order."""

    number: int
    base: int
    segments: tuple[tuple[int, int, int], ...]


@message(65, NODE, control=True)
class NoParts(Message):
    """Answer to `AskParts`: one of its snapshots does not exist, or no longer exists."""

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
    """Answer to `AskSlice`. If `data` is shorter than `SLICE_BYTES`, the segment ends with it."""

    part: int
    group: int
    offset: int
    data: bytes


SLICE_BYTES = 1 << 20
"""Size of a full `Slice`."""


@message(68, MASTER)
class Pause(Message):
    """Coordinator to a front: send all records below `time`, and pause from there on.

    `time`: -1 means at once. `number`: the answer, `Paused`, repeats it.
    """

    number: int
    time: int


@message(69, FRONT)
class Paused(Message):
    """Front to coordinator: paused. It sends no record from `time` on.

    `number`: as in the `Pause`. `ended`: 1 if its source has no further record.
    """

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
    """Agent to front: drain the run. The agent repeats this until the run has ended."""


@message(38, WATCH, control=True)
class AskReport(Message):
    """Any process to a member or the master: send a `StatusReport` to `address`."""

    address: str


@message(39, MASTER, NODE, FRONT, control=True)
class StatusReport(Message):
    """Member or master to the requester: its figures, by name, and its human-readable state.

    `waits_for`: details of the state; "" if there are none. From the master only: `addresses`:
    (name, address) of all members; `obstacles`: what blocks the run from outside; `wanted`: the
    names of all nodes whose processes must run; `layout`: the numbers of the nodes that run the
    flow; `resizing`: the human-readable state of a resizing, "" without one; `refused`: why a
    requested number of nodes is not possible, "" if none was rejected.

    From a running node whose flow has operators with event times: `sources`: (name, watermark,
    `engine.event_time.Status`, milliseconds since a change of these) of each source with event
    times; `operators`: (name, watermark, name of the source that holds it back, or "").
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
    sources: tuple[tuple[str, int, int, int], ...] = ()
    operators: tuple[tuple[str, int, str], ...] = ()
