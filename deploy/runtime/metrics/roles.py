"""Metrics and health of each role, and the context managers that serve them.

The `serve_*` functions take the role, its runtime, and the configuration of the process or the
address, which says whether and where to serve; they return a context manager. Prometheus' libraries
are imported only if used.

*Healthy*: the loop has turned recently; or it is busy with one turn, and the heartbeat, a thread
beside it, reports that the process lives. *Ready*: a node runs, with its state and the answer of
its consumer; the master has all nodes at work, or stands by; fronts have started to read.

A scrape reads the roles' own counters without locks, while the loop may change them. Without
scrapes there is no work. Protocol roles do not know about metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from time import monotonic

from driftline.coordinator.coordinator import Phase
from driftline.deploy.node.node import Node
from driftline.deploy.roles.candidate import Candidate
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.master import Master
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.logs import COMMAND
from driftline.deploy.runtime.loop.heartbeat import Heartbeat
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.metrics.endpoint import Endpoint, port_file_path
from driftline.engine.event_time import ENDED, NEVER
from driftline.engine.meters import Sample, Samples
from driftline.engine.operators.windowed import Windowed
from driftline.engine.wire.role import Role


@cache
def our_version() -> str:
    """Return the version of Driftline."""
    # Imported here: the import takes a tenth of the time in which a process starts.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("driftline")
    except PackageNotFoundError:  # a checkout that is not installed
        return "unknown"


class ProcessSamples:
    """Samples of every process that has a loop; `name`: as in log lines."""

    def __init__(
        self, name: str, runtime: Runtime, roles: Callable[[], Sequence[Role]] | None = None
    ) -> None:
        """`roles`: returns the roles to report; by default all that the runtime drives."""
        self._name = name
        self._runtime = runtime
        self._find_roles = roles or (lambda: runtime.roles)
        self._began = monotonic()
        self._busy = 0.0

    def __call__(self) -> Iterator[Sample]:
        roles, name = self._find_roles(), (self._name,)
        now = monotonic()
        # The loop may change `idle` after `now` was read; a counter must not decrease.
        self._busy = max(self._busy, now - self._began - self._runtime.idle.total(now))
        yield "driftline_process_info", (self._name, our_version()), 1
        yield "driftline_busy_seconds_total", name, self._busy
        malformed = sum(role.malformed for role in roles)
        yield "driftline_malformed_messages_total", name, malformed
        yield "driftline_obstacles", name, sum(len(role.obstacles) for role in roles)
        yield "driftline_incarnation", name, max(role.incarnation for role in roles)
        yield "driftline_master_epoch", name, max(role.epoch for role in roles)


_NODE_FIGURES = (
    ("driftline_outputs_total", "outputs"),
    ("driftline_dead_letters_total", "dead_letters"),
    ("driftline_elements_total", "elements"),
    ("driftline_out_of_order_elements_total", "out_of_order"),
    ("driftline_reapplied_elements_total", "reapplied"),
    ("driftline_frames_total", "frames"),
)
"""(metric, its name in `Node.figures`)."""

_NODE_GAUGES = (
    ("driftline_consumer_waiting_bytes", "waiting_bytes"),
    ("driftline_snapshot_waiting_bytes", "unsaved_bytes"),
    ("driftline_snapshot_bytes", "snapshot_bytes"),
    ("driftline_snapshot_written_bytes_total", "written_bytes"),
    ("driftline_restored_ratio", "restored"),
)
"""(metric, its name in `Node.gauges`)."""


def node_samples(node: Node) -> Iterator[Sample]:
    """Yield the samples of a node."""
    label, figures, gauges = (node.name,), node.figures(), node.gauges()
    for name, figure in _NODE_FIGURES:
        if figure in figures:  # absent if the consumer is a process of its own
            yield name, label, figures[figure]
    for name, gauge in _NODE_GAUGES:
        yield name, label, gauges[gauge]
    for operator, table in node.pipeline.tables.items():
        yield "driftline_keys", (node.name, operator), len(table)
    yield "driftline_node_running", label, node.running
    yield (
        "driftline_backpressure_seconds_total",
        label,
        node.backpressure.paused_time.total(monotonic()),
    )
    yield from _event_time_samples(node)


def _event_time_samples(node: Node) -> Iterator[Sample]:
    name, pipeline = node.name, node.pipeline
    if pipeline.clock is None:
        return
    for front, source in enumerate(node.plan.flow.sources):
        if source.event_time is not None:
            watermark = pipeline.clock.source_watermark(front)
            if NEVER < watermark < ENDED:
                label = name, source.name
                yield "driftline_source_watermark_timestamp_seconds", label, watermark / 1e6
    for step in pipeline.timed_steps.values():
        label, watermark = (name, step.vertex.name), step.watermark.newest
        if NEVER < watermark < ENDED:
            yield "driftline_operator_watermark_timestamp_seconds", label, watermark / 1e6
        yield "driftline_timers", label, step.timer_count
        if isinstance(step.vertex.operator, Windowed):
            yield "driftline_open_windows", label, step.timer_count
        if step.vertex.operator.counts_late:
            yield "driftline_late_elements_total", label, step.too_late


def master_samples(master: Master) -> Iterator[Sample]:
    """Yield the samples of the master."""
    coordinator = master.coordinator
    snapshots, phase = coordinator.snapshots, coordinator.phase
    yield "driftline_master_leads", (master.name,), coordinator.leads
    for each in Phase:
        yield "driftline_phase", (each.name.lower(),), each is phase
    yield "driftline_recoveries_total", (), coordinator.recoveries
    yield "driftline_recovery_duration_seconds", (), coordinator.recovery_durations
    yield "driftline_snapshots_total", (), snapshots.committed
    yield "driftline_snapshot_failures_total", (), snapshots.failures
    yield "driftline_snapshot_duration_seconds", (), snapshots.durations
    pending_s = snapshots.pending_s(monotonic())
    yield "driftline_snapshot_pending_seconds", (), pending_s


def candidate_samples(candidate: Candidate) -> Iterator[Sample]:
    """Yield the samples of one of several masters: before it leads, `driftline_master_leads`."""
    if candidate.master is None:
        yield "driftline_master_leads", (candidate.name,), 0
    else:
        yield from master_samples(candidate.master)


MASTER_CHILD, NODE_CHILD = 1, 2
"""Numbers of the master and of node-0 among the processes of a run."""

Context = AbstractContextManager[object]


TURN_TIMEOUT_S = 10.0
"""Time in seconds without a turn after which a loop counts as hung or starved; an idle loop turns
once a second."""

Ready = Callable[[], str]
"""Returns why a process is not ready; "" if it is."""


class Health:
    """Health of one process that has a loop."""

    def __init__(self, runtime: Runtime, ready: Ready, heartbeat: Heartbeat | None = None) -> None:
        self._runtime = runtime
        self._heartbeat = heartbeat
        self._began = monotonic()
        self.why_not_ready = ready

    def why_not_healthy(self, now: float) -> str:
        """Return why the process is not healthy; "" if it is. `now`: seconds, monotonic."""
        turned_at = max((role.now for role in self._runtime.roles), default=0.0)
        checked_at = self._heartbeat.checked_at if self._heartbeat is not None else 0.0
        silent_s = now - max(turned_at, checked_at, self._began)
        if silent_s <= TURN_TIMEOUT_S:
            return ""
        return f"the loop of this process has not turned for {silent_s:.0f} s"


def node_ready(node: Node) -> Ready:
    """Return the readiness check of a node: it runs."""
    return lambda: "" if node.running else f"{node.name}: {node.state}"


def master_ready(master: Master) -> Ready:
    """Return the readiness check of a master: all nodes are at work."""

    def why_not() -> str:
        phase = master.coordinator.phase
        return "" if phase is Phase.RUNNING else phase.value

    return why_not


def candidate_ready(candidate: Candidate) -> Ready:
    """Return the readiness check of one of several masters: it is a ready leader, or has a place
    behind another master in the queue."""

    def why_not() -> str:
        leadership, master = candidate.leadership, candidate.master
        if leadership.is_session_lost:
            return "its session with ZooKeeper is over"
        if master is not None:
            return master_ready(master)()
        if leadership.predecessor is None:
            return "it has no place in the queue of masters yet"
        return "it leads the queue of masters, and reads the registry" if leadership.first else ""

    return why_not


def fronts_ready(fronts: Sequence[Front]) -> Ready:
    """Return the readiness check of fronts: all have started to read."""

    def why_not() -> str:
        waiting = [front.name for front in fronts if not front.has_begun]
        return f"not reading yet: {', '.join(waiting)}" if waiting else ""

    return why_not


def serve_command(
    address: str, flow: str, runtime: Runtime, ready: Ready, heartbeat: Heartbeat, samples: Samples
) -> Context:
    """Serve the metrics of the command's own process."""
    if not address:
        return nullcontext()
    from driftline.deploy.runtime.metrics.catalogue import tag_with_flow
    from driftline.deploy.runtime.metrics.serving import serving

    tagged = tag_with_flow(flow, ProcessSamples(COMMAND, runtime), samples)
    return serving(Endpoint.parse(address), COMMAND, tagged, Health(runtime, ready, heartbeat))


def serve_master(config: ProcessConfig, master: Master, runtime: Runtime) -> Context:
    """Serve the metrics of the only master."""
    samples = ProcessSamples(master.name, runtime), partial(master_samples, master)
    health = Health(runtime, master_ready(master))
    return _serving(config, MASTER_CHILD, master.name, master.plan.flow.name, samples, health)


def serve_candidate(
    config: ProcessConfig, flow: str, candidate: Candidate, runtime: Runtime
) -> Context:
    """Serve the metrics of one of several masters, which leads or stands by."""

    def leader() -> Sequence[Role]:
        return (candidate.master or candidate,)

    samples = ProcessSamples(candidate.name, runtime, leader), partial(candidate_samples, candidate)
    health = Health(runtime, candidate_ready(candidate))
    return _serving(config, MASTER_CHILD, candidate.name, flow, samples, health)


def serve_node(
    config: ProcessConfig, node: Node, runtime: Runtime, heartbeat: Heartbeat
) -> Context:
    """Serve the metrics of a node."""
    samples = ProcessSamples(node.name, runtime), partial(node_samples, node)
    health = Health(runtime, node_ready(node), heartbeat)
    number = NODE_CHILD + node.index
    return _serving(config, number, node.name, node.plan.flow.name, samples, health)


def serve_front(
    config: ProcessConfig,
    flow: str,
    front: Front,
    runtime: Runtime,
    heartbeat: Heartbeat,
    samples: Samples,
) -> Context:
    """Serve the metrics of a front in a process of its own; `samples`: of its input."""
    all_samples = ProcessSamples(front.name, runtime), samples
    health = Health(runtime, fronts_ready([front]), heartbeat)
    return _serving(config, front.index, front.name, flow, all_samples, health)


def preload() -> None:
    """Load Prometheus' libraries in the fork server, so that forked processes start with them."""
    import driftline.deploy.runtime.metrics.serving  # noqa: F401


def _serving(
    config: ProcessConfig,
    number: int,
    name: str,
    flow: str,
    samples: tuple[Samples, ...],
    health: Health,
) -> Context:
    """Serve the metrics of a process.

    `number`: as in `Endpoint.of_child`; unused with port 0, which all processes in a cluster have.
    """
    if not config.metrics:
        return nullcontext()
    from driftline.deploy.runtime.metrics.catalogue import tag_with_flow
    from driftline.deploy.runtime.metrics.serving import serving

    endpoint = Endpoint.parse(config.metrics).of_child(number)
    port_file = None if endpoint.port else port_file_path(config.sockets, config.role, config.index)
    return serving(
        endpoint, name, tag_with_flow(config.submitted_as or flow, *samples), health, port_file
    )
