"""Runs a flow on this machine: nodes and master in processes of their own, the fronts in this one.

This process reads the inputs, shows progress bars, restarts processes that die and, with
`--kill-every`, kills some. Everything that has to survive is in the state directory: the same
command goes on after any interruption.
"""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time

from rich.console import Console

from driftline.coordinator.draining import IN_GOOD_ORDER
from driftline.coordinator.identity import Identity
from driftline.deploy.host.heartbeat import Heartbeat
from driftline.deploy.host.limits import LIMITS, Limits
from driftline.deploy.host.process import ProcessConfig, claim, new_id
from driftline.deploy.host.runtime import Runtime
from driftline.deploy.host.signals import Signals
from driftline.deploy.host.supervisor import LocalCluster
from driftline.deploy.parties.front import Front
from driftline.deploy.parties.watch import Watch
from driftline.deploy.run.asides import Asides
from driftline.deploy.run.ending import asked_to_end, error_noted
from driftline.deploy.run.fresh import begin_anew
from driftline.deploy.run.leftovers import clear_drafts, socket_folder
from driftline.deploy.run.metrics import check_metrics, serve_metrics
from driftline.deploy.run.opening import open_run
from driftline.deploy.run.progress import RunProgress
from driftline.deploy.run.receivers import announce, check_reach, identity_of, receiver_of
from driftline.deploy.run.report import RunReport, tell_if_all_set_aside
from driftline.deploy.run.resuming import Resuming, last_sign
from driftline.deploy.run.savepoints import restore_run
from driftline.deploy.run.tallies import Tally
from driftline.deploy.run.used_files import UsedFile, open_checked
from driftline.engine.errors import (
    DriftlineError,
    FunctionFailed,
    InputError,
    Unavailable,
    error_of,
)
from driftline.engine.events import about, log
from driftline.engine.flow.code import code_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.outline import outline
from driftline.engine.flow.plan import Plan, plan
from driftline.engine.labels import INFINITY
from driftline.engine.mending import OF_RECORDS
from driftline.engine.policy import Output, Policy
from driftline.engine.sinks.jsonl import last_time_in
from driftline.engine.sinks.lines import DEAD_LETTERS
from driftline.engine.snapshots.savepoint import Savepoint
from driftline.engine.sources import FileSource, LiveSource, Source
from driftline.engine.sources.files.several import SeveralFiles
from driftline.engine.sources.inputs import Input, Piped
from driftline.engine.sources.logs.inputlog import InputLog
from driftline.engine.sources.logs.received import ReceivedSource
from driftline.engine.ui.progress import ProgressView
from driftline.engine.wire.marks import Mark
from driftline.engine.wire.messages import Stop

WATCH = "watch"
"""The name of the watch, of which its address is made."""

END_S = 5.0
"""How long the last messages of the master may take; and how long nodes may take to end."""

MANY = 1_000_000
"""From so many records on their reading takes a while, and is told."""


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
    let_anyone_send: bool = False
    """Whether addresses among the inputs may be such as other machines reach."""
    accept_changed_code: bool = False
    """Go on, if there is a state, though operators have other code than in the session before."""
    fresh: bool = False
    """Remove the state and the outputs of an earlier run first."""
    spares: int = 0
    """Processes that are kept ready to take the place of those that die."""
    metrics: str = ""
    """Where metrics are served, `HOST:PORT`; "": nowhere."""


def run_flow(flow: Flow, config: RunConfig, console: Console) -> RunReport:
    """Run a flow until all input is processed and delivered. Raises DriftlineError if it fails.

    Log lines, also those of the processes, go to the logger ``driftline``; `console` shows the
    progress if it is a terminal.
    """
    flow.check_inputs(config.inputs)
    check_reach(config.inputs, let_anyone_send=config.let_anyone_send)
    check_metrics(config.metrics, config.nodes)
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        stack.callback(claim(config.state / "run.lock").release)
        clear_drafts(config.state, config.output, config.output / ".driftline")
        if config.fresh:
            begin_anew(flow, config.state, config.output)
        sockets = stack.enter_context(socket_folder(config.state))
        return _run(flow, config, sockets, signals, console)


def _run(
    flow: Flow, config: RunConfig, sockets: Path, signals: Signals, console: Console
) -> RunReport:
    flow_plan = plan(flow)
    with ExitStack() as receivers, ExitStack() as stack:
        runtime = Runtime()
        stack.callback(runtime.close, linger_ms=0)
        sign = last_sign(config.state)
        process = _open(flow, flow_plan, config, sockets)
        asides = [
            Asides(config.output / DEAD_LETTERS / f"input-{i}.jsonl")
            for i in range(len(config.inputs))
        ]
        for aside in asides:
            stack.callback(aside.close)
        sources = [
            _received(i, each, config, process, runtime, receivers, signals)
            if isinstance(each, str | Piped)
            else each
            for i, each in enumerate(config.inputs)
        ]
        # Beside others a file may have ended long before the last output.
        by_time = config.policy.output is Output.FRONTIER and len(config.inputs) == 1
        delivered = last_time_in(config.output) if by_time else 0
        resuming = Resuming(config.state, config.policy, sign)
        first = 1 if config.start is None else config.start.time
        tallies = []
        for i, (source, aside) in enumerate(zip(sources, asides, strict=True)):
            start, used = resuming.start(i, source), None
            given = source
            if isinstance(source, FileSource | SeveralFiles):
                used = _used(i, source, config, process)
                checked = open_checked(source, used, aside, start)
                given = checked if config.policy.replay else source  # else nothing is noted
            front = _front(i, given, aside, used, flow_plan, config, process, runtime)
            bad, bad_delivered = aside.below(start), aside.below(delivered + 1)
            tally = Tally(
                front, source, start, bad,
                first=first, delivered=delivered, bad_delivered=bad_delivered,
            )  # fmt: skip
            tallies.append(tally)
            resuming.read(i, source, None if used is None else used.used.last)
        resuming.tell(time())
        fronts = [tally.front for tally in tallies]
        progress = RunProgress(tallies, asides, config.output)
        started = monotonic()
        heartbeat = Heartbeat(runtime, fronts, config.limits.slow_after_s)
        noted = error_noted(config.state, process.lineage, process.run)
        with noted, LocalCluster(process, config.spares) as cluster, heartbeat:
            watch = _watch(process, runtime)
            stack.enter_context(serve_metrics(flow, process, runtime, heartbeat, progress, cluster))
            stop = _drive(runtime, cluster, fronts, watch, progress, config, signals, console)
            _note_used(fronts, config.policy, well=not stop.error)
            if stop.error:
                raise _error_of(stop, config)
            if stop.text != IN_GOOD_ORDER:
                for tally in tallies:
                    tally.tell_if_empty()
        outputs, failures = progress.delivered()
        report = RunReport(
            sum(front.taken for front in fronts),
            outputs,
            monotonic() - started,
            cluster.kills,
            cluster.restarts,
            sum(aside.new for aside in asides),
            failures,
            progress.waiting(monotonic()),
            signals.asked if stop.text == IN_GOOD_ORDER else None,
        )
        tell_if_all_set_aside(
            *(report.records, outputs, failures, report.bad_records),
            config.output / DEAD_LETTERS,
        )
        return report


def _open(flow: Flow, flow_plan: Plan, config: RunConfig, sockets: Path) -> ProcessConfig:
    """Open the state directory, restore the savepoint if there is one, and begin a session."""
    start = config.start
    identity = Identity(
        outline(flow),
        flow_plan.identity(),
        config.policy.name,
        config.nodes,
        tuple(map(identity_of, config.inputs)),
        "" if start is None else f"{start.path.name} at {start.time}",
    )
    code = code_of(flow)
    state = open_run(
        config.state,
        config.output,
        identity,
        code,
        config.policy,
        [i for i, each in enumerate(config.inputs) if isinstance(each, str | Piped)],
        accept_changed_code=config.accept_changed_code,
    )
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
        watch=f"ipc://{sockets}/{WATCH}",
        identity=identity.text,
        code=code.text,
        run=secrets.token_hex(8),
        dead_letters=config.dead_letters,
        lineage=state.lineage,
        session=state.opened + 1,
        output=str(config.output),
        limits=config.limits,
        paths=config.paths,
        log_level=log.getEffectiveLevel(),
        metrics=config.metrics,
    )


def _used(
    number: int, source: FileSource | SeveralFiles, config: RunConfig, process: ProcessConfig
) -> UsedFile:
    """What the run has used of a file."""
    mark = Mark(process.lineage, f"used-{number}", process.session)
    used = UsedFile(config.state / f"input-{number}.used", mark)
    if used.used.last >= MANY:
        log.info(
            "%s: comparing the %d records used so far",
            *(source.name, used.used.last),
            extra=about("comparing", name=source.name, records=used.used.last),
        )
    return used


def _note_used(fronts: Sequence[Front], policy: Policy, *, well: bool) -> None:
    """Note which records were used since the last snapshot; `well`: the run ended without error.

    All, if they were read to their end, else those whose outputs are delivered.
    """
    whole = well and all(front.next >= INFINITY for front in fronts)
    by_time = policy.output in (Output.FRONTIER, Output.DURABLE)
    last = max(front.furthest for front in fronts)
    for front in fronts:
        if whole:
            front.note_used((last if by_time else front.furthest) + 1)
        elif by_time:
            front.note_used(min(last + 1, front.settled))


def _received(
    number: int,
    given: Piped | str,
    config: RunConfig,
    process: ProcessConfig,
    runtime: Runtime,
    receivers: ExitStack,
    signals: Signals,
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
        Path(process.sockets),
        alone=len(config.inputs) == 1,
        keep_bad=config.dead_letters,
        asked_to_end=lambda: signals.asked is not None,
    )
    if not config.policy.replay:
        receivers.callback(_let_go, input_log, receiver.source)
    receivers.callback(receiver.close)
    announce(receiver)
    return receiver.source


def _let_go(input_log: InputLog, source: ReceivedSource) -> None:
    """Remove what the front has given up: without snapshots the log says where a run goes on."""
    with suppress(Unavailable):  # how the run ended matters more; the next call says what it reads
        input_log.trim(source.trimmed)


def _front(
    number: int,
    source: Source | LiveSource,
    asides: Asides,
    used: UsedFile | None,
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
    carry_out = None if used is None else used.carry_out
    front.address = runtime.add(front, process.address(f"front-{number}"), carry_out)
    front.addresses["master"] = process.address("master")
    return front


def _watch(process: ProcessConfig, runtime: Runtime) -> Watch:
    """The watch of a run, driven by the runtime."""
    watch = Watch()
    watch.address = runtime.add(watch, process.address(WATCH))
    watch.addresses["master"] = process.address("master")
    return watch


def _drive(
    runtime: Runtime,
    cluster: LocalCluster,
    fronts: Sequence[Front],
    watch: Watch,
    progress: RunProgress,
    config: RunConfig,
    signals: Signals,
    console: Console,
) -> Stop:
    """Run fronts and receivers, and supervise the cluster, until every front has its `Stop`.

    At the first signal the run is asked to end in good order.
    """
    chance = random.Random(config.seed)
    kill_at = monotonic() + config.kill_every_s if config.kill_every_s else float("inf")
    supervise_at = 0.0
    master_ended_at: float | None = None
    cluster.wake(runtime)
    view = ProgressView(console, [front.source.name for front in fronts])
    with view, signals.noted():
        more = False
        while True:
            more = runtime.step(more, wait_s=0.05)
            outcomes = [front.outcome for front in fronts if front.outcome is not None]
            if len(outcomes) == len(fronts):
                break
            signals.check()
            if signals.asked is not None and not fronts[0].draining:
                name, beside = signals.asked.name, _beside_file(fronts)
                told = about("asked-to-end", signal=name)
                log.info("%s: %s", name, asked_to_end(config.policy, beside), extra=told)
                for front in fronts:
                    front.drain()
            now = monotonic()
            progress.tell(now, watch, view)  # at once when the nodes have answered
            if now >= kill_at and signals.asked is None:  # kills may be too quick for a good end
                cluster.kill_one(chance)
                kill_at = now + (config.kill_every_s or 0.0)
            if now < supervise_at and not cluster.has_lost_one:
                continue
            supervise_at = now + 0.05
            cluster.supervise(
                max(front.settled for front in fronts),
                max(front.furthest for front in fronts),
                watch,
            )
            if not cluster.master_ended:
                master_ended_at = None
            elif master_ended_at is None:
                master_ended_at = now
            elif now - master_ended_at > END_S:  # the fronts have missed the last messages
                cluster.ask_again()
                master_ended_at = None
        _await_nodes(runtime, cluster)
        if not outcomes[0].error:
            progress.end(monotonic(), watch, view)
    return outcomes[0]


def _beside_file(fronts: Sequence[Front]) -> list[str]:
    """The names of the live inputs, if there is a file, too."""
    live = [front.source.name for front in fronts if front.live is not None]
    return live if len(live) < len(fronts) else []


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
    label = re.search(r"failed at label \[(\d+), (\d+)", text)
    if stop.error == FunctionFailed.__name__ and label is not None:
        given = config.inputs[int(label[2])]
        if isinstance(given, FileSource | SeveralFiles):
            text += f"\n  It comes from {given.place(int(label[1]))}."
    if stop.error == InputError.__name__:
        text += f"\n  {OF_RECORDS}"
    if stop.error in ("StateMismatch", "SnapshotDamaged"):
        text += f" (state directory: {config.state}; outputs: {config.output})"
    return error_of(stop.error, text)
