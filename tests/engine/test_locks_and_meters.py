"""Locks belong to one process and are released when it exits; histograms and stopwatches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.engine.durable import Lock
from driftline.engine.errors import Unavailable
from driftline.engine.meters import Histogram, Stopwatch

HOLDER = """
import os, subprocess, sys
from pathlib import Path
from driftline.engine.durable import Lock

Lock(Path(sys.argv[1]), "taken")  # kept, although nobody remembers it
if sys.argv[2] != "forks" or not os.fork():
    print(os.getpid(), flush=True)
if sys.argv[2] == "executes":
    subprocess.Popen(["cat"], stdin=0, stdout=subprocess.DEVNULL)
sys.stdin.read()
"""


@pytest.mark.parametrize("what", ["alone", "forks", "executes"])
def test_sigkill_releases_the_lock_despite_child_processes(what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert int(process.stdout.readline()) > 0
    try:
        began = monotonic()
        with pytest.raises(Unavailable, match="in use by somebody"):
            Lock(path, "in use by somebody", wait_s=0.3)
        assert monotonic() - began >= 0.3
        process.kill()
        Lock(path, "taken", wait_s=30).release()
        assert monotonic() - began < 25
    finally:
        process.kill()
        process.communicate()


def test_a_released_lock_is_free_and_may_be_released_again(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    first = Lock(path, "taken")
    with pytest.raises(Unavailable):
        Lock(path, "taken")
    first.release()
    second = Lock(path, "taken")
    first.release()
    with pytest.raises(Unavailable):
        Lock(path, "taken")
    second.release()


# Histograms and stopwatches against naive counting


DURATIONS = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 9.0]), st.integers(1, 5)))


@given(DURATIONS)
def test_histogram_counts_each_duration_in_the_first_fitting_bucket(
    added: list[tuple[float, int]],
) -> None:
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
def test_stopwatch_sums_the_time_during_which_the_condition_held(seconds: list[bool]) -> None:
    watch = Stopwatch()
    for now, on in enumerate(seconds):
        watch.update(on, float(now))
    assert watch.total(float(len(seconds))) == sum(seconds)
