"""Producers that wait are told that the front lives, message by message, without sockets."""

from __future__ import annotations

from driftline.deploy.parties.intake import MAGIC, SIGN_S, Answer, Intake, Kind, decode_answer
from driftline.deploy.simulation.world.disks import LogDisk
from driftline.engine.errors import Unavailable
from driftline.engine.sources.logs.received import ReceivedSource
from driftline.engine.wire.codec import pack

WINDOW = 2


class Bench:
    """An intake over a log in memory, with a virtual clock."""

    def __init__(self) -> None:
        self.log = LogDisk("log")
        self.source = ReceivedSource(self.log, lambda: 1_000_000_000)
        self.intake = Intake(self.source, window=WINDOW)
        self.reader = self.source.entries(1)
        self.pass_time(0.0)

    def say(self, kind: Kind, producer: str, *rest: object) -> None:
        message = pack((MAGIC, kind, producer, 7, *rest))
        self.intake.take([producer.encode(), message])
        self.intake.turn()

    def store(self) -> None:
        while self.intake.jobs:
            job = self.intake.jobs.pop(0)
            self.intake.done(job, self.log.carry_out(job))
            self.intake.turn()

    def fail_to_store(self) -> None:
        self.intake.done(self.intake.jobs.pop(0), Unavailable("log: the disk is full"))

    def pass_time(self, seconds: float) -> None:
        self.intake.now += seconds
        self.intake.tick(self.intake.now)

    def answers(self) -> list[tuple[bytes, Answer]]:
        found = [(route, decode_answer(answer)) for route, answer in self.intake.answers]
        self.intake.answers.clear()
        return found


def test_while_there_is_no_room_every_producer_hears_that_the_front_lives() -> None:
    bench = Bench()
    bench.say(Kind.HELLO, "q")
    for number in range(1, WINDOW + 1):
        bench.say(Kind.RECORD, "p", number, number)
        bench.store()
    bench.answers()
    assert not bench.intake.room()
    for _ in range(3):
        bench.pass_time(SIGN_S)
        assert bench.answers() == [
            (b"p", Answer(Kind.ACK, 7, WINDOW)),
            (b"q", Answer(Kind.ACK, 7, 0)),
        ]
        bench.pass_time(SIGN_S / 2)
        assert not bench.answers(), "as often as is needed"
    while next(bench.reader) is not None:
        pass
    bench.pass_time(SIGN_S)
    assert not bench.answers(), "nobody waits any more"


def test_while_the_disk_is_full_those_hear_it_whose_records_wait_for_it() -> None:
    bench = Bench()
    bench.say(Kind.HELLO, "q")
    bench.store()
    bench.say(Kind.RECORD, "p", 1, "a")
    bench.answers()
    bench.fail_to_store()
    bench.pass_time(SIGN_S)
    assert bench.answers() == [(b"p", Answer(Kind.ACK, 7, 0))]
    bench.store()
    assert bench.answers() == [(b"p", Answer(Kind.ACK, 7, 1))]
    bench.pass_time(SIGN_S)
    assert not bench.answers()


def test_a_front_that_is_about_to_end_gives_no_signs() -> None:
    """It takes nothing more: who waits for it may wait for long."""
    bench = Bench()
    bench.say(Kind.RECORD, "p", 1, "a")
    bench.store()
    bench.source.stop()
    bench.answers()
    bench.pass_time(SIGN_S)
    assert not bench.intake.room()
    assert not bench.answers()
