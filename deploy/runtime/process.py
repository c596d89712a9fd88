"""Process of a node or master: ``python -m driftline.deploy.runtime.process CONFIG``.

CONFIG is the JSON form of `ProcessConfig`. `deploy.cluster.front` calls `main` for fronts, too. The
command starts one process, the fork server, and all others are forked from it
(`supervision.fork_server`). A process runs until the run ends or continues without it, or its
parent exits. In the first two cases it exits with STOPPED. After logging a Driftline error it exits
with CANNOT_START; a master may also exit with BROKEN or STEPPED_DOWN. Any other status counts as a
crash, even 0, because a user function may call exit.
"""

from __future__ import annotations

import os
import secrets
import struct
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from io import TextIOWrapper
from pathlib import Path
from time import monotonic

from msgspec.structs import replace

from driftline.connectors.outputs import OutputPlace, open_consumer
from driftline.connectors.sinks.consumer import SinkContext
from driftline.deploy.node.backpressure import NOT_CAREFUL, TurnBudget
from driftline.deploy.node.node import Node
from driftline.deploy.roles.consumer import ConsumerServer, DeadLetters
from driftline.deploy.runtime.claims import claim, open_with_retry
from driftline.deploy.runtime.config import ProcessConfig
from driftline.deploy.runtime.logs import log_to_parent, restore_logging
from driftline.deploy.runtime.loop.cpu_affinity import CpuAffinity
from driftline.deploy.runtime.loop.heartbeat import Heartbeat
from driftline.deploy.runtime.loop.runtime import Runtime
from driftline.deploy.runtime.master_process import report_to_poller, run_master
from driftline.deploy.runtime.metrics.roles import preload, serve_node
from driftline.deploy.runtime.supervision.child import name_process
from driftline.deploy.runtime.supervision.fork_server import FORK_SERVER, await_fork
from driftline.deploy.runtime.supervision.lifeline import exit_with_parent, tie_to_parent
from driftline.deploy.runtime.supervision.restarts import CANNOT_START, DIED, STOPPED
from driftline.engine.errors import DriftlineError, StateMismatch, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.flow.code import code_of
from driftline.engine.flow.loading import load_flow
from driftline.engine.flow.plan import Plan, make_plan
from driftline.engine.keygroups import owned_groups
from driftline.engine.policy import Policy, get_policy
from driftline.engine.snapshots.savepoint_mapping import initialise_store
from driftline.engine.snapshots.store import LmdbStore, PartStore

NOTE_BYTES = 2048
"""Size in bytes of the note file, in which a careful node describes its current element."""

_random: list[int] = []


def new_id() -> int:
    """Return a random id of 63 bits; random bytes are read from the kernel in batches."""
    if not _random:
        _random.extend(struct.unpack("64Q", os.urandom(512)))
    return _random.pop() >> 1 or 1


def run_node(config: ProcessConfig, flow_plan: Plan, policy: Policy) -> int:
    """Run a node with its store, and with its consumer unless that is a separate process.

    Return the exit status.
    """
    process = config.process or secrets.token_hex(8)
    claim(Path(config.state) / f"node-{config.index}.lock")
    flow = flow_plan.flow
    directory = Path(config.state) / f"node-{config.index}"
    kv = open_with_retry(
        config, lambda: LmdbStore(directory, config.identity, config.owner("node"))
    )
    store = PartStore(kv, flow)
    # Nodes of later layouts fetch their state from other nodes.
    is_in_first_layout = config.index < config.nodes
    if config.initial_state.savepoint and is_in_first_layout and not store.newest():
        owned = owned_groups(config.index, config.nodes, flow.groups)
        open_with_retry(
            config, lambda: initialise_store(store, config.initial_state.fitted(flow), owned)
        )
    note = open_with_retry(config, lambda: _open_note(config))
    node = Node(
        config.index,
        config.nodes,
        flow_plan,
        policy,
        new_id,
        process=process,
        dead_letters=config.dead_letters,
        run=config.run,
        reports_progress=config.journal,
        budget=TurnBudget(flow_plan, monotonic, careful=config.careful, note=note),
    )
    sinks = () if config.output else tuple(sink.name for sink in flow.sinks)
    affinity = CpuAffinity(config.cores, (config.index + 1) % 2, config.index % 2)
    runtime = Runtime(store.execute_job, config.transport(sinks), affinity)
    node.address = runtime.add(node, config.inbox(f"node-{config.index}-{process}"))
    node.addresses["master"] = config.master_at
    dead_letters = DeadLetters(OutputPlace(config.sink, Path(config.output)).dead_letter_location)
    if config.output:
        context = SinkContext(
            flow,
            f"barrier-{config.index}",
            config.dead_letters,
            Path(config.output),
            config.identity,
            config.owner("output"),
            lambda failures: dead_letters.add_failures(monotonic(), failures),
        )
        consumer = open_with_retry(config, lambda: open_consumer(config.sink, context))
        server = ConsumerServer(lambda barrier: consumer, dead_letters)
        runtime.host(server, node, server.close)
        node.more_figures = lambda: {
            "outputs": consumer.outputs,
            "dead_letters": consumer.failures,
        }
    else:
        node.addresses["consumer"] = config.address("consumer")
    report_to_poller(node, config)
    with closing(dead_letters):
        heartbeat = Heartbeat(runtime, [node], config.limits.slow_after_s, config.keep_alive_fd)
        with heartbeat, serve_node(config, node, runtime, heartbeat):
            runtime.run(lambda: node.ended)
        report_to_poller(node, config)  # send the final figures
        runtime.close()
    return STOPPED


def read_last_element(config: ProcessConfig, name: str) -> str:
    """Return a description of the element at which the careful node `name` died; "" if unknown."""
    try:
        note = _note_path(config, name).read_bytes()
    except OSError:
        return ""
    return note.rstrip(b"\0").decode(errors="replace")


def _open_note(config: ProcessConfig) -> Callable[[str], None]:
    """Remove an earlier note. Return the function with which a careful node writes notes.

    See `TurnBudget`. For a node that is not careful, the function does nothing.
    """
    path = _note_path(config, f"node-{config.index}")
    path.unlink(missing_ok=True)
    if config.careful == NOT_CAREFUL:
        return lambda text: None
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.posix_fallocate(file, 0, NOTE_BYTES)  # allocate now, so that no note fails later
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from None

    def write(text: str) -> None:
        data = text.encode(errors="replace")[:NOTE_BYTES]
        os.pwrite(file, data.ljust(NOTE_BYTES, b"\0"), 0)

    return write


def _note_path(config: ProcessConfig, name: str) -> Path:
    return Path(config.state) / f"at-{name}"


def _load_same_plan(config: ProcessConfig) -> Plan:
    """Return the flow's plan. Raises StateMismatch if its flow or code differs from the command's.

    Code is compared only if the command ran the same version of Python.
    """
    flow_plan = make_plan(load_flow(config.flow))
    restore_logging()
    code = code_of(flow_plan.flow)
    is_same_python = config.code.startswith(f"{code.python} ")
    if flow_plan.identity() != config.identity.partition("|")[0] or (
        is_same_python and code.text != config.code
    ):
        raise StateMismatch(
            f"{config.flow} defines another flow in this process than in the command: has the file "
            "changed meanwhile, or does the flow depend on sys.argv, the environment or a random "
            "number? It has to define the same flow in every process of a run"
        )
    return flow_plan


def _await_fork(fork_server: ProcessConfig) -> ProcessConfig | None:
    """Fork processes on request. Return in each forked process its configuration, and in the fork
    server None once it has to exit."""
    tie_to_parent(fork_server.lifeline_fd)
    if fork_server.metrics:
        preload()
    forked = await_fork(fork_server.fork_server_fd)
    if forked is None:
        return None
    text, pipes = forked
    os.close(fork_server.lifeline_fd)
    os.close(fork_server.keep_alive_fd)
    own_pipes = {"lifeline_fd": pipes.lifeline, "keep_alive_fd": pipes.keep_alive}
    return replace(ProcessConfig.from_json(text), **own_pipes)


RoleMain = Callable[[ProcessConfig, Plan, Policy], int]


def main(argument: str, front: RoleMain | None = None) -> int:
    """Run the process that a JSON text describes. Return the exit status.

    `front`: function that runs a front; None: this process cannot be a front.
    """
    config = ProcessConfig.from_json(argument)
    name_process(config.name)
    if config.role == FORK_SERVER:
        forked = _await_fork(config)
        if forked is None:
            return STOPPED
        config = forked
        name_process(config.name)
    if config.lifeline_fd >= 0:
        exit_with_parent(config.lifeline_fd)
    log_to_parent(config.name, config.log_level)
    if isinstance(sys.stdout, TextIOWrapper):  # a pipe, in which lines must not be buffered
        sys.stdout.reconfigure(line_buffering=True)
    sys.path += [path for path in config.paths if path not in sys.path]
    try:
        flow_plan = _load_same_plan(config)
        policy = get_policy(config.policy, config.ordering)
        roles: dict[str, RoleMain] = {"master": run_master, "node": run_node}
        if front is not None:
            roles["front"] = front
        return roles[config.role](config, flow_plan, policy)
    except DriftlineError as error:
        log.error("%s", error, extra=event_fields("cannot-start", error=type(error).__name__))
        return CANNOT_START
    except BaseException as error:
        fields = event_fields("crashed", error=type(error).__name__)
        log.critical("an unexpected error ends %s", config.name, exc_info=True, extra=fields)
        return DIED


if __name__ == "__main__":
    status = main(sys.argv[1])
    with suppress(OSError, ValueError):  # the flow may have closed them
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # a thread that does not end must not keep the process alive
