"""Runs a flow on this machine: nodes and master in processes of their own, the fronts in this one.

This process reads the inputs, shows progress bars, restarts processes that die and, with
`--kill-every`, kills some. Everything that has to survive is in the state directory: the same
command goes on after any interruption.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic, time

from rich.console import Console

from driftline.coordinator.draining import IN_GOOD_ORDER
from driftline.coordinator.identity import Identity
from driftline.deploy.host.claims import claim
from driftline.deploy.host.config import ProcessConfig
from driftline.deploy.host.heartbeat import Heartbeat
from driftline.deploy.host.process import new_id
from driftline.deploy.host.runtime import Runtime
from driftline.deploy.host.signals import Signals
from driftline.deploy.host.supervisor import LocalCluster
from driftline.deploy.parties.front import Front
from driftline.deploy.parties.watch import Watch
from driftline.deploy.run.asides import Asides
from driftline.deploy.run.config import RunConfig
from driftline.deploy.run.driving import drive
from driftline.deploy.run.ending import error_noted
from driftline.deploy.run.fresh import begin_anew
from driftline.deploy.run.leftovers import clear_drafts, socket_folder
from driftline.deploy.run.metrics import check_metrics, serve_metrics
from driftline.deploy.run.opening import open_run
from driftline.deploy.run.progress import RunProgress
from driftline.deploy.run.reach import check_reach
from driftline.deploy.run.receivers import announce, identity_of, receiver_of
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
from driftline.engine.sources import FileSource, LiveSource, Source
from driftline.engine.sources.files.several import SeveralFiles
from driftline.engine.sources.inputs import Piped
from driftline.engine.sources.logs.inputlog import InputLog
from driftline.engine.sources.logs.received import ReceivedSource
from driftline.engine.wire.marks import Mark
from driftline.engine.wire.messages import Stop

WATCH = "watch"
"""The name of the watch, of which its address is made."""

MANY = 1_000_000
"""From so many records on their reading takes a while, and is told."""


def run_flow(flow: Flow, config: RunConfig, console: Console) -> RunReport:
    """Run a flow until all input is processed and delivered. Raises DriftlineError if it fails.

    Log lines, also those of the processes, go to the logger ``driftline``; `console` shows the
    progress if it is a terminal.
    """
    flow.check_inputs(config.inputs)
    check_reach(config.inputs, config.reach)
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
            stop = drive(runtime, cluster, fronts, watch, progress, config, signals, console)
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
        reach=config.reach,
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
