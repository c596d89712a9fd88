"""Results of Spark in the benchmark; tests/pipeline tests Spark itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from driftline.bench.measuring.meter import Arrival
from driftline.bench.systems.microbatch import MicroBatch
from driftline.bench.systems.processes import address
from driftline.engine.errors import Unavailable
from driftline.engine.wire.codec import pack

DOCUMENTS = [("d0", "a b"), ("d1", "b")]


class FakeQuery:
    """Query that sends the messages of a test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.PUSH)
        self.system = MicroBatch(DOCUMENTS)
        self.system._results.bind(address(directory, "results"))
        self.socket.connect(address(directory, "results"))

    def batch(self, number: int, *changes: tuple[str, str]) -> list[Arrival]:
        outputs = [pack((word, document, (0,), 1)) for word, document in changes]
        return self.send((number, outputs))

    def send(self, message: object) -> list[Arrival]:
        self.socket.send(pack(message))
        self.system.wait(5000)
        return self.system.receive()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeQuery]:
    fake = FakeQuery(tmp_path)
    yield fake
    fake.system.close()
    fake.context.destroy(linger=0)


def test_redelivered_batch_is_dropped(fake: FakeQuery) -> None:
    assert fake.batch(0, ("a", "d0"))
    assert fake.batch(1, ("b", "d0"))
    assert fake.batch(1, ("b", "d0")) == []
    assert fake.batch(2, ("b", "d1"))


def test_error_of_spark_is_raised_as_unavailable(fake: FakeQuery) -> None:
    with pytest.raises(Unavailable, match="no such trigger"):
        fake.send("no such trigger")
