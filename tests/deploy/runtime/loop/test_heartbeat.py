"""A heartbeat does not delay the exit of its process."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path

import pytest

from driftline.deploy.roles.front import Front
from driftline.deploy.runtime.loop.heartbeat import Heartbeat
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.policy import get_policy
from driftline.engine.sources import ListSource


def test_process_exits_with_unreceived_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow("ended")
    flow.source("in").sink()
    front = Front(0, 1, make_plan(flow), get_policy("exactly-once"), ListSource([]), lambda: 1)
    front.addresses["master"] = f"ipc://{tmp_path}/master-that-has-ended"
    beats = count(1)
    sent = threading.Event()

    def beat(now: float) -> list[tuple[str, bytes]]:
        if next(beats) > 1:
            sent.set()
        return [("master", b"alive")]

    monkeypatch.setattr(front, "make_heartbeats", beat)
    monkeypatch.setattr("driftline.deploy.runtime.loop.heartbeat.HELLO_EVERY_S", 0.01)
    runtime = Runtime()
    runtime.is_waiting = False  # the loop is in a long turn
    with Heartbeat(runtime, [front]):
        assert sent.wait(10)
    ending = threading.Thread(target=runtime.close, args=(0,), daemon=True)
    ending.start()
    ending.join(10)
    assert not ending.is_alive()
