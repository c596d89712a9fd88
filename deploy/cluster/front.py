"""Process of a flow in a cluster: ``python -m driftline.deploy.cluster.front CONFIG``.

CONFIG is the JSON form of `ProcessConfig`. This module adds fronts to `deploy.runtime.process`,
which runs the other roles; the exit statuses are the same. A front reads one input of the flow. The
state directory on its host contains its input log or, for files, the fingerprint of the records
read. The front starts at the last snapshot in the registry, if there is one.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

from driftline.connectors.inputs import open_one_input
from driftline.connectors.outputs import OutputPlace
from driftline.connectors.sinks.lines import DEAD_LETTERS
from driftline.coordinator.registry import ClusterState
from driftline.coordinator.zookeeper import ZooKeeperRegistry, close, connect
from driftline.deploy.local.config import RunConfig, SenderRules, check_input
from driftline.deploy.local.inputs.bad_records import BadRecordFile
from driftline.deploy.local.inputs.fronts import open_front, open_input, record_used
from driftline.deploy.local.inputs.input_progress import InputProgress
from driftline.deploy.local.metrics import InputSamples
from driftline.deploy.local.report import find_start_time
from driftline.deploy.local.savepoints import check_restored
from driftline.deploy.roles.front import Front
from driftline.deploy.runtime.claims import claim, open_with_retry
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.heartbeat import Heartbeat
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.master_process import REGISTRY
from driftline.deploy.runtime.metrics.roles import serve_front
from driftline.deploy.runtime.process import main
from driftline.deploy.runtime.supervision.restarts import STOPPED
from driftline.engine.errors import Unavailable
from driftline.engine.flow.plan import Plan
from driftline.engine.policy import Policy
from driftline.engine.sources import RetainedSource, Source


def run_front(config: ProcessConfig, flow_plan: Plan, policy: Policy) -> int:
    """Run the front of input `config.index`. Return the exit status."""
    state, number, flow = Path(config.state), config.index, flow_plan.flow
    claim(state / f"front-{number}.lock")
    registry_state = open_with_retry(config, lambda: _read_registry(config))
    reading, keys = config.reading, config.network.keys
    sources = tuple(source.name for source in flow.sources)
    opened_input = open_one_input(flow, reading.inputs, number, reading.record_format)
    run_config = RunConfig(
        config.flow,
        (opened_input,),
        OutputPlace(config.sink, Path(config.output)),
        config.nodes,
        policy,
        config.snapshot_interval_s,
        state,
        config.dead_letters,
        reading.window,
        limits=config.limits,
        sender_rules=SenderRules(reading.let_anyone_send, Path(keys) if keys else None, sources),
    )
    check_input(number, opened_input, run_config.sender_rules)
    with ExitStack() as stack:
        runtime = Runtime(transport=config.transport())
        stack.callback(runtime.close)
        bad_records = BadRecordFile(
            run_config.output.directory / DEAD_LETTERS / f"input-{number}.jsonl"
        )
        stack.callback(bad_records.close)
        fronts: list[Front] = []  # the front, once it is open
        source = open_input(
            number,
            opened_input,
            run_config,
            config,
            runtime,
            stack,
            lambda: any(front.draining for front in fronts),
            is_only_input=len(flow.sources) == 1,
            event_time=flow.sources[number].event_time,
        )
        if registry_state.base and not registry_state.incarnation:
            _check_initial_state(config, flow_plan, number, source)
        start = find_start_time(registry_state, policy, number, source)
        front = open_front(
            number,
            source,
            bad_records,
            start,
            flow_plan,
            run_config,
            config,
            runtime,
            token=config.process,
        )
        fronts.append(front)
        progress = InputProgress(front, source, start)
        front.more_figures = lambda: {"lag_ms": int(progress.read_figures(front.now).lag_s * 1000)}
        samples = InputSamples([(flow.sources[number].name, progress, bad_records)])

        def ended() -> bool:
            if config.metrics:
                samples.update(front.now)
            return front.ended

        heartbeat = Heartbeat(runtime, [front], config.limits.slow_after_s, config.keep_alive_fd)
        with heartbeat, serve_front(config, flow.name, front, runtime, heartbeat, samples):
            runtime.run(ended)
        if front.outcome is not None:
            record_used([front], policy, succeeded=not front.outcome.error)
            runtime.flush(front)
    return STOPPED


def _check_initial_state(
    config: ProcessConfig, flow_plan: Plan, number: int, source: Source | RetainedSource
) -> None:
    """Compare the input with the savepoint that the flow begins from.

    Raises StateMismatch if the flow would skip new records, or if they would be late; InputError,
    SnapshotDamaged, Unavailable.
    """
    flow = flow_plan.flow
    fitted = open_with_retry(config, lambda: config.initial_state.fitted(flow))
    name = flow.sources[number].name
    check_restored(fitted, name, source, is_only_input=len(flow.sources) == 1)


def _read_registry(config: ProcessConfig) -> ClusterState:
    """Return the contents of the registry. Raises Unavailable, StateMismatch."""
    client = connect(config.zookeeper, config.session_s)
    try:
        state = ZooKeeperRegistry(client, REGISTRY).read()
    finally:
        close(client)
    if state is None:
        raise Unavailable(f"the registry of {config.flow} is empty")
    return state


if __name__ == "__main__":
    status = main(sys.argv[1], run_front)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # at once: a thread that does not end must not keep the process alive
