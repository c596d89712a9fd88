"""Sources of records that cannot be read again: each record gets a time and goes to an input log.

`ReceivedSource` is for producers, `PipedSource` for standard input, `PolledSource` for a live
source.

Inputs: records of producers, the time of a clock, and the groups that were written. Outputs:
records for a front, groups for the input log, and the producers to acknowledge. Invariants: times
grow, over restarts too; a record has the same time whenever it is read; all records below `durable`
are in the log, and no new record ever gets a time below it.

A producer numbers its records 1, 2, ... A repeated record is recognised by its number. A record is
rejected if an earlier one of its producer is missing. The source closes once every producer that
ever sent a record has ended, and at least one has. So a producer cannot end the source for others.

The time of a record is the clock's time in microseconds, or the time of the last record + 1 if that
is larger. The front can read a record at once; the record is *acknowledged* once the log has it.
One group is written at a time: records that arrive meanwhile form the next group. A promise to
assign no time below some time (`advance_to`) has to survive a crash, too. Therefore the source
reserves times in the log in advance, and after a restart assigns only times above them.

A source with event times adds *marks* to the log: records of its own that move the watermark. It
adds them at its end, at the beginning and the end of an idle period, and at intervals (with the
time of day; see `engine.event_time`).

Memory holds a record until it is both read and stored; `waiting_records` counts these records, so
that the caller can limit them. A large record waits in its encoded form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import chain, pairwise
from typing import Protocol
from zlib import crc32

from msgpack import ExtType
from msgspec.structs import replace

from driftline.connectors.logs.inputlog import (
    MARKS,
    PIPE,
    PRODUCER_BYTES_MAX,
    LoggedRecord,
    WriteGroup,
    pipe_record,
    record_of,
)
from driftline.engine.errors import InputError, PayloadError, StateMismatch
from driftline.engine.event_time import END, IDLE_MARK, RESUMED_MARK, EventTime, time_mark
from driftline.engine.labels import INFINITY
from driftline.engine.sources.record import Malformed, Row
from driftline.engine.sources.source import BadRecord, RetainedSource
from driftline.engine.texts import format_time
from driftline.engine.wire.codec import pack, unpack, why_invalid_record

PRODUCERS_MAX = 100_000
"""Maximum number of producers of a source: the last record number of each is stored for ever."""

RESERVE_US = 1_000_000
"""How far in advance times are reserved, in microseconds; a restart skips at most this much."""

LARGE_RECORD_BYTES = 1 << 16
"""A record of this many bytes or more waits in memory in its encoded form."""

READ_BATCH = 256
"""Number of entries that a replay reads at a time."""


class Receipt(Enum):
    """The answer to a record that a producer sent."""

    ACCEPTED = "the record will be acknowledged"
    REPEATED = "the record was taken before"
    OUT_OF_ORDER = "an earlier record is missing; the record was not taken"
    CLOSED = "the source or the producer has ended; the record was not taken"
    TOO_MANY_PRODUCERS = (
        "too many producers have sent records; the record of a new one was not taken"
    )


class Log(Protocol):
    """The part of `connectors.logs.inputlog.InputLog` that a `ReceivedSource` uses."""

    name: str

    @property
    def last_time(self) -> int:
        """The time of the last entry; 0 if there is none."""

    @property
    def reserved(self) -> int:
        """After a restart, new records get times from this one on."""

    @property
    def trimmed(self) -> int:
        """Entries below this time were removed, or will be."""

    def sequences(self) -> dict[str, int]:
        """Return the number of the last record of each producer."""

    def ended(self) -> list[str]:
        """Return the producers that send no more records."""

    def read(self, start: int, limit: int = -1) -> list[LoggedRecord]:
        """Return the first `limit` entries with time >= `start`, all if `limit` is negative.

        With a limit, returns fewer entries if they are large.
        """

    def count(self, start: int) -> int:
        """Return the number of records with time >= `start`, without marks."""


class ReceivedSource(RetainedSource):
    """The records of one front. One reader at a time: a new `read` ends the previous one."""

    def __init__(
        self,
        log: Log,
        label_clock_us: Callable[[], int],
        name: str = "records of producers",
        ahead_us: int = RESERVE_US,
        producers_max: int = PRODUCERS_MAX,
        wall_clock_us: Callable[[], int] | None = None,
        event_time: EventTime | None = None,
    ) -> None:
        """Continue after the records in a log.

        `label_clock_us`: the clock for labels, in microseconds; `ahead_us`: how far ahead times are
        reserved, in microseconds (a restart skips reserved times); `producers_max`: the maximum
        number of producers; `wall_clock_us`: the time of day in microseconds, for the age of
        records and for marks, by default `label_clock_us`; `event_time`: the settings of event
        time, for marks, None for a source without.
        """
        self.name = name
        self.event_time = event_time
        self.label_clock_us = label_clock_us
        self.producers_max = producers_max
        self._log = log
        self._ahead_us = ahead_us
        self._wall_clock_us = wall_clock_us or label_clock_us
        self._accepted = log.sequences()
        """Producer -> number of its last received record."""
        self._marks = self._accepted.pop(MARKS, 0)
        """Number of marks ever added."""
        self._is_idle = True
        """Whether the next record ends an idle period; initially true: the log may end in one."""
        self._last_received_us = self._last_tick_wall_us = (wall_clock_us or label_clock_us)()
        """When the last record arrived, and when the last mark with the time of day was added, in
        microseconds of the wall clock."""
        self._last_tick_label_time = -1
        """Time of the last mark with the time of day that this process has added."""
        self._acknowledged = dict(self._accepted)
        """Producer -> number of its last record in the log."""
        self.records = sum(self._accepted.values())
        """Number of records ever received, also by earlier calls of the command."""
        self._ended = dict.fromkeys(log.ended(), True)
        """Producers that have ended -> whether the log has the end."""
        self._ending: list[tuple[str, int]] = []
        """The ends of producers for the next group."""
        self._reserved_until = max(1, log.reserved, log.trimmed, log.last_time + 1)
        """End of the times that the log has reserved: a restart assigns times from here on."""
        self._next = self._reserved_until
        """New records get times from this one on; INFINITY if the source is closed."""
        self.durable = self._reserved_until
        """All records below this time are in the log, and no record below it will be added."""
        self.stored_below = self._reserved_until
        """The last stored time + 1; before the first write, the first time of this process."""
        self._incoming: list[LoggedRecord] = []
        """Records of the next group."""
        self._group: WriteGroup | None = None
        """The group that is being written."""
        self.trimmed = self._log_trimmed = log.trimmed
        """No recovery needs entries below `trimmed`; the log has been trimmed up to
        `_log_trimmed`."""
        self._read_but_unstored: deque[_BufferedRecord] = deque()
        """Records that were read but are not in the log yet."""
        self._unread: deque[_BufferedRecord] = deque()
        """Records in memory that were not read yet."""
        self._evicted_until = log.last_time
        """Records up to this time are only in the log; all later ones are in memory."""
        self._read_position = 1
        """The reader has received all records below this time."""
        self._read_generation = 0
        """Number of `read` calls; only the latest reader continues."""
        self.waiting_bytes = 0
        """Size of the records in memory."""
        self.connected: int | None = None
        """Number of producer connections; None if the source has no producers."""
        self.stopped = False
        """Whether this process accepts no more records; the next process continues."""

    # For the intake.

    def receive(self, producer: str, sequence: int, payload: object) -> Receipt:
        """Accept a record if it is the next one of its producer. `sequence`: its number, from 1.

        Raises PayloadError if the payload cannot be stored, or exceeds a limit.
        """
        accepted = self._accepted.get(producer, 0)
        if sequence <= accepted:
            return Receipt.REPEATED
        if self.has_ended(producer):
            return Receipt.CLOSED
        if sequence > accepted + 1:
            return Receipt.OUT_OF_ORDER
        if not accepted and len(self._accepted) >= self.producers_max:
            return Receipt.TOO_MANY_PRODUCERS
        data = pack(payload)
        if reason := why_invalid_record(payload, len(data)):
            raise PayloadError(reason)
        self._take(producer, sequence, payload, data)
        return Receipt.ACCEPTED

    def end_producer(self, producer: str) -> None:
        """End a producer: it sends no more records. Precondition: it has sent at least one."""
        if producer in self._ended:
            return
        self._ended[producer] = False
        self._ending.append((producer, self._accepted[producer]))
        if len(self._ended) == len(self._accepted):
            self.close()

    def has_ended(self, producer: str) -> bool:
        """Return whether the producer or the source has ended, so no more records are taken."""
        return self.closed or producer in self._ended

    def has_durably_ended(self, producer: str) -> bool:
        """Return whether the log has the end of the producer or of the source."""
        return self.ended or self._ended.get(producer, False)

    def close(self) -> None:
        """End the source permanently: it takes no more records, even after a restart."""
        if self.event_time is not None and not self.closed:
            self._add_mark(END)
        self._next = INFINITY

    def add_marks(self) -> int | None:
        """Add the marks that are due. Return the microseconds until the next mark; None: no mark
        will become due by itself.

        A mark with the time of day waits until the previous one has been read: otherwise marks
        would fill the memory of a slow run, and leave no room for records.
        """
        event_time, now = self.event_time, self._wall_clock_us()
        if event_time is None or self.closed or self.stopped:
            return None
        due_times_us = []
        if event_time.tick is not None:
            if self._last_tick_label_time >= self._read_position:
                due_times_us.append(now + event_time.tick)
            else:
                if now >= self._last_tick_wall_us + event_time.tick:
                    self._last_tick_wall_us = now
                    self._add_mark(time_mark(now))
                    self._last_tick_label_time = self._next - 1
                due_times_us.append(self._last_tick_wall_us + event_time.tick)
        if event_time.idle_after is not None and not self._is_idle:
            if now >= self._last_received_us + event_time.idle_after:
                self._is_idle = True
                self._add_mark(IDLE_MARK)
            else:
                due_times_us.append(self._last_received_us + event_time.idle_after)
        return max(0, min(due_times_us) - now) if due_times_us else None

    def _add_mark(self, mark: ExtType) -> None:
        self._marks += 1
        self._append(MARKS, self._marks, mark, pack(mark))

    @property
    def closed(self) -> bool:
        """True if new records are rejected."""
        return self._next >= INFINITY

    @property
    def ended(self) -> bool:
        """True if the source is closed and the log has all records."""
        return self.durable >= INFINITY

    @property
    def waiting_records(self) -> int:
        """Number of records in memory: not read yet, or not stored yet."""
        return len(self._read_but_unstored) + len(self._unread)

    def last_accepted(self, producer: str) -> int:
        """Return the number of a producer's last received record."""
        return self._accepted.get(producer, 0)

    @property
    def last_received_time(self) -> int:
        """The time of the last received record. Precondition: no `next_group` call since then."""
        return self._incoming[-1].time

    def last_acknowledged(self, producer: str) -> int:
        """Return the number of a producer's last record in the log."""
        return self._acknowledged.get(producer, 0)

    def next_group(self) -> WriteGroup | None:
        """Return the next group to write; None if there is nothing to write, or while another group
        is being written. The caller has to call `mark_written` once the group is written."""
        if self._group is None and (
            self._incoming
            or self._ending
            or self.trimmed > self._log_trimmed
            or self._reserved_until < min(INFINITY, self._next + self._ahead_us // 2)
        ):
            reserved = min(INFINITY, max(self._reserved_until, self._next + self._ahead_us))
            ended = tuple(self._ending)
            self._group = WriteGroup(tuple(self._incoming), reserved, self.trimmed, ended)
            self._incoming.clear()
            self._ending.clear()
            return self._group
        return None

    def retry_group(self) -> WriteGroup:
        """Return the current group for another attempt. Precondition: its write has failed."""
        assert self._group is not None
        self._group = replace(self._group, again=True)
        return self._group

    def mark_written(self, group: WriteGroup) -> list[str]:
        """Mark a group as written. Return the producers to acknowledge."""
        assert group is self._group, "one group at a time"
        self._group = None
        self._log_trimmed = group.trim
        self._reserved_until = group.reserved
        stored = {entry.producer: entry.sequence for entry in group.entries}
        stored.pop(MARKS, None)
        self._acknowledged.update(stored)
        if group.entries:
            self.stored_below = group.entries[-1].time + 1
        self._ended.update((producer, True) for producer, _ in group.ended)
        self._evict()
        self._advance_durable()
        return list(stored)

    # For progress reports and metrics.

    @property
    def producers(self) -> int:
        """Number of producers that have sent records."""
        return len(self._accepted)

    @property
    def ended_producers(self) -> int:
        """Number of producers that have ended."""
        return len(self._ended)

    def count_stored_from(self, time: int) -> int:
        """Return how many records with this time or a later one the log has, without marks."""
        return self._log.count(time)

    def age_s(self, time: int) -> float:
        """Return the age of the first record with time >= `time`, in seconds by the time of day.

        Returns 0 if there is none.
        """
        stored = self._log.read(time, 1)
        unstored = chain(self._group.entries if self._group else (), self._incoming)
        record = stored[0] if stored else next((e for e in unstored if e.time >= time), None)
        if record is None:
            return 0.0
        return max(0.0, (self._wall_clock_us() - record.received_us) / 1e6)

    # For a front.

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        return self.entries(start)

    def entries(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        """Return an iterator over the records with time >= `start`, in the form of the log.

        The iterator yields None while no further record has arrived. This call raises StateMismatch
        if some of these records were removed.
        """
        if start < self.trimmed:
            raise StateMismatch(
                f"{self._log.name} no longer has the records from {format_time(start)} on, only "
                f"those from {format_time(self.trimmed)} on: restore the state directory that "
                "belongs to this log"
            )
        self._read_generation += 1
        self._read_position = start
        buffered = [*self._read_but_unstored, *self._unread]
        self._read_but_unstored = deque(record for record in buffered if record[0] < start)
        self._unread = deque(record for record in buffered if record[0] >= start)
        self._evict()
        return self._iterate(self._read_generation)

    def advance_to(self, time: int) -> int:
        self._next = max(self._next, time)
        self._advance_durable()
        if self._read_position <= self._evicted_until:
            return min(self._next, self._read_position)
        return min(self._next, self._unread[0][0] if self._unread else INFINITY)

    def stop(self) -> int:
        self.stopped = True
        if not self.closed:
            return self._next
        buffered = self._unread or self._read_but_unstored
        return (buffered[-1][0] if buffered else self._evicted_until) + 1

    def trim(self, time: int) -> None:
        self.trimmed = max(self.trimmed, min(time, self.durable))

    def validate(self) -> None:
        """Assert the invariants."""
        buffered = [record[0] for record in (*self._read_but_unstored, *self._unread)]
        unstored = self._first_unstored_time()
        assert all(a < b for a, b in pairwise([self._evicted_until, *buffered, self._next])), (
            "times do not grow"
        )
        assert all(time >= unstored for time, _, _ in self._read_but_unstored), (
            "a stored record that was read is still in memory"
        )
        assert all(time >= self._read_position for time, _, _ in self._unread)
        assert self.durable <= min(unstored, self._reserved_until), "a durable record is not stored"
        assert all(a <= self._accepted[p] for p, a in self._acknowledged.items())
        assert self.waiting_bytes == sum(
            size for _, _, size in (*self._read_but_unstored, *self._unread)
        )
        assert set(buffered) >= {entry.time for entry in self._incoming}
        assert all(entry.time >= self.stored_below for entry in self._incoming)
        assert self._ended.keys() <= self._accepted.keys(), "only producers with records can end"

    def _take(self, producer: str, sequence: int, payload: object, data: bytes) -> None:
        if self.event_time is not None and self.event_time.idle_after is not None:
            self._last_received_us = self._wall_clock_us()
            if self._is_idle:
                self._is_idle = False
                self._add_mark(RESUMED_MARK)
        self._accepted[producer] = sequence
        self.records += 1
        self._append(producer, sequence, payload, data)

    def _append(self, producer: str, sequence: int, payload: object, data: bytes) -> None:
        time = max(self._next, self.label_clock_us())
        assert time < INFINITY, f"the clock shows {time}, which is too large for a label"
        self._next = time + 1
        self._incoming.append(LoggedRecord(time, producer, sequence, data, self._wall_clock_us()))
        buffered = _EncodedPayload(data) if len(data) >= LARGE_RECORD_BYTES else payload
        self._unread.append((time, buffered, len(data)))
        self.waiting_bytes += len(data)

    def _iterate(self, generation: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        while generation == self._read_generation:
            if self._read_position <= self._evicted_until:
                yield from self._read_from_log(generation)
            elif self._unread:
                record = self._unread.popleft()
                self._read_but_unstored.append(record)
                self._read_position = record[0] + 1
                self._evict()
                buffered = record[1]
                yield record[0], unpack(buffered) if type(buffered) is _EncodedPayload else buffered
            elif self.closed:
                return
            else:
                yield None

    def _read_from_log(self, generation: int) -> Iterator[tuple[int, object] | BadRecord]:
        """Yield the next records that are only in the log."""
        start, last = self._read_position, self._evicted_until
        entries = [entry for entry in self._log.read(start, READ_BATCH) if entry.time <= last]
        assert entries, f"{self._log.name} lost its entries from {start} to {last}"
        for entry in entries:
            if generation != self._read_generation:
                return
            self._read_position = entry.time + 1
            yield record_of(entry, self.name)

    def _evict(self) -> None:
        """Drop records from memory that are both read and stored."""
        unstored = self._first_unstored_time()
        while self._read_but_unstored and self._read_but_unstored[0][0] < unstored:
            self._evicted_until, _, size = self._read_but_unstored.popleft()
            self.waiting_bytes -= size

    def _advance_durable(self) -> None:
        """Raise `durable` as far as records are stored and times are reserved."""
        self.durable = max(self.durable, min(self._first_unstored_time(), self._reserved_until))

    def _first_unstored_time(self) -> int:
        """Return the time of the first record that is not in the log; `_next` if all are."""
        if self._group is not None and self._group.entries:
            return self._group.entries[0].time
        return self._incoming[0].time if self._incoming else self._next


class _EncodedPayload(bytes):
    """Payload that waits in memory in its encoded form."""

    __slots__ = ()


_BufferedRecord = tuple[int, object, int]
"""(time, payload or `_EncodedPayload`, size of the encoded payload)"""


CHECKSUM_BITS = 24
"""Bits of the checksum in the `sequence` of a log entry; the bits above are the record's number."""


class PipedSource(ReceivedSource):
    """The records of standard input, which cannot be read again.

    The time of record n is n. With `label_clock_us`, times come from a clock, so that a silent pipe
    does not delay other inputs. After an interruption the user gives the same stream again, from
    its beginning, and this source skips the records that the log contains. To recognise the stream,
    the `sequence` of a log entry contains the number of the record and a checksum of all records up
    to it. In the log, a record that cannot be read is a tuple, any other record a dict.
    """

    def __init__(
        self,
        log: Log,
        label_clock_us: Callable[[], int] | None = None,
        *,
        keep_bad: bool = False,
        wall_clock_us: Callable[[], int] | None = None,
        event_time: EventTime | None = None,
    ) -> None:
        """Continue after the records in a log.

        `label_clock_us`: the clock for labels, in microseconds, None for times 1, 2, ...;
        `keep_bad`: log records that cannot be read instead of raising; `wall_clock_us`,
        `event_time`: see `ReceivedSource`.
        """
        ahead_us = 0 if label_clock_us is None else RESERVE_US
        clock = label_clock_us or (lambda: 0)
        super().__init__(
            log, clock, PIPE, ahead_us, wall_clock_us=wall_clock_us, event_time=event_time
        )
        last_sequence = self.last_accepted(PIPE)
        self.logged_records = last_sequence >> CHECKSUM_BITS
        """Records that the log had before this start."""
        self.records = self.logged_records
        self._logged_checksum = last_sequence % (1 << CHECKSUM_BITS)
        """Checksum of these records."""
        self._keep_bad = keep_bad
        self._count = self._checksum = 0
        """Number and checksum of the records that this process has read from the stream."""

    def take(self, row: Row) -> None:
        """Accept the next record of the stream, or skip it if the log contains it.

        Raises InputError for a record that cannot be read, unless `keep_bad`; StateMismatch if the
        stream differs from the one in the log.
        """
        self._count += 1
        payload: object = row
        if isinstance(row, Malformed):
            if not self._keep_bad:
                raise InputError(PIPE, self._count, row.reason)
            payload = (self._count, row.reason, row.text, row.raw)
        data = pack(payload)
        self._checksum = crc32(data, self._checksum) % (1 << CHECKSUM_BITS)
        if self._count > self.logged_records:
            self._take(PIPE, self._count << CHECKSUM_BITS | self._checksum, payload, data)
        elif self._count == self.logged_records and self._checksum != self._logged_checksum:
            raise self._wrong_stream_error(f"its first {self.logged_records} records differ")

    def end(self) -> None:
        """End the stream. Raises StateMismatch if it has fewer records than the log."""
        if self._count < self.logged_records:
            raise self._wrong_stream_error(f"it ends after {self._count}")
        self.close()

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        for record in self.entries(start):
            yield pipe_record(*record) if isinstance(record, tuple) else record

    def _wrong_stream_error(self, difference: str) -> StateMismatch:
        return StateMismatch(
            f"the log has {self.logged_records} records of another stream on standard input: "
            f"{difference}. Give the same stream again, from its beginning, or another --output"
        )


OFFSET_MAX = (1 << 63) - 2


def check_position(name: str, partition: object, offset: object) -> None:
    """Raise InputError if a record of source `name` has an invalid partition or offset."""
    place = f"{name}, partition {partition!r}"
    if type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
        raise InputError(
            place, 0, f"the offset {offset!r} is not an integer from 0 to {OFFSET_MAX}"
        )
    data = partition.encode(errors="replace") if isinstance(partition, str) else b""
    if not 0 < len(data) <= PRODUCER_BYTES_MAX or data.decode() != partition:
        raise InputError(place, offset, "the partition is not a text of 1 to 255 bytes")


class PolledSource(ReceivedSource):
    """The records of one live source.

    A record's partition serves as its producer, and its offset + 1 as its number. If its offset is
    not larger than the last one of the partition, the record has arrived before. `records` counts
    the records in the log, and those that arrived since the log was opened: offsets have gaps, so
    they do not show how many records earlier calls received.
    """

    def __init__(
        self,
        log: Log,
        label_clock_us: Callable[[], int],
        name: str,
        event_time: EventTime | None = None,
    ) -> None:
        super().__init__(log, label_clock_us, name, event_time=event_time)
        self.records = log.count(0)

    def offsets(self) -> dict[str, int]:
        """Return the offset of each partition's last record in the log."""
        return {partition: number - 1 for partition, number in self._acknowledged.items()}

    def take(self, partition: str, offset: int, value: object) -> bool:
        """Accept a record, unless it arrived before. Return whether it is new.

        Raises InputError for a record that cannot be stored.
        """
        check_position(self.name, partition, offset)
        place = f"{self.name}, partition {partition}"
        if offset < self.last_accepted(partition):
            return False
        try:
            data = pack(value)
        except PayloadError as error:
            raise InputError(place, offset, str(error)) from None
        if reason := why_invalid_record(value, len(data)):
            raise InputError(place, offset, reason)
        self._take(partition, offset + 1, value, data)
        return True
