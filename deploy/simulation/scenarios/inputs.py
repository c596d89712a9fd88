"""A user's records for a simulated run: drawn from files, or given in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Protocol

from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.sources import Source, strict
from driftline.engine.sources.inputs import AS_IT_IS, open_given_files
from driftline.engine.sources.record import Shape

READ_MAX = 10_000
"""Only the first so many records of a source are drawn."""


class Inputs(Protocol):
    """Records for each source of a flow."""

    def draw(self, flow: Flow, chance: Random, count: int, front: int) -> list[object]:
        """About `count` records of a run for a front, in the order of the source."""


@dataclass(frozen=True, slots=True)
class GivenRecords:
    """Records in memory, one list per source; each run has all of them."""

    records: Sequence[list[object]]

    def __str__(self) -> str:
        return ""

    def draw(self, flow: Flow, chance: Random, count: int, front: int) -> list[object]:
        return self.records[front]


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Files to draw records from, for the sources of the flow, and the shape of their records."""

    given: tuple[str, ...]
    """The inputs as the user names them: see `engine.sources.inputs`."""
    shape: Shape = AS_IT_IS

    def __str__(self) -> str:
        shape = self.shape
        options = [f"--input {path}" for path in self.given]
        options += [f"--id-field {shape.id_field}"] if shape.id_field else []
        options += [f"--text-field {shape.text_field}"] if shape.text_field else []
        options += ["--sections"] if shape.sections else []
        return " ".join(options)

    def draw(self, flow: Flow, chance: Random, count: int, front: int) -> list[object]:
        """At most `count` records of a front's files, in their order.

        Raises FlowError for inputs that do not fit the flow, Unavailable for files that are
        missing, InputError for records that cannot be read.
        """
        records = self._all(flow)[front]
        size = min(count, len(records))
        return [records[i] for i in sorted(chance.sample(range(len(records)), size))]

    def _all(self, flow: Flow) -> list[list[object]]:
        key = self, tuple(source.name for source in flow.sources)
        if key not in _read:
            sources = open_given_files(flow, self.given, self.shape, "the simulation")
            _read[key] = [_records(source) for source in sources]
        return _read[key]


_read: dict[tuple[InputFiles, tuple[str, ...]], list[list[object]]] = {}
"""(files, names of the flow's sources) -> the records of each source: read once per process."""


def _records(source: Source) -> list[object]:
    records = [payload for _, payload in islice(strict(source.read(1)), READ_MAX)]
    if not records:
        raise FlowError(f"{source.name} has no records to simulate with")
    return records
