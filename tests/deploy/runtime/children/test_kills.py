"""Kills on purpose that leave a run no time are told."""

from __future__ import annotations

import pytest

from driftline.deploy.runtime.children.kills import Kills


def test_kills_that_leave_no_time_for_progress_are_told_every_half_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kills = Kills()
    for now in range(100):
        kills.killed(float(now), settled=0 if now < 50 else 7, has_work=True)
    assert [message.partition(" kills")[0] for message in caplog.messages] == [
        "3 of the last 3",
        "30 of the last 30",
        "29 of the last 30",
        "30 of the last 30",
    ]
    assert "give --kill-every a larger number" in caplog.text


def test_kills_of_a_run_that_gets_on_or_has_no_work_are_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kills = Kills()
    for now in range(100):
        kills.killed(float(now), settled=now // 3, has_work=True)
        kills.killed(float(now), settled=now // 3, has_work=False)
    assert not caplog.messages
