"""Report of an experiment: the rows, and the tables, JSON and verdict computed from them.

An experiment has *cases*. A `Row` contains the figures of each run of a case. A `FigureColumn`
defines how to combine the figures of the runs, and how a table shows the result. Usually it shows
the median of the runs; a table may add the smallest and the largest value.

    >>> row = Row("none", [{"p50_ms": 0.951}, {"p50_ms": 1.02}, {"p50_ms": 0.906}])
    >>> figure = FigureColumn("p50_ms", "p50", with_spread=True)
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


def to_json_number(value: float) -> float | None:
    """Round a figure to three decimal places; None for NaN and infinities, which JSON lacks."""
    return round(value, 3) if isfinite(value) else None


class Spread(Struct, frozen=True):
    """Median, smallest and largest value of a figure in several runs; all NaN if a run has NaN.

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

    def text(self, format_value: Callable[[float], str], separator: str = "-") -> str:
        """Format the spread: only the median if all values are equal, "" for NaN."""
        if isnan(self.median):
            return ""
        if self.least == self.most:
            return format_value(self.median)
        extremes = f"{format_value(self.least)}{separator}{format_value(self.most)}"
        return f"{format_value(self.median)} ({extremes})"

    def __str__(self) -> str:
        return self.text(three_digits)

    def as_json(self) -> list[float | None]:
        """Return [median, smallest, largest]."""
        return [to_json_number(self.median), to_json_number(self.least), to_json_number(self.most)]


NO_SPREAD = Spread(nan, nan, nan)
"""Spread of a missing figure."""


def compare_figures(
    figures: Sequence[float], baseline: Sequence[float], compare: Callable[[float, float], float]
) -> Spread:
    """Return a spread: the comparison of the medians, and the extremes over the rounds.

    Values at the same index belong to the same round; rounds with only one value are ignored.
    """
    pairs = list(zip(figures, baseline, strict=False))
    rounds = Spread.of(compare(a, b) for a, b in pairs)
    medians = Spread.of(a for a, _ in pairs).median, Spread.of(b for _, b in pairs).median
    return rounds if isnan(rounds.median) else replace(rounds, median=compare(*medians))


def ratio(value: float, baseline: float) -> float:
    """Return `value` / `baseline`, NaN if `baseline` is 0; for `compare_figures`."""
    return value / baseline if baseline else nan


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
    """Name of a `ComparisonColumn` -> the spread to show."""

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
        """The heading of the column; "": the column is only in the JSON."""

    def text(self, row: Row[object]) -> str:
        """Return the cell of a row."""

    def as_json(self, row: Row[object]) -> object:
        """Return the value of a row."""


class KeyColumn(Struct, frozen=True):
    """Column with an attribute of the case, which distinguishes the rows."""

    name: str
    heading: str
    format_value: Callable[[Any], str] = str
    attribute: str = ""
    """The name of the attribute; "": the same as `name`."""

    def text(self, row: Row[object]) -> str:
        """Return the cell of a row."""
        value = self.as_json(row)
        return "" if value is None else self.format_value(value)

    def as_json(self, row: Row[object]) -> object:
        """Return the value of a row."""
        value: object = getattr(row.case, self.attribute or self.name)
        return value


class FigureColumn(Struct, frozen=True):
    """Column with a figure of each run; `combine` reduces the figures of a row's runs to one."""

    name: str
    heading: str = ""
    format_value: Callable[[float], str] = three_digits
    with_spread: bool = False
    """Whether the cell is the median with the smallest and the largest figure."""
    combine: Callable[[Sequence[float]], float] = median
    run_field: str = ""
    """The name of the figure in a run; "": the same as `name`."""

    def value(self, row: Row[object]) -> float:
        """Return the figure of the row; NaN if there are no runs, or a run has NaN."""
        figures = row.values(self.run_field or self.name)
        return nan if not figures or any(map(isnan, figures)) else self.combine(figures)

    def text(self, row: Row[object]) -> str:
        """Return the cell of a row."""
        if self.with_spread:
            return row.spread(self.run_field or self.name).text(self.format_value)
        return "" if isnan(self.value(row)) else self.format_value(self.value(row))

    def as_json(self, row: Row[object]) -> object:
        """Return the figure of the row."""
        return to_json_number(self.value(row))


class ComparisonColumn(Struct, frozen=True):
    """Column with a comparison of the row with another row."""

    name: str
    heading: str
    format_value: Callable[[float], str]
    separator: str = "-"
    """Text between the smallest and the largest value."""

    def text(self, row: Row[object]) -> str:
        """Return the cell of a row."""
        return self._spread(row).text(self.format_value, self.separator)

    def as_json(self, row: Row[object]) -> object:
        """Return [median, smallest, largest]."""
        return self._spread(row).as_json()

    def _spread(self, row: Row[object]) -> Spread:
        return row.comparisons.get(self.name, NO_SPREAD)


COUNTS = (FigureColumn("lost", combine=sum), FigureColumn("duplicated", combine=sum))
"""Missing and repeated outputs: the JSON of most experiments has these fields."""


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
    note_if_correct: str = ""
    """Note below the other notes if no run lost or repeated an output."""
    problem_ending: str
    """The end of the error about a row with lost or repeated outputs."""

    def as_json(self) -> dict[str, object]:
        """Return the figures as a JSON object."""
        return {**self.settings, "rows": [self.row_as_json(row) for row in self.rows]}

    def row_as_json(self, row: Row[object]) -> dict[str, object]:
        """Return a row as a JSON object: all columns, and the figures of each run."""
        tables = self.columns_by_title.values()
        columns = [*self.keys, *(column for table in tables for column in table)]
        run_fields = {
            column.run_field or column.name
            for column in columns
            if isinstance(column, FigureColumn)
        }
        return {
            **{column.name: column.as_json(row) for column in columns},
            "runs": [
                {name: to_json_number(value) for name, value in run.items() if name in run_fields}
                for run in row.runs
            ],
        }

    def tables(self) -> list[Table]:
        """Return the figures for a terminal."""
        tables = [self._table(title, columns) for title, columns in self.columns_by_title.items()]
        is_correct = any(row.runs for row in self.rows) and not self.problems()
        notes = [*self.notes, *([self.note_if_correct] if is_correct else [])]
        tables[-1].caption = Text("\n".join(filter(None, notes)))
        return tables

    def problems(self) -> list[str]:
        """Return a sentence for each row with a lost or repeated output."""
        return [
            f"{row.case}: {counted(lost, 'output')} {'is' if lost == 1 else 'are'} lost and "
            f"{duplicated} came twice, {self.problem_ending}"
            for row in self.rows
            if (lost := row.total("lost")) + (duplicated := row.total("duplicated"))
        ]

    def _table(self, title: str, columns: Sequence[Column]) -> Table:
        shown = [*self.keys, *(column for column in columns if column.heading)]
        headings = [column.heading for column in columns if column.heading]
        table = new_table(title, [key.heading for key in self.keys], headings)
        for index, row in enumerate(self.rows):
            ends_section = (
                index + 1 < len(self.rows) and self.rows[index + 1].section != row.section
            )
            table.add_row(*(column.text(row) for column in shown), end_section=ends_section)
        return table
