"""Run a flow as one batch job on Spark, with the labels and outputs of a run on nodes.

    read and label -> chain of the source -> [shuffle -> keyed chains of a stage]* -> write

The tasks form one pipeline without branches: a task forwards the rows that are meant for later
tasks. So nothing is computed twice, and the driver gets only counts. A partition is a range of key
groups. Spark sorts its rows by port, time and front, and spills to disk if necessary. The state of
a partition's key groups has to fit into a task's memory; more partitions make it smaller.

Why the outputs are the same: the results of keyed operators depend only on their elements and on
the total order, and these are the same as on nodes (the paper "Delivery, consistency, and
determinism", section V).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from driftline.connectors.files.splits import Split, SplitCount, first_rows_and_times, splits_of
from driftline.connectors.sinks import JsonLines
from driftline.connectors.sinks.lines import DEAD_LETTERS
from driftline.engine.errors import FlowError
from driftline.engine.event_time import Status
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import make_plan
from driftline.engine.labels import INFINITY
from driftline.engine.snapshots.savepoint import (
    Savepoint,
    create_savepoint_directory,
    write_manifest,
)
from driftline.engine.sources import Source
from driftline.pipeline import PARTITIONS
from driftline.pipeline.chains import BEGIN, KeyedTask, ReadTask, TaskSettings
from driftline.pipeline.outputs import WRITTEN, WriteLines, claim_directory, write_commit_record
from driftline.pipeline.tasks import (
    EVENT_TIME,
    LAST,
    READ,
    SCHEMA,
    SET_ASIDE,
    Batches,
    map_partitions,
    numbers,
    read_numbers,
    reraise_task_errors,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLITS_PER_CORE = 4
"""Maximum number of splits of an input, for each core."""


class BatchCounts(Struct, frozen=True):
    """The counts of a batch run.

    Attributes:
        records: Number of records read, without bad records.
        bad_records: Number of records that could not be read.
        outputs: Name of a sink -> number of its outputs; "dead-letters" -> number of dead letters.
    """

    records: int
    bad_records: int
    outputs: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """Return the counts as a JSON object."""
        return {
            "records": self.records,
            "bad_records": self.bad_records,
            "outputs": sum(self.outputs.values()) - self.dead_letters,
            "dead_letters": self.dead_letters,
        }

    @property
    def dead_letters(self) -> int:
        """Number of elements whose function failed, and of outputs that JSON cannot hold."""
        return self.outputs.get(DEAD_LETTERS, 0)


def run(
    flow: Flow,
    spark: SparkSession,
    inputs: Sequence[Source],
    output: Path,
    *,
    partitions: int = PARTITIONS,
    dead_letters: bool = False,
    since: int = 0,
    until: int = INFINITY,
    start: Savepoint | None = None,
    save: Path | None = None,
) -> BatchCounts:
    """Run a flow over records with times in [since, until), and write its outputs as JSON lines.

    Args:
        flow: The flow.
        spark: The session, see `driftline.pipeline.session.session`.
        inputs: One source for each source of the flow, in their order.
        output: Directory for the outputs; it must not hold any yet.
        partitions: Number of ranges of key groups; the state of one has to fit into a task's
            memory.
        dead_letters: Whether to set aside bad records, elements whose function raises, and outputs
            that JSON cannot hold.
        since: Skip records with a smaller time.
        until: Skip records with this time or a larger one.
        start: The savepoint with the state of all records before `since`.
        save: Directory for a savepoint of the state of all records before `until`.

    Returns:
        The numbers of records read and of outputs written.

    Raises:
        InputError: For a record that cannot be read, without `dead_letters`; in any case, for an
            input that breaks off.
        FunctionFailed: For a function that raises, without `dead_letters`.
        PayloadError: For an output that JSON cannot hold, without `dead_letters`.
        FlowError: For a flow that Spark cannot run, or inputs that do not fit the flow.
        StateMismatch: For a directory that holds outputs, or a savepoint of another flow.
        SnapshotDamaged: For a damaged savepoint.
        Unavailable: For files that cannot be used, and if Spark fails.
    """
    from pyspark.sql import functions as f

    settings = prepare_settings(
        TaskSettings(flow, partitions, dead_letters, since, until, start, save)
    )
    if save is not None:
        create_savepoint_directory(save)
    with claim_directory(output), reraise_task_errors():
        rows = result_rows(settings, spark, inputs)
        write = WriteLines(flow, output, dead_letters)
        results = map_partitions(rows.sortWithinPartitions("to", "time"), write, SCHEMA)
        # In a result, `to` is its kind, `time` a count or a time, `front` a sink or a source.
        totals = (
            results.groupBy("to", "front")
            .agg(f.sum("time").alias("sum"), f.max("time").alias("max"))
            .collect()
        )
    ends = [row["max"] + 1 for row in totals if row["to"] == LAST]
    end = min(until, max([since, *ends]))
    if save is not None:
        event_times = {
            row["front"] // len(Status): (row["max"], row["front"] % len(Status))
            for row in totals
            if row["to"] == EVENT_TIME
        }
        in_front_order = [event_time for _, event_time in sorted(event_times.items())]
        write_manifest(save, flow, end, event_times=in_front_order)
    names = JsonLines(flow).names
    counts = BatchCounts(
        sum(row["sum"] for row in totals if row["to"] == READ),
        sum(row["sum"] for row in totals if row["to"] == SET_ASIDE),
        {names[row["front"]]: row["sum"] for row in totals if row["to"] == WRITTEN},
    )
    delivered = sum(counts.outputs.values()) - counts.dead_letters
    write_commit_record(output, end, delivered, counts.dead_letters, save)
    return counts


def prepare_settings(settings: TaskSettings) -> TaskSettings:
    """Validate settings and return them, with at most as many partitions as key groups.

    Also prepares the flow's functions for pickling. Raises FlowError for a flow that cannot run,
    StateMismatch for savepoints of another flow.
    """
    settings.flow.validate()
    for vertex in settings.flow.loops:
        raise FlowError(
            f"{vertex.kind} {vertex.name!r} sends messages to itself, which is not possible on "
            "Spark: use `driftline run`"
        )
    for savepoint in filter(None, (settings.start, settings.compare_with)):
        savepoint.check_flow(settings.flow)
    register_flow_modules()
    partitions = max(1, min(settings.partitions, settings.flow.groups))
    return replace(settings, partitions=partitions)


def result_rows(settings: TaskSettings, spark: SparkSession, inputs: Sequence[Source]) -> DataFrame:
    """Return the unsorted results of a flow: rows with a kind of result in `to`."""
    settings.flow.check_inputs(inputs)
    rows = _read(settings, spark, 0, inputs[0])
    for front, source in enumerate(inputs[1:], 1):
        rows = rows.union(_read(settings, spark, front, source))
    flow_plan = make_plan(settings.flow)
    for stage in range(1, flow_plan.stages):
        if settings.uses_savepoints:
            for port in flow_plan.ports_of_stage(stage):
                rows = rows.union(_begin_rows(settings, spark, port.number))
        rows = rows.repartitionById(settings.partitions, "partition")
        rows = rows.sortWithinPartitions("to", "time", "front")
        rows = map_partitions(rows, KeyedTask(settings, stage), SCHEMA)
    return rows


def _begin_rows(settings: TaskSettings, spark: SparkSession, port: int) -> DataFrame:
    """Return an artificial row of a port, with time BEGIN, for each partition.

    So each partition has a task, which restores its state, even without data.
    """
    from pyspark.sql import functions as f

    return spark.range(0, settings.partitions, 1, 1).select(
        f.lit(port).alias("to"),
        f.col("id").cast("int").alias("partition"),
        f.lit(BEGIN).cast("long").alias("time"),
        f.lit(0).alias("front"),
        f.lit(b"").alias("payload"),
    )


def _read(settings: TaskSettings, spark: SparkSession, front: int, source: Source) -> DataFrame:
    count = SPLITS_PER_CORE * spark.sparkContext.defaultParallelism
    splits = splits_of(source, count, settings.since)
    task = ReadTask(settings, front, splits, first_rows_and_times(count_splits(spark, splits)))
    return map_partitions(numbers(spark, len(splits)), task, SCHEMA)


def count_splits(spark: SparkSession, splits: Sequence[Split]) -> list[SplitCount]:
    """Count the rows and documents of each split in a Spark job.

    A single split is not counted, because counts serve only to number the records of later splits.
    """
    if len(splits) == 1:
        return [SplitCount(0, 0)]

    def count(batches: Batches) -> Batches:
        for number in read_numbers(batches):
            counts = splits[number].count()
            yield pa.record_batch(
                {
                    "split": [number],
                    "rows": [counts.rows],
                    "documents": [counts.documents],
                    "broken": [counts.broken],
                }
            )

    schema = "split long, rows long, documents long, broken boolean"
    rows = sorted(map_partitions(numbers(spark, len(splits)), count, schema).collect())
    return [SplitCount(row["rows"], row["documents"], row["broken"]) for row in rows]


def register_flow_modules() -> None:
    """Make PySpark pickle the code of flow files by value, as workers cannot import the files."""
    from pyspark import cloudpickle

    for name, module in list(sys.modules.items()):
        if name.startswith("driftline_flow_"):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
