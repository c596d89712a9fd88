"""Time since watermarks last moved, across incarnations of a node."""

from __future__ import annotations

from driftline.deploy.node.watermarks import WatermarkMonitor
from driftline.engine.event_time import IDLE, NEVER, Clock, Status


def test_replay_does_not_count_as_movement() -> None:
    monitor = WatermarkMonitor(["views", "names", "clicks"])
    clock = Clock([5, None, 0])
    found = [monitor.sources(clock, 10.0)]
    clock.record(0, 1, 100)
    clock.complete(2)
    found.append(monitor.sources(clock, 11.0))
    again = Clock([5, None, 0])  # the next incarnation
    found.append(monitor.sources(again, 12.0))
    again.record(0, 1, 100)
    again.record(2, 2, IDLE)
    again.complete(3)
    found.append(monitor.sources(again, 13.0))
    again.record(0, 3, 101)
    again.complete(4)
    found.append(monitor.sources(again, 14.5))
    active, idle = int(Status.ACTIVE), int(Status.IDLE)
    assert found == [
        (("views", NEVER, active, 0), ("clicks", NEVER, active, 0)),
        (("views", 95, active, 0), ("clicks", NEVER, active, 1000)),
        (("views", NEVER, active, 1000), ("clicks", NEVER, active, 2000)),
        (("views", 95, active, 2000), ("clicks", NEVER, idle, 0)),
        (("views", 96, active, 0), ("clicks", NEVER, idle, 1500)),
    ]
