"""When a node tells how far it is delivered, and when it settles without a master."""

from __future__ import annotations

import pytest

from driftline.deploy.node.delivery import (
    SETTLE_AFTER_S,
    SILENT_AFTER_S,
    TELL_EVERY_S,
    DeliveryGossip,
)
from driftline.engine.errors import MalformedMessage


def test_nothing_is_told_while_the_master_speaks() -> None:
    node, now = DeliveryGossip(["node-1"], 5), 0.0
    for time in range(6, 5000):
        now += 0.001
        node.deliver(time, now)
        assert now < node.tell_by
        node.progress(time - 3, now)  # it is always a little behind
    assert not node.silent(now)
    node.progress(4999, now)
    assert node.tell_by == float("inf")
    assert not node.silent(now + 100.0), "there is no news"


def test_while_it_is_silent_all_is_told_but_not_too_often() -> None:
    node = DeliveryGossip(["node-1"], 5)
    node.progress(7, 1.0)
    node.deliver(9, 1.5)
    assert node.tell_by == pytest.approx(1.5 + SILENT_AFTER_S)
    node.deliver(11, 1.51)
    assert node.tell_by == pytest.approx(1.5 + SILENT_AFTER_S)
    assert node.tell() == 11
    node.deliver(12, 1.6)
    assert node.tell_by == pytest.approx(1.6 + TELL_EVERY_S)


def test_what_all_nodes_have_delivered_is_settled_after_a_while() -> None:
    node = DeliveryGossip(["node-1", "node-2"], 5)
    node.deliver(20, 1.0)
    node.hear("node-1", 12)
    node.hear("node-2", 15)
    assert node.to_settle(1.0 + SETTLE_AFTER_S - 0.1) == 0
    assert node.to_settle(1.0 + SETTLE_AFTER_S) == node.settled == 12
    assert node.to_settle(1.1 + SETTLE_AFTER_S) == 0, "once"
    node.progress(14, 4.0)
    node.hear("node-1", 19)
    assert node.to_settle(4.1) == 0, "the master is back"
    with pytest.raises(MalformedMessage):
        node.hear("front-0", 9)
