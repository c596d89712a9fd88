"""Configuration of the processes of a run: a shared part, and the role of each process."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import msgspec
from msgspec import Struct

from driftline.coordinator.coordinator import MISSING_AFTER_S
from driftline.deploy.node.backpressure import NOT_CAREFUL
from driftline.deploy.roles.master import STALLED_AFTER_S
from driftline.deploy.runtime.loop.heartbeat import SLOW_AFTER_S
from driftline.deploy.runtime.sockets.transport import LOCAL, Transport, TransportConfig
from driftline.deploy.runtime.supervision.restarts import CRASHES_MAX
from driftline.engine.snapshots.savepoint_mapping import EMPTY_STATE, InitialState
from driftline.engine.sources.record import DEFAULT_FORMAT, RecordFormat
from driftline.engine.storage.ownership import DirectoryOwner
from driftline.engine.wire.kinds import POLLER

SESSION_S = 1.5
"""Default ZooKeeper session timeout in seconds: how long a failed leader delays the next one."""


class Limits(Struct, frozen=True):
    """Limits beyond which a process counts as dead, work as lost, and an element as slow.

    Each limit is an option of `driftline run`.
    """

    missing_after_s: float = MISSING_AFTER_S
    """Silence in seconds after which a node or front counts as dead."""
    stalled_after_s: float = STALLED_AFTER_S
    """If no member works for this many seconds, the oldest work counts as lost."""
    slow_after_s: float = SLOW_AFTER_S
    """Seconds that a turn may take before a warning, for example because of a slow element."""
    max_crashes: int = CRASHES_MAX
    """The run ends after this many crashes of one process without progress of the run between
    them."""


LIMITS = Limits()


class Reading(Struct, frozen=True):
    """Inputs of a flow in the user's notation, and how fronts read them."""

    inputs: tuple[str, ...] = ()
    record_format: RecordFormat = DEFAULT_FORMAT
    window: int | None = None
    """Maximum number of records of one front in flight; None: automatic."""
    let_anyone_send: bool = False
    """Whether producers of other machines may send without keys."""


NOT_READING = Reading()


class ProcessConfig(Struct, frozen=True):
    """Configuration that all processes of a run share, and the role of this process."""

    flow: str
    """Module or file of the flow."""
    nodes: int
    policy: str
    """With `ordering`, the arguments of `get_policy`."""
    ordering: str
    snapshot_interval_s: float
    """Interval of snapshots in seconds."""
    state: str
    """Directory of registry and snapshots."""
    sockets: str
    """Directory of the ipc sockets."""
    identity: str
    """`Identity.text` of the run: state with another one is rejected."""
    run: str
    """Token of this call of the command.

    It distinguishes the outcome of this call in the registry from that of an earlier one.
    """
    dead_letters: bool
    """Whether final failures become dead letters; otherwise the first one ends the run."""
    lineage: str = ""
    """Token of the run's state, the same in all sessions; see `engine.storage.ownership`."""
    session: int = 0
    """Number of this call among all calls that have continued this state, from 1."""
    layout: tuple[int, ...] = ()
    """Numbers of the nodes to start with; (): the first `nodes`."""
    cores: tuple[int, ...] = ()
    """CPU cores of a service; each process prefers one half of them. (): no affinity."""
    output: str = ""
    """Directory of the run's records about its outputs, and of the outputs themselves for the sinks
    `jsonl:` and `lmdb:`; "": a separate process consumes the outputs."""
    sink: str = "jsonl:"
    """Address of the sink that each node opens, unless `output` is empty."""
    journal: bool = False
    """Whether the consumer process merges the outputs of all nodes in label order."""
    role: str = ""
    """Role of this process: master, node, front or fork server."""
    index: int = 0
    """Number of this process among those of its role."""
    lifeline_fd: int = -1
    """File descriptor of a pipe that closes when the parent exits."""
    keep_alive_fd: int = -1
    """File descriptor of the pipe to which the process writes signs of life (`Heartbeat`); -1: no
    parent reads them."""
    fork_server_fd: int = -1
    """File descriptor over which a fork server receives requests."""
    careful: tuple[int, int] = NOT_CAREFUL
    """(first, last) label time of the elements that a node applies one by one after repeated
    crashes; see `TurnBudget`."""
    limits: Limits = LIMITS
    paths: tuple[str, ...] = ()
    """Directories added to the end of the module search path."""
    code: str = ""
    """`Code.text` of the flow as the command loaded it, to compare with this process's; "": do not
    compare."""
    process: str = ""
    """Identity of this process: unique among all processes of its role, and new with each start."""
    poller_address: str = ""
    """Address of the `StatusPoller` of the command or agent; "": none.

    The process sends it a first report at its start, before any request.
    """
    poller_name: str = POLLER
    """Name of that `StatusPoller`."""
    is_restart: bool = False
    """Whether an earlier process of this run had this role.

    If so, this process retries while it cannot open its directories.
    """
    log_level: int = logging.WARNING
    """Lowest level of the log lines that are sent to the parent."""
    metrics: str = ""
    """Address at which the command serves metrics; this process derives its own from it. "": no
    metrics. With port 0 each process picks a free port and writes it to a file in `sockets`."""
    submitted_as: str = ""
    """Name of the flow in its cluster; "": not in a cluster."""
    network: TransportConfig = LOCAL
    """How the processes reach each other."""
    zookeeper: str = ""
    """``host:port,.../path`` in ZooKeeper, where masters queue for leadership. If empty,
    there is one master, with the registry in `state`."""
    session_s: float = SESSION_S
    """Session timeout of a master in ZooKeeper, in seconds."""
    futile_step_downs: int = 0
    """Number of consecutive step-downs of this master without progress of the run."""
    guide: str = ""
    """Address of the guide, which sends members the leader's address. If empty, the master's
    address never changes."""
    reading: Reading = NOT_READING
    """Inputs of fronts that run in processes of their own."""
    initial_state: InitialState = EMPTY_STATE
    """Savepoint that initialises empty state directories."""

    def to_json(self) -> str:
        """Return this configuration as JSON, the command-line argument of the process."""
        return json.dumps(msgspec.to_builtins(self))

    @staticmethod
    def from_json(text: str) -> ProcessConfig:
        """Decode the result of `to_json`."""
        return msgspec.convert(json.loads(text), ProcessConfig)

    @property
    def name(self) -> str:
        """Name of this process's role, the same after a restart: `node-0`."""
        numbered = self.role in ("node", "front") or (self.role == "master" and self.zookeeper)
        return f"{self.role}-{self.index}" if numbered else self.role

    @property
    def registry_file(self) -> Path:
        """File of the registry, if it is not in ZooKeeper."""
        return Path(self.state) / "registry"

    def owner(self, kind: str) -> DirectoryOwner:
        """Return the owner of a directory of this process; `kind`: node or output."""
        return DirectoryOwner(self.lineage, f"{kind}-{self.index}", self.session)

    def address(self, name: str) -> str:
        """Return the address of a role with a fixed address, such as the only master."""
        return self.network.address(name, self.sockets)

    @property
    def master_at(self) -> str:
        """Address to which a member sends its first `Hello`."""
        return self.guide or self.address("master")

    def inbox(self, name: str) -> str:
        """Return the address at which a role of this process listens."""
        return self.network.inbox(name, self.sockets)

    def transport(self, sinks: tuple[str, ...] = ()) -> Transport:
        """Return the transport of this process.

        `sinks`: names of the sinks to which this process sends outputs.
        """
        return self.network.transport(sinks)
