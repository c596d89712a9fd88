"""The source of records that producers send: each gets its time once, and is never forgotten.

A record is numbered by its producer: 1, 2, ... One that comes again is recognised by its number,
one that comes early (an earlier one was lost on the way) is refused. Its time comes from a hybrid
clock, the next one or now in microseconds. It can be read at once; it is *acknowledged* once the
input log has it. `group` gives what is to be written, one group at a time: what comes while a
group is under way makes up the next one, so the slower the disk, the larger the groups.

`durable` is what keeps outputs back until their inputs are safe. A promise to give no time below
some time (`move_to`) has to survive a crash just like a record, so times are reserved in the log
some way ahead, and a restart begins after the reserved ones: an idle front can promise without
waiting for the disk.

Invariants: times grow, over restarts too; a record has the same time whenever it is read; below
`durable` are only records that the log has, and no time below it is ever given again.

Memory holds records until they are both read and stored; `waiting` is for whoever brings them.
Cost: some 5 microseconds for a record; a replay reads the log in chunks.

No sockets, clocks or threads here: `deploy.parties.intake` brings the records and carries out the
groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import pairwise
from typing import Protocol

from driftline.engine.errors import StateMismatch
from driftline.engine.labels import INFINITY
from driftline.engine.sources.live import LiveSource
from driftline.engine.sources.logs.inputlog import Entry, WriteGroup
from driftline.engine.sources.source import BadRecord
from driftline.engine.wire.codec import pack, unpack

RESERVE_US = 1_000_000
"""How far ahead times are reserved: what a restart may move the clock on."""

CHUNK = 256
"""Entries that a replay reads at a time."""


class Receipt(Enum):
    """What became of a record that came."""

    TAKEN = "it will be acknowledged"
    REPEATED = "it was taken before"
    EARLY = "one before it is missing; it was not taken"
    CLOSED = "the source has ended; it was not taken"


class Log(Protocol):
    """What `engine.sources.logs.inputlog.InputLog` shows to the source that it belongs to."""

    name: str

    @property
    def last_time(self) -> int:
        """The time of the last entry; 0 if there is none."""

    @property
    def reserved(self) -> int:
        """New records get times from here on."""

    @property
    def trimmed(self) -> int:
        """Entries below this time are gone, or about to go."""

    def sequences(self) -> dict[str, int]:
        """The last number of each producer."""

    def read(self, start: int, limit: int = -1) -> list[Entry]:
        """The first entries with time >= `start`, all if there is no limit."""


class ReceivedSource(LiveSource):
    """The records of one front. One reader at a time: a new `read` ends the one before."""

    def __init__(
        self,
        log: Log,
        now_us: Callable[[], int],
        name: str = "records of producers",
        ahead_us: int = RESERVE_US,
    ) -> None:
        """`ahead_us`: how far ahead times are reserved; a restart leaves that many out."""
        self.name = name
        self._log = log
        self._now_us = now_us
        self._ahead_us = ahead_us
        self._accepted = log.sequences()
        self._acknowledged = dict(self._accepted)
        self._floor = max(1, log.reserved, log.trimmed, log.last_time + 1)
        """A restart gives no time below this one."""
        self._next = self._floor
        """No time below this one will be given any more; INFINITY: closed."""
        self.durable = self._floor
        self._incoming: list[Entry] = []
        self._group: WriteGroup | None = None
        self._trim = self._trimmed = self.trimmed = log.trimmed
        self._read: deque[_Kept] = deque()
        """Read, but not in the log yet."""
        self._unread: deque[_Kept] = deque()
        self._evicted = log.last_time
        """Entries up to this time are only in the log, all records after it are in memory."""
        self._position = 1
        """The reader has had everything below this time."""
        self._readings = 0
        self.waiting_bytes = 0
        """Size of the records in memory."""

    # For whoever brings records.

    def receive(self, producer: str, sequence: int, payload: object) -> Receipt:
        """Take a record if it is the next one of its producer. Raises PayloadError."""
        accepted = self._accepted.get(producer, 0)
        if sequence <= accepted:
            return Receipt.REPEATED
        if self.closed:
            return Receipt.CLOSED
        if sequence > accepted + 1:
            return Receipt.EARLY
        self._take(producer, sequence, payload, pack(payload))
        return Receipt.TAKEN

    def close(self) -> None:
        """No more records will come, ever: also a restart finds the source closed."""
        self._next = INFINITY

    @property
    def closed(self) -> bool:
        """Whether new records are refused."""
        return self._next >= INFINITY

    @property
    def ended(self) -> bool:
        """Whether it is closed and the log has everything."""
        return self.durable >= INFINITY

    @property
    def waiting(self) -> int:
        """Records in memory: not read yet, or not stored yet."""
        return len(self._read) + len(self._unread)

    def accepted(self, producer: str) -> int:
        """The last record that was taken of a producer."""
        return self._accepted.get(producer, 0)

    def acknowledged(self, producer: str) -> int:
        """The last record of a producer that will not be forgotten."""
        return self._acknowledged.get(producer, 0)

    def group(self) -> WriteGroup | None:
        """What to write now, if anything; `written` says that it is done."""
        if self._group is None and (
            self._incoming
            or self._trim > self._trimmed
            or self._floor < min(INFINITY, self._next + self._ahead_us // 2)
        ):
            reserved = min(INFINITY, max(self._floor, self._next + self._ahead_us))
            self._group = WriteGroup(tuple(self._incoming), reserved, self._trim)
            self._incoming.clear()
            return self._group
        return None

    def written(self, group: WriteGroup, left: bool) -> list[str]:
        """A group is in the log. Returns the producers to tell; `left`: not all is trimmed."""
        assert group is self._group, "one group at a time"
        self._group = None
        self._trimmed = group.trim - 1 if left else group.trim
        self.trimmed = max(self.trimmed, self._trimmed)
        self._floor = group.reserved
        tell = {entry.producer: entry.sequence for entry in group.entries}
        self._acknowledged.update(tell)
        self._evict()
        self._promise()
        return list(tell)

    # For a front.

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        return self.entries(start)

    def entries(self, start: int) -> Iterator[tuple[int, object] | None]:
        """What `read` gives, as it was received."""
        if start < self._trim:
            raise StateMismatch(
                f"{self._log.name} does not hold the inputs from time {start} any more, only from "
                f"{self._trim} on: go on with the state that it belongs to, or remove both"
            )
        self._readings += 1
        self._position = start
        kept = [*self._read, *self._unread]
        self._read = deque(record for record in kept if record[0] < start)
        self._unread = deque(record for record in kept if record[0] >= start)
        self._evict()
        return self._records(self._readings)

    def move_to(self, time: int) -> int:
        self._next = max(self._next, time)
        self._promise()
        if self._position <= self._evicted:
            return min(self._next, self._position)
        return min(self._next, self._unread[0][0] if self._unread else INFINITY)

    def trim(self, time: int) -> None:
        self._trim = max(self._trim, min(time, self.durable))

    def validate(self) -> None:
        """State the invariants."""
        kept = [record[0] for record in (*self._read, *self._unread)]
        unstored = self._unstored()
        assert all(a < b for a, b in pairwise([self._evicted, *kept, self._next])), "times grow"
        assert all(time >= unstored for time, _, _ in self._read), "what is done with is forgotten"
        assert all(time >= self._position for time, _, _ in self._unread)
        assert self.durable <= min(unstored, self._floor), "what is not stored is not durable"
        assert all(a <= self._accepted[p] for p, a in self._acknowledged.items())
        assert self.waiting_bytes == sum(size for _, _, size in (*self._read, *self._unread))
        assert set(kept) >= {entry.time for entry in self._incoming}

    def _take(self, producer: str, sequence: int, payload: object, data: bytes) -> None:
        time = max(self._next, self._now_us())
        assert time < INFINITY, f"a clock that shows {time}"
        self._next = time + 1
        self._accepted[producer] = sequence
        self._incoming.append(Entry(time, producer, sequence, data))
        self._unread.append((time, payload, len(data)))
        self.waiting_bytes += len(data)

    def _records(self, reading: int) -> Iterator[tuple[int, object] | None]:
        while reading == self._readings:
            if self._position <= self._evicted:
                yield from self._stored(reading)
            elif self._unread:
                record = self._unread.popleft()
                self._read.append(record)
                self._position = record[0] + 1
                self._evict()
                yield record[0], record[1]
            elif self.closed:
                return
            else:
                yield None

    def _stored(self, reading: int) -> Iterator[tuple[int, object]]:
        """A chunk of what is only in the log."""
        until = self._evicted
        found = [e for e in self._log.read(self._position, CHUNK) if e.time <= until]
        assert found, f"{self._log.name} lacks what it had from {self._position} to {until}"
        for entry in found:
            if reading != self._readings:
                return
            self._position = entry.time + 1
            yield entry.time, unpack(entry.data)

    def _evict(self) -> None:
        """Forget what is read and stored."""
        unstored = self._unstored()
        while self._read and self._read[0][0] < unstored:
            self._evicted, _, size = self._read.popleft()
            self.waiting_bytes -= size

    def _promise(self) -> None:
        """Never above the next time: a record that comes would make it go back."""
        self.durable = max(self.durable, min(self._unstored(), self._floor))

    def _unstored(self) -> int:
        """The time of the first record that is not in the log; the next time if there is none."""
        if self._group is not None and self._group.entries:
            return self._group.entries[0].time
        return self._incoming[0].time if self._incoming else self._next


_Kept = tuple[int, object, int]
"""Time, payload, size of the encoded payload."""
