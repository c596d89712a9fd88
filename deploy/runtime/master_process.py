"""The process of a master: the only one, with the registry on its disk, or one of several with
ZooKeeper.

Each of several masters has a session with ZooKeeper and a place in the queue of masters; the first
one leads (`deploy.roles.candidate`). A master whose session expires, or that steps down, exits and
is restarted.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial

from driftline.coordinator.leadership import leader_timeout_s
from driftline.coordinator.registry import ClusterState, FileRegistry, WriteState, check_identity
from driftline.deploy.roles.candidate import Candidate, ReadState
from driftline.deploy.roles.master import Master
from driftline.deploy.runtime.claims import claim, open_with_retry
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.cpu_affinity import CpuAffinity
from driftline.deploy.runtime.loop.heartbeat import Heartbeat
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.metrics.roles import serve_candidate, serve_master
from driftline.deploy.runtime.supervision.restarts import BROKEN, STEPPED_DOWN, STOPPED
from driftline.engine.errors import StateMismatch
from driftline.engine.flow.plan import Plan
from driftline.engine.policy import Policy
from driftline.engine.wire.messages import AskReport
from driftline.engine.wire.role import IOJob, Role

REGISTRY, MASTERS = "/registry", "/masters"
"""Paths of a flow's znodes, relative to the path in `ProcessConfig.zookeeper`."""


def run_master(config: ProcessConfig, flow_plan: Plan, policy: Policy) -> int:
    """Run the only master, with its registry, or one of several. Return the exit status."""
    if config.zookeeper:
        return _run_candidate(config, flow_plan, policy)
    file = config.registry_file
    claim(file.with_name("master.lock"))
    registry = FileRegistry(file)

    def execute_job(job: IOJob) -> None:
        assert isinstance(job, WriteState)
        registry.write(job.state, again=job.again)

    master = _master(config, flow_plan, policy, str(file.parent), registry.read())
    runtime = Runtime(execute_job, config.transport(), CpuAffinity(config.cores, 1))
    runtime.add(master, config.inbox("master"))
    heartbeat = Heartbeat(runtime, [], keep_alive_fd=config.keep_alive_fd)
    with heartbeat, serve_master(config, master, runtime):
        runtime.run(lambda: master.ended or master.broken)
    runtime.close()
    return BROKEN if master.broken else STOPPED


def _run_candidate(config: ProcessConfig, flow_plan: Plan, policy: Policy) -> int:
    # Imported here, so that other processes start faster.
    from driftline.coordinator.zookeeper import LeaderQueue, ZooKeeperRegistry, close, connect

    client = open_with_retry(config, lambda: connect(config.zookeeper, config.session_s))
    registry = ZooKeeperRegistry(client, REGISTRY)
    make_master = partial(_master, config, flow_plan, policy, config.zookeeper)
    timeout_s = leader_timeout_s(config.limits.missing_after_s, config.futile_step_downs)
    candidate = Candidate(config.process, make_master, timeout_s)

    def execute_job(job: IOJob) -> object:
        if isinstance(job, WriteState):
            registry.write(job.state, again=job.again)
            return None
        return registry.read() if isinstance(job, ReadState) else leader_queue.execute_job(job)

    runtime = Runtime(execute_job, config.transport())
    leader_queue = LeaderQueue(
        client,
        MASTERS,
        address=runtime.add(candidate, config.inbox(f"{config.name}-{config.process}")),
        changed=lambda: runtime.call_soon_threadsafe(candidate.on_queue_changed),
        expired=lambda: runtime.call_soon_threadsafe(candidate.on_session_expired),
    )
    serving = serve_candidate(config, flow_plan.flow.name, candidate, runtime)
    heartbeat = Heartbeat(runtime, [], keep_alive_fd=config.keep_alive_fd)
    with closing(leader_queue), heartbeat, serving:
        runtime.run(lambda: candidate.ended or candidate.broken)
        runtime.close()
    close(client)
    if candidate.stepped_down:
        return STEPPED_DOWN
    return STOPPED if candidate.ended else BROKEN


def _master(
    config: ProcessConfig,
    flow_plan: Plan,
    policy: Policy,
    location: str,
    stored: ClusterState | None,
) -> Master:
    """Return a master that starts from the `stored` state of the registry at `location`.

    Raises StateMismatch if that is the state of another run or flow.
    """
    state = check_identity(stored, config.identity, location)
    if state.lineage != config.lineage:
        raise StateMismatch(
            f"the state in {location} was replaced by that of another run, while this one is active"
        )
    master = Master(
        config.nodes,
        flow_plan,
        policy,
        state,
        config.snapshot_interval_s,
        config.run,
        missing_after_s=config.limits.missing_after_s,
        stalled_after_s=config.limits.stalled_after_s,
        process=config.process,
        session=config.session,
    )
    report_to_poller(master, config)
    return master


def report_to_poller(role: Role, config: ProcessConfig) -> None:
    """Let a role send a report to the `StatusPoller` at `poller_address`, without a request."""
    if config.poller_address:
        role.handle(config.poller_name, AskReport(config.poller_address))
