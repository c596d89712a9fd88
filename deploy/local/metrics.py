"""Metrics of inputs, served by the process that runs their fronts.

On one machine that process is the command, which also reports how often it restarted its child
processes. In a cluster, each front has a process of its own. Once a second while metrics are
served, the loop copies the figures that only its thread may read; a scrape reads all other figures
directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic

from driftline.deploy.local.inputs.bad_records import BadRecordFile
from driftline.deploy.local.inputs.input_progress import InputFigures, InputProgress
from driftline.deploy.local.progress import RunProgress
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.heartbeat import Heartbeat
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.metrics.roles import Context, fronts_ready, serve_command
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.flow.flow import Flow
from driftline.engine.meters import Sample

METRICS_UPDATE_S = 1.0
"""Interval in seconds at which the loop updates the figures."""


class InputSamples:
    """Samples of the inputs whose fronts run in this process."""

    def __init__(self, inputs: Sequence[tuple[str, InputProgress, BadRecordFile]]) -> None:
        """Create samples of inputs.

        `inputs`: for each source, its name in the flow, its progress, and its bad records.
        """
        self._inputs = inputs
        self._next_update_at = 0.0
        self._last_update: tuple[float, tuple[InputFigures, ...]] = (0.0, ())
        """(time of the loop's last update, the figures)."""

    def update(self, now: float) -> None:
        """Update the figures of the inputs if they are due; `now`: seconds, monotonic."""
        if now >= self._next_update_at:
            self._next_update_at = now + METRICS_UPDATE_S
            figures = tuple(each.read_figures(now) for _, each, _ in self._inputs)
            self._last_update = now, figures

    def __call__(self) -> Iterator[Sample]:
        now = monotonic()
        for source, input_progress, bad_records in self._inputs:
            label, front = (source,), input_progress.front
            yield "driftline_records_total", label, front.sent_records
            yield "driftline_bad_records_total", label, bad_records.new
            yield "driftline_delivery_latency_seconds", label, front.meter.latencies
            yield "driftline_undelivered_records", label, front.meter.in_flight
            yield "driftline_in_flight_records", label, front.window.in_flight
            yield "driftline_in_flight_bytes", label, front.window.bytes
            full_s = front.window_full_time.total(now)
            yield "driftline_in_flight_limit_seconds_total", label, full_s
        at, figures = self._last_update
        for (source, _, _), latest in zip(self._inputs, figures, strict=bool(figures)):
            overdue = now - at - 2 * METRICS_UPDATE_S  # the loop may be held up by a source
            lag_s = latest.lag_s + overdue if latest.lag_s and overdue > 0.0 else latest.lag_s
            yield "driftline_frontier_lag_seconds", (source,), lag_s
            if latest.waiting is not None:
                yield "driftline_waiting_records", (source,), latest.waiting
            if latest.producers is not None:
                yield "driftline_producers", (source,), latest.producers


def restarts(cluster: LocalCluster) -> Iterator[Sample]:
    """Yield how often each process was restarted. Thread-safe."""
    for name in cluster.pids:
        yield "driftline_process_restarts_total", (name,), cluster.restarts_of[name]


def serve_metrics(
    flow: Flow,
    process: ProcessConfig,
    runtime: Runtime,
    heartbeat: Heartbeat,
    progress: RunProgress,
    cluster: LocalCluster,
) -> Context:
    """Return a context in which the command serves its metrics, if `process.metrics` is set."""
    sources = [source.name for source in flow.sources]
    all_inputs = zip(sources, progress.input_progresses, progress.bad_record_files, strict=True)
    inputs = InputSamples(list(all_inputs))

    def samples() -> Iterator[Sample]:
        yield from inputs()
        yield from restarts(cluster)

    if process.metrics:
        progress.on_update = inputs.update
    ready = fronts_ready([each.front for each in progress.input_progresses])
    return serve_command(process.metrics, flow.name, runtime, ready, heartbeat, samples)
