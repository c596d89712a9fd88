"""The progress of a run on a terminal: a bar for each file that it reads, and the figures."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from driftline.engine.counted import counted
from driftline.engine.ui.consoles import ReadLive
from driftline.engine.visible import visible


class ProgressView:
    """Bars for files, and one line. A context manager; without a terminal it shows nothing."""

    def __init__(self, console: Console, names: Sequence[str]) -> None:
        self.shown = console.is_terminal
        """Whether there is a terminal."""
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[records]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks = [
            self._bars.add_task(visible(name), total=None, records="", visible=False)
            for name in names
        ]
        self._line = Text()  # in a narrow terminal it goes on in the next line
        # Standard error stays as it is: only log lines and this view write to it.
        shown = Group(self._bars, self._line)
        self._live = ReadLive(shown, console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        if self.shown:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.shown:
            self._live.stop()

    def show(
        self, number: int, position: int | None, size: int | None, records: int | None
    ) -> None:
        """Update the bar of input `number`. None: unknown; without `position` there is no bar."""
        if self.shown and position is not None:
            self._bars.update(
                self._tasks[number],
                completed=position,
                total=size,
                records="" if records is None else counted(records, "record"),
                visible=True,
            )

    def show_line(self, text: str) -> None:
        """Update the line."""
        self._line.plain = visible(text)
