"""A front that waits for producers logs that, and no client can flood the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import count

import pytest

from driftline.connectors.logs.received import ReceivedSource
from driftline.deploy.roles.intake import ProducerLog
from driftline.simulation.world.disks import LogDisk


@pytest.fixture(autouse=True)
def info_logging(caplog: pytest.LogCaptureFixture) -> Iterable[None]:
    with caplog.at_level(logging.INFO):
        yield


def made() -> ReceivedSource:
    ticks = count(10**15)
    return ReceivedSource(LogDisk("log"), lambda: next(ticks), name="orders")


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(vars(record)["fields"]["event"]) for record in caplog.records]


def test_last_disconnect_and_end_of_stream_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = made()
    producers = ProducerLog(source)
    for producer in "ab":
        source.receive(producer, 1, producer)
    source.end_producer("a")
    for now in range(20):
        producers.update(float(now), max(0, 2 - now // 5))
    producers.update(22.0, 1)
    source.end_producer("b")
    producers.update(23.0, 0)
    producers.update(24.0, 0)
    assert events(caplog) == ["no-producers", "producers-ended"]
    assert caplog.messages[0].startswith(
        "orders: no producer is connected, and the run waits for one. 1 of 2 producers that have "
        "sent records have ended (Producer.end); the stream is over once all have."
    )
    assert caplog.records[0].levelname == "WARNING"
    assert caplog.messages[1] == (
        "orders: the stream is over, as all 2 producers have ended; 2 records"
    )


def test_stopping_run_does_not_log_missing_producers(caplog: pytest.LogCaptureFixture) -> None:
    source = made()
    producers = ProducerLog(source)
    producers.update(0.0, 1)
    source.stop()
    producers.update(1.0, 0)
    producers.update(9.0, 0)
    assert not caplog.messages


def test_strangers_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    producers = ProducerLog(made())
    for step in range(60 * 4):
        producers.update(step * 0.25, int(step % 8 == 0))
    assert 1 <= len(caplog.messages) <= 6
