"""Standard input as a source: a stream that nobody can read again, kept in an input log.

Records are in the log before any output of theirs leaves. Their times are 1, 2, ... as those of a
file; or, beside other inputs, what a clock shows: so a pipe that is silent holds nobody up.

After an interruption the same command is given the same stream again, from its beginning: what was
taken before is passed over. To see that it is the same stream, the number of an entry holds not
only that of the record, but also a checksum of all records up to it.

A record that cannot be read is kept as a tuple; all others are dicts.

No file is read here: `deploy.host.standard_input` brings the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zlib import crc32

from driftline.engine.errors import InputError, StateMismatch
from driftline.engine.sources.logs.received import RESERVE_US, Log, ReceivedSource
from driftline.engine.sources.record import Malformed, Row
from driftline.engine.sources.source import BadRecord
from driftline.engine.wire.codec import pack

PIPE = "standard input"
"""The producer of all records."""

SUM_BITS = 24


class PipedSource(ReceivedSource):
    """The records of one stream."""

    def __init__(
        self, log: Log, now_us: Callable[[], int] | None = None, *, keep_bad: bool = False
    ) -> None:
        """`now_us`: the clock, if there is to be one; `keep_bad`: a record that cannot be read does
        not end the run."""
        ahead_us = 0 if now_us is None else RESERVE_US
        super().__init__(log, now_us or (lambda: 0), PIPE, ahead_us)
        before = self.accepted(PIPE)
        self.taken = before >> SUM_BITS
        """Records that were taken before this start."""
        self._sum_taken = before % (1 << SUM_BITS)
        self._keep_bad = keep_bad
        self._seen = self._sum = 0

    def take(self, row: Row) -> None:
        """Take the next record of the stream, unless it was taken before this start.

        Raises InputError for one that cannot be read, StateMismatch if this is another stream.
        """
        self._seen += 1
        payload: object = row
        if isinstance(row, Malformed):
            if not self._keep_bad:
                raise InputError(PIPE, self._seen, row.reason)
            payload = (self._seen, row.reason, row.text, row.raw)
        data = pack(payload)
        self._sum = crc32(data, self._sum) % (1 << SUM_BITS)
        if self._seen > self.taken:
            self._take(PIPE, self._seen << SUM_BITS | self._sum, payload, data)
        elif self._seen == self.taken and self._sum != self._sum_taken:
            raise self._another(f"its first {self.taken} records are others")

    def end(self) -> None:
        """The stream has ended. Raises StateMismatch if it is shorter than before."""
        if self._seen < self.taken:
            raise self._another(f"it ends after {self._seen}")
        self.close()

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        return (record and as_record(*record) for record in self.entries(start))

    def _another(self, what: str) -> StateMismatch:
        return StateMismatch(
            f"this is not the standard input of which {self.taken} records were taken before: "
            f"{what}. Give the same stream again, from its beginning, or another --output"
        )


def as_record(time: int, payload: object) -> tuple[int, object] | BadRecord:
    """What is in the log of a pipe, as the record that it was."""
    match payload:
        case (int(number), str(reason), str(text), str(raw)):
            if number != time:
                reason += f" (it is record {number} of this input)"
            return BadRecord(time, PIPE, reason, text, raw)
    return time, payload
