"""How long a producer waits and how much it buffers, with a scripted front.

The clock of the producers is virtual: only the test advances it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

from driftline.deploy.producer import REQUEST_INTERVAL_S, TIMEOUT_S, Producer
from driftline.deploy.roles.intake import MAGIC, IntakeKind, decode_request
from driftline.engine.errors import Unavailable
from driftline.engine.wire.codec import pack
from tests.connectors.logs.received_front import memory_disk
from tests.deploy.roles.intake_host import SOON_S

RECORD_BYTES, WINDOW_BYTES = 4 << 20, 64 << 20

FILLS_ITS_WINDOW = f"""
import sys
from driftline import Producer
from driftline.engine.errors import Unavailable

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

producer = Producer(sys.argv[1], "p", window_bytes={WINDOW_BYTES}, timeout_s=0.5)
before = peak()
try:
    while True:
        producer.send(bytes({RECORD_BYTES}))
except Unavailable:
    print(producer.sequence, peak() - before)
"""

NEARLY_S = 0.9 * TIMEOUT_S


class ProducerClock:
    """Clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class ScriptedFront:
    """Front of one producer that sends exactly the given answers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.set(zmq.RCVHWM, 1)
        self._socket.bind(address)
        self._route = b""
        self._session = 0

    def receive(self, wait_s: float = SOON_S) -> tuple[IntakeKind, int] | None:
        """Return kind and number of the next message, or None if none arrives in time."""
        if not self._socket.poll(int(wait_s * 1000)):
            return None
        self._route, data = self._socket.recv_multipart()
        kind, _, self._session, number, _ = decode_request(data)
        return kind, number

    def send(self, kind: IntakeKind, acknowledged: int) -> None:
        self._socket.send_multipart(
            [self._route, pack((MAGIC, kind, self._session, acknowledged, 0))]
        )

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ProducerClock:
    clock = ProducerClock()
    monkeypatch.setattr("driftline.deploy.producer.monotonic", clock)
    # With longer intervals, a sleeping producer would miss that the virtual clock moves.
    monkeypatch.setattr("driftline.deploy.producer.REQUEST_INTERVAL_MAX_S", REQUEST_INTERVAL_S)
    return clock


@pytest.fixture
def front() -> Iterator[ScriptedFront]:
    with memory_disk() as directory:
        front = ScriptedFront(f"ipc://{directory}/intake")
        yield front
        front.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def make_producer(
    front: ScriptedFront, pool: ThreadPoolExecutor, window: int = 1000, window_bytes: int = 1 << 26
) -> Producer:
    """Create a producer and answer its first message."""
    making = pool.submit(
        lambda: Producer(front.address, "p", window=window, window_bytes=window_bytes)
    )
    assert front.receive() == (IntakeKind.HELLO, 0)
    front.send(IntakeKind.SYNC, 0)
    return making.result(SOON_S)


def until(condition: Callable[[], bool]) -> None:
    """Wait until another thread has brought about a condition."""
    looked = threading.Event()
    for _ in range(int(SOON_S / 0.002)):
        if condition():
            return
        looked.wait(0.002)
    raise AssertionError("nothing came")


@pytest.mark.parametrize("what", ["send", "flush"])
def test_producer_waits_for_a_flow_that_reports_back_pressure(
    what: str, front: ScriptedFront, clock: ProducerClock, pool: ThreadPoolExecutor
) -> None:
    producer = make_producer(front, pool, window=1)
    producer.send("a")
    assert front.receive() == (IntakeKind.RECORD, 1)
    waiting = pool.submit(producer.flush if what == "flush" else lambda: producer.send("b"))
    for _ in range(5):
        before = producer._sign_at
        clock.now += NEARLY_S
        front.send(IntakeKind.ACK, 0)
        until(lambda before=before: producer._sign_at > before)  # type: ignore[misc]
    assert not waiting.done()
    front.send(IntakeKind.ACK, 1)
    waiting.result(SOON_S)
    producer.close()


@pytest.mark.parametrize("kind", [None, IntakeKind.SYNC])
def test_producer_gives_up_when_the_front_is_silent_for_the_timeout(
    kind: IntakeKind | None, front: ScriptedFront, clock: ProducerClock, pool: ThreadPoolExecutor
) -> None:
    """A SYNC that acknowledges nothing new does not count: a record may get lost repeatedly."""
    producer = make_producer(front, pool)
    for record in "ab":
        producer.send(record)
    flushing = pool.submit(producer.flush)
    clock.now += NEARLY_S
    front.send(IntakeKind.ACK, 1)
    until(lambda: producer.acknowledged == 1)
    clock.now += NEARLY_S
    if kind is not None:
        front.send(kind, 1)
        while front.receive() != (IntakeKind.RECORD, 2):
            pass
    assert not flushing.done()
    clock.now += TIMEOUT_S - NEARLY_S
    with pytest.raises(Unavailable, match=r"waited 30 s .*\(1 records unacknowledged\)"):
        flushing.result(SOON_S)
    producer.close()


def test_status_request_does_not_cause_resends(
    front: ScriptedFront, clock: ProducerClock, pool: ThreadPoolExecutor
) -> None:
    """A record sent after the question would be in flight, yet reported as missing."""
    producer = make_producer(front, pool)
    producer.send("a")
    clock.now += 2 * REQUEST_INTERVAL_S
    flushing = pool.submit(producer.flush)
    assert front.receive() == (IntakeKind.RECORD, 1)
    assert front.receive() == (IntakeKind.HELLO, 0)
    front.send(IntakeKind.ACK, 1)
    flushing.result(SOON_S)
    producer.send("b")
    front.send(IntakeKind.SYNC, 1)
    pool.submit(producer.flush)
    assert front.receive() == (IntakeKind.RECORD, 2)
    assert front.receive(wait_s=0.05) is None
    front.send(IntakeKind.ACK, 2)
    until(lambda: producer.acknowledged == 2)
    producer.close()


def test_buffered_records_are_bounded_in_bytes(
    front: ScriptedFront, clock: ProducerClock, pool: ThreadPoolExecutor
) -> None:
    producer = make_producer(front, pool, window_bytes=10_000)
    for _ in range(3):
        producer.send(bytes(3000))
    sending = pool.submit(producer.send, bytes(3000))
    front.send(IntakeKind.ACK, 1)
    assert sending.result(SOON_S) == 4
    sending = pool.submit(producer.send, bytes(20_000))
    for number in (2, 3):
        front.send(IntakeKind.ACK, number)
        until(lambda number=number: producer.acknowledged == number)  # type: ignore[misc]
        assert not sending.done(), "this record is sent alone"
    front.send(IntakeKind.ACK, 4)
    assert sending.result(SOON_S) == 5
    sending = pool.submit(producer.send, b"")
    while front.receive() != (IntakeKind.RECORD, 5):
        pass
    assert not sending.done()
    front.send(IntakeKind.ACK, 5)
    assert sending.result(SOON_S) == 6
    producer.close()


def test_buffered_records_are_in_memory_once(front: ScriptedFront) -> None:
    """ZeroMQ's queue holds no second copy. The front reads one or two records."""
    command = [sys.executable, "-c", FILLS_ITS_WINDOW, front.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert front.receive(20) == (IntakeKind.HELLO, 0)
        front.send(IntakeKind.SYNC, 0)
        sent, grown = map(int, process.communicate(timeout=20)[0].split())
    assert sent == WINDOW_BYTES // RECORD_BYTES - 1, "each message has a header"
    being_made = 3 * RECORD_BYTES
    assert grown < 1.25 * WINDOW_BYTES + being_made
