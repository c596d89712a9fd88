"""The progress of a run, in figures from its fronts and its nodes.

A terminal shows it as a changing line, below bars for files; otherwise it is logged every 10 s. All
figures of a line belong to one moment: when a line is due, the nodes are polled, and once they have
answered, the figures of the fronts are read. All counts are those of this call of the command.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

from msgspec import Struct, to_builtins
from msgspec.structs import fields, replace

from driftline.connectors.outputs import count_delivered
from driftline.deploy.local.inputs.bad_records import BadRecordFile
from driftline.deploy.local.inputs.input_progress import InputFigures, InputProgress
from driftline.deploy.roles.event_time_status import EventTimeStatus, event_time_status
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.roles.window import percentile
from driftline.engine.events import Field, Fields, event_fields, log
from driftline.engine.texts import counted
from driftline.engine.ui.consoles import ProgressView

RATE_WINDOW_S = 5.0
"""Seconds over which the rate is averaged."""

DISPLAY_INTERVAL_S = 0.25
"""Seconds between two lines on a terminal."""

ANSWER_TIMEOUT_S = 0.3
"""Seconds that a line waits for the answers of nodes, which may be busy or dead; a turn takes up to
0.1 s."""

LOG_INTERVAL_S = 10.0
"""Seconds between two log lines."""


class ProgressFigures(Struct, frozen=True):
    """The progress of a run at one moment. None: unknown."""

    records: int
    """Records that this call has read, each once."""
    outputs: int
    """Outputs that this call has delivered, without dead letters."""
    dead_letters: int
    """Dead letters that this call has set aside."""
    bad_records: int
    """Unreadable records that this call has set aside."""
    records_per_s: float
    """Records read per second, over the last `RATE_WINDOW_S`."""
    undelivered: int
    """Records whose outputs are not all delivered."""
    lag_s: float
    """Age of the oldest undelivered record.

    It counts from the time when a front read the record, or when it was received.
    """
    p50_s: float | None
    """Median time from sending a record to delivering its outputs, over the last 5 s."""
    p99_s: float | None
    """The 99th percentile of these times."""
    state: str
    """State of the run, in words."""
    inputs: tuple[InputFigures, ...] = ()
    event_time: EventTimeStatus | None = None
    """Watermarks; None if the flow has no event times, or no node runs."""

    def __str__(self) -> str:
        parts = [
            counted(self.records, "record"),
            counted(self.outputs, "output"),
            *([counted(self.dead_letters, "dead letter")] if self.dead_letters else ()),
            *([counted(self.bad_records, "bad record")] if self.bad_records else ()),
            f"{self.records_per_s:,.0f} records/s",
            f"{self.undelivered:,} undelivered records",
            f"delivery lag {self.lag_s:.1f} s",
        ]
        if self.p50_s is not None and self.p99_s is not None:
            parts.append(f"latency p50 {_format_s(self.p50_s)}, p99 {_format_s(self.p99_s)}")
        event_time = "" if self.event_time is None else f"; {self.event_time}"
        return f"{', '.join(parts)}; {self.state}{event_time}"

    def with_inputs(self) -> str:
        """Return the text of `__str__`, followed by the progress of each input."""
        return "; ".join((str(self), *map(str, self.inputs)))

    def fields(self) -> dict[str, Field | Fields]:
        """Return the figures as log fields."""
        figures = {field.name: getattr(self, field.name) for field in fields(self)}
        figures["inputs"] = [each.fields() for each in self.inputs]
        event_time = figures.pop("event_time")
        return figures | ({} if event_time is None else to_builtins(event_time))


class RunProgress:
    """The progress of one run, shown on a terminal or logged."""

    def __init__(
        self,
        input_progresses: Sequence[InputProgress],
        bad_record_files: Sequence[BadRecordFile],
        output: Path,
    ) -> None:
        """Count what earlier calls delivered. Precondition: no node runs yet."""
        self.input_progresses = input_progresses
        self.bad_record_files = bad_record_files
        self._output = output
        self._outputs_before, self._failures_before = count_delivered(output)
        """Counts of the consumers before this call; nodes report them only after their start."""
        self.on_update: Callable[[float], None] = lambda now: None
        """Called in the loop every `DISPLAY_INTERVAL_S`, with the time (seconds, monotonic)."""
        self._next_update_at = 0.0
        """When to update the rate and call `on_update` next (seconds, monotonic)."""
        self._line_at = -inf
        """When the next line is due, in monotonic seconds."""
        self._answers_by = inf
        """Deadline for the nodes' answers to the line that is due; inf if none is due."""
        self._read_counts: deque[tuple[float, int]] = deque()
        """(time, records read by then) over the last `RATE_WINDOW_S`."""

    def show_if_due(self, now: float, poller: StatusPoller, view: ProgressView) -> None:
        """Show or log the figures if they are due; `now`: seconds, monotonic."""
        if now >= self._next_update_at:
            self._next_update_at = now + DISPLAY_INTERVAL_S
            self._update_rate(now)
            self.on_update(now)
            for file in self.bad_record_files:
                file.log_if_due(now)
        every_s = DISPLAY_INTERVAL_S if view.shown else LOG_INTERVAL_S
        if self._line_at == -inf and not view.shown:
            self._line_at = now + every_s
        if now >= self._line_at and self._answers_by == inf:
            self._line_at, self._answers_by = now + every_s, now + ANSWER_TIMEOUT_S
            poller.ask()
        if self._answers_by < inf and (poller.answered or now >= self._answers_by):
            self._answers_by = inf
            self._show(self.read_figures(now, poller), view)

    def _show(self, figures: ProgressFigures, view: ProgressView) -> None:
        if view.shown:
            for number, each in enumerate(figures.inputs):
                view.show(number, each.position, each.size, each.records)
            view.show_line(str(figures))
        else:
            log.info(
                "%s", figures.with_inputs(), extra=event_fields("progress", **figures.fields())
            )

    def end(self, now: float, poller: StatusPoller, view: ProgressView) -> None:
        """Show the last figures. Precondition: the run is over, and all nodes have ended."""
        for progress in self.input_progresses:
            progress.front.meter.give_up()
        outputs, failures = count_delivered(self._output)
        last = self._make_figures(now, poller, outputs, failures)
        inputs = tuple(replace(each, lag_s=0.0) for each in last.inputs)
        last = replace(last, lag_s=0.0, state="ended", inputs=inputs, event_time=None)
        for number, each in enumerate(inputs):
            view.show(number, each.position, each.size, each.records)
        view.show_line(str(last))
        log.debug("%s", last.with_inputs(), extra=event_fields("progress", **last.fields()))

    def read_figures(self, now: float, poller: StatusPoller) -> ProgressFigures:
        """Return the current figures; `now`: seconds, monotonic."""
        return self._make_figures(now, poller, poller.outputs, poller.dead_letters)

    def delivered(self) -> tuple[int, int]:
        """Return (outputs, dead letters) of this call. Precondition: all nodes have ended."""
        outputs, failures = count_delivered(self._output)
        return outputs - self._outputs_before, failures - self._failures_before

    def _make_figures(
        self, now: float, poller: StatusPoller, outputs: int, failures: int
    ) -> ProgressFigures:
        """Return the figures; `outputs`, `failures`: counts of the consumers, over all calls."""
        failures = max(failures, self._failures_before)
        fronts = [each.front for each in self.input_progresses]
        inputs = tuple(each.read_figures(now) for each in self.input_progresses)
        latencies = [latency for front in fronts for latency in front.meter.recent(now)]
        return ProgressFigures(
            self._records,
            max(outputs, self._outputs_before) - self._outputs_before,
            failures - self._failures_before,
            sum(file.new for file in self.bad_record_files),
            self._update_rate(now),
            sum(front.meter.in_flight for front in fronts),
            max(each.lag_s for each in inputs),
            percentile(latencies, 50),
            percentile(latencies, 99),
            poller.state(now),
            inputs,
            event_time_status(poller.reports.values()),
        )

    @property
    def _records(self) -> int:
        """Records that this call has read."""
        return sum(each.front.sent_records for each in self.input_progresses)

    def _update_rate(self, now: float) -> float:
        counts, records = self._read_counts, self._records
        counts.append((now, records))
        while counts[0][0] < now - RATE_WINDOW_S and len(counts) > 2:
            counts.popleft()
        since, earlier_records = counts[0]
        return (records - earlier_records) / (now - since) if now > since else 0.0


def _format_s(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
