"""Progress bars: how far each input of a run has been read."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class ProgressBars:
    """A bar for each input. A context manager; without a terminal it shows nothing."""

    def __init__(self, console: Console, names: Sequence[str]) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[records]} records"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks = [self._bars.add_task(name, total=None, records=0) for name in names]

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def show(self, number: int, read: tuple[int, int] | None, records: int) -> None:
        """Update the bar of input `number`. `read`: (bytes read, bytes in all), None if unknown."""
        completed, total = read if read is not None else (0, None)
        self._bars.update(self._tasks[number], completed=completed, total=total, records=records)
