"""Spreads: the median of a figure over the runs, with the least and the largest of them.

>>> str(Spread.of([1.02, 0.91, 0.95]))
'0.95 (0.91-1.02)'
>>> str(Spread.of([33.82])), str(Spread.of([]))
('33.8', '')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite, isnan, nan
from statistics import median


def three_digits(value: float) -> str:
    """A figure of a table: 0.95, 33.8, 497."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of several runs; all NaN if a run does not have it."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The spread of the runs' figures."""
        figures = list(values)
        if not figures or any(map(isnan, figures)):
            return NOTHING
        return cls(median(figures), min(figures), max(figures))

    def shown(self, figure: Callable[[float], str], until: str = "-") -> str:
        """As text, each figure by a function; without the least and the largest if all are one."""
        if isnan(self.median):
            return ""
        if self.least == self.most:
            return figure(self.median)
        return f"{figure(self.median)} ({figure(self.least)}{until}{figure(self.most)})"

    def middle(self, figure: Callable[[float], str]) -> str:
        """The median alone as text."""
        return "" if isnan(self.median) else figure(self.median)

    def __str__(self) -> str:
        return self.shown(three_digits)


NOTHING = Spread(nan, nan, nan)
"""There is no such figure."""


def ratio(mine: Sequence[float], theirs: Sequence[float]) -> Spread:
    """How many times theirs mine is: the medians compared, and the runs of each round.

    Figures at the same place are of the same round; a round that has not both does not count. The
    ratio of the medians is never outside of the ratios of the rounds.
    """
    return _compared(mine, theirs, lambda a, b: a / b if b else nan)


def difference(mine: Sequence[float], theirs: Sequence[float]) -> Spread:
    """By how much mine is more than theirs; otherwise as `ratio`."""
    return _compared(mine, theirs, lambda a, b: a - b)


def _compared(
    mine: Sequence[float], theirs: Sequence[float], by: Callable[[float, float], float]
) -> Spread:
    pairs = list(zip(mine, theirs, strict=False))
    rounds = Spread.of(by(a, b) for a, b in pairs)
    medians = Spread.of(a for a, _ in pairs).median, Spread.of(b for _, b in pairs).median
    return rounds if isnan(rounds.median) else replace(rounds, median=by(*medians))


def number(value: float) -> float | None:
    """A figure with three digits behind the point; NaN, which JSON lacks, as None."""
    return round(value, 3) if isfinite(value) else None
