"""Producers and a front's host over real ZeroMQ: flushed records are in the log, exactly once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from time import time_ns

import pytest

from driftline.connectors.logs.inputlog import InputLog
from driftline.deploy.producer import Producer
from driftline.deploy.roles.intake import IntakeKind
from driftline.engine.errors import PayloadError, StateMismatch, Unavailable
from driftline.engine.wire.codec import RECORD_BYTES_MAX, RECORD_DEPTH_MAX, unpack
from tests.connectors.logs.received_front import memory_disk
from tests.deploy.roles.intake_host import HostProcess, HostThread, IntakeHost, RawProducer, stored
from tests.engine.wire.test_codec import nested


@pytest.fixture
def directory() -> Iterator[Path]:
    with memory_disk() as directory:
        yield directory


@pytest.fixture
def host(directory: Path) -> Iterator[IntakeHost]:
    host = IntakeHost(directory / "log", f"ipc://{directory}/intake")
    yield host
    host.close()


def test_flushed_records_are_in_the_log(host: IntakeHost) -> None:
    with HostThread(host), Producer(host.intake.address, "p") as producer:
        assert [producer.send(f"record {i}") for i in range(1, 4)] == [1, 2, 3]
        producer.flush()
        assert stored(host.log) == [("p", i, f"record {i}") for i in range(1, 4)]
        assert producer.acknowledged == 3
    assert [payload for _, payload in host.reader.found] == [f"record {i}" for i in range(1, 4)]


def test_producer_without_a_front_raises(directory: Path) -> None:
    with pytest.raises(Unavailable, match=r"waited 0\.1 s for ipc.*is the flow running"):
        Producer(f"ipc://{directory}/nobody", "p", timeout_s=0.1)
    with pytest.raises(Unavailable, match=r"cannot resolve host 'no\.such\.host\.invalid'"):
        Producer("tcp://no.such.host.invalid:1", "p", timeout_s=0.1)
    with pytest.raises(Unavailable, match="is not an address"):
        Producer("somewhere", "p")


def test_later_producer_fences_an_earlier_one_with_the_same_id(host: IntakeHost) -> None:
    with HostThread(host):
        first = Producer(host.intake.address, "p")
        with Producer(host.intake.address, "p") as second:
            first.send("first")
            with pytest.raises(Unavailable, match="another process sends as 'p'"):
                first.flush()
            second.send("second")
        first.close()
    assert stored(host.log) == [("p", 1, "second")]


def test_producer_whose_clock_went_back_is_accepted(host: IntakeHost) -> None:
    ahead = time_ns() + 50_000_000_000
    with RawProducer(host) as wire:
        wire.send(IntakeKind.HELLO, "p", ahead)
        assert wire.receive() == (IntakeKind.SYNC, ahead, 0)
    with HostThread(host), Producer(host.intake.address, "p") as producer:
        producer.send("a")


def test_stream_ends_when_all_producers_that_sent_have_ended(directory: Path) -> None:
    """The front restarts meanwhile, and no producer sends after its end."""
    address = f"ipc://{directory}/intake"
    host = IntakeHost(directory / "log", address)
    with HostThread(host), Producer(address, "p") as p, Producer(address, "q") as q:
        p.send("a")
        q.send("b")
        q.flush()
        p.end()
        assert not host.source.closed
        with pytest.raises(Unavailable, match="producer 'p' has ended"):
            p.send("c")
    host.close()
    host = IntakeHost(directory / "log", address)
    with HostThread(host):
        with Producer(address, "p") as p:
            assert p.ended
            with pytest.raises(Unavailable, match="producer 'p' has ended"):
                p.send("c")
        with Producer(address, "q") as q:
            q.send("d")
            q.end()
        assert host.source.ended
    assert sorted(stored(host.log)) == [("p", 1, "a"), ("q", 1, "b"), ("q", 2, "d")]
    host.close()


def test_producer_without_records_cannot_end_the_stream(host: IntakeHost) -> None:
    with HostThread(host), Producer(host.intake.address, "p") as producer:
        producer.send("a")
        stranger = Producer(host.intake.address, "stranger")
        with pytest.raises(Unavailable, match=r"refused producer 'stranger': it has sent no"):
            stranger.end()
        stranger.close()
        producer.send("b")
    assert not host.source.closed
    assert len(stored(host.log)) == 2


def test_producer_with_a_clock_far_ahead_is_rejected(
    host: IntakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other producers are not affected: the next session has an ordinary number."""
    with HostThread(host):
        with monkeypatch.context() as patched:
            patched.setattr("driftline.deploy.producer.time_ns", lambda: (1 << 63) - 1)
            with pytest.raises(Unavailable, match=r"clock is \d+ s ahead of the front's"):
                Producer(host.intake.address, "p")
        with Producer(host.intake.address, "p") as producer:
            producer.send("a")
    assert stored(host.log) == [("p", 1, "a")]


@pytest.mark.parametrize(
    ("record", "limit"),
    [
        (bytes(RECORD_BYTES_MAX), f"at most {RECORD_BYTES_MAX}"),
        (nested(RECORD_DEPTH_MAX + 1, "list"), f"more than {RECORD_DEPTH_MAX} deep"),
        ({(1, 2): 3}, "keys that are sequences"),
    ],
    ids=["large", "deep", "sequence as key"],
)
def test_record_beyond_a_limit_uses_no_number(host: IntakeHost, record: object, limit: str) -> None:
    with HostThread(host), Producer(host.intake.address, "p") as producer:
        producer.send("a")
        with pytest.raises(PayloadError, match=f"record 2 of 'p' cannot be sent: .*{limit}"):
            producer.send(record)
        assert producer.send("b") == 2
    assert [record for _, _, record in stored(host.log)] == ["a", "b"]


def test_rejected_record_raises_at_flush(host: IntakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client without the check gets the reason; no record after the rejected one is stored."""
    with HostThread(host):
        producer = Producer(host.intake.address, "p")
        producer.send("a")
        monkeypatch.setattr("driftline.deploy.producer.why_invalid_record", lambda *_, **__: "")
        producer.send(nested(RECORD_DEPTH_MAX + 1, "dict"))
        for _ in range(2):
            with pytest.raises(PayloadError, match=r"refused record 2 of 'p': .* more than 100"):
                producer.flush()
        producer.close()
        with Producer(host.intake.address, "q") as other:
            other.send("b")
    assert stored(host.log) == [("p", 1, "a"), ("q", 1, "b")]


def test_replaced_log_is_detected(directory: Path) -> None:
    address = f"ipc://{directory}/intake"
    host = IntakeHost(directory / "log", address)
    with HostThread(host):
        producer = Producer(address, "p")
        producer.send("a")
        producer.flush()
    host.close()
    host = IntakeHost(directory / "other log", address)
    with HostThread(host):
        producer.send("b")
        with pytest.raises(StateMismatch, match="has its input log been replaced"):
            producer.flush()
    producer.close()
    host.close()


def test_kill_9_neither_loses_nor_duplicates_acknowledged_records(tmp_path: Path) -> None:
    """The log is on a real disk.

    Producers continue to send while the front is killed three times.
    """
    count = 1200
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

    with HostProcess(tmp_path) as front, ThreadPoolExecutor(2) as pool:
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


def test_kill_9_while_a_producer_waits_for_the_last_records(tmp_path: Path) -> None:
    """Unacknowledged records stay in the producer, which continues when asked again."""
    with HostProcess(tmp_path) as front, Producer(front.address, "p") as producer:
        for i in range(1, 501):
            producer.send(i)
        front.kill()
        with pytest.raises(Unavailable, match=r"waited 0\.3 s .*is the flow running"):
            producer.flush(0.3)
        assert producer.send(501) == 501
        front.start()
        producer.flush()
        assert producer.acknowledged == 501
        front.kill()
        front.start()
        producer.send(502)
    log = InputLog(tmp_path / "log", "test")
    assert stored(log) == [("p", i, i) for i in range(1, 503)]
