"""Make sources from the inputs of a caller: lists, iterators, paths, addresses, sources.

>>> flow = Flow("pairs")
>>> flow.source("left").union(flow.source("right")).sink()
>>> [source.name for source in sources_of(flow, {"right": iter("cd"), "left": ["a"]})]
['left', 'right']
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from time import monotonic, sleep

from msgspec.structs import astuple

from driftline.connectors.files import FileSource, ZipfSource
from driftline.connectors.files.files import SeveralFiles
from driftline.connectors.guarded import CheckedLiveSource, CheckedSource
from driftline.connectors.inputs import PRODUCER_PREFIXES, open_files
from driftline.connectors.live import LiveSource
from driftline.connectors.logs.received import check_position
from driftline.connectors.registry import open_source as open_address
from driftline.connectors.registry import scheme_of
from driftline.engine.errors import DriftlineError, FlowError, InputError, PayloadError, Unavailable
from driftline.engine.event_time import END
from driftline.engine.events import FailureLog
from driftline.engine.flow.flow import Flow
from driftline.engine.labels import INFINITY
from driftline.engine.sources import BadRecord, QueueSource, RetainedSource, Source
from driftline.engine.sources.record import DEFAULT_FORMAT, validate_payload, validate_record
from driftline.engine.texts import counted
from driftline.engine.wire.codec import pack

UNDELIVERED_MAX = 24
"""Maximum number of records of an iterator whose outputs are not delivered yet."""

POLL_TIMEOUT_S = 0.1
"""Timeout of a poll of a live source, in seconds."""

SOURCE_RETRY_S = 1.0
"""Pause before an unreachable live source is polled again, in seconds."""

SLOW_AFTER_S = 0.002
"""An iterator that takes longer than this for a record counts as slow."""

Input = Iterable[object] | str | Path | Source | LiveSource
"""Records, the path of a file, the address of a connector, or a source."""

Inputs = Mapping[str, Input] | Sequence[Input]
"""One input for each source of a flow: by name, or in the order of the sources."""


def sources_of(flow: Flow, inputs: Inputs) -> list[Source | RetainedSource | LiveSource]:
    """Make a source of each input, in the order of the flow's sources. Reads no iterable yet.

    Returns a `LiveSource` unchanged. Raises FlowError if inputs are missing, superfluous or of a
    wrong type; Unavailable or InputError for a file that cannot be opened.
    """
    names = [source.name for source in flow.validate().sources]
    return [_source(name, value) for name, value in zip(names, _ordered(flow, inputs), strict=True)]


def _ordered(flow: Flow, inputs: Inputs) -> list[Input]:
    """Return the inputs in the order of the flow's sources.

    Raises FlowError unless there is one input for each source.
    """
    names = [source.name for source in flow.sources]
    sources_text = f"flow {flow.name!r} has the source{'s' * (len(names) > 1)} {', '.join(names)}"
    if isinstance(inputs, Mapping):
        return flow.order_inputs(inputs)
    one_input = str, bytes, Path, Source, LiveSource
    if isinstance(inputs, one_input) or not isinstance(inputs, Iterable):
        raise FlowError(
            f"inputs are {_kind(inputs)}: give one input for each source, as {{name: input}} or as "
            f"a list of inputs; {sources_text}"
        )
    values = list(inputs)
    if len(values) != len(names):
        has_records = any(isinstance(each, Mapping) for each in values)
        raise FlowError(
            f"{sources_text}, but got {counted(len(values), 'input')}"
            + ("; a list of records is one input: give [records]" if has_records else "")
        )
    return values


class LiveRecords:
    """The records of a live source, for a run in one process.

    Such a run has no durable state: after a failure, the same call needs all records again. The
    records are therefore acknowledged only once the run has ended.

    Iteration polls until the source ends, and skips records that the source repeats.
    """

    def __init__(self, source: LiveSource) -> None:
        self._source = CheckedLiveSource(source)
        self._offsets: dict[str, int] = {}

    def __iter__(self) -> Iterator[object]:
        name, failures = self._source.name, FailureLog("source-unavailable")
        self._source.start({})
        while True:
            try:
                batch = self._source.poll(POLL_TIMEOUT_S)
            except Unavailable as error:
                failures.record_failure(monotonic(), f"{name}: {error}; polling again", name=name)
                sleep(SOURCE_RETRY_S)
                continue
            if batch is None:
                return
            for partition, offset, value in batch:
                check_position(name, partition, offset)
                if offset > self._offsets.get(partition, -1):
                    self._offsets[partition] = offset
                    yield value

    def acknowledge(self) -> None:
        """Acknowledge all records read so far. Precondition: their outputs are stored."""
        if self._offsets:
            self._source.acknowledge_last(self._offsets)

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def _source(name: str, value: Input) -> Source | RetainedSource | LiveSource:
    """Make a source of an input; `name`: the name of the flow's source.

    Raises FlowError, Unavailable, InputError.
    """
    if value == "":
        raise FlowError(f"source {name!r}: the input is an empty text: give the path of a file")
    if isinstance(value, type):
        raise FlowError(
            f"source {name!r}: {value.__name__} is a class; give an object: {value.__name__}(...)"
        )
    if isinstance(value, str) and value.startswith(PRODUCER_PREFIXES):
        raise FlowError(
            f"source {name!r}: {value} is an address; only the command `driftline run` receives "
            "records over a network"
        )
    if isinstance(value, str) and scheme_of(value):
        value = open_address(value)
    if isinstance(value, LiveSource):
        return value
    if isinstance(value, (str, Path)):
        return _file(name, value)
    if isinstance(value, RetainedSource):
        raise FlowError(
            f"source {name!r}: a live source does not end by itself; give an iterator, or send "
            "records one by one with FlowTest"
        )
    if isinstance(value, Source):
        return value if isinstance(value, CHECKED) else CheckedSource(value)
    if isinstance(value, (bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise FlowError(
            f"source {name!r}: {_kind(value)} is not an input: give a list or an iterator of "
            "records, the path of a file, or a Source"
        )
    if isinstance(value, AbstractSet):
        raise FlowError(f"source {name!r}: a set has no order: give a list of records")
    if isinstance(value, Sequence):
        return ListedRecords(name, value)
    return IteratorSource(name, iter(value))


def _file(name: str, path: str | Path) -> Source:
    try:
        return open_files([str(path)], DEFAULT_FORMAT, "run(...)")
    except DriftlineError as error:
        if isinstance(path, Path) or Path(path).exists():
            raise
        raise FlowError(
            f"source {name!r}: {error}. A text is taken for the path of a file; give records as "
            "a list"
        ) from None


CHECKED = FileSource, SeveralFiles, ZipfSource, CheckedSource
"""Source classes that check their records themselves."""


class ListedRecords:
    """The records of a list. Precondition: the list does not change during the run."""

    def __init__(self, name: str, records: Sequence[object]) -> None:
        self.name = name
        self._records = records

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord]:
        """Yield the records from a time on; record n has time n."""
        for i in range(max(0, start - 1), len(self._records)):
            yield validate_record(i + 1, self._records[i], source_in_words(self.name))

    def progress(self) -> tuple[int, int] | None:
        """Return None, as a list has no bytes to count."""
        return None

    def identity(self) -> str:
        """Return the name and a hash of all encoded records."""
        content = hashlib.sha256()
        for record in self.read(1):
            content.update(pack(astuple(record) if isinstance(record, BadRecord) else record[1]))
        return f"{self.name}, {content.hexdigest()[:32]}"


class IteratorSource(QueueSource):
    """The records of an iterator; record n has time n.

    A record is *undelivered* until its outputs are delivered. A quick iterator may have up to
    `UNDELIVERED_MAX` undelivered records. A slow iterator is read only when there are none. The
    source keeps a record until no replay can need it.
    """

    def __init__(
        self, name: str, records: Iterator[object], description: str = "an iterator"
    ) -> None:
        super().__init__(name)
        self._description = description
        self.delivered: Callable[[], int] = lambda: INFINITY
        """Returns the delivered frontier: all outputs with smaller times are delivered."""
        self._iterator = records
        self._undelivered_max = 0
        """Current maximum number of undelivered records."""

    def read(self, start: int) -> Iterator[tuple[int, object] | BadRecord | None]:
        for record in super().read(start):
            if record is None and self._may_read_on():
                self._read_on()
            else:
                yield _record(record)

    def close(self) -> None:
        super().close()
        if isinstance(self._iterator, Generator):
            self._iterator.close()

    def advance_to(self, time: int) -> int:
        return self._next  # times are record numbers, whatever the times of other sources

    def identity(self) -> str:
        return f"{self._description}, {secrets.token_hex(8)}"  # no later run can read this iterator

    def _may_read_on(self) -> bool:
        """Return whether another record may be read. Doubles the limit if none is undelivered."""
        undelivered = self._next - self.delivered()
        if undelivered <= 0:
            self._undelivered_max = min(2 * self._undelivered_max, UNDELIVERED_MAX) or 1
        return undelivered < self._undelivered_max

    def _read_on(self) -> None:
        """Read the next record of the iterator, or close the source at its end.

        Raises InputError if the iterator raises Unavailable.
        """
        began = monotonic()
        try:
            record = next(self._iterator)
        except StopIteration:
            self.put(END)
            self.close()
            return
        except Unavailable as error:  # an iterator that raised cannot be retried
            raise InputError(source_in_words(self.name), self._next, str(error)) from error
        if monotonic() - began > SLOW_AFTER_S:
            self._undelivered_max = 0  # `_may_read_on` makes it 1 once no record is undelivered
        checked = validate_record(self._next, record, source_in_words(self.name))
        self.put(checked if isinstance(checked, BadRecord) else checked[1])


def _record(
    queued: tuple[int, object] | BadRecord | None,
) -> tuple[int, object] | BadRecord | None:
    """Return a queued record, or its payload if that is a `BadRecord`."""
    if isinstance(queued, tuple) and isinstance(queued[1], BadRecord):
        return queued[1]
    return queued


def check_record(source: str, number: int, record: object) -> object:
    """Return a copy of a record as functions receive it.

    Raises PayloadError for an invalid record; the error names the record as `number`.
    """
    try:
        return validate_payload(record)
    except PayloadError as error:
        raise PayloadError(f"{source_in_words(source)}, record {number}: {error}") from None


def source_in_words(name: str) -> str:
    """Return the name of a source for errors about records that come from no file."""
    return f"source {name!r}"


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
