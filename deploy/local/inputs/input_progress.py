"""The progress of an input: how many of its records were read, and how far they are delivered.

All counts are those of this call of the command.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from driftline.connectors.files import FileSource, ZipfSource
from driftline.connectors.files.files import SeveralFiles
from driftline.connectors.logs.received import ReceivedSource
from driftline.deploy.roles.front import Front
from driftline.engine.events import Field, event_fields, log
from driftline.engine.sources import RetainedSource, Source
from driftline.engine.texts import counted

NUMBERED_SOURCES = FileSource, SeveralFiles, ZipfSource
"""Sources that use the numbers of records as times."""


class InputFigures(Struct, frozen=True):
    """Figures of the progress of one input. None: unknown or not applicable."""

    name: str
    records: int
    """Records that this call has read, each once."""
    position: int | None
    """Approximate number of bytes at the start of its files whose outputs are all delivered."""
    size: int | None
    """Size of its files in bytes."""
    waiting: int | None
    """Received records that the front has not read yet."""
    lag_s: float
    """Age of the oldest undelivered record, in seconds."""
    producers: int | None = None
    """Number of connected producers."""

    @property
    def percent(self) -> float | None:
        """Share of its files whose outputs are delivered, in per cent."""
        if self.position is None or self.size is None:
            return None
        # A shorter file may have replaced the one that was read.
        return min(100.0, 100.0 * self.position / self.size) if self.size else 100.0

    def __str__(self) -> str:
        if self.percent is not None:
            return f"{self.name} {int(self.percent)} % delivered"
        if self.waiting is None:
            return self.name
        text = f"{self.name} {self.waiting} waiting"
        return text if self.producers is None else f"{text}, {counted(self.producers, 'producer')}"

    def fields(self) -> dict[str, Field]:
        """Return the figures as log fields."""
        percent = None if self.percent is None else round(self.percent, 1)
        return asdict(self) | {"percent": percent}


class InputProgress:
    """The progress of one input."""

    def __init__(
        self,
        front: Front,
        source: Source | RetainedSource,
        start: int,
    ) -> None:
        """Track an input; this call reads from time `start`. Precondition: nothing was read yet."""
        self.front = front
        self._source = source
        self._start = start
        self._position = 0
        """The largest position returned so far: progress never decreases."""
        self._records_before = 0
        """Number of logged records that earlier calls of the command have read."""
        if isinstance(source, ReceivedSource):
            self._records_before = source.records - source.count_stored_from(start)

    def _progress(self) -> tuple[int | None, int | None]:
        """Return (bytes whose outputs are delivered, size of the files), or None for both."""
        progress = self._source.progress()
        if progress is None:
            return None, None
        read_bytes, size = progress
        # Estimate the position of the oldest record in flight, as if all records were equally long.
        last, in_flight = self.front.max_sent_time, self.front.meter.in_flight
        delivered = read_bytes * (last - in_flight) // last if in_flight else read_bytes
        self._position = max(self._position, delivered)
        return self._position, size

    def warn_if_empty(self) -> None:
        """Warn if a file has no record, good or bad. Precondition: it was read to its end."""
        if isinstance(self._source, FileSource | SeveralFiles):
            name = self._source.name
            if self._start == 1 and not self.front.sent_records and not self.front.bad_records:
                log.warning(
                    "%s is empty: it has no record",
                    name,
                    extra=event_fields("input-empty", name=name),
                )

    def read_figures(self, now: float) -> InputFigures:
        """Return the current figures; `now`: seconds, monotonic."""
        meter, source, records = self.front.meter, self._source, self.front.sent_records
        position, size = self._progress()
        lag_s, waiting, producers = meter.oldest_s(now), None, None
        if isinstance(source, ReceivedSource):
            producers = source.connected
            if self.front.first_time in (0, self._start):  # unknown if an older snapshot was loaded
                waiting = max(
                    0, source.records - self._records_before - records - self.front.bad_records
                )
            if meter.oldest is not None:
                lag_s = max(lag_s, source.age_s(meter.oldest))
            elif waiting != 0:
                lag_s = source.age_s(max(self._start, self.front.max_sent_time + 1))
        return InputFigures(source.name, records, position, size, waiting, lag_s, producers)
