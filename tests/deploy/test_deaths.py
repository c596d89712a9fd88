"""Who is started again, when, and when no more."""

from __future__ import annotations

import signal

import pytest

from deploy.deaths import DEATHS_MAX, LONG_LIFE_S, Deaths, how


def test_the_first_start_again_is_at_once_and_the_others_wait_ever_longer() -> None:
    deaths = Deaths(limit=5)
    starts = [deaths.died("node-0", now=10.0) for _ in range(5)]
    assert starts == [10.0, 10.1, 10.2, 10.4, None]


def test_progress_of_the_run_forgives_but_a_replay_is_none() -> None:
    deaths = Deaths(limit=3)
    for settled in (5, 0, 5, 4):  # back to the snapshot, and up to where it was
        deaths.moved([settled])
        last = deaths.died("node-0", 1.0)
        if last is None:
            break
    assert (settled, last) == (5, None)
    deaths.moved([6])
    assert deaths.died("node-0", 1.0) == 1.0


def test_each_process_has_deaths_of_its_own() -> None:
    deaths = Deaths(limit=2)
    assert deaths.died("node-0", 1.0) == 1.0
    assert deaths.died("node-1", 1.0) == 1.0
    assert deaths.died("node-0", 1.0) is None


def test_deaths_that_lie_far_apart_are_no_loop() -> None:
    deaths = Deaths()
    for day in range(2 * DEATHS_MAX):
        now = day * 2 * LONG_LIFE_S
        deaths.started("node-0", now)
        assert deaths.died("node-0", now + LONG_LIFE_S + 1) is not None


def test_who_has_died_is_careful_from_where_the_run_is_and_only_until_it_moves() -> None:
    deaths = Deaths()
    deaths.moved([7, 5])
    assert deaths.careful_from("node-0") == -1
    deaths.died("node-0", 1.0)
    assert (deaths.careful_from("node-0"), deaths.careful_from("node-1")) == (5, -1)
    deaths.moved([7, 6])
    assert deaths.careful_from("node-0") == -1


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (-signal.SIGKILL, "SIGKILL (is there enough memory"),
        (-signal.SIGSEGV, "SIGSEGV"),
        (-signal.SIGBUS, "SIGBUS"),
        (-63, "signal 63"),
        (0, "status 0"),
        (1, "status 1"),
    ],
)
def test_a_death_is_told_in_words(status: int, said: str) -> None:
    assert said in how(status)
