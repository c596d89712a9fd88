"""Runs a flow over files on this machine: a local cluster, and the fronts in this process.

This process reads the inputs, shows how far they are, keeps the cluster alive and, if asked to,
kills some of it now and then. Everything that must survive is in the state directory: the same
command goes on after any interruption.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from driftline.deploy.host.heartbeat import Heartbeat
from driftline.deploy.host.lifeline import ended_in_order
from driftline.deploy.host.limits import LIMITS, Limits
from driftline.deploy.host.process import ProcessConfig, claim, new_id
from driftline.deploy.host.runtime import Runtime
from driftline.deploy.host.supervisor import LocalCluster
from driftline.deploy.parties.front import Front
from driftline.deploy.run.asides import Asides
from driftline.deploy.run.leftovers import clear_drafts, socket_folder
from driftline.deploy.run.opening import open_run
from driftline.deploy.run.receivers import announcement, identity_of, receiver_of
from driftline.deploy.run.savepoints import restore_run
from driftline.engine.errors import DriftlineError, Unavailable, error_of
from driftline.engine.flow.flow import Flow
from driftline.engine.flow.plan import plan
from driftline.engine.policy import Policy
from driftline.engine.sinks.lines import DEAD_LETTERS
from driftline.engine.snapshots.savepoint import Savepoint
from driftline.engine.sources import LiveSource, Source
from driftline.engine.sources.inputs import Input, Piped
from driftline.engine.sources.logs.inputlog import InputLog
from driftline.engine.wire.marks import Mark
from driftline.engine.wire.messages import Stop

LAST_WORDS_S = 5.0
"""How long an end of the master may take to be heard of; and how long others have to end, too."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What is run, on what, how."""

    flow: str
    """As the user named it; node processes load it themselves."""
    inputs: Sequence[Input | LiveSource]
    """For each source of the flow."""
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
    """What to begin from, if not from the beginning."""
    limits: Limits = LIMITS
    paths: tuple[str, ...] = ()
    """Where node processes look for modules, too, behind all others."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did."""

    records: int
    seconds: float
    kills: int
    restarts: int
    bad_records: int
    """Records that could not be read, set aside so far."""
    dead_letters: int
    """Elements whose function has failed, set aside so far."""

    def as_json(self) -> dict[str, object]:
        """For machines."""
        return {
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "kills": self.kills,
            "restarts": self.restarts,
            "bad_records": self.bad_records,
            "dead_letters": self.dead_letters,
        }


def run_flow(flow: Flow, config: RunConfig, console: Console) -> RunReport:
    """Run until all input is processed and delivered. Raises DriftlineError if that fails."""
    flow.check_inputs(config.inputs)
    with ExitStack() as stack:
        stack.enter_context(ended_in_order())
        stack.callback(claim(config.state / "run.lock").release)
        clear_drafts(config.state, config.output, config.output / ".driftline")
        sockets = stack.enter_context(socket_folder(config.state))
        return _run(flow, config, sockets, console)


def _run(flow: Flow, config: RunConfig, sockets: Path, console: Console) -> RunReport:
    flow_plan = plan(flow)
    runtime = Runtime()
    kept = ExitStack()
    try:
        inputs = "|".join(map(identity_of, config.inputs))
        identity = f"{flow_plan.identity()}|{config.policy.name}|{config.nodes}|{inputs}"
        if config.start is not None:
            identity += f"|from {config.start.path.name} at {config.start.time}"
        logs = [i for i, source in enumerate(config.inputs) if isinstance(source, str | Piped)]
        opened = open_run(config.state, config.output, identity, config.policy, config.nodes, logs)
        if config.start is not None:
            restore_run(config.state, flow, config.nodes, config.policy, config.start)
        session = opened.opened + 1
        sources: list[Source | LiveSource] = []
        for i, each in enumerate(config.inputs):
            if isinstance(each, str | Piped):
                mark = Mark(opened.lineage, f"input-{i}", session)
                input_log = InputLog(config.state / mark.part, f"{config.flow} {i}", mark)
                kept.callback(input_log.close)
                receiver = receiver_of(
                    each,
                    input_log,
                    i,
                    runtime,
                    alone=len(config.inputs) == 1,
                    keep_bad=config.dead_letters,
                )
                kept.callback(receiver.close)
                sources.append(receiver.source)
                _relay(console, announcement(receiver))
            else:
                sources.append(each)
        process = ProcessConfig(
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
            lineage=opened.lineage,
            session=session,
            output=str(config.output),
            limits=config.limits,
            paths=config.paths,
        )
        asides = [
            Asides(config.output / DEAD_LETTERS / f"input-{i}.jsonl")
            for i in range(len(config.inputs))
        ]
        fronts = []
        for i, source in enumerate(sources):
            front = Front(
                i,
                config.nodes,
                flow_plan,
                config.policy,
                source,
                new_id,
                process=secrets.token_hex(8),
                window=config.window,
                on_bad=asides[i].add if config.dead_letters else None,
                run=process.run,
            )
            front.address = runtime.add(front, process.address(f"front-{i}"))
            front.addresses["master"] = process.address("master")
            fronts.append(front)
        started = monotonic()
        beat = Heartbeat(runtime, fronts, config.limits.slow_after_s)
        with LocalCluster(process, partial(_relay, console)) as cluster, beat:
            stop = _drive(runtime, cluster, sources, fronts, config, console)
            if stop.error:
                raise _as_error(stop, config)
        return RunReport(
            sum(front.taken for front in fronts),
            monotonic() - started,
            cluster.kills,
            cluster.restarts,
            sum(aside.count for aside in asides),
            _dead_letters(config.output),
        )
    finally:
        runtime.close(linger_ms=0)
        kept.close()


def _dead_letters(output: Path) -> int:
    """Lines that barriers have written for functions that failed."""
    files = (output / DEAD_LETTERS).glob("[0-9]*.jsonl")
    return sum(file.read_bytes().count(b"\n") for file in files)


def _relay(console: Console, line: str) -> None:
    console.print(f"driftline: {line}", markup=False, highlight=False, soft_wrap=True)


def _drive(
    runtime: Runtime,
    cluster: LocalCluster,
    sources: Sequence[Source | LiveSource],
    fronts: Sequence[Front],
    config: RunConfig,
    console: Console,
) -> Stop:
    """Let everything happen until all fronts have been told that the run is over."""
    chance = random.Random(config.seed)
    kill_at = monotonic() + config.kill_every_s if config.kill_every_s else float("inf")
    look_at = 0.0
    gone_since: float | None = None
    with _progress(console) as show:
        tasks = [show(source.name) for source in sources]
        more = False
        while True:
            more = runtime.step(more, wait_s=0.05)
            outcomes = [front.outcome for front in fronts if front.outcome is not None]
            if len(outcomes) == len(fronts):
                break
            now = monotonic()
            if now >= kill_at:
                console.log(f"kill -9 {cluster.kill_one(chance)}")
                kill_at = now + (config.kill_every_s or 0.0)
            if now >= look_at:
                look_at = now + 0.05
                cluster.supervise(
                    max(front.settled for front in fronts), max(front.furthest for front in fronts)
                )
                for source, front, task in zip(sources, fronts, tasks, strict=True):
                    task(source, front.taken)
                if not cluster.master_ended:
                    gone_since = None
                elif gone_since is None:
                    gone_since = now
                elif now - gone_since > LAST_WORDS_S:
                    cluster.ask_again()
                    gone_since = None
    _see_off(runtime, cluster)
    return outcomes[0]


def _see_off(runtime: Runtime, cluster: LocalCluster) -> None:
    """Give the others time to hear of the end; whoever is left then is of no use to anybody."""
    until = monotonic() + LAST_WORDS_S
    with suppress(Unavailable):  # how the run ended is known
        while not cluster.nodes_ended and monotonic() < until:
            runtime.step(wait_s=0.05)
            cluster.supervise()


Update = Callable[[Source | LiveSource, int], None]


class _progress:
    """A progress bar for each input, on a terminal that shows one. A context manager."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[records]} records"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Callable[[str], Update]:
        self._bars.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _show(self, name: str) -> Update:
        task = self._bars.add_task(name, total=None, records=0)

        def update(source: Source | LiveSource, records: int) -> None:
            done = source.progress()
            completed, total = done if done is not None else (0, None)
            self._bars.update(task, completed=completed, total=total, records=records)

        return update


def _as_error(stop: Stop, config: RunConfig) -> DriftlineError:
    """The error that ended a run, as one of ours."""
    text = stop.text
    if stop.error in ("StateMismatch", "SnapshotDamaged"):
        text += f" (state directory: {config.state}; outputs: {config.output})"
    return error_of(stop.error, text)
