"""Runs a flow on this machine: nodes and master in child processes, the fronts in this one.

This process reads the inputs, shows progress bars, restarts processes that die and, with
`--kill-every`, kills some. Everything that must survive is in the state directory: the same command
resumes after any interruption.
"""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from os.path import realpath
from pathlib import Path
from time import monotonic

from rich.console import Console

from driftline.connectors.files import FileSource
from driftline.connectors.files.files import SeveralFiles
from driftline.connectors.inputs import needs_input_log
from driftline.connectors.sinks.directory import stored_format_or_address
from driftline.connectors.sinks.lines import DEAD_LETTERS
from driftline.coordinator.draining import ENDED_ON_REQUEST
from driftline.coordinator.identity import Identity
from driftline.coordinator.registry import FileRegistry
from driftline.deploy.local.config import RunConfig, check_input
from driftline.deploy.local.directories.fresh import remove_run
from driftline.deploy.local.directories.leftovers import clear_drafts, socket_folder
from driftline.deploy.local.directories.opening import open_run
from driftline.deploy.local.inputs.bad_records import BadRecordFile
from driftline.deploy.local.inputs.fronts import identity_of, open_front, open_input, record_used
from driftline.deploy.local.inputs.input_progress import InputProgress
from driftline.deploy.local.metrics import serve_metrics
from driftline.deploy.local.progress import RunProgress
from driftline.deploy.local.report import (
    RunReport,
    find_start_time,
    log_resumption,
    record_error,
)
from driftline.deploy.local.savepoints import restore_run
from driftline.deploy.roles.front import Front
from driftline.deploy.roles.status_poller import StatusPoller
from driftline.deploy.runtime.claims import claim, wait_for_others
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.loop.heartbeat import Heartbeat
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.metrics.endpoint import check_ports
from driftline.deploy.runtime.metrics.roles import NODE_CHILD
from driftline.deploy.runtime.signals import Signals
from driftline.deploy.runtime.supervision.cluster import LocalCluster
from driftline.engine.errors import (
    RESUME_HINT,
    DriftlineError,
    FlowError,
    FunctionFailed,
    InputError,
    StateMismatch,
    Unavailable,
    advice_for,
    error_of,
)
from driftline.engine.events import event_fields, log
from driftline.engine.flow.code import code_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.outline import make_outline
from driftline.engine.flow.plan import make_plan
from driftline.engine.ui.consoles import ProgressView
from driftline.engine.wire.kinds import POLLER
from driftline.engine.wire.messages import Stop


def run_flow(flow: Flow, config: RunConfig, console: Console) -> RunReport:
    """Run a flow until all input is processed and delivered, or a signal has drained the run.

    Log lines of all processes go to the logger ``driftline``; `console` shows the progress if it is
    a terminal. Raises DriftlineError if the run fails.
    """
    flow.check_inputs(config.inputs)
    flow.check_nodes(config.nodes)
    flow.check_policy(config.policy)
    if realpath(config.state) == realpath(config.output.directory):
        raise FlowError(f"{config.state} cannot hold both the outputs and the state of a run")
    for number, flow_input in enumerate(config.inputs):
        check_input(number, flow_input, config.sender_rules)
    if config.metrics:
        check_ports(config.metrics, NODE_CHILD + config.nodes)
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        stack.callback(claim(config.state / "run.lock").release)
        wait_for_others(config.state)
        outputs = config.output.directory
        clear_drafts(config.state, outputs, outputs / ".driftline")
        if config.fresh:
            remove_run(flow, config.state, outputs, _identity(flow, config).text)
            if not config.output.is_directory:
                log.warning("--fresh removes no outputs from %s", config.output.address)
        sockets = stack.enter_context(socket_folder(config.state))
        return _run(flow, config, sockets, signals, console)


def _run(
    flow: Flow, config: RunConfig, sockets: Path, signals: Signals, console: Console
) -> RunReport:
    flow_plan = make_plan(flow)
    with ExitStack() as receivers, ExitStack() as stack:
        runtime = Runtime()
        stack.callback(runtime.close, linger_ms=0)
        process = _open(flow, config, sockets)
        bad_record_files = [
            BadRecordFile(config.output.directory / DEAD_LETTERS / f"input-{i}.jsonl")
            for i in range(len(config.inputs))
        ]
        for bad_records in bad_record_files:
            stack.callback(bad_records.close)
        sources = [
            open_input(
                *(i, flow_input, config, process, runtime, receivers),
                lambda: signals.stop_signal is not None,
                is_only_input=len(config.inputs) == 1,
                event_time=flow.sources[i].event_time,
            )
            for i, flow_input in enumerate(config.inputs)
        ]
        run_before = FileRegistry(config.state / "registry").read()
        assert run_before is not None, "`open_run` has written the registry"
        input_progresses = []
        for i, (source, bad_records) in enumerate(zip(sources, bad_record_files, strict=True)):
            start = find_start_time(run_before, config.policy, i, source)
            token = secrets.token_hex(8)
            front_arguments = i, source, bad_records, start, flow_plan, config, process, runtime
            input_progresses.append(
                InputProgress(open_front(*front_arguments, token=token), source, start)
            )
        log_resumption(run_before, config.policy)
        fronts = [input_progress.front for input_progress in input_progresses]
        progress = RunProgress(input_progresses, bad_record_files, config.output.directory)
        started = monotonic()
        heartbeat = Heartbeat(runtime, fronts, config.limits.slow_after_s)
        error_recording = record_error(config.state, process.lineage, process.run)
        with error_recording, LocalCluster(process) as cluster, heartbeat:
            poller = StatusPoller()
            poller.address = runtime.add(poller, process.address(POLLER))
            poller.addresses["master"] = process.address("master")
            if process.layout and len(process.layout) != config.nodes:
                cluster.rescale(config.nodes)
            stack.enter_context(serve_metrics(flow, process, runtime, heartbeat, progress, cluster))
            stop = drive(runtime, cluster, fronts, poller, progress, config, signals, console)
            record_used(fronts, config.policy, succeeded=not stop.error)
            if stop.error:
                raise _error_of(stop, config)
            if stop.text != ENDED_ON_REQUEST:
                for input_progress in input_progresses:
                    input_progress.warn_if_empty()
        outputs, failures = progress.delivered()
        run_after = FileRegistry(config.state / "registry").read() or run_before
        return RunReport(
            sum(front.sent_records for front in fronts),
            outputs,
            monotonic() - started,
            sum(bad_records.new for bad_records in bad_record_files),
            failures,
            cluster.kills,
            cluster.restarts,
            run_after.late_elements - run_before.late_elements,
            signals.stop_signal if stop.text == ENDED_ON_REQUEST else None,
        )


def _identity(flow: Flow, config: RunConfig) -> Identity:
    return Identity(
        make_outline(flow),
        make_plan(flow).identity(),
        config.policy.name,
        config.nodes,
        tuple(map(identity_of, config.inputs)),
        "" if config.start is None else config.start.savepoint.title,
    )


def _open(flow: Flow, config: RunConfig, sockets: Path) -> ProcessConfig:
    """Open the state directory, restore the savepoint, if any, and begin a session."""
    code = code_of(flow)
    _check_sink(config)
    state = open_run(
        config.state,
        config.output.directory,
        _identity(flow, config),
        code,
        config.policy,
        [i for i, each in enumerate(config.inputs) if needs_input_log(each)],
        accept_changed_code=config.accept_changed_code,
    )
    if config.start is not None:
        run_arguments = config.inputs, config.nodes, config.policy, config.start
        restore_run(config.state, flow, *run_arguments)
    return ProcessConfig(
        flow=config.flow,
        nodes=config.nodes,
        layout=state.layout,
        policy=config.policy.name,
        ordering=config.policy.ordering if config.policy.ordered else "speculative",
        snapshot_interval_s=config.snapshot_interval_s,
        state=str(config.state),
        sockets=str(sockets),
        poller_address=f"ipc://{sockets}/{POLLER}",
        identity=state.identity,
        code=code.text,
        run=secrets.token_hex(8),
        dead_letters=config.dead_letters,
        lineage=state.lineage,
        session=state.last_session + 1,
        output=str(config.output.directory),
        sink=config.output.address,
        limits=config.limits,
        paths=config.paths,
        log_level=log.getEffectiveLevel(),
        metrics=config.metrics,
    )


def _check_sink(config: RunConfig) -> None:
    """Raise StateMismatch if the run of the state directory has its outputs at another address."""
    output = config.output
    stored = "" if output.is_directory else stored_format_or_address(output.directory)
    if stored not in ("", output.address):
        raise StateMismatch(
            f"the outputs of the run in {config.state} go to {stored}, not to {output.address}: "
            f"give --output {stored}; for another run, give another --state"
        )


def _error_of(stop: Stop, config: RunConfig) -> DriftlineError:
    """Return the error that ended a run, with advice."""
    text = stop.text
    label = re.search(r"failed at label \[(\d+), (\d+)", text)
    if stop.error == FunctionFailed.__name__ and label is not None:
        flow_input = config.inputs[int(label[2])]
        if isinstance(flow_input, FileSource | SeveralFiles):
            place = flow_input.describe_place(int(label[1]))
            text = text.replace("\n", f"\n  from: {place}\n", 1)
        text += f"\n  {RESUME_HINT} (in Python accept_changed_code=True)."
    if stop.error == InputError.__name__:
        text += advice_for(text)
    if stop.error in ("StateMismatch", "SnapshotDamaged"):
        text += f" (state directory: {config.state}; outputs: {config.output.address})"
    return error_of(stop.error, text)


END_TIMEOUT_S = 5.0
"""Longest wait in seconds for the messages of a master that has exited, and for the nodes' exits.
"""


def drive(
    runtime: Runtime,
    cluster: LocalCluster,
    fronts: Sequence[Front],
    poller: StatusPoller,
    progress: RunProgress,
    config: RunConfig,
    signals: Signals,
    console: Console,
) -> Stop:
    """Run fronts and receivers, and supervise the cluster, until every front has received `Stop`.

    Returns that `Stop`. The first signal drains the run; a second one raises (`Signals.check`).
    """
    rng = random.Random()
    kill_at = monotonic() + config.kill_every_s if config.kill_every_s else float("inf")
    completed_at_kill = -1  # the label time below which all records were completed at the last kill
    master_ended_at: float | None = None
    cluster.wake(runtime)
    view = ProgressView(console, [front.source.name for front in fronts])
    with view, signals.defer(), runtime.low_latency():
        more = False
        while True:
            more = runtime.step(more, wait_s=0.05)
            outcomes = [front.outcome for front in fronts if front.outcome is not None]
            if len(outcomes) == len(fronts):
                break
            signals.check()
            if signals.stop_signal is not None and not fronts[0].draining:
                name = signals.stop_signal.name
                log.info(
                    "draining after %s: no more records are read, and outputs in flight are "
                    "delivered. Another signal ends the run at once",
                    name,
                    extra=event_fields("drain-requested", signal=name),
                )
                for front in fronts:
                    front.drain()
                poller.is_draining = True
            now = monotonic()
            progress.show_if_due(now, poller, view)  # also as soon as the nodes have answered
            is_due = cluster.is_due(now)
            if now < kill_at and not is_due:
                continue
            completed = max(front.completed for front in fronts)
            sent = max(front.max_sent_time for front in fronts)
            # Kills without progress in between would keep a run from ending. A drain stops them.
            if now >= kill_at and completed > completed_at_kill and signals.stop_signal is None:
                cluster.kill_one(rng)
                kill_at, completed_at_kill = now + (config.kill_every_s or 0.0), completed
            if not is_due:
                continue
            cluster.supervise(completed, sent, poller)
            if not cluster.master_ended:
                master_ended_at = None
            elif master_ended_at is None:
                master_ended_at = now
            elif now - master_ended_at > END_TIMEOUT_S:  # the fronts missed its last messages
                cluster.restart_master()
                master_ended_at = None
        _await_nodes(runtime, cluster)
        if not outcomes[0].error:
            progress.end(monotonic(), poller, view)
    return outcomes[0]


def _await_nodes(runtime: Runtime, cluster: LocalCluster) -> None:
    """Wait at most `END_TIMEOUT_S` for the nodes to end.

    `LocalCluster.stop` kills those that remain.
    """
    deadline = monotonic() + END_TIMEOUT_S
    with suppress(Unavailable):  # the outcome is already known
        while not cluster.nodes_ended and monotonic() < deadline:
            runtime.step(wait_s=0.05)
            cluster.supervise()
