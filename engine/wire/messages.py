"""Messages of the protocol.

An ordinary message has a sequence number on its channel and belongs to one incarnation. A *control*
message (`ControlMessage`) is outside these numbered channels: it starts, ends or monitors
incarnations, or its sender or receiver (a consumer, an agent, a status poller, the master before a
start) takes no part in one. Control messages are idempotent. A role never drops one because of its
order or its incarnation; a control message that concerns one incarnation has a field for it.
Instead of a sequence number, the header of a control message contains the epoch of the newest
master known to the sender. A role drops control messages of earlier masters.

Each message class names the roles that send it. Processes of one machine trust each other. Between
hosts, each message comes with the key of its sender (`deploy.runtime.sockets.zap`). A key is valid
for certain process names only, and a process may send only the messages of its role. So a consumer
cannot send `Stop`, but it can report a failure (`Failed`).
"""

from __future__ import annotations

from driftline.engine.wire.kinds import (
    AGENT,
    CONSUMER,
    FRONT,
    MASTER,
    NODE,
    POLLER,
    Batches,
    ControlMessage,
    sent_by,
)
from driftline.engine.wire.kinds import MAGIC as MAGIC
from driftline.engine.wire.kinds import Message as Message
from driftline.engine.wire.kinds import MessageHeader as MessageHeader
from driftline.engine.wire.kinds import Outgoing as Outgoing
from driftline.engine.wire.kinds import decode as decode
from driftline.engine.wire.kinds import encode as encode

# Elements -------------------------------------------------------------------------------------


@sent_by(NODE, FRONT)
class Frame(Message, tag=1, frozen=True):
    """Elements that a chain of one node, or a front, sends to a port of one node.

    `upstream`: the port at which the sending chain begins; from a front, its number. `time`: the
    tracking time, under which trackers record it; at most the smallest time in the frame.
    `id`: random, 63 bits; 0 in a frame of a front. `interval`: only in a frame of a front, (since,
    until): once this frame and all earlier ones are processed, so are all roots of the front with
    times in [since, until). `cells`, `covered`, `event_times`: an acknowledgement by the sending
    node, which saves a separate `Acknowledge`.
    """

    upstream: int
    port: int
    time: int
    id: int
    batches: Batches
    interval: tuple[int, ...] = ()
    cells: tuple[tuple[int, int, int], ...] = ()
    covered: tuple[tuple[int, int, int], ...] = ()
    event_times: tuple[tuple[int, int, int], ...] = ()


@sent_by(NODE, FRONT)
class Marker(Message, tag=2, frozen=True):
    """End of an epoch on the channel from the sender to a port.

    `upstream`: as in `Frame`. `epoch`: the number of the snapshot that the epoch ends with.
    """

    upstream: int
    port: int
    epoch: int


# Progress -------------------------------------------------------------------------------------


@sent_by(FRONT)
class Promise(Message, tag=10, frozen=True):
    """Front to trackers: the front sends no record with a time in [since, until) after this.

    A frame makes the same promise with its `interval`; this message covers times without frames.
    `durable`: records below this time survive a crash of the front.
    """

    front: int
    since: int
    until: int
    durable: int


@sent_by(NODE)
class Acknowledge(Message, tag=11, frozen=True):
    """Node to trackers: the frames that the node has processed and sent.

    A tracker applies the whole message or nothing.

    `cells`: (stage, time, XOR of the ids of frames received and sent). `covered`: (coverer, since,
    until): times that a processed frame of front `coverer` covers. A larger `coverer` is an
    operator with timers at one node, which has emitted everything with these times. `delivered`:
    the consumer has stored this node's outputs below this time. `event_times`: (front, time, event
    time) of the records in these frames with the largest event times so far.
    """

    cells: tuple[tuple[int, int, int], ...]
    covered: tuple[tuple[int, int, int], ...]
    delivered: int
    event_times: tuple[tuple[int, int, int], ...] = ()


@sent_by(NODE)
class Delivered(Message, tag=12, frozen=True):
    """Node to fronts and nodes: the consumer has stored all outputs of the sender below `time`.

    Nodes send it only while the master is silent.
    """

    time: int


@sent_by(MASTER)
class Progress(Message, tag=13, frozen=True):
    """Master to all: the processed and the delivered frontier.

    `processed`: all work for roots below this time is done. `delivered`: the consumer has stored
    the outputs of roots below this time. A later snapshot as of a time contains their effects.
    """

    processed: int
    delivered: int


@sent_by(MASTER, NODE)
class AskPromise(Message, tag=14, frozen=True):
    """Master or node to a front that lags behind another one: promise the times below `until`.

    The front answers with a `Promise`, or with frames that cover these times.
    """

    until: int


@sent_by(FRONT)
class EndOfInput(Message, tag=15, frozen=True):
    """Front to coordinator: this front sends no record from `time` on; drain the run.

    `live`: 1 if its source is live. `ended`: 1 if its source has ended. `time` is INFINITY if it
    had ended before this incarnation, under a policy without replay.
    """

    time: int
    live: int
    ended: int


@sent_by(MASTER)
class Drain(Message, tag=16, frozen=True):
    """Coordinator to a front: send all records below `time`, and then no more."""

    time: int


@sent_by(NODE)
class NodeProgress(Message, tag=17, frozen=True):
    """Node to master, under policies with label order: the progress of the node and its consumer.

    `processed`, `reached`: as in its `acker.tracker.Tracker`. `delivered`: the consumer has stored
    the node's outputs below this time. `oldest`: (time, stage) of the oldest work in flight, empty
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


@sent_by(MASTER)
class Prepare(Message, tag=20, frozen=True):
    """Coordinator to nodes: make the state as of `time` durable, as a part of snapshot `number`.

    `time`: the delivered frontier; a finite time above all roots if all inputs have ended.
    """

    number: int
    time: int


@sent_by(MASTER)
class SendMarker(Message, tag=21, frozen=True):
    """Coordinator to fronts: send the `Marker` that ends epoch `number`."""

    number: int


@sent_by(NODE, FRONT)
class Prepared(Message, tag=22, frozen=True):
    """Node or front to coordinator: the sender's part of the snapshot is durable.

    `offset`: of a front, the time from which it would replay; of a node under strong-productions,
    the number of its newest production. `event_times`: of a node, see
    `engine.event_time.Clock.as_of`; () if the flow does not need them. `late`: of a node, see
    `NodePipeline.late_before`.
    """

    number: int
    offset: int
    event_times: tuple[tuple[int, int], ...] = ()
    late: int = 0


@sent_by(NODE)
class PrepareFailed(Message, tag=23, frozen=True):
    """Node to coordinator: the node could not write its part of the snapshot; take a later one."""

    number: int
    reason: str


@sent_by(MASTER)
class Committed(Message, tag=24, frozen=True):
    """Coordinator to nodes and fronts: the snapshot is committed.

    `previous`: the previous committed snapshot, which a recovery may still use; 0: none. To a
    front: no recovery needs its records below `trim` any more, and a recovery from this snapshot
    replays from `offset`.
    """

    number: int
    previous: int
    trim: int
    offset: int


@sent_by(NODE, FRONT)
class AskSnapshot(Message, tag=25, frozen=True):
    """Node or front to coordinator: take a snapshot soon, as unsaved data takes much memory."""


# Incarnations (control) -----------------------------------------------------------------------


@sent_by(NODE, FRONT)
class Hello(ControlMessage, tag=30, frozen=True):
    """Node or front to master, repeatedly: this process is a member, in `incarnation`.

    `process`: a random token of the process; each start makes a new one. `ready`: 1 once a node has
    loaded the snapshot and the consumer has answered. `obstacle`: what blocks the process from
    outside the run, human-readable; "" if none.
    """

    address: str
    process: str
    incarnation: int
    ready: int
    obstacle: str = ""


@sent_by(MASTER)
class Recover(ControlMessage, tag=31, frozen=True):
    """Coordinator to a node: begin `incarnation` with snapshot `number` (0: the empty one).

    `snapshot_incarnation`: the incarnation in which the snapshot was taken. `time`: the time of the
    snapshot. Under strong-productions, each node loads the newest part that it has; the number of
    this part is at least `number`. `addresses`: (name, address) of all members. `same_code`: 1 if
    the code that runs now took the snapshot; 0 if other code took it, and may have produced later
    outputs that the consumer has. `layout`: the numbers of all nodes, in order; (): unchanged.
    `event_times`, `late`: those of the snapshot, see `Prepared`.
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


@sent_by(NODE, FRONT)
class Alive(ControlMessage, tag=44, frozen=True):
    """Heartbeat of a node or front to the master.

    `process`: as in `Hello`. `steps`: number of steps of work done so far. `busy`: 1 during a long
    step, or while other members may wait for this one because its disk or consumer is slow.
    """

    process: str
    steps: int
    busy: int


@sent_by(NODE)
class Unloadable(ControlMessage, tag=33, frozen=True):
    """Node to coordinator: snapshot `number` is damaged here; use an older one."""

    incarnation: int
    number: int
    reason: str


@sent_by(MASTER)
class Start(ControlMessage, tag=34, frozen=True):
    """Coordinator to a front: begin `incarnation`, replay from `offset` (-1: do not replay).

    `addresses`, `layout`: as in `Recover`.
    """

    incarnation: int
    offset: int
    addresses: tuple[tuple[str, str], ...]
    layout: tuple[int, ...] = ()


@sent_by(NODE, FRONT)
class MessageLost(ControlMessage, tag=35, frozen=True):
    """Member to coordinator: a message of this incarnation is lost; recover."""

    incarnation: int
    reason: str


@sent_by(NODE, FRONT, CONSUMER)
class Failed(ControlMessage, tag=36, frozen=True):
    """Member to coordinator, consumer to barrier: the flow has failed, and a replay cannot help.

    `error`: the name of a class in `engine.errors`; `text`: the error text for users.
    """

    incarnation: int
    error: str
    text: str


@sent_by(MASTER)
class Stop(ControlMessage, tag=37, frozen=True):
    """Coordinator to a member: the run has ended, or continues without this member.

    If the run has ended, the registry contains its outcome. `run`: the identity of the run; a
    process of another run ignores the message. `error`: as in `Failed`; empty unless the run
    failed. `text`: for users.
    """

    run: str
    error: str
    text: str


@sent_by(MASTER)
class Lead(ControlMessage, tag=46, frozen=True):
    """Master to a member: this master leads, and the incarnation continues; send `FollowsMaster`.

    The master repeats it later, to check which members it can reach.
    """


@sent_by(NODE, FRONT)
class FollowsMaster(ControlMessage, tag=47, frozen=True):
    """Answer of a member to `Lead`: from now on it rejects masters of epochs before `epoch`.

    `asked`, `answered`: of a node, the numbers of the last snapshot of this incarnation that the
    coordinator requested, and of the last one that the node answered; 0: none.
    """

    epoch: int
    incarnation: int
    asked: int
    answered: int


@sent_by(NODE, FRONT)
class Goodbye(ControlMessage, tag=32, frozen=True):
    """Node or front to master, instead of `Hello`: this process knows that the run has ended."""

    process: str


# Consumers (control) --------------------------------------------------------------------------


@sent_by(NODE)
class Bundle(ControlMessage, tag=40, frozen=True):
    """Barrier to consumer: outputs; store all of them with `t_last`, or none.

    The outputs are in label order if the policy has one. `blobs`: with label order, the outputs of
    one time each, otherwise of one batch each (see `engine.wire.bundles`). `checksum`: running
    checksum over all blobs up to the last one of this bundle. `groups`: the first and the last key
    group of the barrier's node.
    """

    barrier: str
    incarnation: int
    groups: tuple[int, int]
    blobs: tuple[bytes, ...]
    t_last: int
    checksum: int


@sent_by(CONSUMER)
class BundleStored(ControlMessage, tag=41, frozen=True):
    """Consumer to barrier: the bundle that ends with `t_last` is durable."""

    barrier: str
    incarnation: int
    t_last: int


@sent_by(CONSUMER)
class Delayed(ControlMessage, tag=45, frozen=True):
    """Consumer to barrier: the consumer cannot store or read now, due to `reason`; retry later."""

    barrier: str
    incarnation: int
    reason: str


@sent_by(NODE)
class FetchLast(ControlMessage, tag=42, frozen=True):
    """Barrier to consumer: send the last stored bundle of this barrier.

    `address`: where to send the answer, `LastBundle`. `number`: the answer repeats it, so the
    barrier recognises an outdated answer.
    """

    barrier: str
    incarnation: int
    groups: tuple[int, int]
    address: str
    number: int


@sent_by(CONSUMER)
class LastBundle(ControlMessage, tag=43, frozen=True):
    """Consumer to barrier: the last stored bundle; none if `t_last` is -1.

    `number`: as in the `FetchLast`.
    """

    barrier: str
    incarnation: int
    number: int
    blobs: tuple[bytes, ...]
    t_last: int
    checksum: int


# Rescaling: see `coordinator.rescaling` -----------------------------------------------------------


@sent_by(POLLER, AGENT)
class Rescale(ControlMessage, tag=60, frozen=True):
    """Status poller or agent to the master: set the number of nodes. Answered by a `StatusReport`.

    `first`: new nodes get numbers from this one on; 0: the next free numbers. A later request has a
    larger `first`. The sender repeats the request until the report confirms it, as a master that
    takes over does not know earlier requests.
    """

    nodes: int
    first: int
    address: str


@sent_by(MASTER)
class Join(ControlMessage, tag=61, frozen=True):
    """Coordinator to a node of the next layout: fetch the state of its key groups as of a snapshot.

    `layout`: the numbers of the nodes of the next layout, in order. `number`,
    `snapshot_incarnation`: the committed snapshot, and the incarnation in which it was taken.
    `sources`: (name, address) of the nodes that have it. A later `Join` names a later snapshot.
    """

    layout: tuple[int, ...]
    number: int
    snapshot_incarnation: int
    sources: tuple[tuple[str, str], ...]


@sent_by(NODE)
class Joined(ControlMessage, tag=62, frozen=True):
    """Node of the next layout to coordinator: the requested state is in its memory and on its disk.

    `process`: as in `Hello`. `epoch`: of the master that sent the `Join`; after a `Join` of a later
    master, the node starts over with an empty disk. `number`, `snapshot_incarnation`: the snapshot.
    `bytes`: the size of the rows that the node fetched for this snapshot.
    """

    layout: tuple[int, ...]
    process: str
    epoch: int
    number: int
    snapshot_incarnation: int
    bytes: int


@sent_by(NODE, POLLER)
class AskParts(ControlMessage, tag=63, frozen=True):
    """Node of the next layout, or savepoint export, to a node: list the segments of a snapshot.

    The answer, `Parts` or `NoParts`, goes to `address`. It omits the segments of snapshot `base`.
    The other fields: see `engine.snapshots.jobs.ListParts`.
    """

    address: str
    number: int
    snapshot_incarnation: int
    base: int
    base_incarnation: int
    groups: tuple[int, int]


@sent_by(NODE)
class Parts(ControlMessage, tag=64, frozen=True):
    """Answer to `AskParts`: (part, key group, checksum) of each segment, in order."""

    number: int
    base: int
    segments: tuple[tuple[int, int, int], ...]


@sent_by(NODE)
class NoParts(ControlMessage, tag=65, frozen=True):
    """Answer to `AskParts`: the snapshot or its base does not exist, or no longer exists."""

    reason: str


@sent_by(NODE, POLLER)
class AskSlice(ControlMessage, tag=66, frozen=True):
    """Node of the next layout, or savepoint export, to a node: send a segment from `offset` on."""

    address: str
    part: int
    group: int
    offset: int


@sent_by(NODE)
class Slice(ControlMessage, tag=67, frozen=True):
    """Answer to `AskSlice`. If `data` is shorter than `SLICE_BYTES`, the segment ends with it."""

    part: int
    group: int
    offset: int
    data: bytes


SLICE_BYTES = 1 << 20
"""Size of a full `Slice`."""


@sent_by(MASTER)
class Pause(Message, tag=68, frozen=True):
    """Coordinator to a front: send all records below `time`, and then pause.

    `time`: -1 means pause at once. `number`: the answer, `Paused`, repeats it.
    """

    number: int
    time: int


@sent_by(FRONT)
class Paused(Message, tag=69, frozen=True):
    """Front to coordinator: paused. It sends no record from `time` on.

    `number`: as in the `Pause`. `ended`: 1 if the front's source has no further record.
    """

    number: int
    time: int
    ended: int


@sent_by(MASTER)
class Resume(Message, tag=70, frozen=True):
    """Coordinator to a front: end the pause that `Pause` began. May be repeated."""


# Agents and status pollers, which are not members (control) --------------------------------------


@sent_by(AGENT)
class MasterAt(ControlMessage, tag=48, frozen=True):
    """Agent to a member or a status poller: the address of the master.

    A member sends `Hello` there; a leader answers with `Lead`.
    """

    address: str


@sent_by(AGENT)
class AskDrain(ControlMessage, tag=49, frozen=True):
    """Agent to front: drain the run. The agent repeats this until the run has ended."""


@sent_by(POLLER)
class AskReport(ControlMessage, tag=38, frozen=True):
    """Status poller to a member or the master: send a `StatusReport` to `address`."""

    address: str


@sent_by(MASTER, NODE, FRONT)
class StatusReport(ControlMessage, tag=39, frozen=True):
    """Member or master to the requester: its metrics and its human-readable state.

    `figures`: (name, value) of each metric. `waits_for`: details of the state; "" if there are
    none. From the master only: `addresses`: (name, address) of all members; `obstacles`: what
    blocks the run from outside; `required_nodes`: the names of all nodes whose processes must run;
    `layout`: the numbers of the nodes that run the flow; `rescaling`: the human-readable state of a
    rescaling, "" without one; `refused`: why the master rejected a requested number of nodes, ""
    if it did not.

    From a running node whose flow has operators with event times: `sources`: (name, watermark,
    `engine.event_time.Status`, milliseconds since watermark or status last changed) of each source
    with event times; `operators`: (name, watermark, name of the source that holds it back, or "").
    """

    figures: tuple[tuple[str, int], ...]
    state: str
    waits_for: str
    addresses: tuple[tuple[str, str], ...]
    obstacles: tuple[str, ...] = ()
    required_nodes: tuple[str, ...] = ()
    layout: tuple[int, ...] = ()
    rescaling: str = ""
    refused: str = ""
    sources: tuple[tuple[str, int, int, int], ...] = ()
    operators: tuple[tuple[str, int, str], ...] = ()
