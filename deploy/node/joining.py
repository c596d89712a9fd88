"""The ways in which a node gets its state: from its store, or from the nodes of another layout.

`Restoring` puts a loaded snapshot into a new assembly. `StateTransfer` is the way of one process
into the next layout, while the nodes of this one run; `StateFetch` reads from one source, and
`StateServer` is the other side: it hands out the state in a node's store, a slice at a time. Of
`StateTransfer`:

Takes: `Join` (coordinator), `Parts`, `Slice` and `NoParts` (nodes), results of the disk, the time.
Gives: `AskParts` and `AskSlice`, jobs, `Joined`; and to the node an assembly with that state, once
it takes part in an incarnation. Invariant: `Joined` names a snapshot only if the state of the
node's key groups as of it, and nothing later, is in the assembly and in a durable chain of parts.

First all parts of a snapshot are read, then, of each later snapshot that the coordinator names,
what it has more; so the last one is small. Each source has one question under way. Segments are
checked when they are whole; rows of other nodes' keys are dropped. What does not fit together, as a
source has lost parts meanwhile, makes the node begin anew, with an empty store.

The parts are of the next layout: its outputs begin at the cut, so their checksum is 0.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from zlib import crc32

from driftline.barrier.barrier import Barrier
from driftline.deploy.node.assembly import NodePipeline
from driftline.deploy.node.components import PolicyFactory
from driftline.deploy.node.pace import TurnBudget
from driftline.engine.errors import DriftlineError, MalformedMessage, SnapshotDamaged, Unavailable
from driftline.engine.events import about, log
from driftline.engine.keygroups import Owners, owned_by
from driftline.engine.snapshots.jobs import (
    MIXED,
    ListParts,
    Loaded,
    LoadSnapshot,
    ReadSlice,
    StoreSnapshot,
    Vacate,
)
from driftline.engine.snapshots.merging import restoring_some
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
from driftline.engine.wire.party import DurableJob

ASK_AGAIN_S = 1.0
"""Seconds until a question that has no answer is asked again, and until another try begins."""

READS_S = 3.0
"""Seconds since the last question for which parts are not joined: there may be another one."""

ANEW_MAX_S = 60.0
"""The longest time to wait before it begins anew: what a source has may be damaged for good."""

WAITING_BYTES = 1 << 26
"""Bytes of segments that wait to be restored from which on no more are asked for."""

NOTHING = 0, 0
"""The snapshot that has nothing: (number, incarnation in which it was taken)."""

_META = pack(0)

Send = Callable[[str, Message], None]


class StateTransfer:
    """The way of one process into a layout. `epoch`: of the master that asks for it."""

    def __init__(
        self, components: PolicyFactory, asked: Join, epoch: int, process: str, address: str
    ) -> None:
        self.layout = asked.layout
        self.components = replace(components, layout=asked.layout)
        self.jobs: list[DurableJob] = []
        self.trouble = ""
        """Why it begins anew, for people."""
        self._process, self._address = process, address
        self.epoch = epoch
        place, nodes = self.components.place, self.components.nodes
        groups = owned_by(place, nodes, components.plan.flow.groups)
        self._groups = groups[0], groups[-1]
        self._owners, self._place = Owners(nodes, components.plan.flow.groups), place
        self._asked = asked
        self._vacating: Vacate | None = None
        self._storing: StoreSnapshot | None = None
        self._next_at = 0.0
        """When a disk that has failed, or a source that has changed, is tried again."""
        self._again_s = ASK_AGAIN_S
        """How long to wait before it begins anew; twice as long with each time."""
        self._begin()

    def _begin(self) -> None:
        """Begin with nothing."""
        self.assembly: NodePipeline | None = None
        self._has = NOTHING
        self._bytes = 0
        self._pulls: dict[str, StateFetch] = {}
        self._target = NOTHING
        """The snapshot that is being read; what it has beyond `_has` is kept until it is stored."""
        self._kept: list[bytes] = []
        self._segments: deque[bytes] = deque()
        self._waiting = 0
        self._steps: Iterator[bytes] = iter(())
        self._storing = None
        self._vacating = Vacate(self.epoch)
        self.jobs.append(self._vacating)

    def _begin_anew(self, why: str, now: float) -> None:
        self.trouble = why
        self._begin()
        self._next_at = now + self._again_s
        self._again_s = min(2 * self._again_s, ANEW_MAX_S)

    # Messages.

    def join(self, asked: Join, send: Send, now: float) -> None:
        """The coordinator names a snapshot, perhaps again."""
        self._asked = asked
        wanted = asked.number, asked.taken
        if wanted == self._has and self._is_idle:
            self._tell(send)
        elif self._is_idle:
            self._pull(send, now)

    @property
    def _is_idle(self) -> bool:
        return not self._pulls and self._storing is None and self._vacating is None

    def has(self, layout: tuple[int, ...], number: int, taken: int) -> bool:
        """Whether the assembly is that of the node in a layout, as of a snapshot."""
        return self.layout == layout and self._has == (number, taken) and self._is_idle

    def assembly_from(self, start: int) -> NodePipeline:
        """The assembly, whose outputs begin at the time of its snapshot."""
        assembly = self.assembly or self.components.assembly()
        assembly.barrier.advance(start)
        return assembly

    def tell(self, send: Send) -> None:
        """Say what it has, again."""
        if self._is_idle:
            self._tell(send)

    def _tell(self, send: Send) -> None:
        send("master", Joined(self.layout, self._process, self.epoch, *self._has, self._bytes))

    def _pull(self, send: Send, now: float) -> None:
        """Begin to read what the snapshot has that is asked for."""
        wanted = self._asked.number, self._asked.taken
        if now < self._next_at:
            return
        if wanted[0] <= self._has[0]:  # the coordinator had to go back
            self._begin_anew(f"snapshot {self._has[0]} was given up", now)
            return
        if self.assembly is None:
            self.assembly = self.components.assembly()
        self._target, self._bytes = wanted, 0
        self._kept = []
        question = AskParts(self._address, *wanted, *self._has, self._groups)
        self._pulls = {name: StateFetch(name, question) for name, _ in self._asked.sources}
        self._ask_on(send, now)

    def answer(self, sender: str, message: Parts | Slice | NoParts, send: Send, now: float) -> None:
        """A source has answered."""
        pull = self._pulls.get(sender)
        if pull is None:
            return
        if isinstance(message, NoParts):
            self._begin_anew(f"{sender}: {message.reason}", now)
            return
        try:
            segment = pull.take(message)
        except SnapshotDamaged as error:
            self._begin_anew(str(error), now)
            return
        if segment:
            self._segments.append(segment)
            self._waiting += len(segment)
        self._ask_on(send, now)

    def _ask_on(self, send: Send, now: float) -> None:
        """Ask the sources that have answered for more, and those again that have not."""
        for name, pull in self._pulls.items():
            if self._waiting < WAITING_BYTES and (question := pull.question(now)) is not None:
                send(name, question)

    # Work.

    def work(self, pace: TurnBudget, send: Send, now: float) -> bool:
        """Restore for one turn. Returns whether there is more to restore."""
        if self.assembly is None or self._storing is not None or not self._pulls:
            return False
        try:
            while not pace.over:
                if (chunk := next(self._steps, None)) is not None:
                    if chunk:
                        self._kept.append(chunk)
                        self._bytes += len(chunk)
                elif self._segments:
                    segment = self._segments.popleft()
                    self._waiting -= len(segment)
                    tables, owners = self.assembly.tables, self._owners
                    self._steps = restoring_some(tables, segment, owners, self._place)
                else:
                    break
                pace.step()
        except DriftlineError as error:
            self._begin_anew(str(error), now)
            return False
        self._ask_on(send, now)
        more = bool(self._segments) or pace.over
        if not more and all(pull.is_over for pull in self._pulls.values()):
            self._store()
        return more

    def _store(self) -> None:
        self._pulls = {}
        segments = {MIXED: b"".join(self._kept)} if self._kept else {}
        self._kept = []
        number, taken = self._target
        self._storing = StoreSnapshot(number, segments, _META, taken)
        self.jobs.append(self._storing)

    def done(self, job: DurableJob, result: object, send: Send, now: float) -> bool:
        """A job is done. Returns whether it was one of these."""
        if job is not self._vacating and job is not self._storing:
            return False
        if isinstance(result, Exception):
            self._next_at = now + ASK_AGAIN_S  # then `look` tries again
        elif job is self._storing:
            self._storing, self._has, self.trouble = None, self._target, ""
            self._again_s = ASK_AGAIN_S
            self._tell(send)
            if (self._asked.number, self._asked.taken) != self._has:
                self._pull(send, now)
        elif result is True:
            self._vacating = None
            self.join(self._asked, send, now)
        return True

    def look(self, send: Send, now: float) -> None:
        """The time has come to try again what has failed."""
        self._ask_on(send, now)
        if self._next_at and now >= self._next_at:
            self._next_at = 0.0
            if job := self._vacating or self._storing:
                self.jobs.append(job)
            elif self._is_idle:
                self.join(self._asked, send, now)


class StateFetch:
    """What is read from one source, for one snapshot, a slice at a time.

    Takes: `Parts` and `Slice` (the source), the time. Gives: `AskParts` and `AskSlice`, one
    question at a time, and segments. Invariant: each segment of the list is given once, whole, and
    as its checksum says.
    """

    def __init__(self, source: str, question: AskParts) -> None:
        self._source = source
        self._question = question
        self._listed = False
        self._wanted: deque[tuple[int, int, int]] = deque()
        """(part, key group, checksum) of the segments that are still to be read."""
        self._slices: list[bytes] = []
        self._offset = 0
        self._ask_at = 0.0

    @property
    def is_over(self) -> bool:
        """Whether all was read."""
        return self._listed and not self._wanted

    def question(self, now: float) -> AskParts | AskSlice | None:
        """The next question, or the last one again; None while there is none to be asked."""
        if self.is_over or now < self._ask_at:
            return None
        self._ask_at = now + ASK_AGAIN_S
        if not self._listed:
            return self._question
        part, group, _ = self._wanted[0]
        return AskSlice(self._question.address, part, group, self._offset)

    def take(self, answer: Parts | Slice) -> bytes:
        """Take an answer. Returns a segment that is whole now. Raises SnapshotDamaged."""
        if isinstance(answer, Parts):
            asked = self._question.number, self._question.after
            if not self._listed and (answer.number, answer.after) == asked:
                self._listed = True
                self._wanted.extend(answer.segments)
                self._ask_at = 0.0
            return b""
        if not self._wanted:
            return b""
        part, group, checksum = self._wanted[0]
        if (answer.part, answer.group, answer.offset) != (part, group, self._offset):
            return b""
        self._ask_at = 0.0
        self._slices.append(answer.data)
        self._offset += len(answer.data)
        if len(answer.data) == SLICE_BYTES:
            return b""
        segment = b"".join(self._slices)
        self._wanted.popleft()
        self._slices, self._offset = [], 0
        self._check(segment, checksum, f"key group {group} of snapshot {part}")
        return segment

    def _check(self, segment: bytes, checksum: int, what: str) -> None:
        if crc32(segment) != checksum:
            raise SnapshotDamaged(f"{what} of {self._source} is damaged, or has been joined since")


class StateServer:
    """What a node gives to nodes of the next layout, from durable parts of committed snapshots.

    Takes: `AskParts` and `AskSlice`, results of the disk. Gives: jobs, and `Parts`, `Slice` or
    `NoParts`. The loop only passes on what the disk thread has read. A reader has few questions
    under way: that bounds what waits here. Parts that are read are not joined meanwhile. If they
    are joined or removed all the same, the reader sees that by the checksums, and begins anew.
    """

    def __init__(self) -> None:
        self._asked_at = -inf

    def is_read(self, now: float) -> bool:
        """Whether somebody may be reading."""
        return now < self._asked_at + READS_S

    def ask(self, sender: str, message: AskParts | AskSlice, now: float) -> ListParts | ReadSlice:
        """A question has come. Returns the job that answers it."""
        self._asked_at = now
        if isinstance(message, AskSlice):
            return ReadSlice(sender, message.part, message.group, message.offset, SLICE_BYTES)
        snapshots = message.number, message.taken, message.after, message.after_taken
        return ListParts(sender, *snapshots, message.groups)

    def answer(self, job: ListParts | ReadSlice, result: object) -> Message | None:
        """The disk has answered. Returns the answer to `job.to`; None: it will ask again."""
        if isinstance(job, ReadSlice):
            if not isinstance(result, bytes):
                return None
            return Slice(job.part, job.group, job.offset, result)
        if isinstance(result, tuple):
            return Parts(job.number, job.after, result)
        return None if isinstance(result, Unavailable) else NoParts(str(result))


TOLD_EVERY_S = 5.0
"""How often a long load is logged, in seconds."""

LONG_S = 1.0
"""A load that has taken so long is logged at its end; the lines of others are for debugging."""


class Restoring:
    """The restore of one incarnation, in as many turns as that takes.

    Between turns the node says Hello, and hears of a newer incarnation or of the end of the run.
    Invariant: the assembly is given only when its whole state is restored.

    `load`: the job; `start`: the time of the snapshot; `same_code`: whether the code that runs now
    has taken it; `now`: seconds, monotonic.
    """

    def __init__(
        self, components: PolicyFactory, load: LoadSnapshot, start: int, same_code: bool, now: float
    ) -> None:
        self.load = load
        self.start = start
        self._same_code = same_code
        self.load_again = False
        """Whether the job failed for the moment, and has to be repeated."""
        self.assembly: NodePipeline | None = None
        """The assembly, once its whole state is restored."""
        self._began, self._log_at = now, now + TOLD_EVERY_S
        self._components = components
        self._steps: Iterator[NodePipeline | None] = iter(())
        self.under_way = False
        """Whether there is more to restore."""
        self.bytes = self.restored_bytes = 0
        """The size of the snapshot's part of this node, as it was read; and of what is restored."""

    def take(self, result: object) -> None:
        """The job is done; `result` is an exception if it failed."""
        self._steps = self._all_steps(result)
        self.under_way = True

    def work(self, pace: TurnBudget, incarnation: int) -> Message | None:
        """Restore for one turn. Returns a message to the master if the snapshot cannot be used."""
        try:
            for assembly in self._steps:
                self.assembly = assembly
                if pace.step():
                    return None
        except (SnapshotDamaged, MalformedMessage) as error:
            self.under_way = False
            return Unloadable(incarnation, self.load.number, str(error))
        except Unavailable:  # the driver tells of it
            self.load_again = True
        except DriftlineError as error:
            self.under_way = False
            return Failed(incarnation, type(error).__name__, str(error))
        self.under_way = False
        return None

    def _all_steps(self, result: object) -> Iterator[NodePipeline | None]:
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, Loaded)
        assembly = self._components.assembly(
            self.start, result.number, result.meta, self._same_code
        )
        self.bytes, self.restored_bytes = sum(map(len, result.segments)), 0
        for _ in assembly.load(self._counted(result.segments), self.start):
            yield None
        yield assembly

    def _counted(self, segments: Sequence[bytes]) -> Iterator[bytes]:
        for segment in segments:
            yield segment
            self.restored_bytes += len(segment)

    @property
    def percent(self) -> int:
        """Restored part of the snapshot that was read, in percent."""
        return 100 * self.restored_bytes // self.bytes if self.bytes else 0

    # Log lines.

    def log_progress(self, name: str, now: float) -> None:
        """Log why node `name` is not ready yet, from time to time."""
        if now < self._log_at or not self._began:
            return
        self._log_at = now + TOLD_EVERY_S
        if self.assembly is not None:
            doing = "it waits for the consumer"
        elif self.under_way:
            doing = f"{self.percent} % of {self.bytes / 1e6:.1f} MB are restored"
        else:
            doing = "it waits for the disk"
        took = now - self._began
        fields = about("loading", name=name, percent=self.percent, seconds=took)
        log.info("%s has been loading for %.0f s: %s", name, took, doing, extra=fields)

    def log_end(self, name: str, now: float, keys: int, barrier: Barrier) -> None:
        """Log that node `name` is ready, with the states of `keys` keys."""
        took = now - self._began
        fields = about(
            "loaded", name=name, snapshot=self.load.number, bytes=self.bytes, keys=keys,
            seconds=took, t_last=barrier.t_last,
        )  # fmt: skip
        log.log(
            logging.INFO if took >= LONG_S else logging.DEBUG,
            "%s has loaded %.1f MB, %d keys, in %.1f s; the consumer has %s",
            *(name, self.bytes / 1e6, keys, took, barrier.stored_to),
            extra=fields,
        )
