"""Standard input as a source. A pipe cannot be read again, so its records go to an input log.

A record is in the log before its outputs leave. The time of record n is n; if the flow has other
inputs, times are those of a clock, so that a silent pipe does not delay the others.

After an interruption the user gives the same command the same stream again, from its beginning, and
records that the log has are skipped. To recognise the stream, the number of a log entry holds the
number of the record and a checksum of all records up to it.

In the log, a record that cannot be read is a tuple; all others are dicts.

`deploy.runtime.standard_input` reads the pipe, and calls `take`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zlib import crc32

from driftline.connectors.logs.inputlog import PIPE, of_pipe
from driftline.connectors.logs.received import RESERVE_US, Log, ReceivedSource
from driftline.engine.errors import InputError, StateMismatch
from driftline.engine.sources.record import Malformed, Row
from driftline.engine.sources.source import BadRecord
from driftline.engine.wire.codec import pack

SUM_BITS = 24


class PipedSource(ReceivedSource):
    """The records of one stream."""

    def __init__(
        self,
        log: Log,
        now_us: Callable[[], int] | None = None,
        *,
        keep_bad: bool = False,
        today_us: Callable[[], int] | None = None,
    ) -> None:
        """`now_us`: a clock in microseconds, None for times 1, 2, ...; `keep_bad`: log records that
        cannot be read, instead of raising; `today_us`: the time of day, by which their age is
        known."""
        ahead_us = 0 if now_us is None else RESERVE_US
        super().__init__(log, now_us or (lambda: 0), PIPE, ahead_us, today_us=today_us)
        before = self.accepted(PIPE)
        self.taken = before >> SUM_BITS
        """Records that the log had before this start."""
        self.records = self.taken
        self._sum_taken = before % (1 << SUM_BITS)
        self._keep_bad = keep_bad
        self._seen = self._sum = 0

    def take(self, row: Row) -> None:
        """Take the next record of the stream, or skip it if the log has it.

        Raises InputError for a record that cannot be read, StateMismatch if the stream is another
        one than before.
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
            raise self._another(f"its first {self.taken} records differ")

    def end(self) -> None:
        """The stream has ended. Raises StateMismatch if it has fewer records than the log."""
        if self._seen < self.taken:
            raise self._another(f"it ends after {self._seen}")
        self.close()

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        for record in self.entries(start):
            yield of_pipe(*record) if isinstance(record, tuple) else record

    def _another(self, difference: str) -> StateMismatch:
        return StateMismatch(
            f"this is not the standard input of which {self.taken} records are stored: "
            f"{difference}. Give the same stream again, from its beginning, or another --output"
        )
