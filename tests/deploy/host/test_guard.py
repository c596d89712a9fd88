"""The guard between raw sockets and a real ROUTER: what passes, what closes, what is bounded."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from driftline.deploy.host.guarding.budget import SETTLED_S, Budget
from driftline.deploy.host.guarding.connection import ANSWERS_BYTES_MAX
from driftline.deploy.host.guarding.guard import LARGE_BYTES, SMALL, Guard
from driftline.deploy.host.guarding.listening import is_local
from driftline.deploy.host.guarding.zmtp import COMMAND_BYTES_MAX, Framing, Violation
from tests.deploy.host.raw_peer import COMMAND, GREETING, LONG, MORE, READY, Peer, frame, head
from tests.engine.sources.memory_disk import memory_disk

ROOT = Path(__file__).resolve().parents[3]

MESSAGE_MAX = 1 << 24
SOON_MS = 5000


class Guarded:
    """A ROUTER behind a guard."""

    def __init__(self, directory: Path, address: str = "tcp://127.0.0.1:*", **limits: Any) -> None:
        self.context = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.set(zmq.RCVHWM, 0)
        inside = f"{directory}/router"
        self.router.bind(f"ipc://{inside}")
        self.guard = Guard(address, inside, name="it", message_bytes_max=MESSAGE_MAX, **limits)
        self.address = self.guard.address

    def take(self) -> tuple[bytes, bytes]:
        """(route, the next message)."""
        assert self.router.poll(SOON_MS), "nothing came"
        route, data = self.router.recv_multipart()
        self.guard.took(len(data))
        return route, data

    def hears(self, peer: Peer, data: bytes) -> bytes:
        """A peer says something, and it arrives. Returns the peer's route."""
        peer.send(frame(data))
        route, taken = self.take()
        assert taken == data
        return route

    def close(self) -> None:
        self.context.destroy(linger=0)
        self.guard.close()


@pytest.fixture
def directory() -> Iterator[Path]:
    with memory_disk() as directory:
        yield directory


@pytest.fixture
def make(directory: Path) -> Iterator[Callable[..., Guarded]]:
    with ExitStack() as stack:
        yield lambda *a, **b: stack.enter_context(closing(Guarded(directory, *a, **b)))


@pytest.fixture
def guarded(make: Callable[..., Guarded]) -> Guarded:
    return make(handshake_s=0.4, frame_s=0.4, connections_max=6)


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
def test_a_peer_that_keeps_the_rules_notices_nothing(
    make: Callable[..., Guarded], directory: Path, scheme: str
) -> None:
    address = {"tcp": "tcp://127.0.0.1:*", "ipc": f"ipc://{directory}/outside"}[scheme]
    guarded = make(address)
    dealer = guarded.context.socket(zmq.DEALER)
    dealer.set(zmq.RCVTIMEO, SOON_MS)
    dealer.connect(guarded.address)
    for size in (0, 1, 255, 256, SMALL, SMALL + 1, MESSAGE_MAX):
        dealer.send(b"x" * size)
        route, data = guarded.take()
        assert data == b"x" * size
        # A larger answer may have to wait, and the guard thinks that nobody reads.
        answer = data[: ANSWERS_BYTES_MAX // 2]
        guarded.router.send_multipart([route, answer])
        assert dealer.recv() == answer
    assert guarded.guard.small.under_way == guarded.guard.large.under_way == 0


RULES = {
    "it does not speak ZMTP 3": [b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x7f\x01"],
    "a message of several frames": [
        GREETING + READY + frame(b"part", MORE),
        GREETING + READY + frame(bytes(SMALL + 1)) + frame(b"part", MORE),
    ],
    "a message before the end of the handshake": [GREETING + frame(b"early")],
    f"a message of {MESSAGE_MAX + 1} bytes": [GREETING + READY + head(MESSAGE_MAX + 1)],
    f"a message of {2**64 - 1} bytes": [GREETING + READY + head(2**64 - 1)],
    f"a command of {COMMAND_BYTES_MAX + 1} bytes": [
        GREETING + head(COMMAND_BYTES_MAX + 1, COMMAND | LONG)
    ],
    "a frame with unknown flags": [GREETING + READY + b"\x08\x00"],
    "no handshake of ZeroMQ within 0.4 s": [b"", b"\xff", GREETING, GREETING + READY[:-1]],
    "a message was not complete within 0.4 s": [
        GREETING + READY + head(100) + b"beginning",
        GREETING + READY + head(SMALL + 1) + b"beginning",
        GREETING + READY + frame(b"whole") + b"\x02\x00",
    ],
}


@pytest.mark.parametrize(
    ("reason", "data"), [(reason, data) for reason, all in RULES.items() for data in all]
)
def test_a_peer_that_breaks_a_rule_is_closed(
    guarded: Guarded, reason: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    shaken = data.startswith(GREETING + READY)
    with Peer(guarded.address) as honest, Peer(guarded.address, shaken=shaken) as other:
        other.send(data.removeprefix(GREETING + READY))
        assert other.is_closed()
        assert reason in caplog.text
        if b"whole" in data:
            guarded.take()
        guarded.hears(honest, b"still here")
    assert guarded.guard.large.under_way == 0


def test_connections_closed_before_the_end_are_told_at_the_end(
    make: Callable[..., Guarded], caplog: pytest.LogCaptureFixture
) -> None:
    guarded = make()
    for _ in range(3):
        with Peer(guarded.address, shaken=False) as peer:
            peer.send(b"GET / HTTP/1.1\r\n\r\n" + bytes(64))
            assert peer.is_closed()
    guarded.guard.close()
    assert [vars(record)["fields"]["count"] for record in caplog.records] == [1, 2]


def test_a_peer_that_does_not_read_is_closed(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    with Peer(guarded.address) as peer, Peer(guarded.address) as honest:
        route = guarded.hears(peer, b"hello")
        deadline = monotonic() + 5
        while "it does not read" not in caplog.text:
            assert monotonic() < deadline
            guarded.router.send_multipart([route, bytes(1 << 18)])
            guarded.hears(honest, b"still here")
        assert len(guarded.guard._connections) == 1


def test_of_too_many_connections_the_oldest_silent_one_goes_and_else_the_new_one(
    make: Callable[..., Guarded],
) -> None:
    guarded = make(connections_max=3)
    first, second, third = (Peer(guarded.address) for _ in range(3))
    guarded.hears(first, b"1")
    fourth = Peer(guarded.address)
    assert second.is_closed()
    for peer in (third, fourth, first):
        guarded.hears(peer, b"mine")
    with Peer(guarded.address, shaken=False) as late:
        assert late.is_closed()
    for peer in (third, fourth, first):
        guarded.hears(peer, b"mine")
    first.close()
    third.close()
    deadline = monotonic() + 5
    while len(guarded.guard._connections) > 1:
        assert monotonic() < deadline
    guarded.hears(Peer(guarded.address), b"there is room again")


def test_large_messages_share_a_budget_and_small_ones_do_not_wait_for_them(
    make: Callable[..., Guarded],
) -> None:
    guarded = make()
    peers = [Peer(guarded.address) for _ in range(LARGE_BYTES // MESSAGE_MAX)]
    for peer in peers:
        peer.send(head(MESSAGE_MAX) + b"x")
    late, honest = Peer(guarded.address), Peer(guarded.address)  # `late` waits for room
    deadline = monotonic() + 5
    while guarded.guard.large.under_way < LARGE_BYTES:
        assert monotonic() < deadline
    whole = frame(bytes(SMALL + 1))
    sending = threading.Thread(target=late.send, args=(whole,))
    sending.start()
    for _ in range(20):
        guarded.hears(honest, bytes(SMALL))
    assert guarded.guard.large.under_way == LARGE_BYTES
    peers[0].close()
    assert guarded.take()[1] == bytes(SMALL + 1)
    sending.join()
    for peer in peers[1:]:
        peer.send(bytes(MESSAGE_MAX - 1))
        guarded.take()
    assert guarded.guard.large.under_way == 0


def test_while_the_owner_takes_nothing_little_is_held(make: Callable[..., Guarded]) -> None:
    guarded = make()
    peers = [Peer(guarded.address) for _ in range(20)]
    data = frame(bytes(SMALL))
    for peer in peers:
        peer.socket.settimeout(0.2)
        while peer.try_to_send(data):
            pass
    begun = len(peers) * SMALL  # each of them was admitted before the others were complete
    assert guarded.guard.small.under_way <= guarded.guard.small.limit + begun
    for peer in peers:
        peer.close()


def test_a_lost_message_does_not_use_up_the_budget_for_ever() -> None:
    budget = Budget(100)
    for _ in range(5):
        assert budget.begin(20, reserves=False)
        budget.finish(20, reserves=False)
    assert not budget.begin(20, reserves=False)
    budget.settle(1.0)
    budget.taken += 60  # the other 40 are lost
    for now in (2.0, 3.0 + SETTLED_S, 4.0 + 2 * SETTLED_S):
        budget.empty_at = now
        budget.settle(now)
    assert budget.under_way == 0
    assert budget.begin(100, reserves=True)
    budget.give_up(100)
    assert budget.under_way == 0


def framing() -> Framing:
    return Framing(MESSAGE_MAX)


def always(size: int) -> bool:
    return True


@given(bodies=st.lists(st.binary(max_size=300), max_size=5), cuts=st.lists(st.integers(1, 70)))
def test_what_keeps_the_rules_passes_however_it_is_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    stream = GREETING + READY + b"".join(map(frame, bodies))
    taken, passed, rest, found = 0, b"", b"", framing()
    sizes: list[int] = []
    for cut in (*cuts, len(stream)):
        rest += stream[taken : taken + cut]
        taken += cut
        count = found.passing(rest, always)
        passed, rest = passed + rest[:count], rest[count:]
        sizes += found.finished
    assert passed == stream
    assert not found.is_amid
    assert sizes == [len(body) for body in bodies]


@given(st.binary() | st.binary().map(lambda b: GREETING + READY + b))
def test_whatever_comes_passes_or_is_a_violation(data: bytes) -> None:
    with suppress(Violation):
        assert 0 <= framing().passing(data, always) <= len(data)


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("tcp://127.0.0.1:5555", True),
        ("tcp://127.8.8.8:5555", True),
        ("tcp://localhost:*", True),
        ("tcp://[::1]:5555", True),
        ("ipc:///tmp/here", True),
        ("tcp://*:5555", False),
        ("tcp://0.0.0.0:5555", False),
        ("tcp://[::]:5555", False),
        ("tcp://192.168.0.1:5555", False),
        ("tcp://here.example.org:5555", False),
        ("tcp://:5555", False),
    ],
)
def test_which_addresses_only_this_machine_reaches(address: str, local: bool) -> None:
    assert is_local(address) is local


def test_who_waits_for_room_too_long_goes(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer that is not read could be gone, and nobody would know."""
    guarded.guard.large.limit = 1
    with Peer(guarded.address) as first, Peer(guarded.address) as late:
        guarded.guard.large.taken -= 1  # something else is under way
        late.send(frame(bytes(SMALL + 1)))
        assert late.is_closed()
        assert "was not complete within 0.4 s" in caplog.text
        guarded.hears(first, b"still here")


def test_producers_with_heartbeats_that_break_off_cannot_end_the_process(directory: Path) -> None:
    """A mark for what the ROUTER receives made libzmq 4.3.5 abort."""
    program = [sys.executable, "-m", "tests.deploy.host.heartbeats", str(directory)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
