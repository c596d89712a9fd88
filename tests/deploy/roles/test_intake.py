"""The intake, message by message, over real ZeroMQ: acknowledged records are in the log, once."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.deploy.roles.intake import IntakeKind
from driftline.deploy.runtime.sockets.intake_socket import IntakeSocket
from driftline.engine.errors import Unavailable
from driftline.engine.wire.role import IOJob
from tests.connectors.logs.received_front import memory_disk
from tests.deploy.roles.intake_host import IntakeHost, RawProducer, stored


@pytest.fixture
def directory() -> Iterator[Path]:
    with memory_disk() as directory:
        yield directory


@pytest.fixture
def host(directory: Path) -> Iterator[IntakeHost]:
    host = IntakeHost(directory / "log", f"ipc://{directory}/intake")
    yield host
    host.close()


def test_address_in_use_raises(host: IntakeHost, directory: Path) -> None:
    with pytest.raises(Unavailable, match="in use by another run"):
        IntakeSocket(host.source, host.intake.address, name="ipc")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match="in use by another run"):
            IntakeSocket(host.source, f"tcp://127.0.0.1:{port}", name="tcp")


def test_repeated_records_are_acknowledged_again_and_stored_once(host: IntakeHost) -> None:
    with RawProducer(host) as wire:
        wire.send(IntakeKind.RECORD, "p", 1, 1, "a")
        wire.send(IntakeKind.RECORD, "p", 1, 1, "a")
        assert wire.receive()[2] in (0, 1)
        wire.until(lambda: host.source.last_acknowledged("p") == 1)
        while wire.socket.poll(20):
            wire.socket.recv()
        wire.send(IntakeKind.RECORD, "p", 1, 1, "a")
        assert wire.receive() == (IntakeKind.ACK, 1, 1)
    assert stored(host.log) == [("p", 1, "a")]


def test_sequence_gap_is_reported_once_and_later_records_are_dropped(host: IntakeHost) -> None:
    with RawProducer(host) as wire:
        wire.send(IntakeKind.RECORD, "p", 1, 1, "a")
        assert wire.receive() == (IntakeKind.ACK, 1, 1)
        for number in (3, 4, 5):
            wire.send(IntakeKind.RECORD, "p", 1, number, "late")
        assert wire.receive() == (IntakeKind.SYNC, 1, 1)
        wire.send(IntakeKind.RECORD, "p", 1, 2, "b")
        assert wire.receive() == (IntakeKind.ACK, 1, 2)
        wire.send(IntakeKind.RECORD, "p", 1, 4, "late")
        assert wire.receive() == (IntakeKind.SYNC, 1, 2)
    assert stored(host.log) == [("p", 1, "a"), ("p", 2, "b")]


def test_answers_contain_the_time_below_which_all_records_are_acknowledged(
    host: IntakeHost,
) -> None:
    with RawProducer(host) as wire:
        wire.send(IntakeKind.HELLO, "p", 1)
        first = wire.receive_all_fields().below
        wire.send(IntakeKind.RECORD, "p", 1, 1, "a")
        while (answer := wire.receive_all_fields()).acknowledged == 0:
            pass
        assert answer.below == host.log.last_time + 1 > first


def test_hello_is_answered_after_all_received_records_are_stored(host: IntakeHost) -> None:
    """A new process of a producer must learn all records that its predecessor had stored."""
    with RawProducer(host) as wire:
        for number in range(1, 5):
            wire.send(IntakeKind.RECORD, "p", 1, number, number)
        wire.send(IntakeKind.HELLO, "p", 2)
        answers = [wire.receive()]
        while answers[-1][0] is not IntakeKind.SYNC:
            answers.append(wire.receive())
        assert answers[-1] == (IntakeKind.SYNC, 2, 4)


def test_end_counts_only_after_all_records_before_it(host: IntakeHost) -> None:
    with RawProducer(host) as wire:
        wire.send(IntakeKind.RECORD, "p", 1, 1, "a")
        wire.send(IntakeKind.END, "p", 1, 2)
        while wire.receive() != (IntakeKind.SYNC, 1, 1):
            pass
        assert not host.source.closed
        wire.send(IntakeKind.RECORD, "p", 1, 2, "b")
        wire.send(IntakeKind.END, "p", 1, 2)
        while (answer := wire.receive())[0] is not IntakeKind.ENDED:
            pass
        assert answer == (IntakeKind.ENDED, 1, 2)
        wire.send(IntakeKind.RECORD, "q", 1, 1, "late")
        assert wire.receive() == (IntakeKind.ENDED, 1, 0)
    assert stored(host.log) == [("p", 1, "a"), ("p", 2, "b")]


def test_messages_of_an_older_session_are_fenced(host: IntakeHost) -> None:
    with RawProducer(host) as wire:
        wire.send(IntakeKind.HELLO, "p", 7)
        assert wire.receive() == (IntakeKind.SYNC, 7, 0)
        wire.send(IntakeKind.RECORD, "p", 6, 1, "left in the network")
        assert wire.receive() == (IntakeKind.FENCED, 7, 0)
    assert stored(host.log) == []


@pytest.mark.parametrize("done", [False, True])
def test_failed_group_write_is_retried_once_there_is_space(host: IntakeHost, done: bool) -> None:
    tries: list[IOJob] = []

    def execute_job(job: IOJob) -> object:
        tries.append(job)
        if done or len(tries) > 1:
            host.log.execute_job(job)
        if len(tries) == 1:
            raise Unavailable("input log: the disk is full")
        return None

    host.runtime._execute_job = execute_job
    with RawProducer(host) as wire:
        wire.send(IntakeKind.RECORD, "p", 1, 1, "a")
        wire.until(lambda: bool(host.source.obstacle))
        assert host.source.obstacle.endswith("its input log: input log: the disk is full")
        assert host.source.last_acknowledged("p") == 0
        while (answer := wire.receive()) == (IntakeKind.ACK, 1, 0):
            pass  # the host still works
        assert answer == (IntakeKind.ACK, 1, 1)
    assert host.source.obstacle == ""
    assert stored(host.log) == [("p", 1, "a")]
