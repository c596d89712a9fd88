"""The samples of each role: names of metrics, and what its counters say now.

Takes: roles, that run in another thread. Gives: samples, when a process is scraped. Only plain
values are read, that a loop may change meanwhile, and no lock is taken; while nobody scrapes there
is nothing to do. Protocol roles know nothing of this: what is read here are their own counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from time import monotonic

from driftline.coordinator.coordinator import Phase
from driftline.deploy.node.node import Node
from driftline.deploy.roles.candidate import Candidate
from driftline.deploy.roles.master import Master
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.engine.meters import Histogram
from driftline.engine.wire.party import Party

Value = float | Histogram

Sample = tuple[str, tuple[str, ...], Value]
"""(name of a metric, values of its labels but `flow`, value)"""

Samples = Callable[[], Iterable[Sample]]


@cache
def our_version() -> str:
    """The version of Driftline."""
    from importlib.metadata import PackageNotFoundError, version  # a tenth of a process's start

    try:
        return version("driftline")
    except PackageNotFoundError:  # a checkout that is not installed
        return "unknown"


class OfProcess:
    """The samples of every process that has a loop; `name`: as in log lines."""

    def __init__(
        self, name: str, runtime: Runtime, parties: Callable[[], Sequence[Party]] | None = None
    ) -> None:
        """`parties`: gives those to tell of; by default all that the runtime drives."""
        self._name = name
        self._runtime = runtime
        self._parties = parties or (lambda: runtime.parties)
        self._began = monotonic()
        self._busy = 0.0

    def __call__(self) -> Iterator[Sample]:
        parties, name = self._parties(), (self._name,)
        now = monotonic()
        # A counter must not go back by the moment between two reads.
        self._busy = max(self._busy, now - self._began - self._runtime.idle.total(now))
        yield "driftline_process_info", (self._name, our_version()), 1
        yield "driftline_busy_seconds_total", name, self._busy
        malformed = sum(party.malformed for party in parties)
        yield "driftline_malformed_messages_total", name, malformed
        yield "driftline_obstacles", name, sum(len(party.obstacles) for party in parties)
        yield "driftline_incarnation", name, max(party.incarnation for party in parties)
        yield "driftline_master_epoch", name, max(party.epoch for party in parties)


class OfNode:
    """The samples of a node."""

    _COUNTERS = (
        ("driftline_outputs_total", "outputs"),
        ("driftline_dead_letters_total", "dead_letters"),
        ("driftline_elements_total", "elements"),
        ("driftline_late_elements_total", "late"),
        ("driftline_reapplied_elements_total", "reapplied"),
        ("driftline_keys", "keys"),
        ("driftline_frames_total", "frames"),
    )
    _GAUGES = (
        ("driftline_consumer_waiting_bytes", "waiting_bytes"),
        ("driftline_snapshot_waiting_bytes", "unsaved_bytes"),
        ("driftline_snapshot_bytes", "snapshot_bytes"),
        ("driftline_snapshot_written_bytes_total", "written_bytes"),
        ("driftline_restored_ratio", "restored"),
    )

    def __init__(self, node: Node) -> None:
        self._node = node

    def __call__(self) -> Iterator[Sample]:
        node, label = self._node, (self._node.name,)
        figures, gauges = node.figures(), node.gauges()
        for name, figure in self._COUNTERS:
            if figure in figures:  # not of a consumer that is a process of its own
                yield name, label, figures[figure]
        for name, gauge in self._GAUGES:
            yield name, label, gauges[gauge]
        yield "driftline_node_running", label, node.running
        yield "driftline_brake_seconds_total", label, node.brake.held.total(monotonic())


class OfMaster:
    """The samples of the master."""

    def __init__(self, master: Master) -> None:
        self._master = master

    def __call__(self) -> Iterator[Sample]:
        coordinator = self._master.coordinator
        snapshots, phase = coordinator.snapshots, coordinator.phase
        yield "driftline_master_leads", (self._master.name,), coordinator.leads
        for each in Phase:
            yield "driftline_phase", (each.name.lower(),), each is phase
        yield "driftline_recoveries_total", (), coordinator.recoveries
        yield "driftline_recovery_duration_seconds", (), coordinator.recovery_durations
        yield "driftline_snapshots_total", (), snapshots.committed
        yield "driftline_snapshot_failures_total", (), snapshots.failures
        yield "driftline_snapshot_duration_seconds", (), snapshots.durations
        pending_s = snapshots.pending_s(monotonic())
        yield "driftline_snapshot_pending_seconds", (), pending_s


class OfCandidate:
    """The samples of one of several masters: all of a master's once it leads."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate

    def __call__(self) -> Iterator[Sample]:
        if (master := self._candidate.master) is None:
            yield "driftline_master_leads", (self._candidate.name,), 0
        else:
            yield from OfMaster(master)()
