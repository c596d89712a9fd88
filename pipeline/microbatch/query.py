"""A flow on Spark Structured Streaming: exactly-once by micro-batches, to compare with.

Spark reads a log of records, runs the functions of a flow over the records since the last batch,
and delivers the outputs batch by batch. It takes flows with the operators of the inverted index:
one source, a flat_map, a scan with one MapState, a sink. The functions are those that nodes run.

Why it is exactly-once: the offsets of a batch are durable before it begins, and a batch that was
not committed runs again on the state before it. A batch is one partition and keeps the order of the
log within each key, so it gives the same outputs again, with the same number. The receiver
remembers the last number, and drops batches whose number is not larger.

Choices, and the measurements behind them:

- **Source**: a Python data source over an append-only file of msgpack values. The offset is a
  position in the file, found in a millisecond, and any range can be read again. A reader in the
  driver (`SimpleDataSourceStreamReader`) and the file source, a file for each document, cost the
  same; but that directory grows, and is listed for each batch. A socket cannot be read again.
- **State**: `transformWithState`, rows. The form for pandas makes a frame for every key: ten
  documents took 1.3 s instead of 0.7. Spark groups not by key but by one of a few groups of keys:
  each of its groups is a batch of Arrow and a round trip, so 50 documents take 1.26 s of CPU
  instead of 1.73. Its MapState has no length, so the length is a second state.
- **Sink**: foreachBatch, which Spark's documentation names for outputs that are deduplicated.
- **Checkpoints**: the default file manager starts processes (for `readlink`, `chmod`), some 50 a
  batch. Progress is not tracked asynchronously: Spark refuses it for this sink, and a batch that
  is run again might then have other offsets.
- **JVM**: in the first minute a batch took 345 ms of CPU with the fast compiler, 500 with the
  optimising one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.engine.flow.flow import Flow
from driftline.pipeline.microbatch.columns import binary
from driftline.pipeline.microbatch.log import RecordLog
from driftline.pipeline.microbatch.operators import SPREAD, operators_of
from driftline.pipeline.spark.session import FRUGAL_JVM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_STREAMING = "spark.sql.streaming"
_STORE = f"{_STREAMING}.stateStore"
_EXECUTION = "org.apache.spark.sql.execution.streaming"

CONF = {
    **FRUGAL_JVM,  # a run is too short for the optimising compiler to pay
    f"{_STREAMING}.checkpoint.fileChecksum.enabled": "false",
    f"{_STREAMING}.checkpointFileManagerClass": (
        f"{_EXECUTION}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    f"{_STREAMING}.noDataMicroBatches.enabled": "false",
    f"{_STREAMING}.pollingDelay": "1ms",
    f"{_STORE}.providerClass": f"{_EXECUTION}.state.RocksDBStateStoreProvider",
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",  # one look-up less for each change
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
    """Start a query that runs a flow over the records of a log: packed values, one after the other.

    `checkpoint`: the directory of Spark's checkpoints; a query resumes from them. `deliver`: takes
    the outputs. Raises FlowError for a flow with other operators than the inverted index.
    """
    spread, keyed = operators_of(flow)

    def deliver_batch(frame: DataFrame, number: int) -> None:
        deliver(number, frame.toArrow().column(0).to_pylist())

    spark.dataSource.register(RecordLog)
    outputs = (
        spark.readStream.format(RecordLog.name())
        .load(str(log))
        .mapInArrow(spread, SPREAD)
        .groupBy("group")
        .transformWithState(keyed, binary("output"), outputMode="Update", timeMode="None")
    )
    writer = (
        outputs.writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(deliver_batch)
    )
    return writer.trigger(processingTime="0 seconds").start()
