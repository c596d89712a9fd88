"""The process of a node, of the master, or of a spare, which becomes one of them later:
``python -m driftline.deploy.host.process CONFIG``.

CONFIG is the JSON form of `ProcessConfig`. The process runs until it is told to stop, or until its
parent ends. Its exit status is STOPPED if it was told to stop, CANNOT_START if it has said why. Any
other status is a death; also 0, as a user function may call exit.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import struct
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from io import TextIOWrapper
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

from driftline.coordinator.registry import FileRegistry, WriteState, check_identity
from driftline.deploy.host import forks
from driftline.deploy.host.heartbeat import Heartbeat
from driftline.deploy.host.lifeline import hold_on
from driftline.deploy.host.limits import LIMITS, Limits
from driftline.deploy.host.logs import insist, log_to_parent, rename
from driftline.deploy.host.metrics.roles import preload, serve_master, serve_node
from driftline.deploy.host.runtime import Runtime
from driftline.deploy.host.spare import await_role
from driftline.deploy.node.node import Node
from driftline.deploy.parties.consumer import ConsumerServer
from driftline.deploy.parties.letters import DeadLetters
from driftline.deploy.parties.master import Master
from driftline.deploy.work.pace import CARELESS, Pace
from driftline.engine.errors import DriftlineError, StateMismatch, Unavailable
from driftline.engine.events import Trouble, about, log
from driftline.engine.flow.code import code_of
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import Plan, plan
from driftline.engine.locks import Lock
from driftline.engine.policy import Policy, policy
from driftline.engine.sinks.jsonl import JsonLinesConsumer
from driftline.engine.sinks.lines import DEAD_LETTERS
from driftline.engine.snapshots.store import LmdbStore, PartStore
from driftline.engine.wire.marks import Mark
from driftline.engine.wire.messages import AskReport
from driftline.engine.wire.party import Job, Party


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """The configuration that all processes of a run share, and the role of this process."""

    flow: str
    nodes: int
    policy: str
    ordering: str
    checkpoint_s: float
    state: str
    """Directory of registry and snapshots."""
    sockets: str
    """Directory of the ipc sockets."""
    identity: str
    run: str
    """New with each call of a command: the registry may hold the outcome of an earlier call."""
    dead_letters: bool
    lineage: str = ""
    """The run's token, and the number of its session: see `engine.wire.marks`."""
    session: int = 0
    output: str = ""
    """Directory of the JSON-lines consumer; if empty, the consumer is a process of its own."""
    role: str = ""
    index: int = 0
    lifeline: int = -1
    """The file descriptor of a pipe that is closed when the parent ends."""
    spare: int = -1
    """The file descriptor over which a spare hears its role; -1: it has one."""
    careful: tuple[int, int] = CARELESS
    """First and last time of the elements that the node notes, and works off one by one."""
    limits: Limits = LIMITS
    paths: tuple[str, ...] = ()
    """Folders in which modules are looked for, after all others."""
    code: str = ""
    """The code of the flow in the command, as `Code.text`; empty if it is not compared."""
    process: str = ""
    """The name of this process among all that have the role, new with each start."""
    watch: str = ""
    """The address of the command's watch, which is told at once that the process has begun."""
    again: bool = False
    """Whether an earlier process of this run has had the role: its directories could be opened."""
    log_level: int = logging.WARNING
    """Lines below this level are not given to the parent."""
    metrics: str = ""
    """Where the command serves metrics, from which follows where this process does; "": nowhere."""

    def to_json(self) -> str:
        """The argument of the process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> ProcessConfig:
        """Decode `to_json`."""
        fields = json.loads(text)
        fields["careful"], fields["paths"] = tuple(fields["careful"]), tuple(fields["paths"])
        return ProcessConfig(**{**fields, "limits": Limits(**fields["limits"])})

    @property
    def name(self) -> str:
        """The name of this process."""
        return f"{self.role}-{self.index}" if self.role == "node" else self.role

    def mark(self, kind: str) -> Mark:
        """The mark of a directory of this process; `kind`: node or output."""
        return Mark(self.lineage, f"{kind}-{self.index}", self.session)

    def address(self, name: str) -> str:
        """The address of a party whose address is the same in every process."""
        return f"ipc://{self.sockets}/{name}"


CLAIM_S = 10.0
"""How long the processes of a killed run may take to end."""

STOPPED = 80
"""Exit status of a process that was told to stop."""

CANNOT_START = 2
"""Exit status of a process that has said why it cannot start."""

BROKEN = 3
"""Exit status of a master that a new one has to replace."""

DIED = 1
"""Exit status of a process after an unexpected exception, which it logs."""

OPEN_AGAIN_S = 1.0
"""Seconds between two tries of a process that cannot open a directory now."""

NOTE_BYTES = 2048
"""Size of the file in which a careful node notes its element."""

_random: list[int] = []

_Opened = TypeVar("_Opened")


def new_id() -> int:
    """A random id of 63 bits; the kernel is asked for many at once."""
    if not _random:
        _random.extend(struct.unpack("64Q", os.urandom(512)))
    return _random.pop() >> 1 or 1


def claim(path: Path) -> Lock:
    """Lock a file until it is released or this process ends; wait for a process that is ending.

    Raises InUse if a process of another run holds it, Unavailable.
    """
    taken = (
        f"{path.parent} is in use by another run: wait for its end, or give another "
        "--state directory"
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Lock(path, taken, wait_s=CLAIM_S)
    except OSError as error:
        raise Unavailable(f"{path.parent} cannot be used: {error.strerror}") from None


def wait_for_others(state: Path) -> None:
    """Wait until all processes of an earlier run have ended. Raises InUse, Unavailable."""
    for file in [state / "master.lock", *sorted(state.glob("node-*.lock"))]:
        if file.exists():
            claim(file).release()


def run_node(config: ProcessConfig, flow_plan: Plan, chosen: Policy) -> int:
    """Run a node with its store and, if it writes files, its consumer. Returns the exit status."""
    process = config.process or secrets.token_hex(8)
    claim(Path(config.state) / f"node-{config.index}.lock")
    flow = flow_plan.flow
    directory = Path(config.state) / f"node-{config.index}"
    kv = _opened(config, lambda: LmdbStore(directory, config.identity, config.mark("node")))
    store = PartStore(kv, flow)
    note = _opened(config, lambda: _notes(config))
    node = Node(
        config.index,
        config.nodes,
        flow_plan,
        chosen,
        new_id,
        process=process,
        dead_letters=config.dead_letters,
        run=config.run,
        pace=Pace(flow_plan, monotonic, careful=config.careful, note=note),
    )
    runtime = Runtime(store.carry_out)
    node.address = runtime.add(node, config.address(f"node-{config.index}-{process}"))
    node.addresses["master"] = config.address("master")
    letters = DeadLetters(f"{config.output}/{DEAD_LETTERS}")
    if config.output:
        barrier, mark = f"barrier-{config.index}", config.mark("output")
        told = Path(config.output), barrier, flow, config.identity, mark
        consumer = _opened(
            config,
            lambda: JsonLinesConsumer(
                *told, lambda found: letters.failed(monotonic(), found), config.dead_letters
            ),
        )
        runtime.host(ConsumerServer(lambda barrier: consumer, letters), node)
        node.more_figures = lambda: {
            "outputs": consumer.outputs,
            "dead_letters": consumer.failures,
        }
    else:
        node.addresses["consumer"] = config.address("consumer")
    _introduce(node, config)
    with closing(letters):
        heartbeat = Heartbeat(runtime, [node], config.limits.slow_after_s)
        with heartbeat, serve_node(config.metrics, node, runtime, heartbeat):
            runtime.run(lambda: node.ended)
        runtime.close()
    return STOPPED


def run_master(config: ProcessConfig, flow_plan: Plan, chosen: Policy) -> int:
    """Run the master with its registry. Returns the exit status."""
    claim(Path(config.state) / "master.lock")
    registry = FileRegistry(Path(config.state) / "registry")
    state = check_identity(registry.read(), config.identity, config.state)
    if state.lineage != config.lineage:
        raise StateMismatch(
            f"{config.state} was replaced by that of another run while this one runs"
        )

    def carry_out(job: Job) -> None:
        assert isinstance(job, WriteState)
        registry.write(job.state, again=job.again)

    master = Master(
        config.nodes,
        flow_plan,
        chosen,
        state,
        config.checkpoint_s,
        config.run,
        missing_after_s=config.limits.missing_after_s,
        stalled_after_s=config.limits.stalled_after_s,
        process=config.process,
        session=config.session,
    )
    _introduce(master, config)
    runtime = Runtime(carry_out)
    runtime.add(master, config.address("master"))
    with serve_master(config.metrics, master, runtime):
        runtime.run(lambda: master.ended or master.broken)
    runtime.close()
    return BROKEN if master.broken else STOPPED


def _introduce(party: Party, config: ProcessConfig) -> None:
    """Let a party report to the watch as if it had been asked: from now on it may be missed."""
    if config.watch:
        party.handle("watch", AskReport(config.watch))


def _opened(config: ProcessConfig, what: Callable[[], _Opened]) -> _Opened:
    """What is opened; a process that is started again waits for what cannot be reached now."""
    trouble = Trouble("cannot-open")
    while True:
        try:
            opened = what()
        except Unavailable as error:
            if not config.again:
                raise
            text = f"{config.name} cannot start: {error}; trying again"
            trouble.failed(monotonic(), text, name=config.name)
            sleep(OPEN_AGAIN_S)
        else:
            trouble.over(monotonic(), f"{config.name} can start", name=config.name)
            return opened


def where_it_was(config: ProcessConfig, name: str) -> str:
    """The element that a careful node worked on when it died, as text; empty if unknown."""
    try:
        note = _note_of(config, name).read_bytes()
    except OSError:
        return ""
    return note.rstrip(b"\0").decode(errors="replace")


def _notes(config: ProcessConfig) -> Callable[[str], None]:
    """A function by which a careful node notes its element before it begins, in a file."""
    path = _note_of(config, f"node-{config.index}")
    path.unlink(missing_ok=True)
    if config.careful == CARELESS:
        return lambda text: None
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.posix_fallocate(file, 0, NOTE_BYTES)  # no note fails later
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from None

    def write(text: str) -> None:
        data = text.encode(errors="replace")[:NOTE_BYTES]
        os.pwrite(file, data.ljust(NOTE_BYTES, b"\0"), 0)

    return write


def _note_of(config: ProcessConfig, name: str) -> Path:
    return Path(config.state) / f"at-{name}"


def _same_plan(config: ProcessConfig) -> Plan:
    """The plan of the flow. Raises StateMismatch unless it is the command's flow, with its code."""
    flow_plan = plan(load_flow(config.flow))
    insist()
    code = code_of(flow_plan.flow)
    comparable = config.code.startswith(f"{code.python} ")
    if flow_plan.identity() != config.identity.partition("|")[0] or (
        comparable and code.text != config.code
    ):
        raise StateMismatch(
            f"{config.flow} makes another flow in this process than in the command: has the file "
            "changed meanwhile, or does the flow depend on sys.argv, the environment or a random "
            "number? Every process of a run has to make the same flow"
        )
    return flow_plan


def main(argument: str) -> int:
    """Run the process that a JSON text describes. Returns the exit status."""
    config = ProcessConfig.from_json(argument)
    forks.guard()
    if config.lifeline >= 0:
        hold_on(config.lifeline)
    log_to_parent(config.name, config.log_level)
    if isinstance(sys.stdout, TextIOWrapper):  # a pipe, in which lines must not wait for others
        sys.stdout.reconfigure(line_buffering=True)
    sys.path += [path for path in config.paths if path not in sys.path]
    try:
        flow_plan = _same_plan(config)
        if config.spare >= 0:
            if config.metrics:
                preload()
            if not (argument := await_role(config.spare)):
                return STOPPED
            config = ProcessConfig.from_json(argument)
            rename(config.name)
        chosen = policy(config.policy, config.ordering)
        run = run_master if config.role == "master" else run_node
        return run(config, flow_plan, chosen)
    except DriftlineError as error:
        log.error("%s", error, extra=about("cannot-start", error=type(error).__name__))
        return CANNOT_START
    except BaseException as error:
        told = about("died", error=type(error).__name__)
        log.critical("an unexpected error ends %s", config.name, exc_info=True, extra=told)
        return DIED


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # at once: a thread that does not end must not keep the process
