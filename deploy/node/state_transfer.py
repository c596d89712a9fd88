"""State restore of a node, from its own store or from the nodes of another layout.

`Restoring` restores a loaded snapshot into a new pipeline. `StateTransfer` copies the state that a
process needs in the next layout while the nodes of the current one run. `StateFetch` reads from one
source node; `StateServer`, its counterpart there, serves the state in the node's store, a slice at
a time. Contract of `StateTransfer`:

Takes: `Join` (coordinator), `Parts`, `Slice` and `NoParts` (nodes), results of jobs, the time.
Gives: `AskParts` and `AskSlice`, jobs, `Joined`; and a pipeline with the state, when the node
enters an incarnation. Invariant: `Joined` names a snapshot only if the pipeline, and a durable
chain of parts, contain the state of the node's key groups at that snapshot, and no later changes.

The transfer first reads all parts of a snapshot, then the difference to each later snapshot that
the coordinator names, so the last step is small. Each source has at most one unanswered question.
The transfer verifies each complete segment, and drops the rows of keys that other nodes own. If the
data is inconsistent, because a source merged or removed parts meanwhile, the node starts over with
an empty store.

The new parts belong to the next layout, whose outputs begin at the time of the snapshot. So the
metadata of a new part contains 0 as the checksum of all outputs before this time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from math import inf
from zlib import crc32

from msgspec.structs import replace

from driftline.barrier.barrier import Barrier
from driftline.deploy.node.backpressure import TurnBudget
from driftline.deploy.node.component_factory import ComponentFactory
from driftline.deploy.node.pipeline import NodePipeline, Send
from driftline.engine.errors import DriftlineError, MalformedMessage, SnapshotDamaged, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.keygroups import Owners, owned_groups
from driftline.engine.snapshots.jobs import (
    ALL_GROUPS,
    ListParts,
    Loaded,
    LoadSnapshot,
    ReadSlice,
    StoreSnapshot,
    Vacate,
)
from driftline.engine.snapshots.merging import restore_owned_rows
from driftline.engine.wire.codec import pack
from driftline.engine.wire.messages import (
    SLICE_BYTES,
    AskParts,
    AskSlice,
    Failed,
    Join,
    Joined,
    Message,
    NoParts,
    Parts,
    Slice,
    Unloadable,
)
from driftline.engine.wire.role import IOJob

RETRY_AFTER_S = 1.0
"""The node repeats an unanswered question, and retries failed work, after this many seconds."""

MERGE_PAUSE_S = 3.0
"""For this many seconds after a question a node merges no parts: another question may follow."""

BACKOFF_MAX_S = 60.0
"""Maximum back-off in seconds before the transfer starts over. The back-off doubles each time, as a
source's parts may stay damaged."""

FETCHED_BYTES_MAX = 1 << 26
"""No question is sent while this many bytes of segments wait to be restored."""

EMPTY_SNAPSHOT = 0, 0
"""The empty snapshot: (number, incarnation in which it was taken)."""

_META = pack(0)
"""Metadata of the new parts: the checksum of the outputs before them."""


class StateTransfer:
    """State transfer of one process into a layout; `epoch`: epoch of the requesting master."""

    def __init__(
        self, factory: ComponentFactory, request: Join, epoch: int, process: str, address: str
    ) -> None:
        self.layout = request.layout
        self.factory = replace(factory, layout=request.layout)
        self.jobs: list[IOJob] = []
        self.problem = ""
        """Why the transfer last started over, for people; "" if it has stored a snapshot since."""
        self._process, self._address = process, address
        self.epoch = epoch
        position, nodes = self.factory.position, self.factory.nodes
        groups = owned_groups(position, nodes, factory.plan.flow.groups)
        self._groups = groups[0], groups[-1]
        """First and last key group of this node in the layout."""
        self._owners, self._position = Owners(nodes, factory.plan.flow.groups), position
        self._join_request = request
        self._vacating: Vacate | None = None
        """Unfinished job that empties the store."""
        self._storing: StoreSnapshot | None = None
        """Unfinished job that stores the fetched rows."""
        self._retry_at = 0.0
        """When to retry after a failure of the disk or a source (seconds, monotonic); 0: never."""
        self._backoff_s = RETRY_AFTER_S
        """Back-off before starting over, in seconds; doubled each time."""
        self._begin()

    def _begin(self) -> None:
        """Begin with an empty state, and request to empty the store."""
        self.pipeline: NodePipeline | None = None
        """Pipeline with the state fetched so far; None before the first fetch."""
        self._fetched = EMPTY_SNAPSHOT
        """The snapshot that the pipeline and the store contain."""
        self._bytes = 0
        """Bytes of this node's rows fetched of `_target`."""
        self._fetches: dict[str, StateFetch] = {}
        """Source node -> its fetch of `_target`; empty if no fetch is in progress."""
        self._target = EMPTY_SNAPSHOT
        """The snapshot being fetched, or fetched last."""
        self._retained: list[bytes] = []
        """Fetched rows of this node that are not stored yet."""
        self._segments: deque[bytes] = deque()
        """Fetched segments that wait to be restored."""
        self._segments_bytes = 0
        """Size of `_segments`."""
        self._steps: Iterator[bytes] = iter(())
        """Remaining steps of the segment that is being restored; each yields rows to retain."""
        self._storing = None
        self._vacating = Vacate(self.epoch)
        self.jobs.append(self._vacating)

    def _start_over(self, reason: str, now: float) -> None:
        self.problem = reason
        self._begin()
        self._retry_at = now + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)

    # Messages.

    def join(self, request: Join, send: Send, now: float) -> None:
        """Fetch the snapshot that the coordinator names; send `Joined` if it is already fetched.

        If other work is in progress, begin after it.
        """
        self._join_request = request
        requested = request.number, request.snapshot_incarnation
        if requested == self._fetched and self._is_idle:
            self._send_joined(send)
        elif self._is_idle:
            self._begin_fetch(send, now)

    @property
    def _is_idle(self) -> bool:
        return not self._fetches and self._storing is None and self._vacating is None

    def has_state(self, layout: tuple[int, ...], number: int, snapshot_incarnation: int) -> bool:
        """Return whether the pipeline contains the state of a snapshot, for a layout."""
        snapshot = number, snapshot_incarnation
        return self.layout == layout and self._fetched == snapshot and self._is_idle

    def pipeline_from(self, start: int) -> NodePipeline:
        """Return the pipeline, whose outputs begin at `start`: the time of its snapshot."""
        pipeline = self.pipeline or self.factory.make_pipeline()
        pipeline.barrier.advance(start)
        return pipeline

    def repeat_joined(self, send: Send) -> None:
        """Send `Joined` again, unless a fetch is in progress."""
        if self._is_idle:
            self._send_joined(send)

    def _send_joined(self, send: Send) -> None:
        send("master", Joined(self.layout, self._process, self.epoch, *self._fetched, self._bytes))

    def _begin_fetch(self, send: Send, now: float) -> None:
        """Begin to read the requested snapshot."""
        requested = self._join_request.number, self._join_request.snapshot_incarnation
        if now < self._retry_at:
            return
        if requested[0] <= self._fetched[0]:  # the coordinator returned to an earlier snapshot
            self._start_over(f"the run returned to a snapshot before {self._fetched[0]}", now)
            return
        if self.pipeline is None:
            self.pipeline = self.factory.make_pipeline()
        self._target, self._bytes = requested, 0
        self._retained = []
        question = AskParts(self._address, *requested, *self._fetched, self._groups)
        self._fetches = {name: StateFetch(name, question) for name, _ in self._join_request.sources}
        self._send_questions(send, now)

    def answer(self, sender: str, message: Parts | Slice | NoParts, send: Send, now: float) -> None:
        """Handle the answer of a source."""
        fetch = self._fetches.get(sender)
        if fetch is None:
            return
        if isinstance(message, NoParts):
            self._start_over(f"{sender}: {message.reason}", now)
            return
        try:
            segment = fetch.take(message)
        except SnapshotDamaged as error:
            self._start_over(str(error), now)
            return
        if segment:
            self._segments.append(segment)
            self._segments_bytes += len(segment)
        self._send_questions(send, now)

    def _send_questions(self, send: Send, now: float) -> None:
        """Send each source its next question, or an overdue one again."""
        for name, fetch in self._fetches.items():
            if self._segments_bytes >= FETCHED_BYTES_MAX:
                break
            if (question := fetch.question(now)) is not None:
                send(name, question)

    # Work.

    def work(self, budget: TurnBudget, send: Send, now: float) -> bool:
        """Restore fetched segments for one turn. Return whether more remain."""
        if self.pipeline is None or self._storing is not None or not self._fetches:
            return False
        try:
            while not budget.is_over:
                if (chunk := next(self._steps, None)) is not None:
                    if chunk:
                        self._retained.append(chunk)
                        self._bytes += len(chunk)
                elif self._segments:
                    segment = self._segments.popleft()
                    self._segments_bytes -= len(segment)
                    tables, owners = self.pipeline.tables, self._owners
                    self._steps = restore_owned_rows(tables, segment, owners, self._position)
                else:
                    break
                budget.step()
        except DriftlineError as error:
            self._start_over(str(error), now)
            return False
        self._send_questions(send, now)
        more = bool(self._segments) or budget.is_over
        if not more and all(fetch.is_over for fetch in self._fetches.values()):
            self._store()
        return more

    def _store(self) -> None:
        self._fetches = {}
        segments = {ALL_GROUPS: b"".join(self._retained)} if self._retained else {}
        self._retained = []
        number, snapshot_incarnation = self._target
        self._storing = StoreSnapshot(number, segments, _META, snapshot_incarnation)
        self.jobs.append(self._storing)

    def done(self, job: IOJob, result: object, send: Send, now: float) -> bool:
        """Handle the result of a job. Return whether the job belongs to this transfer."""
        if job is not self._vacating and job is not self._storing:
            return False
        if isinstance(result, Exception):
            self._retry_at = now + RETRY_AFTER_S  # `retry_overdue` retries then
        elif job is self._storing:
            self._storing, self._fetched, self.problem = None, self._target, ""
            self._backoff_s = RETRY_AFTER_S
            self._send_joined(send)
            request = self._join_request
            if (request.number, request.snapshot_incarnation) != self._fetched:
                self._begin_fetch(send, now)
        elif result is True:
            self._vacating = None
            self.join(self._join_request, send, now)
        return True

    def retry_overdue(self, send: Send, now: float) -> None:
        """Repeat overdue questions, and retry failed work once its back-off is over."""
        self._send_questions(send, now)
        if self._retry_at and now >= self._retry_at:
            self._retry_at = 0.0
            if job := self._vacating or self._storing:
                self.jobs.append(job)
            elif self._is_idle:
                self.join(self._join_request, send, now)


class StateFetch:
    """Reader of one source node's segments of a snapshot, a slice at a time.

    Takes: `Parts` and `Slice` (the source), the time. Gives: `AskParts` and `AskSlice`, one
    question at a time, and segments. Invariant: each segment that `Parts` lists is returned once,
    complete, and with the right checksum.
    """

    def __init__(self, source: str, question: AskParts) -> None:
        self._source = source
        self._question = question
        self._is_listed = False
        """Whether the source has answered with the list of its segments."""
        self._unread_segments: deque[tuple[int, int, int]] = deque()
        """(part, key group, checksum) of the segments still to be read."""
        self._slices: list[bytes] = []
        """Slices read of the first unread segment."""
        self._offset = 0
        """Total bytes of these slices."""
        self._ask_at = 0.0
        """When to send the next question, or to repeat the last one (seconds, monotonic)."""

    @property
    def is_over(self) -> bool:
        """Whether all segments are listed and read."""
        return self._is_listed and not self._unread_segments

    def question(self, now: float) -> AskParts | AskSlice | None:
        """Return the next question, or an overdue one again; None if none is due.

        `now`: seconds, monotonic.
        """
        if self.is_over or now < self._ask_at:
            return None
        self._ask_at = now + RETRY_AFTER_S
        if not self._is_listed:
            return self._question
        part, group, _ = self._unread_segments[0]
        return AskSlice(self._question.address, part, group, self._offset)

    def take(self, answer: Parts | Slice) -> bytes:
        """Handle an answer. Return the segment it completes, or b"". Raises SnapshotDamaged."""
        if isinstance(answer, Parts):
            expected = self._question.number, self._question.base
            if not self._is_listed and (answer.number, answer.base) == expected:
                self._is_listed = True
                self._unread_segments.extend(answer.segments)
                self._ask_at = 0.0
            return b""
        if not self._unread_segments:
            return b""
        part, group, checksum = self._unread_segments[0]
        if (answer.part, answer.group, answer.offset) != (part, group, self._offset):
            return b""
        self._ask_at = 0.0
        self._slices.append(answer.data)
        self._offset += len(answer.data)
        if len(answer.data) == SLICE_BYTES:
            return b""
        segment = b"".join(self._slices)
        self._unread_segments.popleft()
        self._slices, self._offset = [], 0
        self._check(segment, checksum, f"key group {group} of snapshot {part}")
        return segment

    def _check(self, segment: bytes, checksum: int, what: str) -> None:
        if crc32(segment) != checksum:
            raise SnapshotDamaged(f"{what} of {self._source} is damaged, or has been merged since")


class StateServer:
    """Server of the durable parts of committed snapshots for nodes of the next layout.

    Takes: `AskParts` and `AskSlice`, results of jobs. Gives: jobs, and `Parts`, `Slice` or
    `NoParts`. The jobs read slices outside the node's loop, which only forwards them. Each reader
    has at most one unanswered question, which bounds the memory used here. The node merges no parts
    while another node reads them (`is_being_read`). If a part is merged or removed nevertheless,
    the reader detects this and starts over.
    """

    def __init__(self) -> None:
        self._requested_at = -inf

    def is_being_read(self, now: float) -> bool:
        """Return whether a node may be reading parts."""
        return now < self._requested_at + MERGE_PAUSE_S

    def ask(self, sender: str, message: AskParts | AskSlice, now: float) -> ListParts | ReadSlice:
        """Return the job that reads the answer to a question."""
        self._requested_at = now
        if isinstance(message, AskSlice):
            return ReadSlice(sender, message.part, message.group, message.offset, SLICE_BYTES)
        snapshots = (
            message.number,
            message.snapshot_incarnation,
            message.base,
            message.base_incarnation,
        )
        return ListParts(sender, *snapshots, message.groups)

    def answer(self, job: ListParts | ReadSlice, result: object) -> Message | None:
        """Return the answer to send to `job.requester`; None if the requester has to ask again."""
        if isinstance(job, ReadSlice):
            if not isinstance(result, bytes):
                return None
            return Slice(job.part, job.group, job.offset, result)
        if isinstance(result, tuple):
            return Parts(job.number, job.base, result)
        return None if isinstance(result, Unavailable) else NoParts(str(result))


LOG_EVERY_S = 5.0
"""Seconds between two log lines about a long load."""

SLOW_LOAD_S = 1.0
"""The end of a load that takes at least this long (seconds) is logged as INFO, else as DEBUG."""


class Restoring:
    """Restore of a snapshot at the start of an incarnation, over several turns.

    Between turns the node sends `Hello`, and may receive `Recover` or `Stop`.
    Invariant: `pipeline` is set only when its whole state is restored.

    `load`: the job that reads the snapshot; `start`: time of the snapshot; `same_code`: whether the
    snapshot was taken by the code that runs now; `now`: seconds, monotonic.
    """

    def __init__(
        self, factory: ComponentFactory, load: LoadSnapshot, start: int, same_code: bool, now: float
    ) -> None:
        self.load = load
        self.start = start
        self._same_code = same_code
        self.load_again = False
        """Whether `load` failed temporarily, and the node has to repeat it."""
        self.pipeline: NodePipeline | None = None
        """The pipeline, once its whole state is restored."""
        self._began_at, self._log_at = now, now + LOG_EVERY_S
        self._factory = factory
        self._steps: Iterator[NodePipeline | None] = iter(())
        self.in_progress = False
        """Whether more remains to be restored."""
        self.bytes = self.restored_bytes = 0
        """Bytes of the loaded segments; bytes of those that are restored."""

    def take(self, result: object) -> None:
        """Accept the result of the load job, an exception if it failed."""
        self._steps = self._all_steps(result)
        self.in_progress = True

    def work(self, budget: TurnBudget, incarnation: int) -> Message | None:
        """Restore for one turn. Return a message to the master if the snapshot is unusable."""
        try:
            for pipeline in self._steps:
                self.pipeline = pipeline
                if budget.step():
                    return None
        except (SnapshotDamaged, MalformedMessage) as error:
            self.in_progress = False
            return Unloadable(incarnation, self.load.number, str(error))
        except Unavailable:  # the driver logs it
            self.load_again = True
        except DriftlineError as error:
            self.in_progress = False
            return Failed(incarnation, type(error).__name__, str(error))
        self.in_progress = False
        return None

    def _all_steps(self, result: object) -> Iterator[NodePipeline | None]:
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, Loaded)
        pipeline = self._factory.make_pipeline(
            self.start, result.number, result.meta, self._same_code
        )
        self.bytes, self.restored_bytes = sum(map(len, result.segments)), 0
        for _ in pipeline.load(self._counted(result.segments), self.start):
            yield None
        yield pipeline

    def _counted(self, segments: Sequence[bytes]) -> Iterator[bytes]:
        for segment in segments:
            yield segment
            self.restored_bytes += len(segment)

    @property
    def percent(self) -> int:
        """Percentage of the loaded bytes that is restored."""
        return 100 * self.restored_bytes // self.bytes if self.bytes else 0

    # Log lines.

    def log_progress(self, name: str, now: float) -> None:
        """Log periodically why node `name` is not ready yet."""
        if now < self._log_at or not self._began_at:  # 0.0: before the first incarnation
            return
        self._log_at = now + LOG_EVERY_S
        if self.pipeline is not None:
            doing = "it waits for the consumer"
        elif self.in_progress:
            doing = f"{self.percent} % of {self.bytes / 1e6:.1f} MB are restored"
        else:
            doing = "it waits for the disk"
        duration_s = now - self._began_at
        fields = event_fields("loading", name=name, percent=self.percent, seconds=duration_s)
        log.info("%s has been loading for %.0f s: %s", name, duration_s, doing, extra=fields)

    def log_end(self, name: str, now: float, keys: int, barrier: Barrier) -> None:
        """Log that node `name` is ready with the states of `keys` keys."""
        duration_s = now - self._began_at
        fields = event_fields(
            "loaded", name=name, snapshot=self.load.number, bytes=self.bytes, keys=keys,
            seconds=duration_s, t_last=barrier.t_last,
        )  # fmt: skip
        log.log(
            logging.INFO if duration_s >= SLOW_LOAD_S else logging.DEBUG,
            "%s has loaded %.1f MB, %d keys, in %.1f s; the consumer has %s",
            *(name, self.bytes / 1e6, keys, duration_s, barrier.stored_summary),
            extra=fields,
        )
