"""Catalogue of all metrics: names, kinds, labels and help texts.

Names follow Prometheus' conventions: base units, `_total` for counters. All metrics have the label
`flow`; it is empty for those about an agent of a cluster itself. No label value depends on data:
no metric has a label for a key, a time or a record.

Counters start at 0 with each process. The counters of a node start at 0 with each incarnation,
except counts of what the consumer has stored. Prometheus' functions `rate` and `increase` handle
these resets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from driftline.engine.meters import Histogram, Sample, Samples, Value

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Family(Struct, frozen=True):
    """Definition of a metric."""

    name: str
    kind: str
    labels: tuple[str, ...]
    """Names of its labels except `flow`."""
    help: str

    def metric(self, samples: Sequence[tuple[tuple[str, ...], Value]] = ()) -> Metric:
        """Return the metric with these (label values, value) samples; the flow is label 0."""
        names = ["flow", *self.labels]
        if self.kind == HISTOGRAM:
            histogram = HistogramMetricFamily(self.name, self.help, labels=names)
            for labels, value in samples:
                assert isinstance(value, Histogram)
                histogram.add_metric(labels, _buckets(value), value.sum)
            return histogram
        family_class = CounterMetricFamily if self.kind == COUNTER else GaugeMetricFamily
        family = family_class(self.name, self.help, labels=names)
        for labels, value in samples:
            assert not isinstance(value, Histogram)
            family.add_metric(labels, value)
        return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return (upper bound, number of values up to this bound) pairs, in Prometheus' form."""
    total, buckets = 0, []
    counts = list(histogram.counts)
    for bound, count in zip((*histogram.bounds, None), counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound is None else str(float(bound)), float(total)))
    return buckets


_PROCESS, _NODE, _SOURCE, _OPERATOR = ("process",), ("node",), ("source",), ("node", "operator")

FAMILIES = (
    # Every process.
    Family("driftline_process_info", GAUGE, ("process", "version"), "Always 1."),
    Family(
        "driftline_busy_seconds_total", COUNTER, _PROCESS,
        "Seconds in which the loop of the process did not wait for messages.",
    ),
    Family(
        "driftline_malformed_messages_total", COUNTER, _PROCESS,
        "Messages dropped as malformed or not permitted, and messages that could not be sent.",
    ),
    Family(
        "driftline_obstacles", GAUGE, _PROCESS,
        "Disks and consumers that the process waits for because they fail or do not answer.",
    ),
    Family("driftline_incarnation", GAUGE, _PROCESS, "Incarnation that the process is in."),
    Family(
        "driftline_master_epoch", GAUGE, _PROCESS,
        "Epoch of the newest master that the process knows of.",
    ),
    # Nodes.
    Family("driftline_node_running", GAUGE, _NODE, "1 if the node runs, 0 while it recovers."),
    Family(
        "driftline_restored_ratio", GAUGE, _NODE,
        "Restored fraction of the snapshot that the node recovers from, from 0 to 1.",
    ),
    Family("driftline_outputs_total", COUNTER, _NODE,
           "Outputs that the consumer has stored, over all calls of the command."),
    Family("driftline_dead_letters_total", COUNTER, _NODE,
           "Failed elements that the consumer has stored, over all calls of the command."),
    Family("driftline_elements_total", COUNTER, _NODE, "Elements passed to keyed operators."),
    Family("driftline_out_of_order_elements_total", COUNTER, _NODE,
           "Elements that arrived after one of their key with a larger label."),
    Family("driftline_reapplied_elements_total", COUNTER, _NODE,
           "Elements that were undone and applied again because of an out-of-order element."),
    Family("driftline_keys", GAUGE, _OPERATOR, "Keys with state of a keyed operator."),
    Family("driftline_frames_total", COUNTER, _NODE, "Frames that the node has made."),
    Family("driftline_consumer_waiting_bytes", GAUGE, _NODE,
           "Bytes of released outputs that the consumer has not stored."),
    Family("driftline_snapshot_waiting_bytes", GAUGE, _NODE,
           "Bytes of changes that wait for the next snapshot."),
    Family("driftline_backpressure_seconds_total", COUNTER, _NODE,
           "Seconds in which the node paused because its consumer or snapshots were slow."),
    Family("driftline_snapshot_bytes", GAUGE, _NODE,
           "Size of the node's part of the last snapshot."),
    Family("driftline_snapshot_written_bytes_total", COUNTER, _NODE,
           "Size of all parts of snapshots that the node has written."),
    # Nodes whose flow has operators with event times.
    Family("driftline_source_watermark_timestamp_seconds", GAUGE, ("node", "source"),
           "Watermark of a source; absent before its first record, and after its end."),
    Family("driftline_operator_watermark_timestamp_seconds", GAUGE, _OPERATOR,
           "Watermark of an operator; absent before the first record, and after the end."),
    Family("driftline_late_elements_total", COUNTER, _OPERATOR,
           "Elements too late for all their windows, or that may miss partners in a join; an "
           "element of a replay counts again."),
    Family("driftline_open_windows", GAUGE, _OPERATOR, "Open windows, over all keys."),
    Family("driftline_timers", GAUGE, _OPERATOR,
           "Timers that are set, over all keys; each open window has one."),
    # A master.
    Family(
        "driftline_master_leads", GAUGE, _PROCESS,
        "1 if this master leads the flow, 0 while it starts or stands by.",
    ),
    Family("driftline_phase", GAUGE, ("phase",), "1 for the phase of the run, 0 for all others."),
    Family("driftline_recoveries_total", COUNTER, (), "Recoveries that were started."),
    Family("driftline_recovery_duration_seconds", HISTOGRAM, (),
           "From the detection of the reason for a recovery until all nodes are ready."),
    Family("driftline_snapshots_total", COUNTER, (), "Snapshots that were committed."),
    Family("driftline_snapshot_failures_total", COUNTER, (),
           "Parts of snapshots that nodes could not write."),
    Family("driftline_snapshot_duration_seconds", HISTOGRAM, (),
           "From the start of a snapshot until its commit."),
    Family("driftline_snapshot_pending_seconds", GAUGE, (),
           "Age of the snapshot in progress; 0 without one."),
    # Fronts: in the command's own process; in a cluster, each in a process of its own.
    Family("driftline_records_total", COUNTER, _SOURCE,
           "Records that this call has read; a replayed record counts once."),
    Family("driftline_bad_records_total", COUNTER, _SOURCE,
           "Records that could not be read, and that this call has set aside."),
    Family("driftline_frontier_lag_seconds", GAUGE, _SOURCE,
           "Age of the oldest record whose outputs are not all delivered."),
    Family("driftline_delivery_latency_seconds", HISTOGRAM, _SOURCE,
           "From sending a record to a node until its outputs are at the consumer."),
    Family("driftline_undelivered_records", GAUGE, _SOURCE,
           "Records that were sent to nodes and whose outputs are not all delivered."),
    Family("driftline_in_flight_records", GAUGE, _SOURCE, "Records of the source in flight."),
    Family("driftline_in_flight_bytes", GAUGE, _SOURCE, "Bytes of these records."),
    Family("driftline_in_flight_limit_seconds_total", COUNTER, _SOURCE,
           "Seconds in which no record could be sent because too many were in flight."),
    Family("driftline_waiting_records", GAUGE, _SOURCE,
           "Records in the input log that no front has read yet."),
    Family("driftline_producers", GAUGE, _SOURCE, "Connections of producers."),
    Family("driftline_process_restarts_total", COUNTER, _PROCESS,
           "Restarts of the process after it died or was killed."),
    # An agent of a cluster.
    Family("driftline_agent_info", GAUGE, ("agent", "roles"), "Always 1."),
    Family("driftline_agent_slots", GAUGE, (),
           "Maximum number of nodes and fronts, of all flows together, that the agent runs."),
    Family("driftline_agent_reaches_cluster", GAUGE, (),
           "1 if the agent's last attempt to read the cluster's state succeeded."),
    Family("driftline_agent_processes", GAUGE, (), "Processes of the flow that run at the agent."),
    Family("driftline_agent_problem", GAUGE, (),
           "1 if something keeps the flow from running at the agent."),
)  # fmt: skip

CATALOGUE = {family.name: family for family in FAMILIES}

TaggedSamples = Callable[[], Iterable[tuple[str, Sample]]]
"""Returns the current samples as (name of the flow, sample) pairs."""


def tag_with_flow(flow: str, *samples: Samples) -> TaggedSamples:
    """Return a source of samples that all belong to one flow."""
    return lambda: ((flow, sample) for each in samples for sample in each())


class ProcessMetrics(Collector):
    """Metrics of one process."""

    def __init__(self, read_samples: TaggedSamples) -> None:
        self._read_samples = read_samples

    def describe(self) -> Iterator[Metric]:
        """Return the metrics without samples, for clients that select some by name (`name[]`)."""
        return (family.metric() for family in FAMILIES)

    def collect(self) -> Iterator[Metric]:
        """Return the current metrics."""
        samples_by_name: dict[str, list[tuple[tuple[str, ...], Value]]] = {}
        for flow, (name, labels, value) in self._read_samples():
            samples_by_name.setdefault(name, []).append(((flow, *labels), value))
        for name, values in samples_by_name.items():
            yield CATALOGUE[name].metric(values)


def registry_of(read_samples: TaggedSamples) -> CollectorRegistry:
    """Return a registry with these metrics and those of the process: memory, CPU time, files."""
    registry = CollectorRegistry()
    registry.register(ProcessMetrics(read_samples))
    ProcessCollector(registry=registry)
    return registry
