"""Who is started again, when, and when no more."""

from __future__ import annotations

import signal

import pytest

from driftline.deploy.runtime.children.deaths import DEATHS_MAX, LONG_LIFE_S, Deaths, how


def test_the_first_start_again_is_at_once_and_the_others_wait_ever_longer() -> None:
    deaths = Deaths(limit=5)
    starts = [deaths.died("node-0", now=10.0) for _ in range(5)]
    assert starts == [10.0, 10.1, 10.2, 10.4, None]


def test_the_run_is_past_a_record_once_all_is_settled_that_was_under_way() -> None:
    deaths = Deaths(limit=3)
    deaths.moved(settled=5, sent=9)
    assert deaths.died("node-0", 1.0) == 1.0
    for settled in (0, 5, 8, 9):  # a replay; then what was under way before the record that kills
        deaths.moved(settled, sent=20)
    assert deaths.died("node-0", 1.0) == 1.1
    deaths.moved(settled=10, sent=20)
    assert deaths.died("node-0", 1.0) == 1.0
    assert deaths.died("node-0", 1.0) == 1.1
    assert deaths.died("node-0", 1.0) is None


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


def test_who_has_died_is_careful_with_what_was_under_way() -> None:
    deaths = Deaths()
    deaths.moved(settled=5, sent=9)
    assert deaths.careful("node-0") == (-1, -1)
    deaths.died("node-0", 1.0)
    deaths.moved(settled=7, sent=20)
    assert (deaths.careful("node-0"), deaths.careful("node-1")) == ((7, 9), (-1, -1))
    deaths.moved(settled=10, sent=20)
    assert deaths.careful("node-0") == (-1, -1)


def test_a_master_makes_way_in_vain_if_the_run_got_no_further_since_the_last_time() -> None:
    deaths = Deaths()
    deaths.moved(settled=5, sent=9)
    counts = []
    for settled in (5, 5, 5, 6, 6):
        deaths.moved(settled, sent=9)
        deaths.made_way("master-0")
        counts.append(deaths.in_vain("master-0"))
    assert counts == [0, 1, 2, 0, 1]
    assert deaths.in_vain("master-1") == 0


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
