"""Records for a simulated run that are a user's: drawn from files, or given in memory."""

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
"""Records of a file that are drawn from."""


class Inputs(Protocol):
    """Records for each source of a flow."""

    def draw(self, flow: Flow, chance: Random, count: int, front: int) -> list[object]:
        """The records of a run for a front, about so many, in their order."""


@dataclass(frozen=True, slots=True)
class GivenRecords:
    """Records in memory, a list for each source: every run has all of them."""

    records: Sequence[list[object]]

    def __str__(self) -> str:
        return ""

    def draw(self, flow: Flow, chance: Random, count: int, front: int) -> list[object]:
        return self.records[front]


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Files to draw records from, for the sources of the flow, and how they are read."""

    given: tuple[str, ...]
    """As the user named them: see `engine.sources.inputs`."""
    shape: Shape = AS_IT_IS

    def __str__(self) -> str:
        shape = self.shape
        options = [f"--input {path}" for path in self.given]
        options += [f"--id-field {shape.id_field}"] if shape.id_field else []
        options += [f"--text-field {shape.text_field}"] if shape.text_field else []
        options += ["--sections"] if shape.sections else []
        return " ".join(options)

    def draw(self, flow: Flow, chance: Random, count: int, front: int) -> list[object]:
        """Some records of a front's files, in their order.

        Raises FlowError, Unavailable, InputError.
        """
        found = self._all(flow)[front]
        return [found[i] for i in sorted(chance.sample(range(len(found)), min(count, len(found))))]

    def _all(self, flow: Flow) -> list[list[object]]:
        key = self, tuple(source.name for source in flow.sources)
        if key not in _read:
            sources = open_given_files(flow, self.given, self.shape, "the simulation")
            _read[key] = [_records(source) for source in sources]
        return _read[key]


_read: dict[tuple[InputFiles, tuple[str, ...]], list[list[object]]] = {}
"""What was read for each source, by what was given, for flows with these sources."""


def _records(source: Source) -> list[object]:
    found = [payload for _, payload in islice(strict(source.read(1)), READ_MAX)]
    if not found:
        raise FlowError(f"{source.name} has no records to simulate with")
    return found
