"""The batch runner: any flow as one Spark job, with the labels and outputs of a run on nodes.

    read and label -> segment of the source -> [shuffle -> keyed segments of a stage]* -> write

One line of tasks, without branches: what a task makes for a later one passes through those between,
so nothing is computed twice, and nothing comes to the driver but numbers. Partitions are ranges of
key groups; Spark sorts each by root, spilling to disk where it has to. The state of a partition's
key groups has to fit into a task's memory: more partitions make it smaller.

Why the outputs are the same: keyed operators see the same elements in the same total order, and
that is all that they depend on (Delivery, consistency, and determinism, section V).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.labels import INFINITY
from driftline.engine.sinks import Lines
from driftline.engine.snapshots.savepoint import Savepoint, begin, complete
from driftline.engine.sources import Source
from driftline.engine.sources.files.splits import Count, Split, splits_of, starts
from driftline.pipeline import PARTITIONS
from driftline.pipeline.running.chains import BEGIN, Job, KeyedTask, ReadTask
from driftline.pipeline.running.outputs import WRITTEN, WriteLines, claimed
from driftline.pipeline.running.rows import LAST, READ, SCHEMA, SET_ASIDE
from driftline.pipeline.spark.arrow import Batches, apply, numbers, read_numbers
from driftline.pipeline.spark.failures import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLITS_PER_CORE = 4
"""Parts that an input is read in."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a batch run did."""

    records: int
    bad_records: int
    outputs: dict[str, int] = field(default_factory=dict)
    """Per sink; failures are called dead-letters."""

    def as_json(self) -> dict[str, object]:
        """For machines."""
        return {
            "records": self.records,
            "bad_records": self.bad_records,
            "outputs": sum(self.outputs.values()),
        }


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
) -> Ran:
    """Run a flow over records with times in [since, until), and write its outputs as JSON lines.

    `start`: the state to begin with, of all records before `since`. `save`: where to leave the
    state of all records before `until`. Raises InputError, FunctionFailed and what else a run on
    nodes would.
    """
    from pyspark.sql import functions as f

    job = prepared(Job(flow, partitions, dead_letters, since, until, start, save))
    if save is not None:
        begin(save)
    with claimed(output), explained():
        rows = outputs_of(job, spark, inputs)
        written = apply(rows.sortWithinPartitions("to", "time"), WriteLines(flow, output), SCHEMA)
        totals = (
            written.groupBy("to", "front")
            .agg(f.sum("time").alias("count"), f.max("time").alias("last"))
            .collect()
        )
    if save is not None:
        ends = [row["last"] + 1 for row in totals if row["to"] == LAST]
        complete(save, flow, min(until, max([since, *ends])))
    names = Lines(flow).names
    return Ran(
        sum(row["count"] for row in totals if row["to"] == READ),
        sum(row["count"] for row in totals if row["to"] == SET_ASIDE),
        {names[row["front"]]: row["count"] for row in totals if row["to"] == WRITTEN},
    )


def prepared(job: Job) -> Job:
    """A job that can be sent to tasks. Raises FlowError, StateMismatch."""
    job.flow.validate()
    for savepoint in filter(None, (job.start, job.end)):
        savepoint.check_flow(job.flow)
    ship(job.flow)
    return replace(job, partitions=max(1, min(job.partitions, job.flow.groups)))


def outputs_of(job: Job, spark: SparkSession, inputs: Sequence[Source]) -> DataFrame:
    """The rows that a flow ends in, none of them to a port, not in order."""
    job.flow.check_inputs(inputs)
    rows = _read(job, spark, 0, inputs[0])
    for front, source in enumerate(inputs[1:], 1):
        rows = rows.union(_read(job, spark, front, source))
    flow_plan = plan(job.flow)
    for stage in range(1, flow_plan.stages):
        if job.keeps_state:
            for port in flow_plan.of_stage(stage):
                rows = rows.union(_begins(job, spark, port.number))
        rows = rows.repartitionById(job.partitions, "part")
        rows = rows.sortWithinPartitions("to", "time", "front")
        rows = apply(rows, KeyedTask(job, stage), SCHEMA)
    return rows


def _begins(job: Job, spark: SparkSession, port: int) -> DataFrame:
    """The rows that come before all others, one for each partition."""
    from pyspark.sql import functions as f

    return spark.range(0, job.partitions, 1, 1).select(
        f.lit(port).alias("to"),
        f.col("id").cast("int").alias("part"),
        f.lit(BEGIN).cast("long").alias("time"),
        f.lit(0).alias("front"),
        f.lit(b"").alias("payload"),
    )


def _read(job: Job, spark: SparkSession, front: int, source: Source) -> DataFrame:
    count = SPLITS_PER_CORE * spark.sparkContext.defaultParallelism
    parts = splits_of(source, count, job.since)
    task = ReadTask(job, front, parts, starts(counted(spark, parts)))
    return apply(numbers(spark, len(parts)), task, SCHEMA)


def counted(spark: SparkSession, parts: Sequence[Split]) -> list[Count]:
    """How much is in each part, by a job; where there is one only, nobody needs to know."""
    if len(parts) == 1:
        return [Count(0, 0)]

    def count(batches: Batches) -> Batches:
        for number in read_numbers(batches):
            found = parts[number].count()
            yield pa.record_batch(
                {
                    "part": [number],
                    "rows": [found.rows],
                    "documents": [found.documents],
                    "broken": [found.broken],
                }
            )

    schema = "part long, rows long, documents long, broken boolean"
    found = sorted(apply(numbers(spark, len(parts)), count, schema).collect())
    return [Count(row["rows"], row["documents"], row["broken"]) for row in found]


def ship(flow: Flow) -> None:
    """Let functions of modules that a worker could not import travel with the flow."""
    from pyspark import cloudpickle

    for vertex in flow.vertices:
        for function in (vertex.function, vertex.key):
            module = sys.modules.get(getattr(function, "__module__", None) or "")
            if isinstance(module, ModuleType) and module.__name__.startswith("driftline_flow_"):
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
