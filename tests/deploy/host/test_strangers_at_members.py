"""Strangers at the port of a member: nothing happens but a count and a line, and memory is bounded.

Each test ends with an honest member that is heard as if nobody else had been there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from time import monotonic

import pytest
import zmq

from driftline.deploy.host import inbox, transport
from driftline.deploy.host.guarding import door
from driftline.deploy.host.guarding.door import CONNECTIONS_MAX
from driftline.deploy.host.inbox import GuardedInbox
from driftline.deploy.host.transport import PART_BYTES
from driftline.engine.wire.addresses import parse
from driftline.engine.wire.messages import Alive, encode
from tests.deploy.host.keyed import Hosts
from tests.deploy.host.raw_peer import COMMAND, GREETING, LONG, READY, Peer, frame, head
from tests.deploy.host.test_runtime import Listener

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
    with connect(member) as socket:
        monitor = socket.get_monitor_socket()
        socket.send(encode(("node-1", 0, 0), Alive("stranger", 1, 0)))
        assert monitor.poll(10_000)  # its handshake has begun
        member.hosts.until(lambda: bool(member.zap.refused) or kind == "no key")
        socket.disable_monitor()
    assert member.hears_its_friend()
    assert ALIVE in [message for _, message in member.node.heard]
    assert Alive("stranger", 1, 0) not in [message for _, message in member.node.heard]
    assert member.zap.refused == (1 if why else 0)
    assert why in caplog.text


RULES = {
    "it does not speak ZMTP 3": [b"GET / HTTP/1.1\r\n\r\n", bytes(100)],
    "a message before its key was accepted": [
        CURVE_GREETING + READY + frame(b"early"),
        CURVE_GREETING + READY + head(1 << 27) + bytes(1 << 16),
    ],
    f"a message of {1 << 30} bytes; at most": [CURVE_GREETING + READY + head(1 << 30)],
    "a message before the end of the handshake": [CURVE_GREETING + head(1 << 30)],
    f"a command of {1 << 30} bytes; at most {COMMAND_BYTES_MAX}": [
        CURVE_GREETING + head(1 << 30, COMMAND | LONG)
    ],
}


@pytest.mark.parametrize(("why", "data"), [(why, data) for why in RULES for data in RULES[why]])
def test_what_comes_before_the_end_of_the_handshake_is_short_or_closed(
    member: Member, why: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with Peer(member.endpoint, shaken=False) as stranger:
        stranger.try_to_send(data)
        assert stranger.is_closed()
    member.hosts.until(lambda: why in caplog.text)
    assert member.hears_its_friend()


def test_garbage_after_the_greeting_is_closed_and_the_port_lives(member: Member) -> None:
    chance = Random(1)
    for _ in range(100):
        with Peer(member.endpoint, shaken=False) as stranger:
            stranger.try_to_send(CURVE_GREETING[: chance.choice([64, 70])])
            stranger.try_to_send(frame(chance.randbytes(chance.randrange(2000)), COMMAND))
    assert member.hears_its_friend()
    member.hosts.until(lambda: len(member.guard._connections) == 1)


def test_a_handshake_that_stays_away_is_closed(member: Member) -> None:
    member.guard.handshake_s = 0.3
    with Peer(member.endpoint, shaken=False) as silent:
        assert silent.is_closed()
    assert member.hears_its_friend()


def test_a_message_of_a_member_that_is_too_large_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Even a member's: its connection is closed, before its size is allocated."""
    for module in (inbox, transport):
        monkeypatch.setattr(module, "MESSAGE_BYTES_MAX", 1 << 20)
    with Hosts(tmp_path) as hosts:
        member = Member(hosts)
        with hosts.raw(member.address, "two") as socket:
            socket.send(bytes(1 << 20), copy=False)
            hosts.until(lambda: member.node.malformed == 1)  # large, and nothing of ours
            socket.send(bytes(1 << 25), copy=False)
            hosts.until(lambda: "bytes in a message" in caplog.text)
        assert member.hears_its_friend()
        assert member.node.malformed == 1  # the large one has not come


def test_a_member_may_be_busy_for_long_while_much_waits_for_it(member: Member) -> None:
    """Its friends' connections stay, as nothing depends on the speed of functions."""
    large = bytes(1 << 22)
    with member.hosts.raw(member.address, "two") as socket:
        for _ in range(20):  # more than a guard lets strangers have under way
            socket.send(large, copy=False)
        socket.send(encode(("node-1", 0, 0), ALIVE))
        runtime = member.hosts.runtimes[0]
        assert runtime._inboxes[0].socket.poll(10_000)
        member.hosts.until(lambda: bool(member.node.heard))
    assert member.node.malformed == 20
    assert member.hears_its_friend()


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
        assert len(member.guard._connections) <= CONNECTIONS_MAX
        return resident() - before


def test_a_crowd_of_strangers_is_bounded(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    assert crowd(member, 1000) < GROWTH_MAX
    assert "200 are too many" in caplog.text
    assert len(caplog.records) < 20


@pytest.mark.soak
def test_ten_thousand_connections(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    assert crowd(member, 10_000) < GROWTH_MAX
    assert len(caplog.records) < 50


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
