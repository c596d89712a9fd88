"""Latencies, status reports and log lines about stalls, for operators."""

from __future__ import annotations

import pytest

from driftline.coordinator.coordinator import Phase
from driftline.deploy.roles.master import StallLogger
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.roles.window import LatencyMeter, percentile
from driftline.engine.events import FailureLog
from driftline.engine.wire.messages import AskReport, StatusReport, decode, encode


def test_a_latency_ends_with_the_delivery() -> None:
    meter = LatencyMeter()
    for time in (1, 2, 3):
        meter.record_sent(time, now=time * 10.0)
    meter.update(now=31.0, delivered=3)
    assert sorted(meter.recent(32.0)) == [11.0, 21.0]
    assert (meter.in_flight, meter.oldest_s(32.0)) == (1, 2.0)
    assert percentile(meter.recent(32.0), 50) == 11.0
    assert percentile(meter.recent(32.0), 99) == 21.0
    assert meter.recent(99.0) == [], "only the last seconds count"
    assert percentile([], 50) is None


def report(state: str, waits_for: str = "", outputs: int = 0, **figures: int) -> StatusReport:
    return StatusReport((*figures.items(), ("outputs", outputs)), state, waits_for, ())


def hear(watch: StatusPoller, now: float, **reports: StatusReport) -> None:
    watch.now = now
    for name, message in reports.items():
        watch.receive(encode((name.replace("_", "-"), 0, 0), message))


def test_stalled_run_logs_its_stall_soon_after_a_stop_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    standstill = StallLogger()
    for now in range(60):
        standstill.update(float(now), 7, True, lambda: "a disk")
        if now == 50:
            standstill.on_end_of_input(50.0)
    standstill.update(60.0, 8, True, lambda: "a disk")
    assert caplog.messages == [
        "no progress for 10 s: a disk",
        "no progress for 20 s: a disk",
        "no progress for 40 s: a disk",
        "no progress for 53 s: a disk",
        "there is progress again, after 60 s",
    ]


def test_status_poller_combines_reports_of_master_and_nodes() -> None:
    watch = StatusPoller()
    watch.address, watch.addresses["master"] = "ipc://watch", "ipc://master"
    assert watch.state(0.0) == "starting"
    addresses = (("front-0", "ipc://f"), ("node-1", "ipc://1"))
    hear(watch, 1.0, master=StatusReport((("incarnation", 2),), Phase.LOADING.value, "", addresses))
    assert watch.tick(2.0) == 3.0
    asked = {to: decode(data)[1] for to, data in watch.outbox}
    assert asked == dict.fromkeys(("master", "node-1"), AskReport("ipc://watch"))
    hear(watch, 2.0, node_1=report("loading 40 %", outputs=5))
    assert watch.state(2.0) == "starting: node-1 is loading 40 %", (
        "outputs of an earlier call do not count"
    )
    hear(watch, 3.0, master=report(Phase.RUNNING.value, incarnation=2), node_1=report("running"))
    assert watch.state(3.0) == "running"
    assert watch.outputs == 5, "a node that has just started does not know its figures yet"
    hear(watch, 3.5, node_1=report("waiting for the consumer", outputs=7))
    assert (watch.state(4.0), watch.outputs) == ("waiting for the consumer of node-1", 7)
    hear(watch, 5.0, master=report(Phase.LOADING.value), node_1=report("loading 7 %", outputs=7))
    assert watch.state(5.0) == "recovering: node-1 is loading 7 %"
    assert watch.state(9.0) == "waiting for the master"


def test_failure_is_logged_at_once_every_half_minute_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = FailureLog("full")
    for now in range(70):
        failures.record_failure(float(now), "/disk: no space", path="/disk")
    failures.record_success(70.0, "/disk has space")
    failures.record_success(71.0, "/disk has space")
    assert caplog.messages == [
        "/disk: no space",
        "/disk: no space (for 30 s now, 31 times)",
        "/disk: no space (for 60 s now, 61 times)",
        "/disk has space; it had failed 70 times in 70.0 s",
    ]
