"""The flow on Spark equals the reference interpreter, also across a restart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.stateful_processor import MapState

from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.loading import load_flow
from driftline.engine.reference import run_reference
from driftline.engine.wire.codec import pack, unpack
from driftline.pipeline.microbatch import CONF, MapInSpark, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DOCUMENTS = [
    {"id": "a", "text": "one fish two fish"},
    {"id": "b", "text": "red fish blue fish"},
    {"id": 3, "text": ""},
    {"id": "a", "text": "one more"},
    {"id": "d", "text": "two blue, and one more fish"},
    {"id": "e", "text": "FISH"},
]


@pytest.fixture
def streaming(spark: SparkSession) -> SparkSession:
    """Provide a session with other settings, in the JVM of the other session."""
    made = spark.newSession()
    for name, value in {**CONF, "spark.sql.shuffle.partitions": "1"}.items():
        if not name.startswith("spark.driver."):  # settings that apply only when a JVM starts
            made.conf.set(name, value)
    return made


class BatchConsumer:
    """Consumer that stores the number of the last batch, and drops batches that are not newer."""

    def __init__(self) -> None:
        self.last = -1
        self.dropped = 0
        self.outputs: list[object] = []

    def take(self, batch: int, outputs: Sequence[bytes]) -> None:
        if batch <= self.last:
            self.dropped += 1
            return
        self.last = batch
        self.outputs += map(unpack, outputs)


def by_word(outputs: Sequence[object]) -> dict[str, list[object]]:
    """Return the change records of each word, in their order."""
    found = defaultdict(list)
    for output in outputs:
        assert isinstance(output, tuple)
        found[output[0]].append(output)
    return dict(found)


def reference() -> dict[str, list[object]]:
    return by_word(
        [item.value for item in run_reference(load_flow("driftline.index"), [DOCUMENTS])]
    )


def append(log: Path, documents: Sequence[object]) -> None:
    with log.open("ab") as file:
        file.writelines(map(pack, documents))


def finish(query: StreamingQuery) -> None:
    query.processAllAvailable()
    query.stop()


def test_outputs_equal_the_reference_across_restarts(
    streaming: SparkSession, tmp_path: Path
) -> None:
    log, checkpoint, taker = tmp_path / "log", tmp_path / "checkpoint", BatchConsumer()
    flow = load_flow("driftline.index")
    append(log, DOCUMENTS[:2])

    class BatchCrash(Exception):
        """Crash between the delivery of a batch and its commit."""

    def take_and_crash(batch: int, outputs: Sequence[bytes]) -> None:
        taker.take(batch, outputs)
        if batch:
            raise BatchCrash

    query = start(streaming, flow, log, checkpoint, take_and_crash)
    query.processAllAvailable()
    append(log, DOCUMENTS[2:4])
    with log.open("ab") as file:
        file.write(pack(DOCUMENTS[4])[:9])  # the producer has not finished this one
    with pytest.raises(Exception, match="Crash"):
        query.processAllAvailable()
    delivered = len(taker.outputs)

    with log.open("ab") as file:
        file.write(pack(DOCUMENTS[4])[9:])
    append(log, DOCUMENTS[5:])
    finish(start(streaming, flow, log, checkpoint, taker.take))
    assert taker.dropped == 1, "the delivered batch arrived again"
    assert len(taker.outputs) > delivered
    assert by_word(taker.outputs) == reference()


class FakeState(MapState):
    """Spark's MapState without Spark."""

    def __init__(self) -> None:
        self.held: dict[tuple[object, ...], tuple[object, ...]] = {}

    def getValue(self, key: tuple[object, ...]) -> tuple[object, ...] | None:
        return self.held.get(key)

    def containsKey(self, key: tuple[object, ...]) -> bool:
        return key in self.held

    def updateValue(self, key: tuple[object, ...], value: tuple[object, ...]) -> None:
        self.held[key] = value

    def removeKey(self, key: tuple[object, ...]) -> None:
        del self.held[key]

    def keys(self) -> Iterator[tuple[object, ...]]:
        return iter(list(self.held))


def test_map_state_is_separate_per_key() -> None:
    entries, lengths = FakeState(), FakeState()

    def of(key: object) -> MapInSpark:
        return MapInSpark(pack(key), entries, lengths)

    one, other = of("one"), of("on")
    one["a"], one["b"], one["a"] = 1, 2, 3
    other["a"] = 4
    assert (dict(one), dict(other), len(one)) == ({"a": 3, "b": 2}, {"a": 4}, 2)
    del one["a"]
    assert "a" not in one
    with pytest.raises(KeyError):
        one["a"]
    one.store_length()
    other.store_length()
    assert (dict(of("one")), len(of("one"))) == ({"b": 2}, 1)
    assert len(of("new")) == 0


def test_unsupported_flow_is_rejected(streaming: SparkSession, tmp_path: Path) -> None:
    flow = Flow("shout")
    flow.source("words").map(str.upper).sink()
    with pytest.raises(FlowError, match="is source, map, sink: micro-batches take"):
        start(streaming, flow, tmp_path, tmp_path, BatchConsumer().take)
