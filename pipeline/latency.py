"""Latency of long runs, from the raw records that `driftline bench latency --raw` writes.

The analysis has percentiles, a histogram with logarithmic buckets, and percentiles over time, for
each series: a policy, a snapshot interval and the durability of the run's *ends*. These are its
inputs and outputs, either all durable or all in memory. The records may exceed memory, as Spark
computes the results.

Percentiles are exact to a microsecond, and defined as in the bench: the p-th percentile is the
smallest latency that p per cent of the documents do not exceed (nearest rank). Rounded to
microseconds, latencies have so few different values that Spark can count each value.

Latencies of the warm-up do not count, but its lost and duplicated outputs do. Runs of the same
series are pooled, while the table of the bench shows the median of the runs. The time of a document
is the time at which it was due, in seconds since the start of its run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import ceil, log10, nan
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from rich.table import Table

from driftline.engine.errors import Unavailable
from driftline.engine.ui.consoles import format_error_count, new_table
from driftline.engine.ui.pictures import (
    colour_of_policy,
    new_figure,
    plain_log_scale,
    save,
    style_curves,
)
from driftline.pipeline.session import escape_glob
from driftline.pipeline.tasks import reraise_task_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import Column, DataFrame, SparkSession


FIELDS = (
    "policy string, snapshot_interval_ms int, durable boolean, run int, document long, "
    "at_s double, send_delay_ms double, latency_ms double, lost long, duplicated long, "
    "warmup boolean"
)
"""Schema of the records, as in Spark SQL."""

DAMAGED = "damaged"
"""The column with the text of a line that is not a record."""

PERCENTILES = {
    "p50_ms": 0.5,
    "p75_ms": 0.75,
    "p95_ms": 0.95,
    "p99_ms": 0.99,
    "p999_ms": 0.999,
    "max_ms": 1.0,
}
"""Name of a percentile -> share of the documents that do not exceed it."""

KEY_COLUMNS = ("policy", "snapshot_interval_ms", "durable")
"""The columns that identify a series."""

SEND_DELAY_P99 = "send_delay_p99_ms"
"""The JSON field of the 99th percentile of the producer's send delay."""

LATENCY_COLUMN = "ms"
"""The column with the latency in ms, rounded to microseconds. It is null in the warm-up, and for
documents with lost outputs or without outputs."""

SEND_DELAY_COLUMN = "send_delay"
"""The column with the producer's send delay in ms, rounded to microseconds; null in the warm-up."""

LATENCY_MIN_MS = 0.001
"""The histogram counts smaller latencies as this one."""

BUCKETS_PER_DECADE = 20
"""Buckets of the histogram per decade: the upper bound of each is 12 % above its lower bound."""

TIME_BUCKETS_MAX = 100
"""Without `bucket_s`, the longest run has at most this many time buckets."""

STYLES = ("-", "--", ":", "-.")
"""Line styles of the snapshot intervals."""

SHARES = {1.0: "0 %", 0.5: "50 %", 0.1: "90 %", 0.01: "99 %", 0.001: "99.9 %", 0.0001: "99.99 %"}
"""Share of documents that exceed a latency -> tick label: the share that does not exceed it."""


class Summary(Struct, frozen=True):
    """Figures of a set of documents."""

    documents: int
    """Number of documents with a latency, without the warm-up."""
    percentiles: dict[str, float]
    """Name in PERCENTILES -> latency in ms; empty without documents."""
    lost: int
    """Number of lost outputs, with those of the warm-up."""
    duplicated: int
    """Number of outputs that arrived again, with those of the warm-up."""
    send_delay_p99_ms: float | None = None
    """99th percentile of the delay between due time and sending; None if the records lack it."""

    def as_json(self) -> dict[str, object]:
        """Return the figures as a JSON object."""
        return {
            **{name: self.percentiles.get(name) for name in PERCENTILES},
            "lost": self.lost,
            "duplicated": self.duplicated,
            "documents": self.documents,
            SEND_DELAY_P99: self.send_delay_p99_ms,
        }


class Series(Struct, frozen=True):
    """The figures of one policy with one snapshot interval and one durability of the ends."""

    policy: str
    snapshot_interval_ms: int | None
    durable: bool
    """Whether inputs and outputs were durable."""
    overall: Summary
    timeline: list[tuple[float, Summary]] = field(default_factory=list)
    """(start of a time bucket in seconds, figures of its documents)"""
    histogram: list[tuple[float, float, int]] = field(default_factory=list)
    """(lower bound in ms, upper bound in ms, number of documents)"""

    def as_json(self) -> dict[str, object]:
        """Return a row of `driftline bench latency --json`, with `timeline` and `histogram`."""
        return {
            "policy": self.policy,
            "snapshot_interval_ms": self.snapshot_interval_ms,
            "durable": self.durable,
            **self.overall.as_json(),
            "timeline": [{"from_s": start, **bucket.as_json()} for start, bucket in self.timeline],
            "histogram": [
                {"from_ms": start, "to_ms": end, "documents": documents}
                for start, end, documents in self.histogram
            ],
        }


Key = tuple[str, int | None, bool]
SeriesByKey = dict[Key, Series]


class Analysis(Struct, frozen=True):
    """The result: the number of records, the length of a time bucket in seconds, and all series."""

    records: int
    bucket_s: float
    series: list[Series]

    def as_json(self) -> dict[str, object]:
        """Return the result as a JSON object."""
        return {
            "records": self.records,
            "bucket_s": self.bucket_s,
            "rows": [series.as_json() for series in self.series],
        }

    def table(self) -> Table:
        """Return the percentiles as a table for a terminal."""
        titles = ["p50", "p75", "p95", "p99", "p99.9", "max"]
        table = new_table(
            f"Latency in ms, {self.records:,} records",
            ["policy", "ends"],
            ["snapshots every", "documents", *titles, "send delay p99", "lost", "duplicated"],
        )
        for series in self.series:
            table.add_row(
                series.policy,
                "durable" if series.durable else "",
                "" if series.snapshot_interval_ms is None else f"{series.snapshot_interval_ms} ms",
                f"{series.overall.documents:,}",
                *(f"{series.overall.percentiles.get(name, nan):.2f}" for name in PERCENTILES),
                ""
                if series.overall.send_delay_p99_ms is None
                else f"{series.overall.send_delay_p99_ms:.2f}",
                format_error_count(series.overall.lost),
                format_error_count(series.overall.duplicated),
            )
        return table


def read_records(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    """Read the records of files (.jsonl, .parquet) and of directories of such files.

    Raises Unavailable for a path without such files.
    """
    from pyspark.sql import DataFrame

    files = [file for path in paths for file in _files(path)]
    json_files = [escape_glob(file) for file in files if file.suffix == ".jsonl"]
    parquet_files = [escape_glob(file) for file in files if file.suffix == ".parquet"]
    fields = f"{FIELDS}, {DAMAGED} string"
    with reraise_task_errors():
        reader = spark.read.schema(fields).option("columnNameOfCorruptRecord", DAMAGED)
        frames = [reader.json(json_files)] if json_files else []
        frames += [reader.parquet(*parquet_files)] if parquet_files else []
        with_file_names = [records.select("*", "_metadata.file_name") for records in frames]
        return reduce(DataFrame.union, with_file_names)


def _files(path: Path) -> list[Path]:
    if path.is_dir() and path.suffix != ".parquet":
        files = [file for ending in ("jsonl", "parquet") for file in path.glob(f"[!._]*.{ending}")]
    else:
        files = [path] if path.exists() and path.suffix in (".jsonl", ".parquet") else []
    if not files:
        reason = "no .jsonl or .parquet file" if path.exists() else "there is no such file"
        raise Unavailable(
            f"{path}: {reason}; records come from `driftline bench latency --raw DIR`"
        )
    return sorted(files)


def analyse(records: DataFrame, bucket_s: float | None = None) -> Analysis:
    """Compute percentiles, time lines and histograms of records.

    `bucket_s`: length of the buckets of the time lines, in seconds; None: the smallest power of ten
    that gives at most TIME_BUCKETS_MAX buckets. Raises Unavailable if there are no records, or for
    a line that is not a record.
    """
    from pyspark.sql import functions as f

    records.persist()
    try:
        with reraise_task_errors():
            count, longest_s = _check_records(records)
            bucket_s = bucket_s or 10.0 ** ceil(log10(max(longest_s, 0.001) / TIME_BUCKETS_MAX))
            warmup = f.coalesce("warmup", f.lit(False))
            measured = (
                records.withColumn("durable", f.coalesce("durable", f.lit(False)))
                .withColumn(LATENCY_COLUMN, f.when(~warmup, f.round("latency_ms", 3)))
                .withColumn(SEND_DELAY_COLUMN, f.when(~warmup, f.round("send_delay_ms", 3)))
            )
            series = {
                key: Series(*key, summary) for key, _, summary in _summarise(measured, f.lit(0))
            }
            _add_timelines(series, measured, bucket_s)
            _add_histograms(series, measured)
    finally:
        records.unpersist()
    return Analysis(count, bucket_s, list(series.values()))


def _check_records(records: DataFrame) -> tuple[int, float]:
    """Return the number of records and the length of the longest run in seconds.

    Raises Unavailable if there are no records, or for a line that is not a record.
    """
    from pyspark.sql import functions as f

    is_bad = f.expr(f"{DAMAGED} IS NOT NULL OR policy IS NULL OR at_s IS NULL")
    (totals,) = records.agg(
        f.count("*"), f.max("at_s"), f.min(f.when(is_bad, f.col("file_name")))
    ).collect()
    count, longest_s, file = totals
    if file is not None:
        raise Unavailable(
            f"{file} holds a line that is not a record of a latency run; "
            "records come from `driftline bench latency --raw DIR`"
        )
    if not count:
        raise Unavailable(
            "the files hold no record; records come from `driftline bench latency --raw DIR`"
        )
    return count, longest_s


def _summarise(measured: DataFrame, bucket: Column) -> Iterator[tuple[Key, int, Summary]]:
    """Yield (key, bucket, summary), sorted by durability, interval, policy and bucket."""
    from pyspark.sql import functions as f

    ranks = ", ".join(map(str, PERCENTILES.values()))
    figures_of_groups = measured.groupBy(*KEY_COLUMNS, bucket.alias("bucket")).agg(
        f.count(LATENCY_COLUMN),
        f.expr(f"percentile_disc(array({ranks})) WITHIN GROUP (ORDER BY {LATENCY_COLUMN})"),
        f.expr(f"percentile_disc(0.99) WITHIN GROUP (ORDER BY {SEND_DELAY_COLUMN})"),
        f.coalesce(f.sum("lost"), f.lit(0)),
        f.coalesce(f.sum("duplicated"), f.lit(0)),
    )
    rows = sorted(
        figures_of_groups.collect(), key=lambda row: (row[2], row[1] or 0, row[0], row[3])
    )
    for policy, interval_ms, durable, number, documents, values, delay, lost, duplicated in rows:
        percentiles = dict(zip(PERCENTILES, values or [], strict=bool(values)))
        summary = Summary(documents, percentiles, lost, duplicated, delay)
        yield (policy, interval_ms, durable), number, summary


def _add_timelines(series: SeriesByKey, measured: DataFrame, bucket_s: float) -> None:
    from pyspark.sql import functions as f

    relevant = measured.where(f"{LATENCY_COLUMN} IS NOT NULL OR lost > 0")
    for key, number, summary in _summarise(relevant, f.floor(f.col("at_s") / bucket_s)):
        series[key].timeline.append((round(number * bucket_s, 6), summary))


def _add_histograms(series: SeriesByKey, measured: DataFrame) -> None:
    from pyspark.sql import functions as f

    decades = f.log10(f.greatest(LATENCY_COLUMN, f.lit(LATENCY_MIN_MS)))
    bucket = f.floor(decades * BUCKETS_PER_DECADE).alias("bucket")
    counts = (
        measured.where(f"{LATENCY_COLUMN} IS NOT NULL")
        .groupBy(*KEY_COLUMNS, bucket)
        .agg(f.count("*"))
    )
    for *key, number, documents in sorted(counts.collect(), key=itemgetter(3)):
        bounds = _lower_bound_ms(number), _lower_bound_ms(number + 1)
        policy, snapshot_interval_ms, durable = key
        series[policy, snapshot_interval_ms, durable].histogram.append((*bounds, documents))


def _lower_bound_ms(bucket: int) -> float:
    bound: float = 10.0 ** (bucket / BUCKETS_PER_DECADE)
    return round(bound, 6)


def draw_latency(analysis: Analysis, path: Path) -> None:
    """Draw the distribution of latencies, and percentiles over time.

    Series with durable ends and those in memory have panels of their own. The colour shows the
    policy, and the line style the snapshot interval.
    """
    durabilities = sorted({series.durable for series in analysis.series})
    figure = new_figure(2.2 + 6.2 * len(durabilities), 8.4)
    grid = figure.subplots(2, len(durabilities), sharex="row", sharey="row", squeeze=False)
    all_intervals = {series.snapshot_interval_ms for series in analysis.series}
    intervals = sorted(each for each in all_intervals if each is not None)
    for series in analysis.series:
        share_panel, time_panel = grid[:, durabilities.index(series.durable)]
        style = "-"
        if series.snapshot_interval_ms is not None:
            style = STYLES[intervals.index(series.snapshot_interval_ms) % len(STYLES)]
        _draw_shares(share_panel, series, style)
        _draw_percentiles(time_panel, series, style)
    for durable, (share_panel, time_panel) in zip(durabilities, grid.T, strict=True):
        share_panel.set_title(f"inputs and outputs {'durable' if durable else 'in memory'}")
        _format_share_panel(share_panel)
        _format_time_panel(time_panel, analysis.bucket_s)
    first_panel = grid[0][0]
    first_panel.set_ylim(*reversed(first_panel.get_ylim()))  # largest latencies at the top
    first_panel.set_ylabel("documents with at most this latency")
    grid[1][0].set_ylabel("latency in ms: p50, and p99 (thin)")
    entries = {line.get_label(): line for panel in grid[0] for line in panel.get_lines()}
    figure.legend(
        handles=list(entries.values()),
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
    )
    save(figure, path)


def _format_share_panel(panel: Axes) -> None:
    plain_log_scale(panel, horizontal=True)
    panel.set_yscale("log")
    panel.set_yticks(list(SHARES), list(SHARES.values()))
    panel.minorticks_off()
    panel.set_xlabel("latency in ms")
    style_curves(panel)


def _format_time_panel(panel: Axes, bucket_s: float) -> None:
    plain_log_scale(panel)
    panel.set_xlabel(f"seconds since the start of the run, in steps of {bucket_s:g}")
    style_curves(panel)


def _draw_shares(panel: Axes, series: Series, style: str) -> None:
    """Draw the share of documents above the upper bound of each bucket, down to one document."""
    remaining = series.overall.documents
    upper_bounds_ms: list[float] = []
    shares: list[float] = []
    for _, upper_bound_ms, documents in series.histogram:
        remaining -= documents
        if remaining:
            upper_bounds_ms.append(upper_bound_ms)
            shares.append(remaining / series.overall.documents)
    interval = "" if series.snapshot_interval_ms is None else f", {series.snapshot_interval_ms} ms"
    panel.plot(
        upper_bounds_ms,
        shares,
        color=colour_of_policy(series.policy),
        linestyle=style,
        linewidth=1.6,
        label=series.policy + interval,
    )


def _draw_percentiles(panel: Axes, series: Series, style: str) -> None:
    buckets = [(start, each.percentiles) for start, each in series.timeline if each.documents]
    for name, width in (("p50_ms", 1.8), ("p99_ms", 0.7)):
        panel.plot(
            [start for start, _ in buckets],
            [percentiles[name] for _, percentiles in buckets],
            color=colour_of_policy(series.policy),
            linestyle=style,
            linewidth=width,
        )
