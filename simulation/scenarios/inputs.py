"""A user's records for a simulated run: drawn from files, or given in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from shlex import quote
from typing import Protocol

from msgspec import Struct

from driftline.connectors.inputs import open_given_files
from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.sources import BadRecord, Source, lenient, strict
from driftline.engine.sources.record import COMMA, DEFAULT_SHAPE, UTF_8, Shape
from driftline.engine.texts import counted

READ_MAX = 10_000
"""Number of records of a source, from its start, that may be drawn."""


class Inputs(Protocol):
    """Records for each source of a flow."""

    def draw(self, flow: Flow, chance: Random, count: int, front: int) -> list[object]:
        """Return about `count` records of a run for a front, in the order of the source."""


class GivenRecords(Struct, frozen=True):
    """Records in memory, one list per source; each run has all of them."""

    records: Sequence[list[object]]

    def __str__(self) -> str:
        return ""

    def draw(self, flow: Flow, chance: Random, count: int, front: int) -> list[object]:
        return self.records[front]


class InputFiles(Struct, frozen=True):
    """Files to draw records from, for the sources of the flow, and the shape of their records."""

    given: tuple[str, ...]
    """The inputs as the user names them; see `connectors.inputs`."""
    shape: Shape = DEFAULT_SHAPE
    skip_bad_records: bool = False
    """Whether unreadable records are left out; otherwise they raise InputError."""

    def __str__(self) -> str:
        shape = self.shape
        options = [f"--input {quote(path)}" for path in self.given]
        options += [f"--id-field {shape.id_field}"] if shape.id_field else []
        options += [f"--text-field {shape.text_field}"] if shape.text_field else []
        options += ["--sections"] if shape.sections else []
        options += [f"--encoding {shape.encoding}"] if shape.encoding != UTF_8 else []
        options += [f"--delimiter {quote(shape.delimiter)}"] if shape.delimiter != COMMA else []
        options += ["--on-error dead-letter"] if self.skip_bad_records else []
        return " ".join(options)

    def draw(self, flow: Flow, chance: Random, count: int, front: int) -> list[object]:
        """Return at most `count` records of a front's files, in their order.

        Raises FlowError for inputs that do not fit the flow, Unavailable for missing files,
        InputError for unreadable records.
        """
        records = self._all(flow)[front]
        size = min(count, len(records))
        return [records[i] for i in sorted(chance.sample(range(len(records)), size))]

    def _all(self, flow: Flow) -> list[list[object]]:
        key = self, tuple(source.name for source in flow.sources)
        if key not in _records_cache:
            sources = open_given_files(flow, self.given, self.shape, "the simulation")
            _records_cache[key] = [
                _Read(source, without_bad=self.skip_bad_records) for source in sources
            ]
        return [read.records for read in _records_cache[key]]

    @property
    def bad_record_notes(self) -> list[str]:
        """A sentence for each source that has had bad records in this process."""
        reads = [read for key, each in _records_cache.items() if key[0] == self for read in each]
        return [text for read in reads if (text := read.bad_record_note)]


class _Read:
    """Records of a source. Raises FlowError if it has none, InputError unless `without_bad`."""

    def __init__(self, source: Source, *, without_bad: bool) -> None:
        self._name = source.name
        self._bad: list[BadRecord] = []
        found = self._good(source) if without_bad else strict(source.read(1))
        self.records = [payload for _, payload in islice(found, READ_MAX)]
        if not self.records:
            why = f": {self.bad_record_note}" if self.bad_record_note else ""
            raise FlowError(f"{source.name} has no records to simulate with{why}")

    def _good(self, source: Source) -> Iterator[tuple[int, object]]:
        for record in lenient(source.read(1)):
            if isinstance(record, BadRecord):
                self._bad.append(record)
            else:
                yield record

    @property
    def bad_record_note(self) -> str:
        """How many records were left out, and why the first one was; empty if none was."""
        if not self._bad:
            return ""
        first = self._bad[0]
        return (
            f"{counted(len(self._bad), 'bad record')} of {self._name} left out, the first one in "
            f"{first.file}, record {first.time}: {first.reason}"
        )


_records_cache: dict[tuple[InputFiles, tuple[str, ...]], list[_Read]] = {}
"""(files, names of the flow's sources) -> the records of each source: read once per process."""
