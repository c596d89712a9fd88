"""The intake and its producers, over real ZeroMQ: what is acknowledged is in the log, once."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from random import Random
from time import monotonic
from types import TracebackType
from typing import Self

import pytest
import zmq

from deploy.intake import DRAIN, MAGIC, QUEUED_MAX, Intake, Kind, decode_answer
from deploy.producer import Producer
from engine.codec import pack, unpack
from engine.errors import PayloadError, StateMismatch, Unavailable
from engine.sources.inputlog import InputLog
from tests.deploy.intake_host import Host
from tests.engine.sources.memory_disk import memory_disk

SOON_S = 5.0


@pytest.fixture
def directory() -> Iterator[Path]:
    with memory_disk() as directory:
        yield directory


@pytest.fixture
def host(directory: Path) -> Iterator[Host]:
    host = Host(directory / "log", f"ipc://{directory}/intake")
    yield host
    host.close()


class Running:
    """A host in a thread. A context manager."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._stop = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop = True
        self._thread.join()

    def _run(self) -> None:
        while not self._stop:
            self.host.runtime.step(wait_s=0.02)


class Wire:
    """A producer that says exactly what it is told, and a host that takes its turns meanwhile."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(host.intake.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.context.destroy(linger=0)

    def say(self, kind: Kind, producer: str, session: int, *rest: object) -> None:
        self.socket.send(pack((MAGIC, kind, producer, session, *rest)))

    def hear(self) -> tuple[Kind, int, int]:
        """The next answer: kind, session, acknowledged."""
        self.until(lambda: bool(self.socket.poll(0)))
        return decode_answer(self.socket.recv())

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the host run until a condition holds."""
        deadline = monotonic() + SOON_S
        while not condition():
            assert monotonic() < deadline, "nothing came"
            self.host.runtime.step(wait_s=0.005)


def stored(log: InputLog) -> list[tuple[str, int, object]]:
    """All that a log holds."""
    return [(entry.producer, entry.sequence, unpack(entry.data)) for entry in log.read(0)]


# The producer.


def test_what_is_flushed_is_in_the_log(host: Host) -> None:
    with Running(host), Producer(host.intake.address, "p") as producer:
        assert [producer.send(f"record {i}") for i in range(1, 4)] == [1, 2, 3]
        producer.flush()
        assert stored(host.log) == [("p", i, f"record {i}") for i in range(1, 4)]
        assert producer.acknowledged == 3
    assert [payload for _, payload in host.reader.found] == [f"record {i}" for i in range(1, 4)]


def test_several_producers_over_tcp(directory: Path) -> None:
    host = Host(directory / "log", "tcp://127.0.0.1:*")

    def produce(name: str) -> None:
        with Producer(host.intake.address, name, window=50) as producer:
            for i in range(300):
                producer.send({"from": name, "i": i})

    with Running(host), ThreadPoolExecutor(3) as pool:
        list(pool.map(produce, "abc"))
    for name in "abc":
        mine = [record for record in stored(host.log) if record[0] == name]
        assert mine == [(name, i + 1, {"from": name, "i": i}) for i in range(300)]
    times = [time for time, _ in host.reader.found]
    assert len(times) == 900
    assert all(a < b for a, b in pairwise(times))
    host.close()


def test_a_producer_that_comes_back_goes_on_where_the_front_says(host: Host) -> None:
    records = list("abcdef")
    with Running(host):
        first = Producer(host.intake.address, "p")
        for record in records[:3]:
            first.send(record)
        first.flush()
        first.close()
        with Producer(host.intake.address, "p") as second:
            assert second.acknowledged == second.sequence == 3
            for record in records[second.acknowledged :]:
                second.send(record)
    assert stored(host.log) == [("p", i + 1, record) for i, record in enumerate(records)]


def test_a_producer_waits_for_a_front_that_starts_later(directory: Path) -> None:
    address = f"ipc://{directory}/intake"

    def produce() -> None:
        with Producer(address, "p") as producer:
            producer.send("a")

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(produce)
        host = Host(directory / "log", address)
        with Running(host):
            done.result(SOON_S)
    assert stored(host.log) == [("p", 1, "a")]
    host.close()


def test_a_producer_without_a_front_says_so(directory: Path) -> None:
    with pytest.raises(Unavailable, match=r"waited 0\.1 s for ipc.*is the flow running"):
        Producer(f"ipc://{directory}/nobody", "p", timeout_s=0.1)
    with pytest.raises(Unavailable, match="is not an address"):
        Producer("somewhere", "p")


def test_of_two_producers_with_one_id_the_later_one_goes_on(host: Host) -> None:
    with Running(host):
        first = Producer(host.intake.address, "p")
        with Producer(host.intake.address, "p") as second:
            first.send("first")
            with pytest.raises(Unavailable, match="another process sends as 'p'"):
                first.flush()
            second.send("second")
        first.close()
    assert stored(host.log) == [("p", 1, "second")]


def test_a_producer_whose_clock_went_back_is_not_shut_out(host: Host) -> None:
    with Wire(host) as wire:
        wire.say(Kind.HELLO, "p", 1 << 62)
        assert wire.hear() == (Kind.SYNC, 1 << 62, 0)
    with Running(host), Producer(host.intake.address, "p") as producer:
        producer.send("a")


def test_the_end_of_the_stream_is_kept(host: Host) -> None:
    with Running(host), Producer(host.intake.address, "p") as producer:
        producer.send("a")
        producer.end()
        producer.end()
        assert producer.ended
        with pytest.raises(Unavailable, match="the stream was ended"):
            producer.send("b")
        with Producer(host.intake.address, "q") as other:
            assert other.ended
    assert host.source.ended
    assert stored(host.log) == [("p", 1, "a")]


def test_what_cannot_travel_takes_no_number(host: Host) -> None:
    with Running(host), Producer(host.intake.address, "p") as producer:
        with pytest.raises(PayloadError):
            producer.send(object())
        assert producer.send("a") == 1


def test_a_log_that_was_replaced_is_noticed(directory: Path) -> None:
    address = f"ipc://{directory}/intake"
    host = Host(directory / "log", address)
    with Running(host):
        producer = Producer(address, "p")
        producer.send("a")
        producer.flush()
    host.close()
    host = Host(directory / "other log", address)
    with Running(host):
        producer.send("b")
        with pytest.raises(StateMismatch, match="has its input log been replaced"):
            producer.flush()
    producer.close()
    host.close()


# The intake.


def test_an_address_in_use_is_told_of(host: Host, directory: Path) -> None:
    with pytest.raises(Unavailable, match="in use by another run"):
        Intake(host.source, _tcp_address_of(host, directory))


def _tcp_address_of(host: Host, directory: Path) -> str:
    """Somebody listens there, as long as the host lives."""
    socket = host.intake.socket
    socket.bind("tcp://127.0.0.1:*")
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def test_repeated_records_are_acknowledged_again_and_stored_once(host: Host) -> None:
    with Wire(host) as wire:
        wire.say(Kind.RECORD, "p", 1, 1, "a")
        wire.say(Kind.RECORD, "p", 1, 1, "a")
        assert wire.hear()[2] in (0, 1)
        wire.until(lambda: host.source.acknowledged("p") == 1)
        while wire.socket.poll(20):
            wire.socket.recv()
        wire.say(Kind.RECORD, "p", 1, 1, "a")
        assert wire.hear() == (Kind.ACK, 1, 1)
    assert stored(host.log) == [("p", 1, "a")]


def test_a_gap_is_told_of_once_and_nothing_after_it_is_taken(host: Host) -> None:
    with Wire(host) as wire:
        wire.say(Kind.RECORD, "p", 1, 1, "a")
        assert wire.hear() == (Kind.ACK, 1, 1)
        for number in (3, 4, 5):
            wire.say(Kind.RECORD, "p", 1, number, "late")
        assert wire.hear() == (Kind.SYNC, 1, 1)
        wire.say(Kind.RECORD, "p", 1, 2, "b")
        assert wire.hear() == (Kind.ACK, 1, 2)
        wire.say(Kind.RECORD, "p", 1, 4, "late")
        assert wire.hear() == (Kind.SYNC, 1, 2)
    assert stored(host.log) == [("p", 1, "a"), ("p", 2, "b")]


def test_a_hello_is_answered_when_all_that_was_taken_is_stored(host: Host) -> None:
    """Whoever starts must not be told of less than what its predecessor got in."""
    with Wire(host) as wire:
        for number in range(1, 5):
            wire.say(Kind.RECORD, "p", 1, number, number)
        wire.say(Kind.HELLO, "p", 2)
        answers = [wire.hear()]
        while answers[-1][0] is not Kind.SYNC:
            answers.append(wire.hear())
        assert answers[-1] == (Kind.SYNC, 2, 4)


def test_an_end_counts_only_after_all_records_before_it(host: Host) -> None:
    with Wire(host) as wire:
        wire.say(Kind.RECORD, "p", 1, 1, "a")
        wire.say(Kind.END, "p", 1, 2)
        while wire.hear() != (Kind.SYNC, 1, 1):
            pass
        assert not host.source.closed
        wire.say(Kind.RECORD, "p", 1, 2, "b")
        wire.say(Kind.END, "p", 1, 2)
        while (answer := wire.hear())[0] is not Kind.ENDED:
            pass
        assert answer == (Kind.ENDED, 1, 2)
        wire.say(Kind.RECORD, "q", 1, 1, "late")
        assert wire.hear() == (Kind.ENDED, 1, 0)
    assert stored(host.log) == [("p", 1, "a"), ("p", 2, "b")]


def test_messages_of_an_older_session_are_fenced_off(host: Host) -> None:
    with Wire(host) as wire:
        wire.say(Kind.HELLO, "p", 7)
        assert wire.hear() == (Kind.SYNC, 7, 0)
        wire.say(Kind.RECORD, "p", 6, 1, "left in the network")
        assert wire.hear() == (Kind.FENCED, 7, 0)
    assert stored(host.log) == []


FOREIGN = (
    b"",
    b"\xff\xfe garbage",
    pack("text"),
    pack((MAGIC,)),
    pack((MAGIC + 1, Kind.HELLO, "p", 1)),
    pack((MAGIC, 99, "p", 1)),
    pack((MAGIC, [], "p", 1)),
    pack((MAGIC, Kind.ACK, "p", 1)),
    pack((MAGIC, Kind.HELLO, "p", 1, 2)),
    pack((MAGIC, Kind.HELLO, 5, 1)),
    pack((MAGIC, Kind.HELLO, "", 1)),
    pack((MAGIC, Kind.HELLO, "x" * 256, 1)),
    pack((MAGIC, Kind.HELLO, "p", "1")),
    pack((MAGIC, Kind.HELLO, "p", -1)),
    pack((MAGIC, Kind.RECORD, "p", 1, 1.5, "a")),
    pack((MAGIC, Kind.RECORD, "p", 1, 1 << 63, "a")),
    pack((MAGIC, Kind.RECORD, "p", 1, True, "a")),
    pack((MAGIC, Kind.END, "p", 1, None)),
)


def test_foreign_bytes_are_counted_logged_once_and_dropped(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    with Wire(host) as wire:
        for data in FOREIGN:
            wire.socket.send(data)
        wire.socket.send_multipart([b"two", b"parts"])
        chance = Random(1)
        for _ in range(200):
            wire.socket.send(chance.randbytes(chance.randrange(1, 40)))
        wire.say(Kind.RECORD, "p", 1, 1, "a")
        assert wire.hear() == (Kind.ACK, 1, 1)
    assert host.intake.malformed == len(FOREIGN) + 201
    assert len(caplog.records) == 1
    assert stored(host.log) == [("p", 1, "a")]


def test_while_the_front_does_not_read_nothing_more_is_taken(directory: Path) -> None:
    """And the loop sleeps, although there is something on the socket."""
    window = 20
    host = Host(directory / "log", f"ipc://{directory}/intake", window=window)
    host.reader.reading = False
    with Wire(host) as wire:
        count = window + 3 * DRAIN
        for number in range(1, count + 1):
            wire.say(Kind.RECORD, "p", 1, number, number)
        wire.until(lambda: host.source.acknowledged("p") == window)
        host.runtime.step(wait_s=0.01)
        began = monotonic()
        host.runtime.step(wait_s=0.05)
        assert monotonic() - began > 0.04, "it did not sleep"
        assert host.source.waiting == window
        assert window < count <= QUEUED_MAX
        host.reader.reading = True
        wire.until(lambda: host.source.acknowledged("p") == count)
    assert [payload for _, payload in host.reader.found] == list(range(1, count + 1))
    host.close()


def test_a_group_that_cannot_be_written_ends_the_process(host: Host) -> None:
    def fail(job: object) -> object:
        raise Unavailable("input log: the disk is full")

    host.runtime._disk._work = fail
    with Wire(host) as wire:
        wire.say(Kind.RECORD, "p", 1, 1, "a")
        with pytest.raises(Unavailable, match="the disk is full"):
            wire.hear()
    assert host.source.acknowledged("p") == 0


# A process that dies.


class Killed:
    """A host in a process of its own. A context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = f"ipc://{directory}/intake"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.deploy.intake_host",
                str(self.directory / "log"),
                self.address,
            ]
        )

    def kill(self) -> None:
        """With signal 9."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def test_kill_9_loses_nothing_that_was_acknowledged_and_doubles_nothing(tmp_path: Path) -> None:
    """On a real disk; producers go on sending over three deaths of the front."""
    count = 3000
    kills = 3
    progress = {"p": 0, "q": 0}
    progressed = threading.Condition()
    seen = []

    def produce(name: str) -> None:
        with Producer(front.address, name, window=100) as producer:
            for i in range(1, count + 1):
                producer.send([name, i])
                with progressed:
                    progress[name] = producer.acknowledged
                    progressed.notify()

    with Killed(tmp_path) as front, ThreadPoolExecutor(2) as pool:
        done = [pool.submit(produce, name) for name in progress]
        for part in (count * kill // (kills + 1) for kill in range(1, kills + 1)):
            with progressed:
                progressed.wait_for(lambda part=part: min(progress.values()) >= part, 20)  # type: ignore[misc]
            front.kill()
            seen.append(dict(progress))
            front.start()
        for future in done:
            future.result(20)
    log = InputLog(tmp_path / "log", "test")
    entries = log.read(0)
    assert all(0 < number < count for numbers in seen for number in numbers.values())
    for name in progress:
        mine = [(e.sequence, unpack(e.data)) for e in entries if e.producer == name]
        assert mine == [(i, (name, i)) for i in range(1, count + 1)]
    assert log.sequences() == {"p": count, "q": count}
    assert all(a.time < b.time for a, b in pairwise(entries))
