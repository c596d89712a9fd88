"""Runs a flow on this machine: nodes and master in processes of their own, the fronts in this one.

This process reads the inputs, shows progress bars, restarts processes that die and, with
`--kill-every`, kills some. Everything that has to survive is in the state directory: the same
command goes on after any interruption.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from rich.console import Console

from driftline.deploy.host.heartbeat import Heartbeat
from driftline.deploy.host.lifeline import ended_in_order
from driftline.deploy.host.limits import LIMITS, Limits
from driftline.deploy.host.process import ProcessConfig, claim, new_id
from driftline.deploy.host.runtime import Runtime
from driftline.deploy.host.supervisor import LocalCluster
from driftline.deploy.parties.front import Front
from driftline.deploy.parties.watch import Watch
from driftline.deploy.run.asides import Asides
from driftline.deploy.run.leftovers import clear_drafts, socket_folder
from driftline.deploy.run.opening import open_run
from driftline.deploy.run.progress import RunProgress
from driftline.deploy.run.receivers import announcement, identity_of, receiver_of
from driftline.deploy.run.savepoints import restore_run
from driftline.engine.errors import DriftlineError, Unavailable, error_of
from driftline.engine.events import about, log
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import Plan, plan
from driftline.engine.policy import Policy
from driftline.engine.sinks.lines import DEAD_LETTERS, count_failures
from driftline.engine.snapshots.savepoint import Savepoint
from driftline.engine.sources import LiveSource, Source
from driftline.engine.sources.inputs import Input, Piped
from driftline.engine.sources.logs.inputlog import InputLog
from driftline.engine.sources.logs.received import ReceivedSource
from driftline.engine.ui.progress import ProgressView
from driftline.engine.wire.marks import Mark
from driftline.engine.wire.messages import Stop

END_S = 5.0
"""How long the last messages of the master may take; and how long nodes may take to end."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A flow, its inputs, and how to run it."""

    flow: str
    """The name of the flow, as the user gave it: node processes load the flow themselves."""
    inputs: Sequence[Input | LiveSource]
    """One for each source of the flow, in their order."""
    output: Path
    nodes: int
    policy: Policy
    checkpoint_s: float
    state: Path
    dead_letters: bool
    window: int
    kill_every_s: float | None = None
    seed: int = 0
    start: Savepoint | None = None
    """A savepoint to begin from; None: from the beginning of the input."""
    limits: Limits = LIMITS
    paths: tuple[str, ...] = ()
    """Folders in which node processes look for modules, after all others."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """Figures of a run that is over."""

    records: int
    seconds: float
    kills: int
    restarts: int
    bad_records: int
    """Records that could not be read, set aside so far."""
    dead_letters: int
    """Elements whose function failed, set aside so far."""

    def as_json(self) -> dict[str, object]:
        """The report of `--json`."""
        return {
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "kills": self.kills,
            "restarts": self.restarts,
            "bad_records": self.bad_records,
            "dead_letters": self.dead_letters,
        }


def run_flow(flow: Flow, config: RunConfig, console: Console) -> RunReport:
    """Run a flow until all input is processed and delivered. Raises DriftlineError if it fails.

    Log lines, also those of the processes, go to the logger ``driftline``; `console` shows the
    progress if it is a terminal.
    """
    flow.check_inputs(config.inputs)
    with ExitStack() as stack:
        stack.enter_context(ended_in_order())
        stack.callback(claim(config.state / "run.lock").release)
        clear_drafts(config.state, config.output, config.output / ".driftline")
        sockets = stack.enter_context(socket_folder(config.state))
        return _run(flow, config, sockets, console)


def _run(flow: Flow, config: RunConfig, sockets: Path, console: Console) -> RunReport:
    flow_plan = plan(flow)
    with ExitStack() as receivers, ExitStack() as stack:
        runtime = Runtime()
        stack.callback(runtime.close, linger_ms=0)
        process = _open(flow, flow_plan, config, sockets)
        sources = [
            _received(i, each, config, process, runtime, receivers)
            if isinstance(each, str | Piped)
            else each
            for i, each in enumerate(config.inputs)
        ]
        asides = [
            Asides(config.output / DEAD_LETTERS / f"input-{i}.jsonl") for i in range(len(sources))
        ]
        fronts = [
            _front(i, source, asides[i], flow_plan, config, process, runtime)
            for i, source in enumerate(sources)
        ]
        started = monotonic()
        heartbeat = Heartbeat(runtime, fronts, config.limits.slow_after_s)
        with LocalCluster(process) as cluster, heartbeat:
            watch = _watch(process, runtime)
            stop = _drive(runtime, cluster, sources, fronts, watch, config, console)
            if stop.error:
                raise _error_of(stop, config)
        return RunReport(
            sum(front.taken for front in fronts),
            monotonic() - started,
            cluster.kills,
            cluster.restarts,
            sum(aside.count for aside in asides),
            count_failures(config.output),
        )


def _open(flow: Flow, flow_plan: Plan, config: RunConfig, sockets: Path) -> ProcessConfig:
    """Open the state directory, restore the savepoint if there is one, and begin a session."""
    inputs = "|".join(map(identity_of, config.inputs))
    identity = f"{flow_plan.identity()}|{config.policy.name}|{config.nodes}|{inputs}"
    if config.start is not None:
        identity += f"|from {config.start.path.name} at {config.start.time}"
    logs = [i for i, each in enumerate(config.inputs) if isinstance(each, str | Piped)]
    state = open_run(config.state, config.output, identity, config.policy, config.nodes, logs)
    if config.start is not None:
        restore_run(config.state, flow, config.nodes, config.policy, config.start)
    return ProcessConfig(
        flow=config.flow,
        nodes=config.nodes,
        policy=config.policy.name,
        ordering=config.policy.ordering if config.policy.ordered else "speculative",
        checkpoint_s=config.checkpoint_s,
        state=str(config.state),
        sockets=str(sockets),
        identity=identity,
        run=secrets.token_hex(8),
        dead_letters=config.dead_letters,
        lineage=state.lineage,
        session=state.opened + 1,
        output=str(config.output),
        limits=config.limits,
        paths=config.paths,
        log_level=log.getEffectiveLevel(),
    )


def _received(
    number: int,
    given: Piped | str,
    config: RunConfig,
    process: ProcessConfig,
    runtime: Runtime,
    receivers: ExitStack,
) -> ReceivedSource:
    """The source of an input that cannot be read again, with its log and receiver.

    `receivers` closes both.
    """
    mark = Mark(process.lineage, f"input-{number}", process.session)
    input_log = InputLog(config.state / mark.role, f"{config.flow} {number}", mark)
    receivers.callback(input_log.close)
    receiver = receiver_of(
        given,
        input_log,
        number,
        runtime,
        alone=len(config.inputs) == 1,
        keep_bad=config.dead_letters,
    )
    receivers.callback(receiver.close)
    log.info("%s", announcement(receiver), extra=about("input", name=receiver.source.name))
    return receiver.source


def _front(
    number: int,
    source: Source | LiveSource,
    asides: Asides,
    flow_plan: Plan,
    config: RunConfig,
    process: ProcessConfig,
    runtime: Runtime,
) -> Front:
    """The front that reads a source, driven by the runtime."""
    front = Front(
        number,
        config.nodes,
        flow_plan,
        config.policy,
        source,
        new_id,
        process=secrets.token_hex(8),
        window=config.window,
        on_bad=asides.add if config.dead_letters else None,
        run=process.run,
    )
    front.address = runtime.add(front, process.address(f"front-{number}"))
    front.addresses["master"] = process.address("master")
    return front


def _watch(process: ProcessConfig, runtime: Runtime) -> Watch:
    """The watch of a run, driven by the runtime."""
    watch = Watch()
    watch.address = runtime.add(watch, process.address("watch"))
    watch.addresses["master"] = process.address("master")
    return watch


def _drive(
    runtime: Runtime,
    cluster: LocalCluster,
    sources: Sequence[Source | LiveSource],
    fronts: Sequence[Front],
    watch: Watch,
    config: RunConfig,
    console: Console,
) -> Stop:
    """Run fronts and receivers, and supervise the cluster, until every front has its `Stop`."""
    chance = random.Random(config.seed)
    kill_at = monotonic() + config.kill_every_s if config.kill_every_s else float("inf")
    supervise_at = 0.0
    master_ended_at: float | None = None
    progress = RunProgress(fronts, watch, config.output)
    with ProgressView(console, [source.name for source in sources]) as view:
        more = False
        while True:
            more = runtime.step(more, wait_s=0.05)
            outcomes = [front.outcome for front in fronts if front.outcome is not None]
            if len(outcomes) == len(fronts):
                break
            now = monotonic()
            if now >= kill_at:
                cluster.kill_one(chance)
                kill_at = now + (config.kill_every_s or 0.0)
            if now < supervise_at:
                continue
            supervise_at = now + 0.05
            cluster.supervise(
                max(front.settled for front in fronts), max(front.furthest for front in fronts)
            )
            for number, (source, front) in enumerate(zip(sources, fronts, strict=True)):
                view.show(number, source.progress(), front.taken)
            progress.tell(now, view)
            if not cluster.master_ended:
                master_ended_at = None
            elif master_ended_at is None:
                master_ended_at = now
            elif now - master_ended_at > END_S:  # the fronts have missed the last messages
                cluster.ask_again()
                master_ended_at = None
        _await_nodes(runtime, cluster)
        if not outcomes[0].error:
            progress.end(monotonic(), view)
    return outcomes[0]


def _await_nodes(runtime: Runtime, cluster: LocalCluster) -> None:
    """Wait `END_S` at most until the nodes have ended; the cluster kills the others."""
    until = monotonic() + END_S
    with suppress(Unavailable):  # how the run ended is known already
        while not cluster.nodes_ended and monotonic() < until:
            runtime.step(wait_s=0.05)
            cluster.supervise()


def _error_of(stop: Stop, config: RunConfig) -> DriftlineError:
    """The error that ended a run, to be raised here."""
    text = stop.text
    if stop.error in ("StateMismatch", "SnapshotDamaged"):
        text += f" (state directory: {config.state}; outputs: {config.output})"
    return error_of(stop.error, text)
