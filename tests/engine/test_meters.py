"""Histograms and stopwatches against the obvious ways to count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.meters import Histogram, Stopwatch

DURATIONS = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 9.0]), st.integers(1, 5)))


@given(DURATIONS)
def test_each_duration_is_in_the_first_bucket_that_holds_it(added: list[tuple[float, int]]) -> None:
    histogram = Histogram((1.0, 2.0))
    for duration, count in added:
        histogram.add(duration, count)
    all_of_them = [duration for duration, count in added for _ in range(count)]
    assert histogram.counts == [
        sum(each <= 1.0 for each in all_of_them),
        sum(1.0 < each <= 2.0 for each in all_of_them),
        sum(each > 2.0 for each in all_of_them),
    ]
    assert histogram.sum == sum(all_of_them)


@given(st.lists(st.booleans(), max_size=20))
def test_a_stopwatch_counts_the_seconds_that_begin_with_true(seconds: list[bool]) -> None:
    watch = Stopwatch()
    for now, on in enumerate(seconds):
        watch.look(on, float(now))
    assert watch.total(float(len(seconds))) == sum(seconds)
