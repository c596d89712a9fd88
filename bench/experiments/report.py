"""Report of an experiment: the rows, and the tables, JSON and verdict computed from them.

An experiment has *cases*. A `Row` contains the figures of each run of a case. A `Figure` defines
how these are combined and how a table shows the result. Usually the combined figure is the median
of the runs; a table may add the smallest and the largest value.

    >>> row = Row("none", [{"p50_ms": 0.951}, {"p50_ms": 1.02}, {"p50_ms": 0.906}])
    >>> figure = Figure("p50_ms", "p50", with_spread=True)
    >>> figure.text(row), figure.as_json(row)
    ('0.95 (0.91-1.02)', 0.951)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite, isnan, nan
from statistics import median
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from driftline.engine.texts import counted
from driftline.engine.ui.consoles import new_table

C_co = TypeVar("C_co", covariant=True)

P99_LATENCIES_MIN = 1500
"""Minimum number of latencies for a 99th percentile, so that 15 of them are above it."""


def three_digits(value: float) -> str:
    """Format a figure with about three digits: 0.95, 33.8, 497."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def number(value: float) -> float | None:
    """Round a figure to three decimal places; None for NaN and infinities, which JSON lacks."""
    return round(value, 3) if isfinite(value) else None


class Spread(Struct, frozen=True):
    """Median, smallest and largest of a figure of several runs; all NaN if a run has NaN.

    >>> str(Spread.of([1.02, 0.91, 0.95])), str(Spread.of([33.82])), str(Spread.of([]))
    ('0.95 (0.91-1.02)', '33.8', '')
    """

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of these values, one per run."""
        figures = list(values)
        if not figures or any(map(isnan, figures)):
            return NO_SPREAD
        return cls(median(figures), min(figures), max(figures))

    def text(self, shown: Callable[[float], str], until: str = "-") -> str:
        """Format the spread: only the median if all values are equal, "" for NaN."""
        if isnan(self.median):
            return ""
        if self.least == self.most:
            return shown(self.median)
        return f"{shown(self.median)} ({shown(self.least)}{until}{shown(self.most)})"

    def __str__(self) -> str:
        return self.text(three_digits)

    def as_json(self) -> list[float | None]:
        """Return [median, smallest, largest]."""
        return [number(self.median), number(self.least), number(self.most)]


NO_SPREAD = Spread(nan, nan, nan)
"""Spread of a missing figure."""


def compare_rows(
    figures: Sequence[float], baseline: Sequence[float], by: Callable[[float, float], float]
) -> Spread:
    """Return a spread of comparisons: `by` of the medians, and least and most of `by` per round.

    Values at the same index belong to the same round; rounds with only one value are ignored.
    """
    pairs = list(zip(figures, baseline, strict=False))
    rounds = Spread.of(by(a, b) for a, b in pairs)
    medians = Spread.of(a for a, _ in pairs).median, Spread.of(b for _, b in pairs).median
    return rounds if isnan(rounds.median) else replace(rounds, median=by(*medians))


def ratio(mine: float, theirs: float) -> float:
    """Return `mine` / `theirs`, NaN if `theirs` is 0; for `compare_rows`."""
    return mine / theirs if theirs else nan


class Row(Struct, Generic[C_co], frozen=True):
    """A case and the figures of its runs."""

    case: C_co
    runs: Sequence[Mapping[str, float]] = ()
    """For each run, its figures by name."""
    section: object = None
    """A table draws a line between rows of different sections."""
    samples: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Name -> values of all runs together, for pictures."""
    comparisons: Mapping[str, Spread] = field(default_factory=dict)
    """Name of a `Comparison` -> its spread."""

    def values(self, name: str) -> list[float]:
        """Return a figure of each run, in the order of the runs."""
        return [run[name] for run in self.runs]

    def spread(self, name: str) -> Spread:
        """Return the spread of a figure."""
        return Spread.of(self.values(name))

    def total(self, name: str) -> int:
        """Return the sum of a count over all runs."""
        return int(sum(self.values(name)))


class Column(Protocol):
    """A column of a table and a field of the JSON."""

    @property
    def name(self) -> str:
        """The name of the field."""

    @property
    def heading(self) -> str:
        """The heading of the column; "": a table does not show it."""

    def text(self, row: Row[object]) -> str:
        """Return the cell of a row."""

    def as_json(self, row: Row[object]) -> object:
        """Return the value of a row."""


class KeyColumn(Struct, frozen=True):
    """Column with an attribute of the case, which distinguishes the rows."""

    name: str
    heading: str
    shown: Callable[[Any], str] = str
    attribute: str = ""
    """The name of the attribute; "": the same as `name`."""

    def text(self, row: Row[object]) -> str:
        """Return the cell of a row."""
        value = self.as_json(row)
        return "" if value is None else self.shown(value)

    def as_json(self, row: Row[object]) -> object:
        """Return the value of a row."""
        found: object = getattr(row.case, self.attribute or self.name)
        return found


class Figure(Struct, frozen=True):
    """Column with a figure of each run; `combined` reduces the figures of a row's runs to one."""

    name: str
    heading: str = ""
    shown: Callable[[float], str] = three_digits
    with_spread: bool = False
    combined: Callable[[Sequence[float]], float] = median
    run_field: str = ""
    """The name of the figure in a run; "": the same as `name`."""

    def value(self, row: Row[object]) -> float:
        """Return the combined figure; NaN if there are no runs, or a run has NaN."""
        figures = row.values(self.run_field or self.name)
        return nan if not figures or any(map(isnan, figures)) else self.combined(figures)

    def text(self, row: Row[object]) -> str:
        """Return the cell of a row."""
        if self.with_spread:
            return row.spread(self.run_field or self.name).text(self.shown)
        return "" if isnan(self.value(row)) else self.shown(self.value(row))

    def as_json(self, row: Row[object]) -> object:
        """Return the combined figure."""
        return number(self.value(row))


class Comparison(Struct, frozen=True):
    """Column with a comparison of the row with another one."""

    name: str
    heading: str
    shown: Callable[[float], str]
    until: str = "-"

    def text(self, row: Row[object]) -> str:
        """Return the cell of a row."""
        return self._of(row).text(self.shown, self.until)

    def as_json(self, row: Row[object]) -> object:
        """Return [median, smallest, largest]."""
        return self._of(row).as_json()

    def _of(self, row: Row[object]) -> Spread:
        return row.comparisons.get(self.name, NO_SPREAD)


COUNTS = (Figure("lost", combined=sum), Figure("duplicated", combined=sum))
"""Missing outputs and repeated outputs: fields of every experiment."""


class ExperimentReport(Struct, Generic[C_co], frozen=True, kw_only=True):
    """The rows of an experiment, and the columns that describe them."""

    settings: Mapping[str, object]
    """Fields of the JSON before the rows."""
    keys: Sequence[Column]
    """The first columns of each table, which distinguish the rows."""
    columns_by_title: Mapping[str, Sequence[Column]]
    """Title of each table -> its columns."""
    rows: Sequence[Row[C_co]]
    notes: Sequence[str] = ()
    """Notes below the tables."""
    if_right: str = ""
    """Note that follows the others if no run lost or repeated an output."""
    if_wrong: str
    """The end of the sentence about a row with lost or repeated outputs."""

    def as_json(self) -> dict[str, object]:
        """Return the figures as a JSON object."""
        return {**self.settings, "rows": [self.row_as_json(row) for row in self.rows]}

    def row_as_json(self, row: Row[object]) -> dict[str, object]:
        """Return a row as a JSON object: all columns, and the figures of each run."""
        columns = [
            *self.keys,
            *(column for shown in self.columns_by_title.values() for column in shown),
        ]
        of_runs = {
            column.run_field or column.name for column in columns if isinstance(column, Figure)
        }
        return {
            **{column.name: column.as_json(row) for column in columns},
            "runs": [
                {name: number(value) for name, value in run.items() if name in of_runs}
                for run in row.runs
            ],
        }

    def tables(self) -> list[Table]:
        """Return the figures for a terminal."""
        made = [self._table(title, columns) for title, columns in self.columns_by_title.items()]
        is_right = any(row.runs for row in self.rows) and not self.problems()
        notes = [*self.notes, *([self.if_right] if is_right else [])]
        made[-1].caption = Text("\n".join(filter(None, notes)))
        return made

    def problems(self) -> list[str]:
        """Return a sentence for each row with a lost or repeated output."""
        return [
            f"{row.case}: {counted(lost, 'output')} {'is' if lost == 1 else 'are'} lost and "
            f"{again} came twice, {self.if_wrong}"
            for row in self.rows
            if (lost := row.total("lost")) + (again := row.total("duplicated"))
        ]

    def _table(self, title: str, columns: Sequence[Column]) -> Table:
        shown = [column for column in columns if column.heading]
        headings = [column.heading for column in shown]
        made = new_table(title, [key.heading for key in self.keys], headings)
        for at, row in enumerate(self.rows):
            ends = at + 1 < len(self.rows) and self.rows[at + 1].section != row.section
            made.add_row(*(column.text(row) for column in (*self.keys, *shown)), end_section=ends)
        return made
