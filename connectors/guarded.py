"""Guards calls to user-defined sources and sinks: their errors name the source or the sink.

A connector raises Driftline's errors for expected failures. Any other exception, and a result of a
wrong type, is a fault of the connector: it becomes a FlowError, which ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import monotonic, sleep
from typing import TypeVar

from driftline.connectors.live import LiveSource, Record
from driftline.engine.errors import DriftlineError, FlowError, Unavailable
from driftline.engine.events import RateLimitedLog, event_fields, log
from driftline.engine.labels import INFINITY
from driftline.engine.operators.user_code import line_of
from driftline.engine.sources.record import validate_record
from driftline.engine.sources.source import BadRecord, Source, time_of
from driftline.engine.texts import describe_exception, reraise_interrupt, safe_repr
from driftline.engine.wire.codec import is_unicode

T = TypeVar("T")

LAST_ACKNOWLEDGEMENT_S = 5.0
"""How long the last acknowledgement of a source is retried, in seconds."""

ACKNOWLEDGEMENT_RETRY_S = 0.5
"""Pause before each retry of the last acknowledgement, in seconds."""


def call_guarded(subject: str, call: Callable[[], T]) -> T:
    """Return the result of a connector call. `subject`: the source or the sink, for errors.

    Raises FlowError for an exception that is not Driftline's.
    """
    try:
        return call()
    except DriftlineError:
        raise
    except BaseException as error:  # also SystemExit: user code must not end the process
        reraise_interrupt(error)
        raise FlowError(
            f"{subject} raised {describe_exception(error)}\n  at: {line_of(error)}\n"
            "  Fix it, and run the same command again; for temporary errors, raise Unavailable"
        ) from error


def _shown(value: object) -> str:
    return safe_repr(repr, value)[:200]


def _identity_of(title: str, source: Source | LiveSource) -> str:
    identity: object = call_guarded(title, source.identity)
    if not isinstance(identity, str):
        raise FlowError(f"{title}: identity() returned {_shown(identity)}, which is not a text")
    return identity


def _name_of(source: Source | LiveSource) -> str:
    name: object = call_guarded(f"the source {type(source).__name__}", lambda: source.name)
    if not isinstance(name, str):
        raise FlowError(f"the source {_shown(name)}: its name is not a text")
    return name


class CheckedSource:
    """A user's source of records that can be read again, with checked calls and records.

    Invalid payloads become bad records. Raises FlowError if the source breaks the contract of
    `engine.sources.source.Source`.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name = _name_of(source)
        self._title = f"the source {self.name!r}"

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """Yield the records of `Source.read`."""
        records: Iterator[object] = call_guarded(
            self._title, lambda: iter(self._source.read(start))
        )
        end = object()
        last = max(start, 1) - 1
        while (record := call_guarded(self._title, lambda: next(records, end))) is not end:
            if not isinstance(record, BadRecord) and not (
                isinstance(record, tuple) and len(record) == 2
            ):
                raise FlowError(
                    f"{self._title}: read({start}) yielded {_shown(record)}; give pairs of a time "
                    "and a record"
                )
            time: object = time_of(record)
            if type(time) is not int or not last < time < INFINITY:
                raise FlowError(
                    f"{self._title}: read({start}) yielded the time {_shown(time)} after {last}; "
                    "times are integers that grow from record to record, and less than 2**62"
                )
            last = time
            if isinstance(record, BadRecord):
                texts = record.file, record.reason, record.text, record.raw
                if not all(type(text) is str and is_unicode(text) for text in texts):
                    raise FlowError(
                        f"{self._title}: read({start}) yielded a BadRecord of time {time} whose "
                        "file, reason, text or raw is not a text that UTF-8 can encode"
                    )
                yield record
            else:
                yield validate_record(time, record[1], self.name)

    def progress(self) -> tuple[int, int] | None:
        """Return `Source.progress`; None if it fails, as it is only for display."""
        try:
            match self._source.progress():
                case (int(), int()) as progress:
                    return progress
        except BaseException as error:  # also SystemExit: user code must not end the process
            reraise_interrupt(error)
        return None

    def identity(self) -> str:
        """Return `Source.identity`."""
        return _identity_of(self._title, self._source)


class CheckedLiveSource:
    """A live source with checked calls and results."""

    def __init__(self, source: LiveSource) -> None:
        """Wrap a source. Raises FlowError if its name is not a text."""
        self._source = source
        self.name = _name_of(source)
        self._title = f"the source {self.name!r}"
        self._last_offsets: dict[str, int] = {}
        """Partition -> largest offset that `poll` has returned."""
        self._repeated_log = RateLimitedLog(
            "repeated-records", f"{self._title} returned records again, which are dropped"
        )

    def identity(self) -> str:
        """Return `LiveSource.identity`."""
        return _identity_of(self._title, self._source)

    def start(self, offsets: Mapping[str, int]) -> None:
        """Call `LiveSource.start`."""
        try:
            call_guarded(self._title, lambda: self._source.start(offsets))
        except Unavailable as error:
            raise Unavailable(f"{self._title} cannot start: {error}") from error

    def poll(self, timeout_s: float) -> list[Record] | None:
        """Return the records of `LiveSource.poll`."""
        return call_guarded(self._title, lambda: self._poll(timeout_s))

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """Call `LiveSource.acknowledge`."""
        call_guarded(self._title, lambda: self._source.acknowledge(offsets))

    def acknowledge_last(self, offsets: Mapping[str, int]) -> None:
        """Call `LiveSource.acknowledge` at the end of a run; retry while it raises Unavailable.

        After `LAST_ACKNOWLEDGEMENT_S`, only log a warning, because the records are stored.
        """
        deadline = monotonic() + LAST_ACKNOWLEDGEMENT_S
        while True:
            try:
                return self.acknowledge(offsets)
            except Unavailable as error:
                if monotonic() > deadline:
                    log.warning(
                        "%s: the last records are stored, but not acknowledged: %s",
                        *(self.name, error),
                        extra=event_fields("source-not-acknowledged", name=self.name),
                    )
                    return None
            sleep(ACKNOWLEDGEMENT_RETRY_S)

    def close(self) -> None:
        """Call `LiveSource.close`; log its error as a warning, as all records are stored."""
        self._repeated_log.close()
        try:
            call_guarded(self._title, self._source.close)
        except DriftlineError as error:
            fields = event_fields("source-not-closed", name=self.name)
            log.warning("%s", error, extra=fields)

    def _poll(self, timeout_s: float) -> list[Record] | None:
        batch = self._source.poll(timeout_s)
        if batch is None:
            return None
        try:
            records = [Record(*record) for record in batch]
        except TypeError:
            raise FlowError(
                f"{self._title}: poll() returned {_shown(batch)}; give a list of Record, or None "
                "at the end"
            ) from None
        self._check_order(records)
        return records

    def _check_order(self, records: list[Record]) -> None:
        """Raise FlowError if offsets of one list do not grow; log records of earlier lists.

        A system may deliver records again, for example after a lost connection.
        """
        in_list: dict[str, int] = {}
        for partition, offset, _ in records:
            if not isinstance(partition, str) or type(offset) is not int or offset < 0:
                return  # `check_position` rejects the record
            if offset <= (previous := in_list.get(partition, -1)):
                raise FlowError(
                    f"{self._title}: poll() returned offset {offset} of partition {partition!r} "
                    f"after offset {previous}; sort the records, and give each an offset of its own"
                )
            in_list[partition] = offset
            if offset <= (last := self._last_offsets.get(partition, -1)):
                self._repeated_log.add(
                    monotonic(), f"offset {offset} of partition {partition!r} after offset {last}"
                )
            else:
                self._last_offsets[partition] = offset
