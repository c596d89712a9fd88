"""A figure of several runs is their median, and comes with the least and the largest."""

from hypothesis import given
from hypothesis import strategies as st

from driftline.bench.report.spread import NOTHING, Spread, difference, ratio

figures = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=7)


def test_what_is_compared_is_medians_with_the_rounds_around_them() -> None:
    assert ratio([50.0, 180.0, 30.0], [100.0, 200.0, 50.0]) == Spread(0.5, 0.5, 0.9)
    assert difference([3.0, 1.0, 2.0], [1.0, 1.5, 1.0]) == Spread(1.0, -0.5, 2.0)


def test_a_round_that_lacks_one_of_them_does_not_count() -> None:
    assert ratio([4.0, 9.0], [2.0, 3.0, 1000.0]) == Spread(6.5 / 2.5, 2.0, 3.0)
    assert str(ratio([], [1.0])) == str(ratio([1.0], [0.0])) == str(NOTHING) == ""


@given(figures, figures)
def test_the_ratio_of_medians_is_within_those_of_the_rounds(a: list[float], b: list[float]) -> None:
    found = ratio(a, b)
    assert found.least * (1 - 1e-9) <= found.median <= found.most * (1 + 1e-9)


def test_a_figure_that_a_run_does_not_have_is_no_figure() -> None:
    assert str(Spread.of([1.0, float("nan"), 2.0])) == ""


def test_three_digits_whatever_the_size() -> None:
    assert str(Spread.of([0.951, 1.02, 0.906])) == "0.95 (0.91-1.02)"
    assert str(Spread.of([9.996, 33.84, 497.4])) == "33.8 (10.0-497)"
