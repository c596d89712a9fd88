"""Socket of the intake: bounds, counters, and unauthorised clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from driftline.deploy.producer import Producer
from driftline.deploy.roles.intake import IntakeKind
from driftline.deploy.runtime.sockets import intake_socket
from driftline.deploy.runtime.sockets.listening import is_local
from tests.connectors.logs.received_front import memory_disk
from tests.deploy.roles.intake_host import HostThread, IntakeHost, RawProducer, stored
from tests.deploy.runtime.raw_peer import COMMAND, GREETING, LONG, READY, Peer, frame, head

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def directory() -> Iterator[Path]:
    with memory_disk() as directory:
        yield directory


def test_overflowing_messages_wait_in_a_bounded_backlog_and_are_resent(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Three producers send more than the window and backlog hold, while no front reads."""
    monkeypatch.setattr(intake_socket, "BACKLOG_BYTES", 20_000)
    caplog.set_level("INFO")
    host = IntakeHost(directory / "log", f"ipc://{directory}/intake", window=5)
    host.reader.reading = False
    intake = host.intake
    records = [f"{number}{'x' * 1000}" for number in range(30)]
    with HostThread(host):
        producers = [Producer(intake.address, name, timeout_s=60) for name in "pqr"]
        for producer in producers:
            for record in records:
                producer.send(record)
        while "the flow is slower than its producers" not in caplog.text:
            pass
        while host.source.waiting_records < 5:
            pass
        assert intake._backlog_bytes <= 20_000
        assert host.source.waiting_records == 5
        host.reader.reading = True
        for producer in producers:
            producer.flush()
            producer.close()
    for name in "pqr":
        assert [value for who, _, value in stored(host.log) if who == name] == records
    host.close()


def test_open_connections_are_counted(directory: Path) -> None:
    host = IntakeHost(directory / "log", "tcp://127.0.0.1:*")
    with RawProducer(host) as wire:
        wire.send(IntakeKind.HELLO, "p", 1)
        wire.receive()
        wire.until(lambda: host.source.connected == 1)
        wire.socket.close()
        with RawProducer(host) as other:
            other.send(IntakeKind.HELLO, "q", 1)
            other.receive()
            other.until(lambda: host.source.connected == 1)
        other.until(lambda: host.source.connected == 0)
    host.close()


FOREIGN = {
    "a message of 1 GB": GREETING + READY + head(1 << 30) + bytes(1 << 16),
    "a message of all bytes that there are": GREETING + READY + head(2**64 - 1),
    "a command of 1 GB": GREETING + head(1 << 30, COMMAND | LONG) + bytes(1 << 16),
    "a message before the handshake": GREETING + frame(b"early"),
}


def test_protocol_violation_closes_only_its_own_connection(directory: Path) -> None:
    host = IntakeHost(directory / "log", "tcp://127.0.0.1:*")
    with HostThread(host):
        for kind, data in FOREIGN.items():
            with Peer(host.intake.address, shaken=False) as peer:
                peer.try_to_send(data)
                assert peer.is_closed(), kind
        chance = Random(1)
        for _ in range(50):
            with Peer(host.intake.address, shaken=False) as peer:
                peer.try_to_send(GREETING + READY + chance.randbytes(chance.randrange(2000)))
        with Producer(host.intake.address, "p") as producer:
            producer.send("heard")
    assert stored(host.log) == [("p", 1, "heard")]
    host.close()


def test_connection_without_handshake_is_closed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_socket, "HANDSHAKE_MS", 300)
    host = IntakeHost(directory / "log", "tcp://127.0.0.1:*")
    for first_bytes in (b"", GREETING[:20], GREETING):
        with Peer(host.intake.address, shaken=False) as silent:
            silent.send(first_bytes)
            assert silent.is_closed()
    host.close()


def test_interrupted_heartbeats_of_producers_do_not_abort_the_process(directory: Path) -> None:
    """A receive high-water mark on the ROUTER made libzmq 4.3.5 abort."""
    program = [sys.executable, "-m", "tests.deploy.runtime.heartbeats", str(directory)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_producers_are_heard_by_ipv4_and_ipv6(directory: Path, host: str) -> None:
    at = IntakeHost(directory / "log", f"tcp://{host}:*")
    with HostThread(at), Peer(at.intake.address.replace("[::1]", "::1")):
        pass
    at.close()


LOCAL = {
    True: ("127.0.0.1:5555", "127.8.8.8:5555", "localhost:*", "[::1]:5555"),
    False: ("*:5555", "0.0.0.0:5555", "[::]:5555", "192.168.0.1:5555", "here.example.org:5", ":5"),
}


def test_local_addresses_are_recognised() -> None:
    assert is_local("ipc:///tmp/here")
    for local, places in LOCAL.items():
        for place in places:
            assert is_local(f"tcp://{place}") is local, place
