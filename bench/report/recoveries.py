"""The figures of recoveries: rows, table, JSON, and a picture like Figure 9 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.table import Table
from rich.text import Text

from driftline.bench.report.spread import number, three_digits
from driftline.engine.counted import counted
from driftline.engine.ui.consoles import new_table
from driftline.engine.ui.pictures import (
    INK,
    colours_of,
    dress_curves,
    new_figure,
    plain_log_scale,
    save,
)

PHASES = ("detection_ms", "restart_ms", "restore_ms", "replay_ms")
"""What follows a kill; together the time to the first new output."""

SHOWN_S = (-1.0, 3.0)
"""The part of a run that the picture shows: seconds from the kill on."""

NOTE = (
    "Medians of the trials, in ms; max: the longest. First output: from kill -9 to the first "
    "output that the recovery has made; of the master, without which outputs go on at first, the "
    "longest gap between two outputs."
)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What came of one kill; times in ms."""

    first_output_ms: float
    detection_ms: float
    restart_ms: float
    restore_ms: float
    replay_ms: float
    lost: int
    duplicated: int
    latencies: Sequence[tuple[float, float]] = ()
    """Of every document: when it was due, in seconds since the kill, and its latency in ms."""

    def phase(self, name: str) -> float:
        """One of PHASES."""
        ms = getattr(self, name)
        assert isinstance(ms, float)
        return ms


@dataclass(frozen=True, slots=True)
class RecoveryRow:
    """What is killed, with so many spare processes, and what came of each kill."""

    killed: str
    spares: int
    trials: list[Recovery]

    def __str__(self) -> str:
        return f"{self.killed}, {counted(self.spares, 'spare') if self.spares else 'no spare'}"

    @property
    def lost(self) -> int:
        """Lost outputs of all trials."""
        return sum(trial.lost for trial in self.trials)

    @property
    def duplicated(self) -> int:
        """Outputs of all trials that came again."""
        return sum(trial.duplicated for trial in self.trials)

    @property
    def first_output_ms(self) -> tuple[float, float]:
        """The median and the largest."""
        firsts = [trial.first_output_ms for trial in self.trials]
        return median(firsts), max(firsts)

    def phase(self, name: str) -> float:
        """The median of one of PHASES."""
        return median(trial.phase(name) for trial in self.trials)

    def as_json(self) -> dict[str, object]:
        """The medians, and all trials."""
        p50, largest = self.first_output_ms
        return {
            "killed": self.killed,
            "spares": self.spares,
            "trials": len(self.trials),
            "first_output_ms": {"p50": number(p50), "max": number(largest)},
            **{name: number(self.phase(name)) for name in PHASES},
            "lost": self.lost,
            "duplicated": self.duplicated,
            "runs": [
                {
                    "first_output_ms": number(trial.first_output_ms),
                    **{name: number(trial.phase(name)) for name in PHASES},
                    "lost": trial.lost,
                    "duplicated": trial.duplicated,
                }
                for trial in self.trials
            ],
        }


def as_json(rows: Sequence[RecoveryRow], rate: float, interval_ms: int) -> dict[str, object]:
    """The figures as a JSON object."""
    return {
        "rate": rate,
        "checkpoint_ms": interval_ms,
        "rows": [row.as_json() for row in rows],
    }


def table(rows: Sequence[RecoveryRow], rate: float, interval_ms: int) -> Table:
    """The figures as a table for a terminal."""
    made = new_table(
        f"Recovery from kill -9 at {rate:g} documents a second, checkpoint every {interval_ms} ms",
        ["killed"],
        ["spares", "trials", "first output", "max", *(name[:-3] for name in PHASES)],
    )
    for row in rows:
        figures = [*row.first_output_ms, *map(row.phase, PHASES)]
        made.add_row(row.killed, str(row.spares), str(len(row.trials)), *map(three_digits, figures))
    wrong = wrong_recoveries(rows)
    made.caption = Text(
        NOTE if wrong else f"{NOTE}\nChecked: no output was lost, and none came twice."
    )
    return made


def wrong_recoveries(rows: Sequence[RecoveryRow]) -> list[str]:
    """A sentence for each row with an output that is lost or came twice."""
    return [
        f"{row}: {counted(row.lost, 'output')} lost, and {row.duplicated} came twice; a recovery "
        "must neither lose nor repeat any"
        for row in rows
        if row.lost or row.duplicated
    ]


def draw(rows: Sequence[RecoveryRow], rate: float, interval_ms: int, path: Path) -> None:
    """Draw the latency of documents over the time since the kill, a panel for each thing killed."""
    kinds = list(dict.fromkeys(row.killed for row in rows))
    colours = colours_of(["no spare", "1 spare"])
    figure = new_figure(1.4 + 4.0 * len(kinds), 4.2)
    grid = figure.subplots(1, len(kinds), sharey=True, squeeze=False)
    for panel, kind in zip(grid[0], kinds, strict=True):
        for row in rows:
            if row.killed != kind:
                continue
            label = "1 spare" if row.spares else "no spare"
            points = [
                point
                for trial in row.trials
                for point in trial.latencies
                if SHOWN_S[0] <= point[0] <= SHOWN_S[1]
            ]
            panel.scatter(
                [at for at, _ in points],
                [ms for _, ms in points],
                s=7,
                alpha=0.5,
                linewidths=0,
                color=colours[label],
                label=label,
            )
        panel.axvline(0, color=INK, linewidth=0.8)
        dress_curves(panel)
        plain_log_scale(panel)
        panel.set_title(f"kill -9: {kind}")
        panel.set_xlabel("document due, in s since the kill")
        panel.legend(frameon=False, markerscale=2)
    grid[0][0].set_ylabel("latency in ms")
    figure.suptitle(
        f"{rate:g} documents a second, checkpoint every {interval_ms} ms; "
        f"all documents of {counted(max(len(row.trials) for row in rows), 'trial')}",
        fontsize=10,
        color=INK,
    )
    save(figure, path)
