"""Strangers at the port of a member: nothing happens but a count and a line, and memory is bounded.

Each test ends with an honest member that is heard as if nobody else had been there.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from time import monotonic

import pytest
import zmq

from driftline.deploy.host.guarding import door
from driftline.deploy.host.guarding.door import CONNECTIONS_MAX
from driftline.deploy.host.sockets import inbox, transport
from driftline.deploy.host.sockets.inbox import GuardedInbox
from driftline.deploy.host.sockets.transport import PART_BYTES
from driftline.deploy.keys.key import read_key
from driftline.engine.wire.addresses import parse
from driftline.engine.wire.messages import Alive, Bundle, encode
from tests.deploy.host.keyed import Hosts
from tests.deploy.host.loop.test_runtime import Listener
from tests.deploy.host.raw_peer import COMMAND, GREETING, LONG, MORE, READY, Peer, frame, head

ALIVE = Alive("process", 1, 0)

GROWTH_MAX = 64 << 20

CURVE_GREETING = GREETING.replace(b"NULL".ljust(20, b"\0"), b"CURVE".ljust(20, b"\0"))


class Member:
    """A node that strangers reach, and an honest member."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.node, self.address = hosts.start("one", "node-0")
        self.endpoint = parse(self.address).endpoint
        self.friend, _ = hosts.start("two", "node-1")
        self.friend.addresses["node-0"] = self.address
        guarded = hosts.runtimes[0]._inboxes[0]
        assert isinstance(guarded, GuardedInbox)
        assert guarded._door is not None
        self.door = guarded._door
        self.zap = guarded._zap

    def hears_its_friend(self) -> bool:
        """Whether what an honest member says arrives, and nothing else has."""
        before = len(self.node.heard)
        self.friend.send("node-0", ALIVE)
        self.hosts.until(lambda: len(self.node.heard) > before)
        return {sender for sender, _ in self.node.heard} == {"node-1"}


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    with Hosts(tmp_path) as hosts:
        yield Member(hosts)


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def new_pair() -> dict[str, str]:
    public, secret = zmq.curve_keypair()
    return {"public": public.decode(), "secret": secret.decode()}


Connect = Callable[[Member], zmq.Socket[bytes]]

WITHOUT_RIGHT: dict[str, tuple[Connect, str]] = {
    "no key": (lambda m: m.hosts.raw(m.endpoint, None), ""),
    "a key that nobody knows": (
        lambda m: m.hosts.raw(m.address, None, **new_pair()),
        "is not authorised",
    ),
    "a producer's key": (
        lambda m: m.hosts.raw(m.address, "shop"),
        "the key shop is one of a producer, not of a member",
    ),
}


@pytest.mark.parametrize("kind", WITHOUT_RIGHT)
def test_who_has_no_right_is_not_heard(
    member: Member, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    connect, why = WITHOUT_RIGHT[kind]
    assert member.hears_its_friend()
    with connect(member) as spoken:
        monitor = spoken.get_monitor_socket()
        spoken.send(encode(("node-1", 0, 0), Alive("stranger", 1, 0)))
        assert monitor.poll(10_000)  # its handshake has begun
        member.hosts.until(lambda: bool(member.zap.refused) or kind == "no key")
        spoken.disable_monitor()
    assert member.hears_its_friend()
    assert ALIVE in [message for _, message in member.node.heard]
    assert Alive("stranger", 1, 0) not in [message for _, message in member.node.heard]
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


@pytest.mark.parametrize("data", BEFORE_ITS_KEY.values(), ids=list(BEFORE_ITS_KEY))
def test_who_does_not_shake_hands_as_a_member_is_shut_out(
    member: Member, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert member.hears_its_friend()
    before = resident()
    with Peer(member.endpoint, shaken=False) as stranger:
        stranger.try_to_send(data)
        assert stranger.is_closed()
    member.hosts.until(lambda: "it does not shake hands as a member does" in caplog.text)
    assert member.hears_its_friend()
    assert resident() - before < GROWTH_MAX


def test_garbage_after_the_greeting_is_closed_and_the_port_lives(member: Member) -> None:
    chance = Random(1)
    assert member.hears_its_friend()
    for _ in range(100):
        with Peer(member.endpoint, shaken=False) as stranger:
            stranger.try_to_send(CURVE_GREETING[: chance.choice([64, 70])])
            stranger.try_to_send(frame(chance.randbytes(chance.randrange(2000)), COMMAND))
    assert member.hears_its_friend()
    member.hosts.until(lambda: member.door.connected == 1)


@pytest.mark.parametrize("said", [b"", CURVE_GREETING, CURVE_GREETING + head(1 << 16) + b"some"])
def test_a_handshake_that_stays_away_is_closed(
    tmp_path: Path, said: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (inbox, transport):
        monkeypatch.setattr(module, "HANDSHAKE_MS", 300)
    with Hosts(tmp_path) as hosts:
        member = Member(hosts)
        with Peer(member.endpoint, shaken=False) as silent:
            silent.send(said)
            assert silent.is_closed()
        hosts.until(lambda: "no handshake of ZeroMQ within 0.3 s" in caplog.text)
        assert member.hears_its_friend()


@pytest.mark.parametrize("size", [*range(PART_BYTES - 1, PART_BYTES + 2), 3 * PART_BYTES, 5 << 20])
def test_a_large_message_of_a_member_comes_as_it_was_sent(member: Member, size: int) -> None:
    header = len(encode(("node-1", 0, 0), Bundle("b", 1, (0, 1), (bytes(size),), 7, 0))) - size
    bundle = Bundle("b", 1, (0, 1), (Random(size).randbytes(size - header),), 7, 0)
    member.friend.send("node-0", bundle)
    member.friend.send("node-0", ALIVE)
    member.hosts.until(lambda: len(member.node.heard) == 2)
    assert member.node.heard == [("node-1", bundle), ("node-1", ALIVE)]


def test_a_message_of_a_member_that_is_too_large_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(inbox, "MESSAGE_BYTES_MAX", 1 << 20)
    with Hosts(tmp_path) as hosts:
        member = Member(hosts)
        with hosts.raw(member.address, "two") as spoken:
            spoken.send_multipart([bytes(PART_BYTES)] * 17, copy=False)
            hosts.until(lambda: member.node.malformed == 1)
        assert "1114112 bytes, at most 1048576" in caplog.text
        assert member.hears_its_friend()


@contextmanager
def killed(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A process that ends with the block at the latest."""
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


def test_a_gigabyte_of_a_member_ends_its_connection_before_it_is_allocated(member: Member) -> None:
    assert member.hears_its_friend()
    before = resident()
    own = read_key(member.hosts.keys / "two.key")
    where = (member.endpoint, parse(member.address).public, own.public, own.secret)
    with subprocess.Popen([sys.executable, "-c", SAYS_A_GIGABYTE, *where]) as other, killed(other):
        member.hosts.until(lambda: other.poll() is not None, within_s=60.0)
    assert other.returncode == 0
    assert member.hears_its_friend()
    assert member.node.malformed == 0
    assert resident() - before < GROWTH_MAX


def test_parts_without_an_end_are_forgotten_with_their_connection(member: Member) -> None:
    with member.hosts.raw(member.address, "two") as spoken:
        for _ in range(3):
            spoken.send(encode(("node-1", 0, 0), Alive("part", 1, 0)), zmq.SNDMORE)
        member.hosts.until(lambda: member.door.connected == 1)
    member.hosts.until(lambda: member.door.connected == 0)
    assert member.hears_its_friend()
    assert [message for _, message in member.node.heard] == [ALIVE]
    assert member.node.malformed == 0


def test_a_member_may_be_busy_for_long_while_much_waits_for_it(member: Member) -> None:
    """Its friends' connections stay, as nothing depends on the speed of functions."""
    large = [bytes(PART_BYTES)] * 64
    with member.hosts.raw(member.address, "two") as spoken:
        for _ in range(20):  # more than a guard lets strangers have under way
            spoken.send_multipart(large, copy=False)
        spoken.send(encode(("node-1", 0, 0), ALIVE))
        runtime = member.hosts.runtimes[0]
        assert runtime._inboxes[0].socket.poll(10_000)
        member.hosts.until(lambda: bool(member.node.heard))
    assert member.node.malformed == 20
    assert member.hears_its_friend()


def accepted(member: Member) -> int:
    """How many connections ZeroMQ has at the port, whatever the door knows."""
    port = int(member.endpoint.rpartition(":")[2])
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.fromfd(int(descriptor), socket.AF_INET, 1) as one:
            name = one.getsockname()
            found += isinstance(name, tuple) and name[1] == port and bool(one.getpeername())
    return found


def crowd(member: Member, count: int) -> int:
    """Many connections, which stop somewhere in the handshake; returns how memory has grown."""
    assert member.hears_its_friend()
    before = resident()
    with ExitStack() as stack:
        held: list[Peer] = []
        for number in range(count):
            peer = stack.enter_context(Peer(member.endpoint, shaken=False))
            peer.try_to_send(CURVE_GREETING[: number % 65])
            held.append(peer)
            if len(held) > 3 * CONNECTIONS_MAX:
                held.pop(0).close()
            if number % 500 == 0:
                assert member.hears_its_friend()
        begun = monotonic()
        assert member.hears_its_friend()
        assert monotonic() - begun < 5, "strangers held it up"
        member.hosts.until(lambda: accepted(member) <= CONNECTIONS_MAX)
        return resident() - before


def test_a_crowd_of_strangers_is_bounded(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    assert crowd(member, 1000) < GROWTH_MAX
    assert "200 are too many" in caplog.text
    assert len(caplog.records) < 20


@pytest.mark.soak
def test_ten_thousand_connections(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    assert crowd(member, 10_000) < GROWTH_MAX
    assert len(caplog.records) < 50


def test_a_crowd_that_comes_while_the_door_has_no_time_waits_outside(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function may keep the interpreter for long."""
    assert member.hears_its_friend()
    again = threading.Event()
    happened = member.door._happened
    monkeypatch.setattr(member.door, "_happened", lambda *event: again.wait() and happened(*event))
    with ExitStack() as stack:
        stack.callback(again.set)
        port = int(member.endpoint.rpartition(":")[2])
        for _ in range(3000):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        deadline = monotonic() + 10
        while accepted(member) < 900:
            assert monotonic() < deadline, "ZeroMQ accepts nobody"
        assert accepted(member) <= door._TOLD_MAX + 1 + 1
        again.set()
        while accepted(member) > CONNECTIONS_MAX:
            assert monotonic() < deadline, "nobody was shut out"
        assert member.hears_its_friend()


def test_a_place_that_members_have_is_not_given_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(door.Door.__init__, "__kwdefaults__", {"connections_max": 3})
    with Hosts(tmp_path) as hosts, ExitStack() as stack:
        member = Member(hosts)
        assert member.hears_its_friend()
        for number in (2, 3):
            spoken = [("node-1", ALIVE)]
            stack.enter_context(hosts.speak(member.address, "two", spoken))
            hosts.until(lambda number=number: len(member.node.heard) == number)  # type: ignore[misc]
        with Peer(member.endpoint, shaken=False) as late:
            assert late.is_closed()
        hosts.until(lambda: "all 3 connections are in use" in caplog.text)
        assert member.hears_its_friend()


@pytest.mark.soak
def test_a_member_comes_in_while_ten_thousand_strangers_come_again_and_again(
    member: Member, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is shut out comes back at once; members who are there stay."""
    assert member.hears_its_friend()
    before = resident()
    port = member.endpoint.rpartition(":")[2]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.deploy.host.flood", port, "10000"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as strangers, killed(strangers):  # fmt: skip
        assert strangers.stdout is not None
        assert strangers.stdout.readline() == b"there\n"
        for number in range(5):
            late, _ = member.hosts.start("two", f"front-{number}")
            late.addresses["node-0"] = member.address
            late.send("node-0", ALIVE)
            come = (late.name, ALIVE)
            member.hosts.until(lambda come=come: come in member.node.heard, within_s=40)  # type: ignore[misc]
            member.node.heard.clear()
            assert member.hears_its_friend()
        assert accepted(member) <= CONNECTIONS_MAX + door._TOLD_MAX + 1
        assert resident() - before < GROWTH_MAX
    assert len(caplog.records) < 100


def test_members_before_the_crowd_stay_and_members_after_it_come_in(member: Member) -> None:
    with ExitStack() as stack:
        assert member.hears_its_friend()
        for _ in range(CONNECTIONS_MAX + 50):
            stack.enter_context(Peer(member.endpoint, shaken=False))
        late = Listener("front-0")
        late.addresses["node-0"] = member.address
        runtime = member.hosts.runtimes[1]
        runtime.add(late, "tcp://127.0.0.1:*")
        late.send("node-0", ALIVE)
        member.hosts.until(lambda: ("front-0", ALIVE) in member.node.heard)
        member.node.heard.clear()
        assert member.hears_its_friend()
