"""What a run has used of an input: a checksum over its records, so that the rest may change.

A file may grow, or be mended, between two calls of a command. What the run has used must be the
same: state and outputs were made of it. So with each committed snapshot a front notes a `Used`: a
time, and a checksum over all records below it. At the next start `CheckedSource` reads these
records again, as it has to in order to count them, and compares. The checksum is over records, not
over the file: compression, line ends and blanks do not matter.

    >>> from driftline.engine.sources.memory import ListSource
    >>> source = CheckedSource(ListSource(["a", "b"]))
    >>> list(source.read(1))
    [(1, 'a'), (2, 'b')]
    >>> used = source.used(3)
    >>> used.until, used.last
    (3, 2)
    >>> list(CheckedSource(ListSource(["a", "b", "c"]), used).read(3))
    [(3, 'c')]
    >>> list(CheckedSource(ListSource(["a", "x", "c"]), used).read(3))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    driftline.engine.errors.StateMismatch: memory: of the first 2 records, ...

Invariant: an older `Used` of a run is true, too; it only says less.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar
from zlib import crc32

from driftline.engine.errors import StateMismatch
from driftline.engine.labels import INFINITY
from driftline.engine.sources.source import BadRecord, Source, time_of
from driftline.engine.wire.codec import pack
from driftline.engine.wire.party import Job

SPANS_MAX = 2**16
"""How many checksums are kept at most while no snapshot is committed; an even number."""

NOTED_MAX = 64
"""How many earlier answers of `used` are kept, for who asks of the snapshot before."""

HELD_MAX = 4096
"""How many records `check` holds at most, so that `read` need not read them again."""

WAYS_OUT = (
    "Give the same records back, or begin anew: with another --output (and --state, if you do), "
    "or with --fresh"
)

Record = tuple[int, object] | BadRecord


@dataclass(frozen=True, slots=True)
class Used:
    """All records of an input with times below `until`."""

    until: int = 0
    last: int = 0
    """The time of the last one of them; 0: there is none."""
    sum: int = 0
    """A checksum over them, in order."""


NOTHING = Used()


@dataclass(frozen=True, slots=True)
class StoreUsed(Job):
    """Job: make what was used of a front's input durable. Result: None."""

    what: ClassVar[str] = "note what was used of its input"

    used: Used
    by_snapshot: bool = False
    """Whether it is what a committed snapshot was made of."""


class Spans:
    """Spans of records, in order: of each (time of the first record, of the last one, checksum over
    all up to it). Each takes 24 bytes."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._at = 0
        """Where the first span begins; what is before it has been taken."""

    def __len__(self) -> int:
        return (len(self._numbers) - self._at) // 3

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        first, last, total = self._numbers[self._at + 3 * index : self._at + 3 * index + 3]
        return first, last, total

    def below(self, until: int) -> int:
        """How many spans end below a time."""
        lasts = self._at + 1
        return bisect_left(range(len(self)), until, key=lambda i: self._numbers[lasts + 3 * i])

    def add(self, first: int, last: int, total: int) -> None:
        """A span follows."""
        self._numbers.extend((first, last, total))

    def take(self, count: int) -> None:
        """Remove the first spans."""
        self._at += 3 * count
        if 2 * self._at >= len(self._numbers):
            del self._numbers[: self._at]
            self._at = 0

    def clear(self) -> None:
        """Remove all spans."""
        self._numbers, self._at = array("q"), 0

    def thin(self) -> None:
        """Join spans by two, as there has been no snapshot for long. Precondition: their number is
        even."""
        old, joined = self._numbers[self._at :], array("q", bytes(24 * (len(self) // 2)))
        joined[0::3], joined[1::3], joined[2::3] = old[0::6], old[4::6], old[5::6]
        self._numbers, self._at = joined, 0


class CheckedSource:
    """A source that reads from its beginning anyway; what a run has used of it is checked.

    Only the latest `read` may be used.
    """

    def __init__(
        self,
        source: Source,
        used: Used = NOTHING,
        *,
        user: str = "this run",
        ways_out: str = WAYS_OUT,
    ) -> None:
        """`user`: what has used the records, and `ways_out`: what to do if they have changed; for
        errors."""
        self._source = source
        self._user, self._ways_out = user, ways_out
        self._used = used
        """What is compared whenever it is read."""
        self._below = 0, 0
        """(time of the last record, checksum) of the records before those in `_spans`."""
        self._spans = Spans()
        """Of the records that were read; nearly always a span is one record."""
        self._over = False
        """Whether the records were read to their end."""
        self._noted: dict[int, Used] = {used.until: used} if used.until else {}
        """Time -> what was told of the records below it; the latest ones."""
        self._begun: tuple[int, Iterator[Record]] | None = None
        """The first time of a `read`, and its records, if `check` has begun it."""

    @property
    def name(self) -> str:
        return self._source.name

    def progress(self) -> tuple[int, int] | None:
        return self._source.progress()

    def identity(self) -> str:
        return self._source.identity()

    def check(self, start: int) -> None:
        """Compare the records that were used; `start`: the time from which on `read` will be asked.

        Raises StateMismatch if they have changed, and the errors of `read`.
        """
        if not self._used.until:
            return
        records = self._summed(start)
        held: list[Record] = []
        for record in records:
            if len(held) < HELD_MAX:
                held.append(record)
            if time_of(record) >= self._used.until:
                break
        if len(held) < HELD_MAX:
            self._begun = start, chain(held, records)

    def read(self, start: int) -> Iterator[Record]:
        """All records with time >= `start`. Raises StateMismatch where used ones have changed."""
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == start:
            return begun[1]
        return self._summed(start)

    def used(self, until: int) -> Used:
        """What there is below a time. Preconditions: all of it was read; times do not decrease."""
        used = self._noted[until] = self._up_to(until)
        while len(self._noted) > NOTED_MAX:
            del self._noted[next(iter(self._noted))]
        self._below = used.last, used.sum
        self._spans.take(self._spans.below(until))
        return used

    def below(self, until: int) -> Used | None:
        """What there is below a time; None if it is not read yet. Changes nothing.

        If nothing is known of so early a time any more, it is of a later one, as `last` says.
        """
        if until in self._noted:
            return self._noted[until]
        last = self._spans[len(self._spans) - 1][1] if self._spans else self._below[0]
        if until > last + 1 and not self._over:
            return None
        return self._up_to(until)

    def _up_to(self, until: int) -> Used:
        count = self._spans.below(until)
        last, total = self._spans[count - 1][1:] if count else self._below
        if count < len(self._spans) and self._spans[count][0] < until:
            until = last + 1  # a span of several records: nothing is known within it
        return Used(max(until, last + 1), last, total)

    def note(self, used: Used) -> None:
        """From now on a run depends on these records, too."""
        if used.until > self._used.until:
            self._used = used

    def _summed(self, start: int) -> Iterator[Record]:
        """All records with time >= `start`, while all from the first one on are summed."""
        used = self._used
        total = last = 0
        self._below = 0, 0
        self._spans.clear()
        self._over = False
        for record in self._source.read(1):
            time = time_of(record)
            if isinstance(record, BadRecord) and record.ends:
                if time >= start:
                    yield record
                continue  # where a file breaks off nothing was read that could be used
            if time > used.last and used.until:
                self._compare(used, last, total, time)
                used = NOTHING
            total = crc32(_content(record), total)
            last = time
            if time < start:
                self._below = time, total
                continue
            if len(self._spans) >= SPANS_MAX:
                self._spans.thin()
            self._spans.add(time, time, total)
            yield record
        if used.until:
            self._compare(used, last, total, INFINITY)
        self._over = True

    def _compare(self, used: Used, last: int, total: int, following: int) -> None:
        """Compare what was read up to time `last`; `following`: the time of the next record."""
        if last != used.last:
            problem = f"it has only {last} records now, but {self._user} has used {used.last}"
        elif total != used.sum:
            problem = f"of the first {last} records, which {self._user} has used, some have changed"
        elif following < used.until:
            problem = (
                f"this input has ended at record {last} in {self._user}, while others went on to "
                f"{used.until - 1}. Records are ordered by their number: record {following}, which "
                "was appended since, would come before what is delivered"
            )
        else:
            return
        raise StateMismatch(f"{self.name}: {problem}. {self._ways_out}")


def _content(record: Record) -> bytes:
    if isinstance(record, BadRecord):
        return pack((record.reason, record.raw or record.text))
    return pack(record[1])
