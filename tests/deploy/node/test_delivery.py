"""When a node gossips its delivered frontier, and when it settles without a master."""

from __future__ import annotations

import pytest

from driftline.deploy.node.delivery import (
    SETTLE_AFTER_S,
    DeliveryGossip,
)
from driftline.engine.errors import MalformedMessage


def test_no_gossip_while_the_master_reports_progress() -> None:
    node, now = DeliveryGossip(["node-1"], 5), 0.0
    for time in range(6, 5000):
        now += 0.001
        node.deliver(time, now)
        assert now < node.send_by
        node.progress(time - 3, now)  # the master is always a little behind
    assert not node.is_master_silent(now)
    node.progress(4999, now)
    assert node.send_by == float("inf")
    assert not node.is_master_silent(now + 100.0), "nothing has changed"


def test_outputs_delivered_by_all_nodes_settle_without_a_master() -> None:
    node = DeliveryGossip(["node-1", "node-2"], 5)
    node.deliver(20, 1.0)
    node.on_delivered("node-1", 12)
    node.on_delivered("node-2", 15)
    assert node.take_settle_time(1.0 + SETTLE_AFTER_S - 0.1) == 0
    assert node.take_settle_time(1.0 + SETTLE_AFTER_S) == node.settled == 12
    assert node.take_settle_time(1.1 + SETTLE_AFTER_S) == 0, "only once"
    node.progress(14, 4.0)
    node.on_delivered("node-1", 19)
    assert node.take_settle_time(4.1) == 0, "the master is back"
    with pytest.raises(MalformedMessage):
        node.on_delivered("front-0", 9)
