"""A file system of which a call that is named in advance fails, or is the last one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import TracebackType

from driftline.simulation.world.filesystem import FileSystem


class PowerLoss(Exception):
    """The process is gone."""


class Disk(FileSystem):
    """Everything below one directory."""

    def __init__(self, root: Path, chance: Random) -> None:
        super().__init__(root, chance, self._error)
        self._calls = 0
        self._fail_at = -1
        self._raise: Exception | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self.close()

    def fail_at(self, call: int, error: Exception | None) -> None:
        """Let a call fail, 0 is the next one; the one after it works again."""
        self._fail_at = self._calls + call
        self._raise = error

    def _error(self) -> Exception | None:
        self._calls += 1
        return self._raise if self._calls - 1 == self._fail_at else None
