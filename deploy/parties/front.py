"""The front: reads a source, gives each record its label, and sends it to a node. Can replay.

Takes `Start`, `Progress`, `BeginEpoch`, `Committed` (master), `AskPromise` (master, node), and the
messages that every member takes. Gives frames (nodes); a `Promise` for times without a frame (all
trackers); `Prepared` for an epoch; and the messages that every member gives.

Invariants: times grow; frames and promises together cover all times below `next`, without a gap;
after a `Start` with an offset the same records get the same labels again; at most `window` records
are under way, so a slow system slows the input down instead of filling memory.

At low load a frame holds one record. Under load a turn takes as many records as the window allows,
and sends one frame to each node, tracked under the smallest time in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from driftline.deploy.parties.member import Member
from driftline.deploy.parties.meter import Meter
from driftline.deploy.parties.replay import Replay
from driftline.engine.errors import DriftlineError, InputError
from driftline.engine.flow.plan import Plan
from driftline.engine.keygroups import owner, root_group
from driftline.engine.labels import INFINITY, Label
from driftline.engine.policy import Output, Policy
from driftline.engine.sources import BadRecord, CachedSource, LiveSource, Source
from driftline.engine.wire.codec import pack_rows
from driftline.engine.wire.label_columns import encode_labels
from driftline.engine.wire.messages import (
    AskPromise,
    BeginEpoch,
    Committed,
    Failed,
    Frame,
    Marker,
    Message,
    Prepared,
    Progress,
    Promise,
    Start,
)

WINDOW = 384
"""Records that may be under way, by default."""

BATCH = 24
"""Records that one turn takes at most; with more, the other nodes would wait."""

Record = tuple[int, object] | BadRecord | None


class Front(Member):
    """One front and its source."""

    def __init__(
        self,
        index: int,
        nodes: int,
        plan: Plan,
        policy: Policy,
        source: Source | LiveSource,
        new_id: Callable[[], int],
        *,
        process: str = "",
        address: str = "",
        window: int = WINDOW,
        on_bad: Callable[[Sequence[BadRecord]], None] | None = None,
        run: str = "",
    ) -> None:
        super().__init__(f"front-{index}", process, address, run)
        self.ready = True
        self.index = index
        self.nodes = nodes
        everybody = [f"node-{node}" for node in range(nodes)]
        self._trackers = ["master", *(everybody if policy.ordered else ())]
        self._others = [] if policy.ordered else everybody
        self.groups = plan.flow.groups
        self.policy = policy
        self.live = source if isinstance(source, LiveSource) else None
        self.source = source if isinstance(source, LiveSource) else CachedSource(source)
        self.new_id = new_id
        self.window = window
        self.on_bad = on_bad
        self.next = 1
        """All records below this time have been sent in this incarnation."""
        self.settled = 0
        """Records below this time are not under way any more."""
        self.taken = 0
        """Records that have been sent; a record that is sent again in a replay counts once."""
        self.furthest = 0
        """The largest time that has been sent in any incarnation."""
        self.meter = Meter()
        self._delivered = 0
        """The consumers have all outputs below this time."""
        self._replay = Replay(self.name)
        self._records: Iterator[Record] | None = None
        self._ended = False
        self._flight: deque[int] = deque()
        self._covered = 0
        """Frames and promises cover all times below this one."""
        self._durable = 0
        """The last promise said that records below this time survive a crash."""
        self._asked = 0
        """A tracker has asked for a promise up to this time."""
        self._early = False
        """Whether a record waits until it is durable."""
        self._epochs: list[tuple[int, int]] = []

    @property
    def doing(self) -> str:
        return f"its source, {self.source.name}"

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, Progress):
            self._settle(message)
        elif isinstance(message, AskPromise):
            self._asked = message.next
        elif isinstance(message, BeginEpoch):
            for node in range(self.nodes):
                self.send(f"node-{node}", Marker(self.index, self.index, message.number))
            self._epochs.append((message.number, self.next))
        elif isinstance(message, Committed):
            self.source.trim(message.trim)
        elif isinstance(message, Start):
            self._start(message)
        else:
            super().handle(sender, message)

    def repeat(self) -> None:
        if self._records is None:
            return
        self._promise()
        for node in self._others:  # nodes without a tracker: shows them whether a marker was lost
            self.send(node, Promise(self.index, 0, 0, 0))

    def turn(self) -> bool:
        self.meter.look(self.now, self._delivered)
        self._replay.look(self.now, self.settled)
        if self._records is None or self.stopped:
            return False
        more = self._pump(self._records)
        while self._epochs and min(self._epochs[0][1], INFINITY) <= self._now_durable():
            number, offset = self._epochs.pop(0)
            self.send("master", Prepared(number, offset))
        return more

    def _start(self, message: Start) -> None:
        if message.incarnation <= self.incarnation:
            return
        self.enter(message.incarnation)
        self.addresses.update(message.addresses)
        if message.offset >= 0:
            self.next = max(1, message.offset)
        if self.live is not None and self.next < self.live.trimmed:
            self.report(
                Failed(
                    self.incarnation,
                    "SnapshotDamaged",
                    f"{self.source.name}: a replay from time {self.next} is needed, but records "
                    f"below {self.live.trimmed} were given up when newer snapshots were committed, "
                    "which cannot be loaded any more: restore the state directory",
                )
            )
            return
        self._ended = self.next >= INFINITY
        self._early = False
        self._records = iter(()) if self._ended else self.source.read(self.next)
        if self.live is not None and self.policy.output is Output.DURABLE:
            self._records = self._once_durable(self._records, self.live)
        self._flight.clear()
        self._covered = 0
        self._durable = 0
        self._epochs.clear()
        self._asked = 0
        self.settled = self._delivered = 0
        self._replay.begin(self.now, self.next, self.furthest)

    def _settle(self, message: Progress) -> None:
        by_delivery = self.policy.output in (Output.FRONTIER, Output.DURABLE)
        self.settled = message.delivered if by_delivery else message.processed
        self._delivered = message.delivered
        flight = self._flight
        while flight and flight[0] < self.settled:
            flight.popleft()

    def _pump(self, records: Iterator[Record]) -> bool:
        """Send records, as far as the window allows. Returns whether there may be more."""
        batches: dict[int, tuple[list[Label], list[object]]] = {}
        bad: list[BadRecord] = []
        room = min(BATCH, self.window - len(self._flight))
        taken = 0
        over = False
        while taken < room and not self._ended:
            try:
                record = next(records)
            except StopIteration:
                self._ended = over = True
                break
            if record is None:
                if self.live is not None and self._asked > self.next and not self._early:
                    # No record waits: the clock may move past the times of other fronts.
                    self.next = max(self.next, self.live.move_to(self._asked))
                break
            taken += 1
            if isinstance(record, BadRecord):
                bad.append(record)
                self.next = max(self.next, record.time + 1)
                if self.on_bad is None:
                    self._fail(record)
                continue
            time, payload = record
            assert time >= self.next, f"{self.source.name}: time {time} after {self.next - 1}"
            self.next = time + 1
            if time > self.furthest:
                self.furthest = time
                self.taken += 1
                self.meter.hand(time, self.now)
            self._flight.append(time)
            node = owner(root_group(time, self.index, self.groups), self.nodes, self.groups)
            labels, values = batches.setdefault(node, ([], []))
            labels.append((time, self.index))
            values.append(payload)
        if bad and self.on_bad is not None:
            self.on_bad(bad)  # before a frame or a promise covers their times
        self._send(batches)
        if over:  # in a promise of its own: trackers need the largest time that was sent before it
            self.next = INFINITY
        if self._covered < self.next or self._durable < self._now_durable():
            self._promise()
        return bool(taken) and taken == room and not self._ended

    def _once_durable(self, records: Iterator[Record], live: LiveSource) -> Iterator[Record]:
        """The records of a live source, each as soon as it is durable; None while one is not."""
        for record in records:
            while isinstance(record, tuple) and record[0] >= live.durable:
                self._early = True
                yield None
            self._early = False
            yield record

    def _send(self, batches: dict[int, tuple[list[Label], list[object]]]) -> None:
        nodes = list(batches)
        if len(nodes) > 1:
            nodes.sort(key=lambda node: batches[node][0][0])
        for i, node in enumerate(nodes):
            labels, values = batches[node]
            end = batches[nodes[i + 1]][0][0][0] if i + 1 < len(nodes) else self.next
            # All records before the first one of the next frame are in this frame or earlier ones.
            covers = (self._covered, end)
            batch = encode_labels(labels), pack_rows(values), ()
            frame = Frame(self.index, self.index, labels[0][0], 0, (batch,), covers)
            self.send(f"node-{node}", frame)
            self._covered = end

    def _now_durable(self) -> int:
        return INFINITY if self.live is None else self.live.durable

    def _promise(self) -> None:
        self._durable = self._now_durable()
        for tracker in self._trackers:
            self.send(tracker, Promise(self.index, self._covered, self.next, self._durable))
        self._covered = self.next

    def _fail(self, record: BadRecord) -> None:
        error: DriftlineError = InputError(record.file, record.time, record.reason)
        self._ended = True
        self.report(Failed(self.incarnation, "InputError", str(error)))
