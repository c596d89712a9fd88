"""Consoles: where tables go, how far something long is, and what was done in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

WIDTH = 140
"""Columns of a table where there is no terminal to ask for its width."""


def wide_console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def new_table(title: str, words: Sequence[str], figures: Sequence[str]) -> Table:
    """A table without rows: columns of words to the left, of figures to the right of them."""
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for name in words:
        table.add_column(name)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def should_be_zero(count: int) -> str:
    """A figure that the reader has to see first if it is not 0."""
    return f"[bold red]{count}[/]" if count else "0"


def bars(console: Console, unit: str) -> Progress:
    """Bars that count things called `unit`; they vanish when all is done."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def tell(console: Console, report: Mapping[str, object]) -> None:
    """Say what was done in one line: {"bad_records": 2, "outputs": 7}: 2 bad records, 7 outputs."""
    told = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in report.items())
    console.print(told, soft_wrap=True)
