"""A flow on Spark Structured Streaming: exactly-once by micro-batches, for comparison.

Spark reads a log of records, runs the functions of a flow over the records since the last batch,
and delivers the outputs batch by batch. It accepts flows with the operators of the inverted index:
one source, a flat_map, a scan with one MapState, a sink. Driftline's nodes run the same functions.

Why it is exactly-once: the offsets of a batch are durable before the batch starts. Spark repeats an
uncommitted batch with the state that the previous batch left. A batch is one partition and keeps
the order of the log within each key, so it produces the same outputs again, with the same batch
number. The receiver of the outputs stores the number of its last batch, and drops batches whose
number is not larger.

Choices, and the measurements behind them:

- **Source**: a Python data source over an append-only file of msgpack values. The offset is a
  position in the file, found in a millisecond, and any range can be read again. A reader in the
  driver (`SimpleDataSourceStreamReader`) costs the same. So does the file source with a file per
  document, but Spark lists its growing directory for each batch. A socket cannot be read again.
- **State**: `transformWithState` with rows. Its pandas variant makes a frame per key: ten documents
  took 1.3 s instead of 0.7. The query groups by `GROUPS` hash buckets of keys instead of by key.
  For Spark a group is an Arrow batch and a round trip, so 50 documents take 1.26 s of CPU instead
  of 1.73. Spark's MapState has no length, so the length is a second state.
- **Sink**: foreachBatch, which Spark's documentation recommends for deduplicated outputs.
- **Checkpoints**: a file manager other than the default, which starts some 50 processes a batch
  (`readlink`, `chmod`). No asynchronous progress tracking: Spark rejects it for this sink, and a
  repeated batch might then have other offsets.
- **JVM**: the fast compiler (C1) only. In the first minute a batch took 345 ms of CPU with it, and
  500 with the optimising compiler (C2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import msgpack
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from driftline.engine.errors import FlowError
from driftline.engine.flow.flow import Flow
from driftline.engine.operators.keyed_operators import Scan
from driftline.engine.operators.stateless import FlatMap, Sink, SourceOperator
from driftline.engine.operators.steps import Function
from driftline.engine.state.managed import MapState as DeclaredMap
from driftline.engine.wire.codec import pack, unpack
from driftline.pipeline.session import FRUGAL_CONF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def binary(*names: str) -> StructType:
    """Return a schema with columns of packed (msgpack) values."""
    return StructType([StructField(name, BinaryType()) for name in names])


def long(name: str) -> StructType:
    """Return a schema with one column of integers."""
    return StructType([StructField(name, LongType())])


BATCH_RECORDS = 100
"""Limit of records in a batch, so that a batch ends every few seconds even under load."""


class RecordLog(DataSource):
    """Spark data source: an append-only file of packed values."""

    @classmethod
    def name(cls) -> str:
        return "driftline-log"

    def schema(self) -> StructType:
        return binary("record")

    def streamReader(self, schema: StructType) -> RecordReader:
        return RecordReader(Path(self.options["path"]))


@dataclass(frozen=True)
class ByteRange(InputPartition):
    """A range of bytes of the log that contains whole records."""

    start: int
    end: int


class RecordReader(DataSourceStreamReader):
    """Reader of the log; an offset is a position in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(BATCH_RECORDS)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        assert records_max is not None or isinstance(limit, ReadAllAvailable)
        records = whole_records(self._read(start["at"]), records_max)
        return {"at": start["at"] + sum(map(len, records))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[ByteRange]:
        return [ByteRange(start["at"], end["at"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ByteRange)
        records = whole_records(self._read(partition.start, partition.end))
        yield pa.record_batch([pa.array(records, pa.binary())], ["record"])

    def _read(self, start: int, end: int | None = None) -> bytes:
        with self.path.open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(-1 if end is None else end - start)


def whole_records(data: bytes, records_max: int | None = None) -> list[bytes]:
    """Return the whole records in `data`, at most `records_max`, without an unfinished last one.

    >>> whole_records(b"\\x01\\xa2hi\\xa2h")
    [b'\\x01', b'\\xa2hi']
    """
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    ends = [0]
    while records_max is None or len(ends) <= records_max:
        try:
            unpacker.skip()
        except msgpack.OutOfData:
            break
        ends.append(unpacker.tell())
    return [data[start:end] for start, end in pairwise(ends)]


GROUPS = 16
"""Number of hash buckets of keys, by which Spark groups instead of by key."""

FLAT_MAP_SCHEMA = StructType([*long("group"), *binary("key", "element")])
"""The output columns of `FlatMapRows`."""


def operators_of(flow: Flow) -> tuple[FlatMapRows, KeyedScan]:
    """Return the flat_map and the scan of a flow. Raises FlowError if it has other operators."""
    if [type(vertex.operator) for vertex in flow.vertices] != [SourceOperator, FlatMap, Scan, Sink]:
        raise FlowError(
            f"flow {flow.name!r} is {', '.join(vertex.kind for vertex in flow.vertices)}: "
            "micro-batches take only flows of source, flat_map, scan, sink, in this order"
        )
    _, flat_map, scan, _ = flow.vertices
    if len(scan.states) != 1 or not isinstance(scan.states[0], DeclaredMap):
        raise FlowError(f"scan {scan.name!r}: micro-batches take only a scan with one MapState")
    assert flat_map.function is not None
    assert scan.function is not None
    assert scan.key is not None
    return FlatMapRows(flat_map.function, scan.key), KeyedScan(scan.function)


@dataclass(frozen=True)
class FlatMapRows:
    """Task that runs a flat_map.

    Input: rows (packed record). Output: rows (hash bucket of the key, packed key, packed output).
    """

    function: Function
    key: Function

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys, elements = [], []
            for record in batch.column(0).to_pylist():
                outputs = self.function(unpack(record))
                assert isinstance(outputs, Iterable)
                for element in outputs:
                    keys.append(pack(self.key(element)))
                    elements.append(pack(element))
            columns = [
                pa.array([crc32(key) % GROUPS for key in keys], pa.int64()),
                pa.array(keys, pa.binary()),
                pa.array(elements, pa.binary()),
            ]
            yield pa.record_batch(columns, FLAT_MAP_SCHEMA.names)


class KeyedScan(StatefulProcessor):
    """A scan with a MapState; Spark calls it for one hash bucket of keys at a time."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.entries = handle.getMapState("entries", binary("slot"), binary("value"))
        self.lengths = handle.getMapState("lengths", binary("key"), long("length"))

    def handleInputRows(
        self, key: object, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        states: dict[bytes, MapInSpark] = {}
        for row in rows:
            state = states.get(row.key)
            if state is None:
                state = states[row.key] = MapInSpark(row.key, self.entries, self.lengths)
            yield Row(output=pack(self.function(unpack(row.element), state)))
        for state in states.values():
            state.store_length()

    def close(self) -> None:
        """Do nothing: a scan holds no resources."""


class MapInSpark(MutableMapping[object, object]):
    """The MapState of a key, for a user's function. Each access is a round trip to the JVM."""

    def __init__(self, key: bytes, entries: MapState, lengths: MapState) -> None:
        self._key = key
        self._entries = entries
        self._lengths = lengths
        stored = lengths.getValue((key,))
        self._stored_length: int = stored[0] if stored else 0
        self._length = self._stored_length

    def store_length(self) -> None:
        """Store the number of entries if it has changed."""
        if self._length != self._stored_length:
            self._lengths.updateValue((self._key,), (self._length,))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[object]:
        """Iterate over the map's keys. Slow: reads the slots of the whole hash bucket."""
        slots = self._entries.keys()
        for (slot,) in slots:
            if slot.startswith(self._key):
                yield unpack(slot[len(self._key) :])

    def __contains__(self, key: object) -> bool:
        return self._has(self._slot(key))

    def __getitem__(self, key: object) -> object:
        value = self._entries.getValue(self._slot(key))
        if value is None:
            raise KeyError(key)
        return unpack(value[0])

    def __setitem__(self, key: object, value: object) -> None:
        slot = self._slot(key)
        if not self._has(slot):
            self._length += 1
        self._entries.updateValue(slot, (pack(value),))

    def __delitem__(self, key: object) -> None:
        slot = self._slot(key)
        if not self._has(slot):
            raise KeyError(key)
        self._entries.removeKey(slot)
        self._length -= 1

    def _slot(self, key: object) -> tuple[bytes]:
        """Return the slot of an entry, unique because no packed key is a prefix of another."""
        return (self._key + pack(key),)

    def _has(self, slot: tuple[bytes]) -> bool:
        return self._length > 0 and self._entries.containsKey(slot)


_STREAMING = "spark.sql.streaming"
_STORE = f"{_STREAMING}.stateStore"
_EXECUTION = "org.apache.spark.sql.execution.streaming"

CONF = {
    **FRUGAL_CONF,  # a run is too short for the optimising compiler to pay off
    f"{_STREAMING}.checkpoint.fileChecksum.enabled": "false",
    f"{_STREAMING}.checkpointFileManagerClass": (
        f"{_EXECUTION}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    f"{_STREAMING}.noDataMicroBatches.enabled": "false",
    f"{_STREAMING}.pollingDelay": "1ms",
    f"{_STORE}.providerClass": f"{_EXECUTION}.state.RocksDBStateStoreProvider",
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",  # saves a look-up per change
}
"""Settings of the session for `start`."""

Deliver = Callable[[int, Sequence[bytes]], None]
"""Takes the number of a batch and its packed outputs; a batch may be delivered again."""


def start(
    spark: SparkSession,
    flow: Flow,
    log: Path,
    checkpoint: Path,
    deliver: Deliver,
) -> StreamingQuery:
    """Start a query that runs a flow over the records of a log of concatenated packed values.

    `checkpoint`: the directory of Spark's checkpoints; a query resumes from them. `deliver`: takes
    the outputs of each batch. Raises FlowError for a flow with operators that this module does not
    accept.
    """
    flat_map, scan = operators_of(flow)

    def deliver_batch(frame: DataFrame, number: int) -> None:
        deliver(number, frame.toArrow().column(0).to_pylist())

    spark.dataSource.register(RecordLog)
    outputs = (
        spark.readStream.format(RecordLog.name())
        .load(str(log))
        .mapInArrow(flat_map, FLAT_MAP_SCHEMA)
        .groupBy("group")
        .transformWithState(scan, binary("output"), outputMode="Update", timeMode="None")
    )
    writer = (
        outputs.writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(deliver_batch)
    )
    return writer.trigger(processingTime="0 seconds").start()
