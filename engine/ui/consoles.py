"""Consoles: tables, progress bars, the progress of a run, and one-line reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from driftline.engine.texts import counted, escape_controls

WIDTH = 140
"""Width of tables in characters if the output is not a terminal."""


def wide_console() -> Console:
    """Return the console for tables: as wide as the terminal, or WIDTH without one."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def new_table(title: str, words: Sequence[str], figures: Sequence[str]) -> Table:
    """Create an empty table. `words`: names of text columns; `figures`: of numeric columns, which
    follow them."""
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for name in words:
        table.add_column(name)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def format_error_count(count: int) -> str:
    """Format a count that should be 0 as rich markup: in bold red if it is not 0."""
    return f"[bold red]{count}[/]" if count else "0"


def bars(console: Console, unit: str) -> Progress:
    """Create progress bars, which vanish at the end. `unit`: a plural noun, such as "tasks"."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def print_report(console: Console, report: Mapping[str, object]) -> None:
    """Print a report in one line, in the format of `as_words`."""
    console.print(as_words(report), soft_wrap=True)


def as_words(report: Mapping[str, object]) -> str:
    """Format a report: {"bad_records": 2, "outputs": 7} as "2 bad records, 7 outputs"."""
    return ", ".join(_in_words(name.replace("_", " "), value) for name, value in report.items())


def _in_words(name: str, value: object) -> str:
    is_plural = name.endswith("s") and " per " not in name
    if is_plural and isinstance(value, int):
        return counted(value, name.removesuffix("s"))
    return f"{value} {name}"


class ProgressView:
    """Context manager that shows progress bars of inputs and a status line on a terminal."""

    def __init__(self, console: Console, names: Sequence[str]) -> None:
        self.shown = console.is_terminal
        """Whether the console is a terminal. Otherwise the view shows nothing."""
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[records]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks = [
            self._bars.add_task(escape_controls(name), total=None, records="", visible=False)
            for name in names
        ]
        self._line = Text()  # wraps in a narrow terminal
        # `Live` redirects standard output and error, and prints their lines above the view.
        content = Group(self._bars, self._line)
        self._live = Live(content, console=console, refresh_per_second=4)

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
        """Update the bar of input `number`, unless its position is unknown.

        `position`, `size`: in bytes. None: unknown.
        """
        if self.shown and position is not None:
            self._bars.update(
                self._tasks[number],
                completed=position,
                total=size,
                records="" if records is None else counted(records, "record"),
                visible=True,
            )

    def show_line(self, text: str) -> None:
        """Update the status line."""
        self._line.plain = escape_controls(text)
