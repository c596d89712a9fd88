"""A user's records for a simulated run: drawn from files, or given in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from shlex import quote
from typing import Protocol

from msgspec import Struct

from driftline.connectors.inputs import open_rereadable_inputs
from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.sources import BadRecord, Source, lenient, strict
from driftline.engine.sources.record import COMMA, DEFAULT_FORMAT, UTF_8, RecordFormat
from driftline.engine.texts import counted

READ_MAX = 10_000
"""Records are drawn from at most this many records at the start of a source."""


class Inputs(Protocol):
    """Records for each source of a flow.

    `str()` returns the options of `driftline simulate` that select them; "" if none do.
    """

    def draw(self, flow: Flow, rng: Random, count: int, front: int) -> list[object]:
        """Return the records of a run for a front, in the order of the source.

        `front`: number of the front and of its source; `count`: how many records to draw at most;
        records in memory are all returned.
        """


class GivenRecords(Struct, frozen=True):
    """Records in memory, one list per source; each run has all of them."""

    records: Sequence[list[object]]

    def __str__(self) -> str:
        return ""

    def draw(self, flow: Flow, rng: Random, count: int, front: int) -> list[object]:
        return self.records[front]


class InputFiles(Struct, frozen=True):
    """Files to draw records from, for the sources of the flow, and the format of their records."""

    inputs: tuple[str, ...]
    """The values of `--input`; see `connectors.inputs`."""
    record_format: RecordFormat = DEFAULT_FORMAT
    skip_bad_records: bool = False
    """Whether unreadable records are left out; otherwise they raise InputError."""

    def __str__(self) -> str:
        record_format = self.record_format
        options = [f"--input {quote(path)}" for path in self.inputs]
        options += [f"--id-field {record_format.id_field}"] if record_format.id_field else []
        options += [f"--text-field {record_format.text_field}"] if record_format.text_field else []
        options += ["--sections"] if record_format.sections else []
        options += (
            [f"--encoding {record_format.encoding}"] if record_format.encoding != UTF_8 else []
        )
        options += (
            [f"--delimiter {quote(record_format.delimiter)}"]
            if record_format.delimiter != COMMA
            else []
        )
        options += ["--on-error dead-letter"] if self.skip_bad_records else []
        return " ".join(options)

    def draw(self, flow: Flow, rng: Random, count: int, front: int) -> list[object]:
        """Return at most `count` records of a front's files, in their order.

        Raises FlowError for inputs that do not fit the flow, Unavailable for missing files,
        InputError for unreadable records.
        """
        records = self._read_all(flow)[front]
        size = min(count, len(records))
        return [records[i] for i in sorted(rng.sample(range(len(records)), size))]

    def _read_all(self, flow: Flow) -> list[list[object]]:
        """Return the first `READ_MAX` records of each source of the flow."""
        key = self, tuple(source.name for source in flow.sources)
        if key not in _records_cache:
            sources = open_rereadable_inputs(
                flow, self.inputs, self.record_format, "the simulation"
            )
            _records_cache[key] = [
                _SourceRecords(source, skip_bad_records=self.skip_bad_records) for source in sources
            ]
        return [read.records for read in _records_cache[key]]

    @property
    def bad_record_notes(self) -> list[str]:
        """A sentence for each source of which bad records were left out."""
        caches = [sources for key, sources in _records_cache.items() if key[0] == self]
        notes = [source.bad_record_note for sources in caches for source in sources]
        return [note for note in notes if note]


class _SourceRecords:
    """Records of a source. Raises FlowError if there are none; InputError for a bad record.

    `skip_bad_records`: leave bad records out instead.
    """

    def __init__(self, source: Source, *, skip_bad_records: bool) -> None:
        self._name = source.name
        self._bad: list[BadRecord] = []
        records = self._read_good(source) if skip_bad_records else strict(source.read(1))
        self.records = [payload for _, payload in islice(records, READ_MAX)]
        if not self.records:
            reason = f": {self.bad_record_note}" if self.bad_record_note else ""
            raise FlowError(f"{source.name} has no records to simulate with{reason}")

    def _read_good(self, source: Source) -> Iterator[tuple[int, object]]:
        for record in lenient(source.read(1)):
            if isinstance(record, BadRecord):
                self._bad.append(record)
            else:
                yield record

    @property
    def bad_record_note(self) -> str:
        """How many records were left out, and why the first one was; "" if none was."""
        if not self._bad:
            return ""
        first = self._bad[0]
        return (
            f"{counted(len(self._bad), 'bad record')} of {self._name} left out, the first one in "
            f"{first.file}, record {first.time}: {first.reason}"
        )


_records_cache: dict[tuple[InputFiles, tuple[str, ...]], list[_SourceRecords]] = {}
"""(files, names of the flow's sources) -> the records of each source: read once per process."""
