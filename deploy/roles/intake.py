"""The intake: receives records from producers and passes them to a front's source.

Messages are msgpack arrays, which `deploy.runtime.sockets.intake_socket` carries over ZeroMQ:

    producer                                            front
    [MAGIC, HELLO, producer, session]                   [MAGIC, SYNC, session, acknowledged, below]
    [MAGIC, RECORD, producer, session, number, record]  [MAGIC, ACK, session, acknowledged, below]
    [MAGIC, END, producer, session, last number]        [MAGIC, ENDED, session, acknowledged, below]

All records with numbers up to `acknowledged` are in the input log, with label times smaller than
`below`. SYNC answers a HELLO, a record whose predecessor is missing (lost in a reconnect), and an
END whose last record is missing. SYNC also means that the intake has accepted no record after
`acknowledged`: the producer has to send all later ones again. A producer chooses `session` when it
starts: its clock in nanoseconds, so each start has a larger session. Once the intake knows a
session of a producer, it answers messages of earlier sessions with FENCED and the known session. So
messages that a dead producer left in the network do not mix with those of its successor. ENDED: the
intake accepts no more records of this producer, as the log contains the end of the producer or of
the stream.

Further answers:

    [MAGIC, FENCED, known session, acknowledged, below]
    [MAGIC, REFUSED, session, acknowledged, number, reason]

REFUSED rejects a message that can never be accepted. If a record is too large, nested too deep or
otherwise invalid, `number` is its number. `number` is 0 if the session is too far ahead of the
front's clock, if the source has its maximum number of producers, if a producer without records
sends END, or if the key of the connection does not permit the producer's id.

While the source is full, or a producer's accepted records are not yet durable, the intake repeats
its ACK every `ACK_REPEAT_S`. Thus a producer can distinguish back-pressure from a flow that does
not run.

If producers need keys, the key K permits only the producer ids K and K-...

Senders are not trusted. Invariants: an acknowledged record is durable; a record is stored once,
however often it arrives; a malformed message changes nothing; the memory for the states of
producers is bounded. While the front's source is full, no record is accepted, and producers wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from enum import IntEnum
from math import inf
from typing import ClassVar, NamedTuple

from msgspec import Struct

from driftline.connectors.logs.inputlog import PRODUCER_BYTES_MAX, WriteGroup
from driftline.connectors.logs.received import Receipt, ReceivedSource
from driftline.engine.errors import DriftlineError, MalformedMessage, PayloadError, Unavailable
from driftline.engine.events import RateLimitedLog, event_fields, log
from driftline.engine.texts import counted
from driftline.engine.wire.codec import RECORD_BYTES_MAX, pack, unpack, unpack_foreign
from driftline.engine.wire.kinds import SenderKey
from driftline.engine.wire.role import IOJob, Role

RECORDS_IN_MEMORY_MAX = 4096
"""Maximum number of records in memory: those that the front has not read or that are not stored."""

WINDOW_BYTES = 1 << 26
"""Maximum bytes of these records; the last record may exceed it."""

RETRY_AFTER_S = 1.0
"""Seconds from a failed write of a group to its retry."""


class Receiver(Role):
    """Base of the roles that pass records to a `ReceivedSource` and write its input log.

    Emits `WriteGroup` jobs, one group of records after the other. Invariant: a record counts as
    stored only once its group is durable. A failed write may have reached the disk nevertheless. So
    its retry sets `WriteGroup.again`, and the log first checks whether it contains the group.

    `window`, `window_bytes`: maximum number and bytes of the records in memory.
    """

    def __init__(
        self,
        source: ReceivedSource,
        *,
        name: str,
        window: int = RECORDS_IN_MEMORY_MAX,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        super().__init__(name)
        self.source = source
        self.window = window
        self.window_bytes = window_bytes
        self._retry_at = inf
        """When to retry the failed write of a group (seconds, monotonic); inf: no write failed."""

    def has_room(self) -> bool:
        """Return whether the source accepts more records now."""
        source = self.source
        has_room = source.waiting_records < self.window and source.waiting_bytes < self.window_bytes
        return has_room and not source.stopped

    def tick(self, now: float) -> float:
        if now >= self._retry_at:
            self._retry_at = inf
            self.jobs.append(self.source.retry_group())
        marks_in_us = self.source.add_marks()
        marks_at = inf if marks_in_us is None else now + marks_in_us / 1e6
        return min(self._retry_at, marks_at, super().tick(now))

    def turn(self) -> bool:
        group = self.source.next_group()
        if group is not None:
            self.jobs.append(group)
        return False

    def on_job_done(self, job: IOJob, result: object) -> None:
        """Handle the result of writing a group of records. Raises errors other than Unavailable.

        If the disk is unavailable (full, for example), the write is retried. Meanwhile records
        wait in memory; producers wait once `window` or `window_bytes` is reached.
        """
        self.update_obstacle(job, result)
        self.source.obstacle = self.obstacle
        if isinstance(result, Unavailable):
            self._retry_at = self.now + RETRY_AFTER_S
            self.tick_by = min(self.tick_by, self._retry_at)
            return
        if isinstance(result, DriftlineError):
            raise result
        assert isinstance(job, WriteGroup)
        self.on_stored(self.source.mark_written(job))

    def close(self) -> None:
        """Release the socket or file from which records are received."""

    def on_stored(self, producers: Sequence[str]) -> None:
        """React to new durable records of these producers in the log."""


MAGIC = 0xD72
"""First value of each message; it changes with the format."""

MESSAGE_BYTES_MAX = RECORD_BYTES_MAX + 1024
"""The largest message of a producer: a record, its producer's id, and a few numbers."""

SESSION_AHEAD_US = 60_000_000
"""A session may be ahead of the front's clock by this many microseconds. A session further ahead
would fence off later sessions of the same producer."""

ACK_REPEAT_S = 1.0
"""Interval in seconds of the repeated ACK to waiting producers."""

NEW_PRODUCERS_MAX = 1_000
"""Maximum number of remembered producers without records."""

ACTIVE_PRODUCERS_MAX = 10_000
"""Maximum number of remembered producers with records."""

ABSENCE_S, ABSENCE_LOG_EVERY_S = 1.0, 10.0
"""Seconds without a connection before `no-producers` is logged, as a producer may reconnect soon;
minimum interval between two such log lines in seconds."""

_END_WITHOUT_RECORDS = (
    "it has sent no records: only a producer that has sent some can end the stream"
)


class IntakeKind(IntEnum):
    """Kind of a message. Of two pending answers to a producer, only the larger kind is sent."""

    HELLO = 1
    RECORD = 2
    END = 3
    ACK = 4
    SYNC = 5
    ENDED = 6
    FENCED = 7
    REFUSED = 8


_FIELD_COUNTS: dict[object, int] = {
    IntakeKind.HELLO: 4,
    IntakeKind.RECORD: 6,
    IntakeKind.END: 5,
}


class IntakeReply(NamedTuple):
    """Answer of the intake, as the producer decodes it. Only REFUSED has `number` and `reason`."""

    kind: IntakeKind
    session: int
    acknowledged: int
    below: int = 0
    number: int = 0
    reason: str = ""


class _ProducerState(Struct):
    """Session and connection of a producer, as of its last message, and its next answer."""

    session: int
    route: bytes
    """Routing id of its connection in the ROUTER socket."""
    answer: IntakeKind = IntakeKind.ACK
    """The kind of the next answer."""
    is_gap_reported: bool = False
    """Whether the current gap in its record numbers was already answered with SYNC."""


class Intake(Receiver):
    """Receiver of messages of producers for a source."""

    needs_producers: ClassVar[bool] = True
    """Whether producers are the only input of the source; if so, their absence is logged."""

    def __init__(
        self,
        source: ReceivedSource,
        *,
        name: str = "intake",
        window: int = RECORDS_IN_MEMORY_MAX,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        super().__init__(source, name=name, window=window, window_bytes=window_bytes)
        self.answers: list[tuple[bytes, bytes]] = []
        """(routing id, encoded answer) pairs for the driver to send."""
        self._producers_with_records: OrderedDict[str, _ProducerState] = OrderedDict()
        """Producers with records, least recently active first."""
        self._new_producers: OrderedDict[str, _ProducerState] = OrderedDict()
        """Producers without records, least recently active first."""
        self._pending_answers: dict[str, _ProducerState] = {}
        """Producers that wait for an answer."""
        self._malformed_log = RateLimitedLog(
            "malformed-message", f"{name} dropped a malformed message"
        )
        self._wrong_id_log = RateLimitedLog("id-refused", f"{name} refused the id of a producer")
        self._producers_max_log = RateLimitedLog(
            "producer-refused", f"{name} refused a new producer"
        )
        self._producer_log = ProducerLog(source, self.needs_producers)
        self._repeat_acks_at = 0.0
        """When to repeat the ACK to waiting producers next (seconds, monotonic)."""

    # Called by the runtime.

    def tick(self, now: float) -> float:
        self._malformed_log.log_if_due(now)
        self._producers_max_log.log_if_due(now)
        self._wrong_id_log.log_if_due(now)
        if now >= self._repeat_acks_at:
            self._repeat_acks_at = now + ACK_REPEAT_S
            self._repeat_acks()
        return min(self._repeat_acks_at, super().tick(now))

    def turn(self) -> bool:
        more = super().turn()
        self._producer_log.update(self.now, self.source.connected or 0)
        if self._pending_answers:
            self._answer()
        return more

    def close(self) -> None:
        for rate_limited_log in (self._malformed_log, self._producers_max_log, self._wrong_id_log):
            rate_limited_log.close()

    def on_stored(self, producers: Sequence[str]) -> None:
        for producer in producers:
            state = self._producers_with_records.get(producer) or self._new_producers.get(producer)
            if state is not None:
                self._pending_answers[producer] = state

    # The protocol.

    def take(self, parts: list[bytes], sender_key: SenderKey | None = None) -> None:
        """Handle a message, [route, data], of any sender. Count and drop a malformed one.

        Removes the data from `parts`, so that its memory, up to 16 MiB, is freed once the record is
        decoded. `sender_key`: the key of the connection; None without keys.
        """
        try:
            if len(parts) != 2:
                raise MalformedMessage(f"{len(parts)} parts instead of 2")
            self._handle(parts[0], decode_request(parts.pop()), sender_key)
        except MalformedMessage as error:
            self.drop(error)

    def drop(self, error: DriftlineError) -> None:
        self.malformed += 1
        self._malformed_log.add(self.now, str(error))

    def _handle(
        self,
        route: bytes,
        request: tuple[IntakeKind, str, int, int, object],
        sender_key: SenderKey | None,
    ) -> None:
        kind, producer, session, number, record = request
        if sender_key is not None and not sender_key.may_send_as(producer):
            key = sender_key.key
            reason = f"the key {key} permits only the ids {key} and {key}-..."
            self._wrong_id_log.add(self.now, f"{producer!r} with the key {key}")
            self._refuse(route, producer, session, 0, reason)
            return
        ahead_us = session // 1000 - self.source.label_clock_us()
        if ahead_us > SESSION_AHEAD_US:
            reason = (
                f"its clock is {ahead_us // 1_000_000} s ahead of the front's: synchronise both "
                "clocks"
            )
            self._refuse(route, producer, session, 0, reason)
            return
        state = self._state_of(producer, session, route)
        if session < state.session:
            self._send(route, IntakeKind.FENCED, state.session, producer)
            return
        state.session, state.route = session, route
        if kind is IntakeKind.RECORD:
            answer = self._receive(state, producer, number, record)
        elif kind is IntakeKind.END:
            answer = self._end(state, producer, number)
        else:
            answer = IntakeKind.SYNC
        if answer is not None:
            state.answer = max(state.answer, answer)
            self._pending_answers[producer] = state

    def _receive(
        self, state: _ProducerState, producer: str, number: int, record: object
    ) -> IntakeKind | None:
        """Accept a record. Return the kind of the answer; None if none is due or it was sent."""
        try:
            receipt = self.source.receive(producer, number, record)
        except PayloadError as error:
            self._refuse(state.route, producer, state.session, number, str(error))
            return None
        if receipt is Receipt.TOO_MANY_PRODUCERS:
            reason = (
                f"{self.source.producers_max} producers have sent records, and the input accepts "
                "no further producer: use the id of one of them"
            )
            self._producers_max_log.add(self.now, reason)
            self._refuse(state.route, producer, state.session, 0, reason)
            return None
        if receipt is Receipt.ACCEPTED and number == 1:
            # Move the state to `_producers_with_records`.
            self._state_of(producer, state.session, state.route)
        is_reported = receipt is Receipt.OUT_OF_ORDER and state.is_gap_reported
        state.is_gap_reported = receipt is Receipt.OUT_OF_ORDER
        return None if is_reported else _ANSWERS[receipt]

    def _end(self, state: _ProducerState, producer: str, number: int) -> IntakeKind | None:
        """Accept the end of a producer. Return the kind of the answer; None if it was sent."""
        source = self.source
        if source.has_ended(producer):
            return IntakeKind.ENDED
        if not source.last_accepted(producer):
            self._refuse(state.route, producer, state.session, 0, _END_WITHOUT_RECORDS)
            return None
        if number != source.last_accepted(producer):
            return IntakeKind.SYNC
        source.end_producer(producer)
        return IntakeKind.ENDED

    def _state_of(self, producer: str, session: int, route: bytes) -> _ProducerState:
        """Return the state of a producer. Evict the least recently active if there are too many."""
        has_records = self.source.last_accepted(producer) > 0
        states = self._producers_with_records if has_records else self._new_producers
        state = states.get(producer)
        if state is not None:
            states.move_to_end(producer)
            return state
        state = self._new_producers.pop(producer, None) or _ProducerState(session, route)
        states[producer] = state
        if len(states) > (ACTIVE_PRODUCERS_MAX if has_records else NEW_PRODUCERS_MAX):
            evicted, _ = states.popitem(last=False)
            self._pending_answers.pop(evicted, None)  # the producer requests the answer again
        return state

    def _repeat_acks(self) -> None:
        """Repeat the ACK to all producers that wait for room or for durable records."""
        source = self.source
        if source.stopped:
            return
        has_room = self.has_room()
        for states in (self._producers_with_records, self._new_producers):
            for producer, state in states.items():
                if not has_room or source.last_acknowledged(producer) < source.last_accepted(
                    producer
                ):
                    self._send(state.route, IntakeKind.ACK, state.session, producer)

    def _answer(self) -> None:
        """Send the pending answers that the log permits by now; the others stay pending."""
        source = self.source
        for producer, state in list(self._pending_answers.items()):
            if state.answer is IntakeKind.SYNC and source.has_ended(producer):
                state.answer = IntakeKind.ENDED
            if state.answer is IntakeKind.ENDED and not source.has_durably_ended(producer):
                continue
            if state.answer is IntakeKind.SYNC and (
                source.last_acknowledged(producer) < source.last_accepted(producer)
            ):
                continue
            del self._pending_answers[producer]
            self._send(state.route, state.answer, state.session, producer)
            state.answer = IntakeKind.ACK

    def _refuse(self, route: bytes, producer: str, session: int, number: int, reason: str) -> None:
        acknowledged = self.source.last_acknowledged(producer)
        refusal = MAGIC, IntakeKind.REFUSED, session, acknowledged, number, reason
        self.answers.append((route, pack(refusal)))

    def _send(self, route: bytes, kind: IntakeKind, session: int, producer: str) -> None:
        acknowledged = self.source.last_acknowledged(producer)
        answer = MAGIC, kind, session, acknowledged, self.source.stored_below
        self.answers.append((route, pack(answer)))


_ANSWERS = {
    Receipt.ACCEPTED: None,
    Receipt.REPEATED: IntakeKind.ACK,
    Receipt.OUT_OF_ORDER: IntakeKind.SYNC,
    Receipt.CLOSED: IntakeKind.ENDED,
}


def decode_request(data: bytes) -> tuple[IntakeKind, str, int, int, object]:
    """Decode any bytes to (kind, producer, session, number, record). Raises MalformedMessage.

    No error text contains a sender's value: its `repr` may be large, or nested too deep.
    """
    fields = unpack_foreign(data)
    if not isinstance(fields, tuple) or len(fields) < 4 or fields[0] != MAGIC:
        raise MalformedMessage("not a message of a producer")
    _, kind, producer, session, *rest = fields
    if type(kind) is not int or _FIELD_COUNTS.get(kind) != len(fields):
        raise MalformedMessage(
            f"a message of unknown kind, or with a wrong number of fields ({len(fields)})"
        )
    if not isinstance(producer, str) or not 0 < len(producer.encode()) <= PRODUCER_BYTES_MAX:
        raise MalformedMessage(
            f"a producer's id that is not text of 1 to {PRODUCER_BYTES_MAX} bytes"
        )
    number = rest[0] if rest else 0
    for integer in (session, number):
        if type(integer) is not int or not 0 <= integer < 1 << 63:
            raise MalformedMessage("a session or number that is not an int from 0 to 2^63 - 1")
    return IntakeKind(kind), producer, session, number, rest[-1] if rest else None


def decode_answer(data: bytes) -> IntakeReply:
    """Decode an answer of a front. Raises MalformedMessage."""
    match unpack(data):
        case (magic, int(kind), int(session), int(acknowledged), int(below)) if (
            magic == MAGIC and IntakeKind.ACK <= kind <= IntakeKind.FENCED
        ):
            return IntakeReply(IntakeKind(kind), session, acknowledged, below)
        case (magic, int(kind), int(session), int(acknowledged), int(number), str(reason)) if (
            magic == MAGIC and kind == IntakeKind.REFUSED
        ):
            return IntakeReply(IntakeKind.REFUSED, session, acknowledged, 0, number, reason)
    raise MalformedMessage("not an answer of a front")


class ProducerLog:
    """Log lines about the producers of one source, at most six a minute.

    It logs that no producer is connected although the run waits for one, and that all have ended.
    `needed`: whether producers are the only input of the source.
    """

    def __init__(self, source: ReceivedSource, needed: bool = True) -> None:
        self._source = source
        self._needed = needed
        self._is_connected = source.producers > 0
        """Whether a producer was connected at the last `update`. Before the first one: whether any
        producer has sent records, in any run."""
        self._disconnected_at = inf
        """When the last connection closed (seconds, monotonic); inf while a connection is open, if
        none was ever open, and once the absence was logged."""
        self._log_at = -inf
        """When an absence may be logged next (seconds, monotonic)."""
        self._is_end_logged = False
        """Whether the end of the stream was logged."""

    def update(self, now: float, connected: int) -> None:
        """Log changes. `now`: seconds, monotonic; `connected`: the number of open connections."""
        if self._source.stopped or self._is_end_logged:
            return
        if self._source.closed:
            self._is_end_logged = True
            self._log_end()
        elif connected:
            self._is_connected, self._disconnected_at = True, inf
        elif self._is_connected:
            self._is_connected, self._disconnected_at = False, now
        elif self._needed and now >= max(self._disconnected_at + ABSENCE_S, self._log_at):
            self._disconnected_at, self._log_at = inf, now + ABSENCE_LOG_EVERY_S
            self._log_absence()

    def _log_absence(self) -> None:
        source = self._source
        known, ended = source.producers, source.ended_producers
        log.warning(
            "%s: no producer is connected, and the run waits for one. %d of %d producers that have "
            "sent records have ended (Producer.end); the stream is over once all have. Ctrl-C, or "
            "SIGTERM, drains the run",
            *(source.name, ended, known),
            extra=event_fields("no-producers", name=source.name, producers=known, ended=ended),
        )

    def _log_end(self) -> None:
        name, known, records = self._source.name, self._source.producers, self._source.records
        log.info(
            "%s: the stream is over, as %s ended; %s",
            name,
            "its producer has" if known == 1 else f"all {known} producers have",
            counted(records, "record"),
            extra=event_fields("producers-ended", name=name, producers=known, records=records),
        )
