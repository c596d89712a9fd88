"""The report on many seeds: a table for people, JSON for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from driftline.deploy.simulation.simulation import Outcome
from driftline.engine.texts import visible_lines

FAULTS = (
    "crash",
    "cut",
    "done but failed",
    "failed",
    "hang",
    "hole",
    "lingering",
    "lost message",
    "pause",
    "power failure",
    "repeated",
    "rotten",
    "slow turn",
    "unruly",
)
"""The beginnings of the names of faults; other counted events are no faults."""

SHOWN_MAX = 10
"""Failures that are printed; the JSON file has all."""


@dataclass(slots=True)
class Report:
    """The outcomes of some seeds. `failures`: (command that repeats the seed, problem)."""

    seeds: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0

    @property
    def faults(self) -> dict[str, int]:
        """How often each fault has happened."""
        return {name: n for name, n in sorted(self.counted.items()) if name.startswith(FAULTS)}

    def note(self, outcome: Outcome) -> None:
        """Add the outcome of one seed."""
        self.seeds += 1
        self.counted += outcome.counted
        self.virtual_s += outcome.virtual_s
        if outcome.problem:
            flow = f"\n{outcome.flow}" if outcome.flow else ""
            self.failures.append((outcome.scenario.command, outcome.problem + flow))

    def add(self, other: Report) -> None:
        """Add the outcomes of other seeds."""
        self.seeds += other.seeds
        self.failures += other.failures
        self.counted += other.counted
        self.virtual_s += other.virtual_s


def show(report: Report, took_s: float) -> None:
    """Print a report; `took_s`: real seconds."""
    console = Console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="bold")
    table.add_column()
    for number, name in (
        (str(report.seeds), "seeds"),
        (str(len(report.failures)), "failures"),
        (f"{report.virtual_s:.1f}", "virtual seconds"),
        (f"{report.seeds / took_s:.1f}", "seeds a second"),
        *((str(count), name) for name, count in sorted(report.counted.items())),
    ):
        table.add_row(number, name)
    console.print(table)
    for command, problem in report.failures[:SHOWN_MAX]:
        console.print(f"\n[red]failed[/]: {command}", highlight=False, soft_wrap=True)
        console.print(f"  {visible_lines(problem)}", highlight=False, markup=False, soft_wrap=True)
    if len(report.failures) > SHOWN_MAX:
        console.print(f"\nand {len(report.failures) - SHOWN_MAX} more failures")


def as_json(report: Report, took_s: float) -> dict[str, object]:
    """The report as a JSON object; `took_s`: real seconds."""
    return {
        "seeds": report.seeds,
        "failures": [{"command": c, "problem": p} for c, p in report.failures],
        "virtual_s": round(report.virtual_s, 3),
        "seconds": round(took_s, 3),
        "counted": dict(sorted(report.counted.items())),
    }
