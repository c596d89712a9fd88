"""The front: reads a source, labels each record, sends it to a node, and replays on demand.

Takes `Start`, `Progress`, `SendMarker`, `Committed`, `Drain`, `Pause`, `Resume` (master),
`AskPromise` (master, node), `AskDrain` (agent), `Delivered` (nodes, while the master is silent).
Sends frames and markers (nodes); a `Promise` for times without a frame (all trackers); `Prepared`
for an epoch; `EndOfInput`; `Paused`; `AskSnapshot` while the records for a replay take much memory;
`Failed` if it cannot continue.

Invariants: times grow. Frames and promises together cover all times below `next`, without a gap.
After a `Start` with an offset the same records get the same labels again. The records in flight fit
into a window (`window.py`), so a slow system slows down the input instead of filling memory.

A bad record at the end of a file may be repaired before the next start. So `next` passes the time
of a bad record of a file only together with a later good record. If a bad record cannot become a
dead letter, or the input cannot be read beyond it, the run ends once all records before it are
completed (`Front.completed`). No output has the time of this record or a later one, so the next
start resumes there.

A drain has four steps: each front reports the time up to which it sends records (`EndOfInput`); the
coordinator picks the largest of these times; all fronts send, and promise, up to that time; once
everything below it is delivered, a last snapshot is taken. The next start then replays nothing.

At low load a frame holds one record. Under load a turn takes as many records as the window and
`BATCH`, `BATCHES` and `BATCH_BYTES` allow, and sends each node at most one frame, tracked under the
smallest time in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from driftline.deploy.roles.member import Member
from driftline.deploy.roles.window import InFlightWindow, LatencyMeter
from driftline.engine.event_time import END, is_packed_mark
from driftline.engine.flow.plan import Plan
from driftline.engine.keygroups import node_names, owner, root_group
from driftline.engine.labels import INFINITY, Label
from driftline.engine.meters import Stopwatch
from driftline.engine.policy import Policy
from driftline.engine.sources import BadRecord, CachedSource, RetainedSource, Source
from driftline.engine.sources.cached import CACHE_BYTES, PackedRecord, packed
from driftline.engine.sources.fingerprint import StoreFingerprint, VerifiedSource
from driftline.engine.sources.source import time_of
from driftline.engine.texts import format_time
from driftline.engine.wire.codec import joined_rows, pack_payload
from driftline.engine.wire.kinds import MASTER
from driftline.engine.wire.label_columns import encode_labels
from driftline.engine.wire.messages import (
    AskDrain,
    AskPromise,
    AskSnapshot,
    Committed,
    Delivered,
    Drain,
    EndOfInput,
    Failed,
    Frame,
    Marker,
    Message,
    Pause,
    Paused,
    Prepared,
    Progress,
    Promise,
    Resume,
    SendMarker,
    Start,
    Stop,
)

BATCH, BATCHES = 24, 16
"""A turn takes at most `BATCH` records, or the window divided by `BATCHES`, if this is more. With a
larger maximum, nodes would wait for the front."""

BATCH_BYTES = 1 << 21
"""A turn takes no further record once its records have this many bytes."""

SNAPSHOT_FROM_BYTES = CACHE_BYTES * 3 // 4
"""If more bytes of records than this are cached for a replay, the front requests a snapshot.

A full window has fewer bytes, so the records in flight alone do not cause a request.
"""

TRIM_EVERY_S = 1.0
"""Seconds between two trims of a live source's log under a policy without replays.

Each trim is a write.
"""

_END = pack_payload(END)
"""Packed mark that ends the event time of a source."""

Record = PackedRecord | None
"""A record, or None: no record has arrived yet."""


class Front(Member):
    """Front `index` and its source.

    `window`: maximum number of records in flight; None: automatic (see `window.py`). `on_bad`:
    stores bad records as dead letters; None: a bad record ends the run. `process`, `address`,
    `run`: see `Member`.
    """

    def __init__(
        self,
        index: int,
        nodes: int,
        plan: Plan,
        policy: Policy,
        source: Source | RetainedSource,
        new_id: Callable[[], int],
        *,
        process: str = "",
        address: str = "",
        window: int | None = None,
        on_bad: Callable[[Sequence[BadRecord]], None] | None = None,
        run: str = "",
    ) -> None:
        super().__init__(f"front-{index}", process, address, run)
        self.ready = True
        self.index = index
        self.nodes = node_names(range(nodes))
        """Nodes of the layout; the first layout has nodes 0 to `nodes` - 1."""
        self.groups = plan.flow.groups
        self.policy = policy
        self._completes_on_delivery = policy.retains_until_delivery
        """Whether a record is in flight until it is delivered; else until it is processed."""
        self.live = source if isinstance(source, RetainedSource) else None
        self.source = source if isinstance(source, RetainedSource) else CachedSource(source)
        self._cached = self.source if isinstance(self.source, CachedSource) else None
        self._verified = source if isinstance(source, VerifiedSource) and policy.replay else None
        """The source, if its fingerprint is stored with each snapshot; else None."""
        self.new_id = new_id
        self.window = InFlightWindow(window)
        self.on_bad = on_bad
        self.next = 1
        """This incarnation sends no further record below this time."""
        self.first_time = 0
        """Time of the first record that this process asked its source for; 0: none yet."""
        self.completed = 0
        """Records below this time are processed or, with `_completes_on_delivery`, delivered."""
        self.sent_records = 0
        """Number of records sent; a record that is sent again in a replay counts once."""
        self.max_sent_time = 0
        """The largest time sent in any incarnation."""
        self.bad_records = 0
        """Number of bad records; one that is read again in a replay counts once."""
        self._largest_bad_time = 0
        """The largest time of a bad record so far."""
        self.meter = LatencyMeter()
        self.window_full_time = Stopwatch()
        """Total time during which the window was full."""
        self._delivered = 0
        """The consumers have all outputs below this time."""
        self._delivered_of_nodes: dict[str, int] = {}
        """Node -> its delivered frontier, from its `Delivered` while the master is silent."""
        has_event_times = plan.flow.sources[index].event_time is not None
        self._needs_marks = has_event_times and bool(plan.waiting_ports)
        self._records: Iterator[Record] | None = None
        """Unread records; None until the first `Start`."""
        self._ended = False
        """Whether no record follows: the source has ended, or `_fatal` is set."""
        self._fatal: BadRecord | None = None
        """The bad record that ends the run, once all records before it are completed."""
        self._covered = 0
        """Frames and promises cover all times below this one."""
        self._durable = 0
        """`durable` of the last promise: records below this time survive a crash."""
        self._requested_time = 0
        """A promise up to this time was requested by a tracker, a drain or a pause."""
        self._awaits_durability = False
        """Whether the next record has arrived and waits until it is durable."""
        self._epochs: list[tuple[int, int]] = []
        """(number, offset) of epochs for which `Prepared` was not sent yet.

        The front sends it once all records below the offset are durable.
        """
        self.draining = False
        """Whether the run ends once all records read or received so far are delivered."""
        self._drain_time = INFINITY
        """No record from this time on is sent in this run."""
        self._pause_time = INFINITY
        """No record from this time on is sent until the next `Resume` or `Start`."""
        self._end = INFINITY
        """All records of a source that has ended are below this time."""
        self._next_trim_at = 0.0
        """Earliest time of the next trim (seconds, monotonic); see `TRIM_EVERY_S`."""
        self.more_figures: Callable[[], dict[str, int]] = dict
        """Returns the driver's figures for a `StatusReport`, by name."""

    @property
    def has_begun(self) -> bool:
        """Whether the front has begun to read, in this incarnation or an earlier one."""
        return self._records is not None

    def drain(self) -> None:
        """Drain: end the run once all records read or received so far are delivered."""
        self.draining = True
        if self.live is not None:
            self.live.stop()  # at once, even before the incarnation begins
        self._begin_drain()

    @property
    def doing(self) -> str:
        return f"its source, {self.source.name}"

    @property
    def state(self) -> str:
        return "ended" if self.stopped else "reading" if self.has_begun else "starting"

    def status_figures(self) -> dict[str, int]:
        own = {"records": self.sent_records, "bad_records": self.bad_records}
        return {**own, **self.window.status_figures(), **self.more_figures()}

    @property
    def obstacle(self) -> str:
        return "" if self.live is None else self.live.obstacle

    def handle(self, sender: str, message: Message) -> None:
        if isinstance(message, Progress):
            completed = message.delivered if self._completes_on_delivery else message.processed
            self._advance(completed, message.delivered)
        elif isinstance(message, Delivered):
            self._delivered_of_nodes[sender] = message.time
            if all(node in self._delivered_of_nodes for node in self.nodes):
                self._advance(*[min(self._delivered_of_nodes[node] for node in self.nodes)] * 2)
        elif isinstance(message, AskPromise):
            self._requested_time = message.until
        elif isinstance(message, SendMarker):
            for node in self.nodes:
                self.send(node, Marker(self.index, self.index, message.number))
            # `next` is INFINITY after the end of the source, but the source may have grown by the
            # next start.
            self._epochs.append((message.number, min(self.next, self._end)))
        elif isinstance(message, Committed):
            self.source.trim(message.trim)
            self.store_fingerprint(message.offset)
        elif isinstance(message, Drain):
            # If the front has already sent later records, they are part of the run: under a policy
            # with markers, the last snapshot contains them.
            self._drain_time = max(self.next, message.time)
            self._requested_time = max(self._requested_time, message.time)
        elif isinstance(message, Pause):
            self._pause(message)
        elif isinstance(message, Resume):
            self._pause_time = INFINITY
        elif isinstance(message, Start):
            self._start(message)
        elif isinstance(message, AskDrain):
            if not self.draining:
                self.drain()
        else:
            super().handle(sender, message)
            if isinstance(message, Stop) and self.outcome is not None and not self.outcome.error:
                self._trim_delivered(self.next)

    def _pause(self, message: Pause) -> None:
        """Send no record from the time of the message on, and answer `Paused`.

        If the front has already passed that time, it sends no further record.
        """
        self._pause_time = max(self.next, message.time)
        self._requested_time = max(self._requested_time, message.time)
        self.send(MASTER, Paused(message.number, min(self.next, self._end), int(self._ended)))

    def store_fingerprint(self, until: int) -> None:
        """Store the fingerprint of the records below this time, to detect later changes to them.

        Do nothing unless the source is verified (`VerifiedSource`). If the write fails, the older
        fingerprint stays valid. Precondition: all these records were read.
        """
        if self._verified is not None:
            used = self._verified.fingerprint_until(until)
            self._verified.extend_expected(used)
            self.jobs.append(StoreFingerprint(used))

    def repeat(self) -> None:
        if self._records is None:
            return
        if self.draining:
            self._send_end_of_input()
        self._promise()
        if self._cached is not None and self._cached.bytes > SNAPSHOT_FROM_BYTES:
            self.send("master", AskSnapshot())
        if not self.policy.ordered:  # empty promises: if a marker was lost, the node sees a gap
            for node in self.nodes:
                self.send(node, Promise(self.index, 0, 0, 0))

    def turn(self) -> bool:
        self.meter.update(self.now, self._delivered)
        if self._records is None or self.stopped:
            return False
        has_more = self._send_records(self._records)
        if self._fatal is not None and self.completed >= self.next:
            self.report(Failed(self.incarnation, "InputError", str(self._fatal.error())))
            self._fatal = None
        self.window_full_time.update(self.window.full, self.now)
        while self._epochs and min(self._epochs[0][1], INFINITY) <= self._durable_below():
            number, offset = self._epochs.pop(0)
            self.send("master", Prepared(number, offset))
        return has_more

    def _start(self, message: Start) -> None:
        if message.incarnation <= self.incarnation:
            return
        self.enter_incarnation(message.incarnation)
        self.addresses.update(message.addresses)
        if message.layout:
            self.nodes = node_names(message.layout)
        if message.offset >= 0:
            self.next = max(1, message.offset)
        elif self.live is not None:
            self.next = max(self.next, self.live.trimmed)
        self.first_time = self.first_time or self.next
        if self.live is not None and self.next < self.live.trimmed:
            error = trimmed_error(self.source.name, self.next, self.live.trimmed)
            self.report(Failed(self.incarnation, "SnapshotDamaged", error))
            return
        self._ended = self.next >= INFINITY
        self._fatal = None
        self._end = self._pause_time = INFINITY
        self._awaits_durability = False
        self._records = iter(()) if self._ended else self._read()
        self.window.clear()
        self._covered = self._durable = self._requested_time = 0
        self._epochs.clear()
        self.completed = self._delivered = 0
        self._delivered_of_nodes.clear()
        if not self.policy.replay:
            self.meter.give_up()
        if self.draining:
            self._begin_drain()

    def _begin_drain(self) -> None:
        """Choose the time at which this front stops, and report it (`EndOfInput`).

        The front stops after the records that this process has already read or received.
        """
        if self._records is None:
            return  # `_start` calls this again
        if self.live is not None:
            self._drain_time = self.live.stop()
        else:
            self._drain_time = INFINITY if self._ended else max(self.next, self.max_sent_time + 1)
        self._requested_time = max(self._requested_time, self._drain_time)
        self._send_end_of_input()

    def _send_end_of_input(self) -> None:
        time = min(self._drain_time, self._end)
        self.send(MASTER, EndOfInput(time, int(self.live is not None), int(self._ended)))

    def _advance(self, completed: int, delivered: int) -> None:
        """Release the records below `completed` from the window, and trim those below `delivered`.

        Trim only every `TRIM_EVERY_S`, and only what no replay needs.
        """
        self.completed = max(self.completed, completed)
        self._delivered = max(self._delivered, delivered)
        self.window.release(self.completed, self.now)
        if self.now >= self._next_trim_at:
            self._next_trim_at = self.now + TRIM_EVERY_S
            self._trim_delivered(self._delivered)

    def _trim_delivered(self, time: int) -> None:
        """Trim the log of a live source below this time, under a policy without replays."""
        if self.live is not None and not self.policy.replay:
            self.live.trim(min(time, self._end))  # not INFINITY: the log may grow after its end

    def _read(self) -> Iterator[Record]:
        """Return an iterator over the records from `next` on.

        It yields None while no record has arrived.
        """
        if isinstance(self.source, CachedSource):
            cached = self.source.read(self.next)
            return self._with_end(cached) if self._needs_marks else cached
        records = self.source.read(self.next)
        packed_records = (record if record is None else packed(record) for record in records)
        if self.policy.reads_durable_records:
            return self._when_durable(packed_records, self.source)
        return packed_records

    def _with_end(self, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the records, then the mark that ends the event time of the source."""
        yield from records
        yield self.next, _END

    def _send_records(self, records: Iterator[Record]) -> bool:
        """Send records as far as a turn and the window allow.

        Return whether to take another turn at once, because only the size of a batch stopped this
        one.
        """
        batches: dict[int, tuple[list[Label], list[bytes]]] = {}
        bad: list[BadRecord] = []
        batch_count = batch_bytes = 0
        has_more = is_source_over = False
        until = min(self._drain_time, self._pause_time)
        batch_max = max(BATCH, self.window.records // BATCHES)
        while not (self._ended or self.window.full) and self.next < until:
            if batch_count == batch_max or batch_bytes >= BATCH_BYTES:
                has_more = True
                break
            try:
                record = next(records)
            except StopIteration:
                self._ended = is_source_over = True
                break
            if record is None:
                if (
                    self.live is not None
                    and self._requested_time > self.next
                    and not self._awaits_durability
                ):
                    # No record has arrived: the source skips times, so that the frontier can pass
                    # the records of other fronts.
                    self.next = max(
                        self.next, min(self.live.advance_to(self._requested_time), until)
                    )
                break
            if time_of(record) >= until:
                self._records = chain((record,), records)
                self.next = until
                break
            batch_count += 1
            if isinstance(record, BadRecord):
                if record.ends_input or self.on_bad is None:
                    self._fatal = record
                    self._ended, self._end = True, self.next
                    break
                bad.append(record)
                self.bad_records += record.time > self._largest_bad_time
                self._largest_bad_time = max(self._largest_bad_time, record.time)
                if self.live is not None:
                    self.next = max(self.next, record.time + 1)
                continue
            time, payload = record
            is_user_record = not is_packed_mark(payload)
            if not (is_user_record or self._needs_marks):
                # A mark from an earlier version of the flow, which had event times.
                self.next = time + 1
                continue
            batch_bytes += len(payload)
            assert time >= self.next, f"{self.source.name}: time {time} after {self.next - 1}"
            self.next = time + 1
            if time > self.max_sent_time:
                self.max_sent_time = time
                self.sent_records += is_user_record
                self.meter.record_sent(time, self.now)
            self.window.add(time, len(payload), self.now)
            node = owner(root_group(time, self.index, self.groups), len(self.nodes), self.groups)
            labels, payloads = batches.setdefault(node, ([], []))
            labels.append((time, self.index))
            payloads.append(payload)
        if bad and self.on_bad is not None:
            self.on_bad(bad)  # before a frame or a promise covers their times
        self._send(batches)
        if self._cached is not None and not self.policy.replay:
            self._cached.trim(self.next)
        if is_source_over:
            # After the frames: trackers need the largest time sent (`Tracker.reached`).
            self._end, self.next = self.next, INFINITY
        if self._covered < self.next or self._durable < self._durable_below():
            self._promise()
        return has_more

    def _when_durable(self, records: Iterator[Record], live: RetainedSource) -> Iterator[Record]:
        """Yield each record of a live source once it is durable; before that, yield None."""
        for record in records:
            while isinstance(record, tuple) and record[0] >= live.durable:
                self._awaits_durability = True
                yield None
            self._awaits_durability = False
            yield record

    def _send(self, batches: dict[int, tuple[list[Label], list[bytes]]]) -> None:
        """Send a frame to each node; `batches`: position of the node -> (labels, payloads)."""
        nodes = list(batches)
        if len(nodes) > 1:
            nodes.sort(key=lambda node: batches[node][0][0])
        for i, node in enumerate(nodes):
            labels, payloads = batches[node]
            end = batches[nodes[i + 1]][0][0][0] if i + 1 < len(nodes) else self.next
            # All records before the first one of the next frame are in this frame or earlier ones.
            interval = (self._covered, end)
            batch = encode_labels(labels), joined_rows(payloads), ()
            frame = Frame(self.index, self.index, labels[0][0], 0, (batch,), interval)
            self.send(self.nodes[node], frame)
            self._covered = end

    def _durable_below(self) -> int:
        """Return the time below which records survive a crash of the front."""
        return INFINITY if self.live is None else self.live.durable

    def _promise(self) -> None:
        """Promise all trackers to send no more records with times in [`_covered`, `next`)."""
        self._durable = self._durable_below()
        for tracker in self.nodes if self.policy.ordered else (MASTER,):
            self.send(tracker, Promise(self.index, self._covered, self.next, self._durable))
        self._covered = self.next


def trimmed_error(source: str, start: int, trimmed: int) -> str:
    """Return the error text for a replay that needs records before `trimmed`."""
    return (
        f"{source}: a replay from {format_time(start)} on is needed, but records before "
        f"{format_time(trimmed)} were removed when newer snapshots were committed, and those "
        "snapshots can no longer be loaded; restore the state directory from a backup"
    )
