"""Who waits for producers says so, and nobody can make it say so often."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import count

import pytest

from driftline.connectors.logs.received import ReceivedSource
from driftline.deploy.roles.intake import ProducerLog
from driftline.simulation.world.disks import LogDisk


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterable[None]:
    with caplog.at_level(logging.INFO):
        yield


def made() -> ReceivedSource:
    ticks = count(10**15)
    return ReceivedSource(LogDisk("log"), lambda: next(ticks), name="orders")


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(vars(record)["fields"]["event"]) for record in caplog.records]


def test_the_last_one_to_go_and_the_end_of_the_stream_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = made()
    producers = ProducerLog(source)
    for producer in "ab":
        source.receive(producer, 1, producer)
    source.end_of("a")
    for now in range(20):
        producers.look(float(now), max(0, 2 - now // 5))
    producers.look(22.0, 1)
    source.end_of("b")
    producers.look(23.0, 0)
    producers.look(24.0, 0)
    assert events(caplog) == ["no-producers", "stream-over"]
    assert caplog.messages[0].startswith(
        "orders: no producer is connected, and the run waits for one. 1 of 2 producers that have "
        "sent records have ended (Producer.end); the stream is over once all have."
    )
    assert caplog.records[0].levelname == "WARNING"
    assert caplog.messages[1] == (
        "orders: the stream is over, as all 2 producers have ended; 2 records"
    )


def test_a_run_that_is_to_end_waits_for_nobody(caplog: pytest.LogCaptureFixture) -> None:
    source = made()
    producers = ProducerLog(source)
    producers.look(0.0, 1)
    source.stop()
    producers.look(1.0, 0)
    producers.look(9.0, 0)
    assert not caplog.messages


def test_strangers_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    producers = ProducerLog(made())
    for step in range(60 * 4):
        producers.look(step * 0.25, int(step % 8 == 0))
    assert 1 <= len(caplog.messages) <= 6
