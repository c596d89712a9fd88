"""Recovery, as in Figure 9 of the paper: kill -9 while documents come, and what becomes of latency.

Each trial has a new cluster, of which something is killed once, at a moment that differs from trial
to trial. All rows take turns. Documents come evenly, not as a Poisson process: so a gap between
outputs is one of the system. The time from the kill to the first new output has four parts, told
by log events (all processes of a machine have one clock):

    detection  until the death was noticed (of several: the last one): by the supervisor; of a
               host, by what starts its agents; of a master, by the one that leads next
    restart    until all members are there, and the new incarnation is in the registry
    restore    until all nodes have the state of the snapshot, and the consumer's t_last
    replay     until the first output arrives after that

What the others had ready at the moment of the kill may still leave after it; the first *new* output
is one that the recovery has made. Without the master outputs go on, and the next one takes over
without a recovery: nothing is restored. So there it is not the time since the kill that counts, but
the longest gap between two outputs, from the last one before the kill to the first one under the
new master. The gap between two documents is part of it. `restart` is the time until it decides.

A node, and all, are killed in the local cluster of a run, whose front is in this process, as in the
command. The others are killed in a cluster of agents with ZooKeeper (`bench.systems.hosts`)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from time import monotonic
from typing import Protocol, Self

from rich.console import Console

from driftline.bench.experiments.rounds import RunLines
from driftline.bench.measuring.corpus import Documents, expected_outputs
from driftline.bench.measuring.loops import System, open_loop, steady_schedule
from driftline.bench.measuring.meter import Meter
from driftline.bench.measuring.story import Story
from driftline.bench.report.recoveries import Recovery, RecoveryRow
from driftline.bench.systems.death import Death
from driftline.bench.systems.hosts import Hosts
from driftline.bench.systems.mortal import Mortal
from driftline.deploy.zookeeper.ensemble import Ensemble
from driftline.engine.errors import Unavailable

BEFORE_S, AFTER_S = 3.0, 3.0
"""How long documents come before a kill, at least, so that there are snapshots and a spare; and
after it: longer than it takes until another master decides."""

PATIENCE_S = 60.0
"""How long a recovery may take beyond that."""

LOCAL = ("node", "all")
"""What is killed in a local cluster."""

NO_SPARES = ("host",)
"""What takes its spares with it."""


class Victim(System, Protocol):
    """A system that is killed while it is measured."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def log_lines(self) -> Iterable[str]:
        """The log lines that others have told, as JSON objects."""


def documents_of(rate: float, interval_s: float) -> int:
    """How many documents a trial needs."""
    return round((BEFORE_S + interval_s + AFTER_S) * rate)


def measure_recovery(
    documents: Documents,
    killed: Sequence[str],
    spares: Sequence[int],
    trials: int,
    rate: float,
    interval_s: float,
    nodes: int,
    seed: int,
    console: Console,
) -> list[RecoveryRow]:
    """Run all rows, `trials` times in turn."""
    rows = [
        RecoveryRow(what, number, [])
        for what in killed
        for number in spares
        if not number or what not in NO_SPARES
    ]
    lines = RunLines(console, trials * len(rows))
    chance = Random(seed)
    given = _Given(documents, rate, interval_s, nodes)
    with _zookeeper(needed=any(row.killed not in LOCAL for row in rows)) as zookeeper:
        for trial in range(trials):
            kill_with = round((BEFORE_S + chance.uniform(0, interval_s)) * rate)
            for row in rows:
                lines.begin(row)
                death = Death(kill_with)
                path = f"{zookeeper}/{row.killed}-{row.spares}-{trial}"
                recovery = _trial(given.victim(row, death, path), row.killed, death, given)
                row.trials.append(recovery)
                lines.end(f"first new output after {recovery.first_output_ms:.0f} ms")
    return rows


@contextmanager
def _zookeeper(*, needed: bool) -> Iterator[str]:
    """The address of a server for all trials. Raises Unavailable."""
    if not needed:
        yield ""
        return
    directory = tempfile.TemporaryDirectory(prefix="driftline-bench-")
    with directory as path, Ensemble(Path(path)) as ensemble:
        ensemble.wait_until_ready()
        yield ensemble.addresses


@dataclass(frozen=True, slots=True)
class _Given:
    """What all trials share."""

    documents: Documents
    rate: float
    interval_s: float
    nodes: int

    def victim(self, row: RecoveryRow, death: Death, zookeeper: str) -> Victim:
        """The system of a trial; `zookeeper`: where its registry is, if it is a cluster."""
        spares, nodes, interval_s = row.spares, self.nodes, self.interval_s
        if row.killed in LOCAL:
            return Mortal(
                *(self.documents, row.killed, death),
                spares=spares,
                nodes=nodes,
                checkpoint_s=interval_s,
            )
        return Hosts(
            *(self.documents, row.killed, death),
            spares=spares,
            nodes=nodes,
            checkpoint_s=interval_s,
            zookeeper=zookeeper,
        )


def _trial(system: Victim, killed: str, death: Death, given: _Given) -> Recovery:
    meter = Meter(expected_outputs(given.documents))
    with Story() as story, system:
        open_loop(system, meter, steady_schedule(len(given.documents), given.rate))
        kill = death.at
        detected, loading, running = _recovered(system, story, kill)
    # After all outputs a master may still take over.
    first = next((at for at in death.arrived_at if at >= running), running)
    stopped = _longest_gap_s(death.arrived_at, kill, first) if killed == "master" else first - kill
    began = kill - meter.first_sent_s
    return Recovery(
        1000 * stopped,
        1000 * (detected - kill),
        1000 * (loading - detected),
        1000 * (running - loading),
        1000 * (first - running),
        meter.lost,
        meter.duplicated,
        [
            (sent.at_s - began, sent.latency_ms)
            for sent in meter.documents()
            if sent.latency_ms is not None
        ],
    )


def _recovered(system: Victim, story: Story, kill: float) -> tuple[float, float, float]:
    """`_told`, once it can be: on a busy machine that may take longer than the documents."""
    give_up_at = monotonic() + PATIENCE_S
    while True:
        story.hear(system.log_lines())
        try:
            return _told(story, kill)
        except Unavailable:
            if monotonic() > give_up_at:
                raise
        system.receive()
        system.wait(50)


def _told(story: Story, kill: float) -> tuple[float, float, float]:
    """When deaths were noticed, the nodes began to load, and the run went on.

    If something was recovered twice, as members have come one after the other, the last time. A
    master that takes over lets the run go on at once.
    """
    taken_over = story.times("taken-over", kill)
    try:
        if taken_over:
            leads = story.times("leads", kill)[-1]
            return leads, taken_over[-1], taken_over[-1]
        running = story.times("running", kill)[-1]
        loading = [at for at in story.times("load", kill) if at < running][-1]
        return story.times("process-died", kill)[-1], loading, running
    except IndexError:
        raise Unavailable("the run has not recovered from the kill") from None


def _longest_gap_s(arrived_at: Sequence[float], kill: float, first: float) -> float:
    """The longest gap between two outputs that has ended between `kill` and `first`."""
    return max(b - a for a, b in pairwise(arrived_at) if kill <= b <= first)
