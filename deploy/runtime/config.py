"""What all processes of a run are told, and each of its role."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from driftline.coordinator.coordinator import MISSING_AFTER_S
from driftline.deploy.node.pace import CARELESS
from driftline.deploy.roles.master import STALLED_AFTER_S
from driftline.deploy.roles.window import WINDOW
from driftline.deploy.runtime.loop.heartbeat import SLOW_AFTER_S
from driftline.deploy.runtime.sockets.transport import LOCAL, Transport, TransportConfig
from driftline.deploy.runtime.supervision.restarts import DEATHS_MAX
from driftline.engine.snapshots.fitting import NOTHING, InitialState
from driftline.engine.sources.record import DEFAULT_SHAPE, Shape
from driftline.engine.storage.manifest import Mark
from driftline.engine.wire.kinds import WATCH

SESSION_S = 1.5
"""Default of the silence, in seconds, after which the next master leads."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When something counts as gone, lost or slow. Each is an option of `driftline run`."""

    missing_after_s: float = MISSING_AFTER_S
    """Silence after which a node or front counts as dead."""
    stalled_after_s: float = STALLED_AFTER_S
    """How long work may stay unfinished, while no node works, before it counts as lost."""
    slow_after_s: float = SLOW_AFTER_S
    """How long an element may take before a warning."""
    deaths: int = DEATHS_MAX
    """How often a process may die without progress of the run; then the run ends."""


LIMITS = Limits()
"""The defaults."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The inputs of a flow as a user names them, and how fronts read them."""

    inputs: tuple[str, ...] = ()
    shape: Shape = DEFAULT_SHAPE
    window: int = WINDOW
    let_anyone_send: bool = False


NOT_READING = Reading()


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
    """The run's token, and the number of its session: see `engine.storage.manifest`."""
    session: int = 0
    layout: tuple[int, ...] = ()
    """The nodes to begin with, by their numbers; (): the first `nodes`."""
    cores: tuple[int, ...] = ()
    """The cores of a service, of which each process has its half; (): they are not told apart."""
    output: str = ""
    """Directory of the run's records about its outputs; if empty, the consumer is a process of its
    own."""
    sink: str = "jsonl:"
    """Address of the sink that each node opens; JSON lines and LMDB are in `output`."""
    journal: bool = False
    """Whether that process merges the outputs of all nodes in label order."""
    role: str = ""
    index: int = 0
    lifeline: int = -1
    """The file descriptor of a pipe that is closed when the parent ends."""
    keep_alive: int = -1
    """The file descriptor of a pipe over which it says that it lives; -1: nobody wants to know."""
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
    watch_name: str = WATCH
    """The name of that watch."""
    again: bool = False
    """Whether an earlier process of this run has had the role: its directories could be opened."""
    log_level: int = logging.WARNING
    """Lines below this level are not given to the parent."""
    metrics: str = ""
    """Where the command serves metrics, from which follows where this process does; "": nowhere.
    With port 0 each process has a free one, and notes it in `sockets`."""
    submitted_as: str = ""
    """The name of the flow in its cluster; "": it is not in one."""
    network: TransportConfig = LOCAL
    """How the processes reach each other."""
    zookeeper: str = ""
    """``host:port,.../path`` of the flow in ZooKeeper, where masters queue up; if empty, there is
    one master, with the registry in `state`."""
    session_s: float = SESSION_S
    """How long the place of a master in ZooKeeper outlives its silence."""
    in_vain: int = 0
    """How often this master has made way for the next one in a row, and the run got no further."""
    guide: str = ""
    """The address of the guide, which knows where the master is; if empty, that is always the same.
    """
    reading: Reading = NOT_READING
    """What fronts read that are processes of their own."""
    beginning: InitialState = NOTHING
    """What nodes and fronts begin with whose directories are empty."""

    def to_json(self) -> str:
        """The argument of the process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> ProcessConfig:
        """Decode `to_json`."""
        return msgspec.convert(json.loads(text), ProcessConfig)

    @property
    def name(self) -> str:
        """The name of this process."""
        numbered = self.role in ("node", "front") or (self.role == "master" and self.zookeeper)
        return f"{self.role}-{self.index}" if numbered else self.role

    @property
    def registry_file(self) -> Path:
        """The file of the registry, if it is not in ZooKeeper."""
        return Path(self.state) / "registry"

    def mark(self, kind: str) -> Mark:
        """The mark of a directory of this process; `kind`: node or output."""
        return Mark(self.lineage, f"{kind}-{self.index}", self.session)

    def address(self, name: str) -> str:
        """The address of a party whose address is the same in every process."""
        return self.network.address(name, self.sockets)

    @property
    def master_at(self) -> str:
        """Where a member says its first `Hello`."""
        return self.guide or self.address("master")

    def inbox(self, name: str) -> str:
        """Where a party of this process listens."""
        return self.network.inbox(name, self.sockets)

    def transport(self, sinks: tuple[str, ...] = ()) -> Transport:
        """The transport of this process. `sinks`: whose outputs it sends to other processes."""
        return self.network.transport(sinks)
