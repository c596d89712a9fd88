"""A lock belongs to one process, and goes with it, however it ends."""

from __future__ import annotations

import fcntl
import os
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
if sys.argv[2] == "forks" and not os.fork():
    print(os.getpid(), flush=True)
    sys.stdin.read()
if sys.argv[2] == "executes":
    print(subprocess.Popen(["cat"], stdin=0, stdout=subprocess.DEVNULL).pid, flush=True)
if sys.argv[2] == "alone":
    print(os.getpid(), flush=True)
sys.stdin.read()
"""


def holder(path: Path, what: str) -> subprocess.Popen[str]:
    """A process that holds a lock, and what it has started."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert int(process.stdout.readline()) > 0
    return process


def end(process: subprocess.Popen[str]) -> None:
    """Also of what it has started, which reads the same."""
    process.kill()
    process.communicate()


def test_a_second_holder_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    process = holder(path, "alone")
    try:
        with pytest.raises(Unavailable, match="in use by nobody you know"):
            Lock(path, "in use by nobody you know")
    finally:
        end(process)


@pytest.mark.parametrize("what", ["alone", "forks", "executes"])
def test_kill_9_releases_it_whatever_the_process_has_started(what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    process = holder(path, what)
    try:
        process.kill()
        process.wait()
        Lock(path, "taken", wait_s=5).release()
    finally:
        end(process)


def test_who_waits_gets_it_as_soon_as_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    process = holder(path, "alone")
    began = monotonic()
    with pytest.raises(Unavailable):
        Lock(path, "taken", wait_s=0.3)
    assert monotonic() - began >= 0.3
    process.kill()
    Lock(path, "taken", wait_s=30).release()
    assert monotonic() - began < 25
    end(process)


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


def test_it_is_the_lock_of_older_versions(tmp_path: Path) -> None:
    """They took an `flock` of a file that they left behind, empty."""
    path = tmp_path / "x.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(Unavailable):
        Lock(path, "taken")
    os.close(file)
    mine = Lock(path, "taken")
    file = os.open(path, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    mine.release()
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(file)
    assert path.read_bytes() == b""


def test_what_the_system_refuses_is_its_error(tmp_path: Path) -> None:
    (tmp_path / "x.lock").mkdir()
    with pytest.raises(OSError, match=r"x\.lock"):
        Lock(tmp_path / "x.lock", "taken")


# Histograms and stopwatches against the obvious ways to count


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
