"""Records for a simulated run that are a user's: drawn from files, or given in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random
from typing import Protocol

from driftline.engine.errors import FlowError
from driftline.engine.sources import open_source, strict

READ_MAX = 10_000
"""Records of a file that are drawn from."""


class Inputs(Protocol):
    """Records for each source of a flow."""

    @property
    def sources(self) -> int:
        """For how many sources there are some."""

    def draw(self, chance: Random, count: int, front: int) -> list[object]:
        """The records of a run for a front, about so many, in their order."""


@dataclass(frozen=True, slots=True)
class GivenRecords:
    """Records in memory, a list for each source: every run has all of them."""

    records: Sequence[list[object]]

    @property
    def sources(self) -> int:
        return len(self.records)

    def __str__(self) -> str:
        return ""

    def draw(self, chance: Random, count: int, front: int) -> list[object]:
        return self.records[front]


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Files to draw records from, one for each source of the flow, and how they are read."""

    paths: tuple[str, ...]
    id_field: str | None = None
    text_field: str | None = None
    sections: bool = False

    def __str__(self) -> str:
        parts = [f"--input {path}" for path in self.paths]
        parts += [f"--id-field {self.id_field}"] if self.id_field else []
        parts += [f"--text-field {self.text_field}"] if self.text_field else []
        parts += ["--sections"] if self.sections else []
        return " ".join(parts)

    @property
    def sources(self) -> int:
        return len(self.paths)

    def draw(self, chance: Random, count: int, front: int) -> list[object]:
        """Some records of a front's file, in their order."""
        found = _read(self, front)
        return [found[i] for i in sorted(chance.sample(range(len(found)), min(count, len(found))))]


@cache
def _read(files: InputFiles, front: int) -> list[object]:
    source = open_source(
        files.paths[front],
        id_field=files.id_field,
        text_field=files.text_field,
        sections=files.sections,
    )
    found = [payload for _, payload in islice(strict(source.read(1)), READ_MAX)]
    if not found:
        raise FlowError(f"{files.paths[front]} has no records to simulate with")
    return found
