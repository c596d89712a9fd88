"""Unauthorised peers at a member's port are only counted and logged, and memory is bounded.

At the end of each test, messages of an authorised member still arrive.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
import zmq

from driftline.deploy.runtime.sockets import transport
from driftline.deploy.runtime.sockets.inbox import GuardedInbox
from driftline.deploy.runtime.sockets.keys import read_key
from driftline.deploy.runtime.sockets.transport import PART_BYTES
from driftline.engine.wire.addresses import parse
from driftline.engine.wire.messages import Alive, Bundle, encode
from tests.deploy.runtime.keyed import Hosts
from tests.deploy.runtime.raw_peer import COMMAND, GREETING, LONG, MORE, READY, Peer, frame, head

ALIVE = Alive("process", 1, 0)

GROWTH_MAX = 64 << 20

CURVE_GREETING = GREETING.replace(b"NULL".ljust(20, b"\0"), b"CURVE".ljust(20, b"\0"))


class ExposedMember:
    """Node that unauthorised peers can reach, and an authorised member."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.node, self.address = hosts.start("one", "node-0")
        self.endpoint = parse(self.address).endpoint
        self.friend, _ = hosts.start("two", "node-1")
        self.friend.addresses["node-0"] = self.address
        guarded = hosts.runtimes[0]._inboxes[0]
        assert isinstance(guarded, GuardedInbox)
        self.zap = guarded._zap

    def hears_only_its_friend(self) -> bool:
        """Return whether a message of the authorised member arrives, and no other has."""
        before = len(self.node.received)
        self.friend.send("node-0", ALIVE)
        self.hosts.until(lambda: len(self.node.received) > before)
        return {sender for sender, _ in self.node.received} == {"node-1"}


@pytest.fixture
def member(tmp_path: Path) -> Iterator[ExposedMember]:
    with Hosts(tmp_path) as hosts:
        yield ExposedMember(hosts)


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def new_key_pair() -> dict[str, str]:
    public, secret = zmq.curve_keypair()
    return {"public": public.decode(), "secret": secret.decode()}


Connect = Callable[[ExposedMember], zmq.Socket[bytes]]

WITHOUT_RIGHT: dict[str, tuple[Connect, str]] = {
    "no key": (lambda m: m.hosts.raw(m.endpoint, None), ""),
    "a key that nobody knows": (
        lambda m: m.hosts.raw(m.address, None, **new_key_pair()),
        "is not authorised",
    ),
    "a producer's key": (
        lambda m: m.hosts.raw(m.address, "shop"),
        "the key shop belongs to a producer, not to a member",
    ),
}


@pytest.mark.parametrize("kind", WITHOUT_RIGHT)
def test_peer_without_rights_is_rejected(
    member: ExposedMember, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    connect, why = WITHOUT_RIGHT[kind]
    assert member.hears_only_its_friend()
    with connect(member) as spoken:
        monitor = spoken.get_monitor_socket()
        spoken.send(encode(("node-1", 0, 0), Alive("stranger", 1, 0)))
        assert monitor.poll(10_000)  # the peer's handshake has begun
        member.hosts.until(lambda: bool(member.zap.refused) or kind == "no key")
        spoken.disable_monitor()
    assert member.hears_only_its_friend()
    assert ALIVE in [message for _, message in member.node.received]
    assert Alive("stranger", 1, 0) not in [message for _, message in member.node.received]
    assert member.zap.refused == (1 if why else 0)
    assert why in caplog.text


BEFORE_ITS_KEY = {
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "zeros": bytes(100),
    "ZMTP 1": b"\x01\x00",
    "ZMTP 2": GREETING[:10] + b"\x01\x08\x00\x00",
    "no CURVE": GREETING + READY,
    "a command that is not its turn": CURVE_GREETING + READY,
    "a message": CURVE_GREETING + frame(b"early"),
    "the beginning of a message": CURVE_GREETING + frame(b"part", MORE),
    "a message of 1 GB": CURVE_GREETING + head(1 << 30) + bytes(1 << 16),
    "a command of 1 GB": CURVE_GREETING + head(1 << 30, COMMAND | LONG) + bytes(1 << 16),
    "a command of all bytes that there are": CURVE_GREETING + head(2**64 - 1, COMMAND | LONG),
}


def test_invalid_member_handshake_closes_the_connection(member: ExposedMember) -> None:
    assert member.hears_only_its_friend()
    before = resident_bytes()
    for kind, data in BEFORE_ITS_KEY.items():
        with Peer(member.endpoint, shaken=False) as stranger:
            stranger.try_to_send(data)
            assert stranger.is_closed(), kind
    assert member.hears_only_its_friend()
    assert resident_bytes() - before < GROWTH_MAX


def test_connection_without_handshake_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "HANDSHAKE_MS", 300)
    with Hosts(tmp_path) as hosts:
        member = ExposedMember(hosts)
        for first_bytes in (b"", CURVE_GREETING, CURVE_GREETING + head(1 << 16) + b"some"):
            with Peer(member.endpoint, shaken=False) as silent:
                silent.send(first_bytes)
                assert silent.is_closed()
        assert member.hears_only_its_friend()


def test_large_message_of_a_member_arrives_unchanged(member: ExposedMember) -> None:
    for size in (PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 5 << 20):
        header = len(encode(("node-1", 0, 0), Bundle("b", 1, (0, 1), (bytes(size),), 7, 0))) - size
        bundle = Bundle("b", 1, (0, 1), (Random(size).randbytes(size - header),), 7, 0)
        member.friend.send("node-0", bundle)
        member.friend.send("node-0", ALIVE)
        member.hosts.until(lambda: len(member.node.received) == 2)
        assert member.node.received == [("node-1", bundle), ("node-1", ALIVE)]
        member.node.received.clear()


@contextmanager
def killed(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Provide a process, and kill it at the end of the block."""
    try:
        yield
    finally:
        process.kill()


SAYS_A_GIGABYTE = """
import sys, zmq
address, theirs, public, secret = sys.argv[1:]
socket = zmq.Context().socket(zmq.PUSH)
socket.linger = 0
socket.setsockopt_string(zmq.CURVE_SERVERKEY, theirs)
socket.setsockopt_string(zmq.CURVE_PUBLICKEY, public)
socket.setsockopt_string(zmq.CURVE_SECRETKEY, secret)
monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
socket.connect(address)
monitor.recv_multipart()
socket.send(bytes(1 << 30), copy=False)
monitor.recv_multipart()
"""


def test_gigabyte_message_closes_the_connection_before_allocation(member: ExposedMember) -> None:
    assert member.hears_only_its_friend()
    before = resident_bytes()
    own = read_key(member.hosts.keys / "two.key")
    where = (member.endpoint, parse(member.address).public_key, own.public, own.secret)
    with subprocess.Popen([sys.executable, "-c", SAYS_A_GIGABYTE, *where]) as other, killed(other):
        member.hosts.until(lambda: other.poll() is not None, within_s=60.0)
    assert other.returncode == 0
    assert member.hears_only_its_friend()
    assert member.node.malformed == 0
    assert resident_bytes() - before < GROWTH_MAX
