"""Who waits for producers says so, and nobody can make it say so often."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import count

import pytest

from driftline.deploy.parties.presence import Presence
from driftline.deploy.simulation.world.disks import LogDisk
from driftline.engine.sources.logs.received import ReceivedSource


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterable[None]:
    with caplog.at_level(logging.INFO):
        yield


def made() -> ReceivedSource:
    ticks = count(10**15)
    return ReceivedSource(LogDisk("log"), lambda: next(ticks), name="orders")


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(vars(record)["fields"]["event"]) for record in caplog.records]


def test_nobody_is_missed_who_was_never_there(caplog: pytest.LogCaptureFixture) -> None:
    presence = Presence(made())
    for now in range(100):
        presence.look(float(now), 0)
    assert not caplog.messages


def test_who_comes_back_at_once_was_not_away(caplog: pytest.LogCaptureFixture) -> None:
    presence = Presence(made())
    for step in range(100):
        presence.look(step * 0.5, step % 2)
    assert not caplog.messages


def test_the_last_one_to_go_and_the_first_one_to_come_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = made()
    presence = Presence(source)
    for producer in "ab":
        source.receive(producer, 1, producer)
    source.end_of("a")
    for now in range(20):
        presence.look(float(now), max(0, 2 - now // 5))
    presence.look(22.0, 1)
    source.end_of("b")
    presence.look(23.0, 0)
    presence.look(24.0, 0)
    assert events(caplog) == [
        "producers-connected", "no-producers", "producers-again", "stream-over",
    ]  # fmt: skip
    assert caplog.messages[1].startswith(
        "orders: no producer is connected, and the run waits for one. 1 of 2 producers that have "
        "sent records have ended (Producer.end), not 'b'; the stream is over once all have."
    )
    assert caplog.records[1].levelname == "WARNING"
    assert caplog.messages[2:] == [
        "orders: a producer is connected again, after 12 s",
        "orders: the stream is over, as all 2 producers have ended; 2 records",
    ]


def test_of_many_producers_that_are_missed_five_are_named(caplog: pytest.LogCaptureFixture) -> None:
    source = made()
    presence = Presence(source)
    for number in range(9):
        source.receive(f"p{number}\x1b", 1, number)
    source.end_of("p1\x1b")
    for now, connected in enumerate((1, 0, 0)):
        presence.look(float(now), connected)
    named = [f"p{number}\x1b" for number in (0, 2, 3, 4, 5)]
    assert f"not {', '.join(map(repr, named))} and 3 more;" in caplog.messages[-1]
    fields = vars(caplog.records[-1])["fields"]
    assert [each["name"] for each in fields["not_ended"]] == named
    assert (fields["producers"], fields["ended"]) == (9, 1)


def test_one_of_several_that_goes_or_ends_is_told(caplog: pytest.LogCaptureFixture) -> None:
    source = made()
    presence = Presence(source)
    for producer in "ab":
        source.receive(producer, 1, producer)
    for now, connected in enumerate([2] * 20 + [1] * 20 + [3] * 20):
        presence.look(float(now), connected)
    source.end_of("a")
    presence.ended(60.0, "a")
    source.end_of("b")
    presence.ended(60.0, "b")
    presence.look(60.0, 3)
    assert caplog.messages == [
        "orders: 2 producers are connected",
        "orders: a connection of a producer has gone; 1 producer is connected",
        "orders: 3 producers are connected",
        "orders: a producer has ended: 'a', with record 1; 1 of 2 have",
        "orders: the stream is over, as all 2 producers have ended; 2 records",
    ]
    assert events(caplog)[-2:] == ["producer-ended", "stream-over"]


def test_numbers_that_change_all_the_time_cannot_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = made()
    presence = Presence(source)
    for step in range(60):
        presence.look(float(step), 1 + step // 2 % 3)
    assert 3 <= len(caplog.messages) <= 6


def test_a_run_that_goes_on_misses_those_of_earlier_calls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = LogDisk("log")
    before = ReceivedSource(log, lambda: 10**15)
    before.receive("a", 1, "a")
    while (group := before.group()) is not None:
        before.written(group, bool(log.carry_out(group)))
    presence = Presence(ReceivedSource(log, lambda: 10**15))
    presence.look(0.0, 0)
    presence.look(1.0, 0)
    assert events(caplog) == ["no-producers"]


def test_a_run_that_is_to_end_waits_for_nobody(caplog: pytest.LogCaptureFixture) -> None:
    source = made()
    presence = Presence(source)
    presence.look(0.0, 1)
    source.stop()
    presence.look(1.0, 0)
    presence.look(9.0, 0)
    assert not caplog.messages


def test_who_needs_no_producers_is_not_told_that_there_are_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    presence = Presence(made(), needed=False)
    for now, connected in ((0.0, 0), (60.0, 0), (120.0, 1), (130.0, 1), (140.0, 0), (150.0, 0)):
        presence.look(now, connected)
    went = "a connection of a producer has gone; 0 producers are connected"
    assert [text.partition(": ")[2] for text in caplog.messages] == [
        "1 producer is connected",
        went,
    ]


def test_strangers_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    presence = Presence(made())
    for step in range(60 * 4):
        presence.look(step * 0.25, int(step % 8 == 0))
    assert len(caplog.messages) <= 12


def test_ends_that_nobody_has_looked_at_since_are_told_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = made()
    presence = Presence(source)
    for producer in "abc":
        source.receive(producer, 1, producer)
    for producer in "abc":
        source.end_of(producer)
        presence.ended(1.0, producer)
    presence.close()
    assert [vars(record)["fields"]["count"] for record in caplog.records] == [1, 2]
