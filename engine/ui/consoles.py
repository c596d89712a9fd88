"""Consoles: where tables go, how far something long is, and what was done in the end."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

WIDTH = 140
"""Columns of a table where there is no terminal to ask for its width."""


def wide_console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


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
