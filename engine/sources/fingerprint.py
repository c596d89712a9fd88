"""Fingerprint of the records of an input that a run has used; the other records may change.

A file may grow, or be corrected, between two calls of a command. The records that the run has used
must not change, because state and outputs depend on them. So with each committed snapshot a front
stores an `InputFingerprint`: a time, and a checksum over all records below it. At the next start
`VerifiedSource` reads these records again, as it has to count them anyway, and compares them with
the fingerprint. The checksum covers parsed records, so a change of compression, line ends or blank
lines does not matter.

    >>> from driftline.engine.sources.memory import ListSource
    >>> source = VerifiedSource(ListSource(["a", "b"]))
    >>> list(source.read(1))
    [(1, 'a'), (2, 'b')]
    >>> used = source.fingerprint_until(3)
    >>> used.until, used.last
    (3, 2)
    >>> list(VerifiedSource(ListSource(["a", "b", "c"]), used).read(3))
    [(3, 'c')]
    >>> list(VerifiedSource(ListSource(["a", "x", "c"]), used).read(3))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    driftline.engine.errors.StateMismatch: memory: of the first 2 records, ...

A file may end in a line without a newline, which counts as a record. Its writer may complete the
line later. Suppose that the line was the last record used. If the run resumes from a snapshot that
contains this record, it continues after the line and logs a warning; outputs keep the record as it
was. Otherwise the run fails.

An older `InputFingerprint` of a run stays valid; it only covers fewer records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import ClassVar, Protocol, runtime_checkable
from zlib import crc32

from msgspec import Struct

from driftline.engine.errors import StateMismatch
from driftline.engine.events import event_fields, log
from driftline.engine.labels import INFINITY
from driftline.engine.sources.source import BadRecord, Source, time_of
from driftline.engine.texts import counted
from driftline.engine.wire.codec import pack
from driftline.engine.wire.role import IOJob

INPUT_CHANGED_HINT = (
    "Give the same records back, or start over: with another --output (and another --state, if you "
    "set one), or with --fresh"
)

SHOWN_CHARS = 80
"""Maximum number of characters of a line in a message."""

Record = tuple[int, object] | BadRecord
"""(time, payload), or a record that cannot be read."""


class InputFingerprint(Struct, frozen=True):
    """Fingerprint of all records of an input with times below `until`."""

    until: int = 0
    last: int = 0
    """The time of the last of these records; 0: there are none."""
    checksum: int = 0
    """Checksum over these records, in order."""
    incomplete_line: tuple[int, int, bytes] | None = None
    """If the last record is a line without a newline: (checksum over all earlier records, offset of
    the line in its file, the line)."""


EMPTY_FINGERPRINT = InputFingerprint()


class StoreFingerprint(IOJob, frozen=True):
    """Job: durably store the fingerprint of the records that a front has used. Result: None."""

    what: ClassVar[str] = "store which records of its input were used"

    fingerprint: InputFingerprint


@runtime_checkable
class GrowingSource(Protocol):
    """Source of files, whose last line may be completed later."""

    def incomplete_line(self) -> tuple[int, bytes] | None:
        """Return (offset, text) of the last line if it is a record without a newline at its end.

        Precondition: the latest `read` has ended.
        """

    def line_at(self, time: int, offset: int, size: int) -> bytes:
        """Return the line at an offset of the file with the record `time`.

        Of a longer line, return at least the first `size` bytes.
        """

    def describe_place(self, time: int) -> str:
        """Return where a record is, for messages."""


class VerifiedSource:
    """Source that reads its input from the beginning, and checks the records that a run has used.

    Only the iterator of the latest `read` may be used. Memory: 16 bytes for each record since the
    last call of `fingerprint_until`.
    """

    def __init__(self, source: Source, used: InputFingerprint = EMPTY_FINGERPRINT) -> None:
        self._source = source
        self._expected = used
        """The fingerprint with which each `read` compares the records."""
        self._forgotten = 0, 0
        """(time of the last one, checksum) of all earlier records, which are not in `_times`."""
        self._last_incomplete: tuple[int, tuple[int, int, bytes]] | None = None
        """(time, `InputFingerprint.incomplete_line`) of the last record, if its line is incomplete;
        None before all records are read."""
        self._warned = False
        self._times = array("q")
        """Times of the yielded records, except those below the latest fingerprint's `until`."""
        self._checksums = array("q")
        """For each record in `_times`: the checksum over all records up to this one."""

    @property
    def name(self) -> str:
        return self._source.name

    def progress(self) -> tuple[int, int] | None:
        return self._source.progress()

    def identity(self) -> str:
        return self._source.identity()

    def check(self, start: int = INFINITY) -> None:
        """Read the used records, and compare them with the fingerprint.

        `start`: the time from which the run will read. Raises StateMismatch if a used record has
        changed, and the errors of `Source.read`.
        """
        if self._expected.until:
            next(self._read(self._expected.until, start), None)

    def read(self, start: int) -> Iterator[Record]:
        """Yield all records with time >= `start`. Raises StateMismatch if a used one changed."""
        return self._read(start, start)

    def _read(self, start: int, resume: int) -> Iterator[Record]:
        """Yield all records with time >= `start`; the run processes those from `resume` on."""
        expected = self._expected
        checksum = checksum_before = last = 0
        self._last_incomplete = None
        self._forgotten, self._times, self._checksums = (0, 0), array("q"), array("q")
        for record in self._source.read(1):
            time = time_of(record)
            if isinstance(record, BadRecord) and record.ends_input:
                if time >= start:
                    yield record
                continue  # no run can have used this record
            if time > expected.last and expected.until:
                self._compare(expected, last, checksum_before, checksum, time, resume)
                expected = EMPTY_FINGERPRINT
            checksum_before, checksum = checksum, crc32(_content(record), checksum)
            last = time
            if time < start:
                self._forgotten = time, checksum
                continue
            self._times.append(time)
            self._checksums.append(checksum)
            yield record
        if expected.until:
            self._compare(expected, last, checksum_before, checksum, INFINITY, resume)
        if isinstance(self._source, GrowingSource) and (line := self._source.incomplete_line()):
            self._last_incomplete = last, (checksum_before, *line)

    def fingerprint_until(self, until: int) -> InputFingerprint:
        """Return the fingerprint of all records below a time.

        Preconditions: all these records were read, and `until` does not decrease between calls.
        """
        count = bisect_left(self._times, until)
        if count:
            self._forgotten = self._times[count - 1], self._checksums[count - 1]
            del self._times[:count], self._checksums[:count]
        last, checksum = self._forgotten
        incomplete_line = (
            self._last_incomplete[1]
            if self._last_incomplete and self._last_incomplete[0] == last
            else None
        )
        return InputFingerprint(max(until, last + 1), last, checksum, incomplete_line)

    def extend_expected(self, used: InputFingerprint) -> None:
        """Compare with `used` from now on, if it covers more records."""
        if used.until > self._expected.until:
            self._expected = used

    def _compare(
        self,
        expected: InputFingerprint,
        last: int,
        checksum_before: int,
        checksum: int,
        next_time: int,
        resume: int,
    ) -> None:
        """Compare the records up to time `last` with the fingerprint `expected`.

        `checksum`: the checksum over these records; `checksum_before`: over all but the last;
        `next_time`: the time of the next record, or INFINITY; `resume`: see `_read`. Raises
        StateMismatch.
        """
        if last != expected.last:
            problem = (
                f"it has only {counted(last, 'record')} now, but this run has used "
                f"{expected.last}: records were removed, or an --input option is missing"
            )
        elif checksum != expected.checksum and (
            completed := self._completed(expected, checksum_before)
        ):
            if resume > last:
                self._warn(completed)
                return
            problem = f"{completed}, but no snapshot contains this record"
        elif checksum != expected.checksum:
            problem = f"of the first {last} records, which this run has used, some have changed"
        elif next_time < expected.until:
            problem = (
                f"this run has read the input to its end, record {last}, and has delivered outputs "
                f"up to record {expected.until - 1}. Records are ordered by their number: record "
                f"{next_time}, which was appended since, would come before these outputs"
            )
        else:
            return
        raise StateMismatch(f"{self.name}: {problem}. {INPUT_CHANGED_HINT}")

    def _completed(self, expected: InputFingerprint, checksum_before: int) -> str:
        """Describe how the line of the last used record was completed; "" if it was not."""
        if (
            expected.incomplete_line is None
            or expected.incomplete_line[0] != checksum_before
            or not isinstance(self._source, GrowingSource)
        ):
            return ""
        _, offset, used_line = expected.incomplete_line
        current_line = self._source.line_at(expected.last, offset, len(used_line) + SHOWN_CHARS)
        if not current_line.startswith(used_line):
            return ""
        before, after = (line.decode(errors="replace") for line in (used_line, current_line))
        return (
            f"{self._source.describe_place(expected.last)} was a line without a newline when this "
            f"run used it, {_end(before)}, and has been completed since: {_end(after)}"
        )

    def _warn(self, completed: str) -> None:
        if not self._warned:
            self._warned = True
            text = "%s. The run keeps the record as it was; --fresh processes the whole file again"
            log.warning(text, completed, extra=event_fields("line-completed", name=self.name))


def _end(line: str) -> str:
    """Return the last characters of a line, for messages."""
    return repr(line if len(line) <= SHOWN_CHARS else f"…{line[-SHOWN_CHARS:]}")


def _content(record: Record) -> bytes:
    """Return the bytes of a record that its checksum covers."""
    if isinstance(record, BadRecord):
        return pack((record.reason, record.raw or record.text))
    return pack(record[1])
