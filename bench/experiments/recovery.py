"""Recovery experiment: kill -9 under load, and its effect on latency.

The model is Figure 9 of the paper "Delivery, consistency, and determinism". Each trial starts a new
local cluster, as `driftline run` does, and once kills a node, or the master and all nodes. Each
round has a trial of every row; the moment of the kill differs from round to round. Documents arrive
at a constant rate instead of as a Poisson process, so a gap between outputs comes from the system.

The time from the kill to the first new output has four parts, computed from log events (all
processes of a machine share one clock):

    detection  until the supervisor has noticed the exit (the last one if there are several)
    restart    until all members are present and the new incarnation is in the registry
    restore    until all nodes have loaded the snapshot, and fetched the consumer's t_last
    replay     until the first output arrives after the restore

Outputs that surviving processes had ready may still arrive after the kill; the first *new* output
is the first one that arrives after the restore.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from time import monotonic, perf_counter, time

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console

from driftline.bench.experiments.report import (
    COUNTS,
    ExperimentReport,
    FigureColumn,
    KeyColumn,
    Row,
)
from driftline.bench.experiments.rounds import RunLines
from driftline.bench.measuring.corpus import Documents, expected_outputs
from driftline.bench.measuring.loops import open_loop, steady_schedule
from driftline.bench.measuring.meter import Arrival, RunMeter
from driftline.bench.systems.engine import Engine
from driftline.engine.errors import Unavailable
from driftline.engine.events import FIELDS, log
from driftline.engine.texts import counted
from driftline.engine.ui.pictures import (
    INK,
    colours_of,
    new_figure,
    plain_log_scale,
    save,
    style_curves,
)

LOAD_BEFORE_KILL_S, LOAD_AFTER_KILL_S = 3.0, 3.0
"""Minimum duration of the load before a kill, so that snapshots exist; and minimum after it."""

RECOVERY_TIMEOUT_S = 60.0
"""Timeout of a recovery, counted from the end of the load."""

SUPERVISION_INTERVAL_S = 0.05
"""Interval of supervision, as in a run; an exit is noticed at once."""

DRAWN_INTERVAL_S = (-1.0, 3.0)
"""(start, end) of the interval that the picture shows, in seconds since the kill."""

KEYS = (KeyColumn("killed", "killed"),)
FIGURES = (
    FigureColumn("first_output_ms", "first output"),
    FigureColumn("first_output_max_ms", "max", combine=max, run_field="first_output_ms"),
    FigureColumn("detection_ms", "detection"),
    FigureColumn("restart_ms", "restart"),
    FigureColumn("restore_ms", "restore"),
    FigureColumn("replay_ms", "replay"),
    *COUNTS,
)


class Kill(Struct, frozen=True):
    """The victim of a kill: "node" or "all"."""

    killed: str

    def __str__(self) -> str:
        return self.killed


RecoveryRow = Row[Kill]


def report_of(rows: Sequence[RecoveryRow], rate: float, interval_ms: int) -> ExperimentReport[Kill]:
    """Return the report of rows with the same load."""
    trials = max((len(row.runs) for row in rows), default=0)
    title = f"Recovery from kill -9 at {rate:g} documents a second, snapshot every {interval_ms} ms"
    return ExperimentReport(
        settings={"rate": rate, "snapshot_interval_ms": interval_ms},
        keys=KEYS,
        columns_by_title={title: FIGURES},
        rows=rows,
        notes=[
            f"Medians of {counted(trials, 'trial')}, in ms; max: the longest. First output: "
            "from kill -9 to the first output that arrives after the restore."
        ],
        note_if_correct="Checked: no output was lost, and none came twice.",
        problem_ending="but a recovery must neither lose nor repeat any",
    )


def documents_needed(rate: float, interval_ms: int) -> int:
    """Return the number of documents that a trial needs."""
    return round((LOAD_BEFORE_KILL_S + interval_ms / 1000 + LOAD_AFTER_KILL_S) * rate)


def measure_recovery(
    documents: Documents,
    kills: Sequence[Kill],
    trials: int,
    rate: float,
    interval_ms: int,
    nodes: int,
    seed: int,
    console: Console,
) -> ExperimentReport[Kill]:
    """Run all kills, `trials` times in turn."""
    rows = [Row(kill, [], samples={"latencies": []}) for kill in kills]
    lines = RunLines(console, trials * len(rows))
    random = Random(seed)
    for _ in range(trials):
        kill_at_s = LOAD_BEFORE_KILL_S + random.uniform(0, interval_ms / 1000)
        kill_before_document = round(kill_at_s * rate)
        for number, row in enumerate(rows):
            lines.begin(row.case)
            engine = KilledEngine(
                documents, row.case, kill_before_document, nodes, interval_ms / 1000
            )
            run, latencies = _trial(engine, documents, rate)
            samples = {"latencies": [*row.samples["latencies"], *latencies]}
            rows[number] = replace(row, runs=[*row.runs, run], samples=samples)
            lines.end(f"first new output after {run['first_output_ms']:.0f} ms")
    return report_of(rows, rate, interval_ms)


def _trial(
    engine: KilledEngine, documents: Documents, rate: float
) -> tuple[dict[str, float], list[tuple[float, float]]]:
    """Run a trial. Return its figures, and a pair for each document with a latency.

    The pair is (due time since the kill in s, latency in ms).
    """
    meter = RunMeter(expected_outputs(documents))
    with collect_log_events() as events, engine:
        open_loop(engine, meter, steady_schedule(len(documents), rate))
        kill_time = engine.killed_at()
        exit_time, load_time, running_time = engine.await_recovery(events)
    outputs_after_restore = (each for each in engine.arrival_times if each >= running_time)
    output_time = next(outputs_after_restore, running_time)
    load_before_kill_s = kill_time - meter.first_sent_s
    run = {
        "first_output_ms": 1000 * (output_time - kill_time),
        "detection_ms": 1000 * (exit_time - kill_time),
        "restart_ms": 1000 * (load_time - exit_time),
        "restore_ms": 1000 * (running_time - load_time),
        "replay_ms": 1000 * (output_time - running_time),
        "lost": meter.lost,
        "duplicated": meter.duplicated,
    }
    latencies = [
        (document.at_s - load_before_kill_s, document.latency_ms)
        for document in meter.documents()
        if document.latency_ms is not None
    ]
    return run, latencies


class KilledEngine(Engine):
    """A supervised local cluster, as in a run, that kills some of its own processes."""

    def __init__(
        self,
        documents: Documents,
        kill: Kill,
        kill_before_document: int,
        nodes: int,
        snapshot_interval_s: float,
    ) -> None:
        """Prepare a cluster; `kill` happens right before the document with this number is sent."""
        super().__init__(
            documents,
            "exactly-once",
            nodes=nodes,
            snapshot_interval_s=snapshot_interval_s,
            log_level=logging.INFO,
        )
        self.arrival_times: list[float] = []
        """Arrival times of outputs by `perf_counter`, in order."""
        self._kill, self._kill_before_document = kill, kill_before_document
        self._killed_at: float | None = None
        self.cluster.wake(self.runtime)

    def killed_at(self) -> float:
        """Return the time of the kill, by `perf_counter`. Raises Unavailable if none happened."""
        if self._killed_at is None:
            raise Unavailable("the run ended before the kill")
        return self._killed_at

    def send(self, number: int) -> None:
        """Send document `number`; if the kill is due, kill first."""
        if self._killed_at is None and number >= self._kill_before_document:
            pids = self.cluster.pids
            self._killed_at = perf_counter()
            for pid in pids.values() if self._kill.killed == "all" else [pids["node-0"]]:
                with suppress(ProcessLookupError):  # the process exited with its parent
                    os.kill(pid, signal.SIGKILL)
        super().send(number)

    def receive(self) -> list[Arrival]:
        """Return the outputs that arrived since the last call."""
        arrivals = super().receive()
        self.arrival_times += [arrival_time for _, _, arrival_time in arrivals]
        self._supervise()
        return arrivals

    def wait(self, timeout_ms: int) -> None:
        """Sleep until an output arrives or a process exits, at most `timeout_ms`."""
        super().wait(timeout_ms)
        self._supervise()

    def await_recovery(self, events: Sequence[tuple[str, float]]) -> tuple[float, float, float]:
        """Wait for the end of the recovery; on a busy machine it may outlast the load.

        Return the times at which the supervisor noticed the last exit, the nodes began to load, and
        the run resumed. If members restarted one after the other, there were several recoveries,
        and the times are those of the last one. All times are by `perf_counter`. Raises Unavailable
        after RECOVERY_TIMEOUT_S, or if no kill happened.
        """
        kill_time, deadline = self.killed_at(), monotonic() + RECOVERY_TIMEOUT_S
        while True:
            exits, loads, resumptions = (
                sorted(at for name, at in events if name == event and at >= kill_time)
                for event in ("process-died", "load", "running")
            )
            loads = [at for at in loads if resumptions and at < resumptions[-1]]
            if exits and loads:
                return exits[-1], loads[-1], resumptions[-1]
            if monotonic() > deadline:
                raise Unavailable(
                    f"the run did not recover from the kill within {RECOVERY_TIMEOUT_S:g} s"
                )
            self.receive()
            self.wait(50)

    def _supervise(self) -> None:
        now = monotonic()
        if self.cluster.is_due(now):
            self.cluster.supervise(self.front.completed, self.front.max_sent_time)


@contextmanager
def collect_log_events() -> Iterator[list[tuple[str, float]]]:
    """Collect Driftline's log events, including those of its processes, instead of printing them.

    An event is (name, time in seconds). Its time is converted to `perf_counter`, which meters use,
    too, and is exact to a microsecond.
    """
    events: list[tuple[str, float]] = []
    clock_difference_s = time() - perf_counter()

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            event = str(getattr(record, FIELDS, {}).get("event"))
            events.append((event, record.created - clock_difference_s))

    collector, previous_settings = Collector(), (log.level, log.propagate)
    log.addHandler(collector)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield events
    finally:
        log.removeHandler(collector)
        log.level, log.propagate = previous_settings


def draw_recovery(recoveries: ExperimentReport[Kill], path: Path) -> None:
    """Draw the latency of documents over the time since the kill, with a panel per victim."""
    rows = recoveries.rows
    victims = list(dict.fromkeys(row.case.killed for row in rows))
    colours = colours_of(victims)
    figure = new_figure(1.4 + 4.0 * len(victims), 4.2)
    grid = figure.subplots(1, len(victims), sharey=True, squeeze=False)
    start_s, end_s = DRAWN_INTERVAL_S
    for panel, victim in zip(grid[0], victims, strict=True):
        for row in rows:
            if row.case.killed != victim:
                continue
            points = [point for point in row.samples["latencies"] if start_s <= point[0] <= end_s]
            panel.scatter(
                [due_s for due_s, _ in points],
                [ms for _, ms in points],
                s=7,
                alpha=0.5,
                linewidths=0,
                color=colours[victim],
                label=victim,
            )
        panel.axvline(0, color=INK, linewidth=0.8)
        style_curves(panel)
        plain_log_scale(panel)
        panel.set_title(f"kill -9: {victim}")
        panel.set_xlabel("document due, in s since the kill")
        panel.legend(frameon=False, markerscale=2)
    grid[0][0].set_ylabel("latency in ms")
    trials = max(len(row.runs) for row in rows)
    figure.suptitle(
        f"{recoveries.settings['rate']:g} documents a second, "
        f"snapshot every {recoveries.settings['snapshot_interval_ms']} ms; "
        f"all documents of {counted(trials, 'trial')}",
        fontsize=10,
        color=INK,
    )
    save(figure, path)
