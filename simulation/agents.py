"""Supervision and rescaling in a simulated run: replace processes that hang, request other numbers
of nodes, and start the processes of new nodes.

As in a real run, `HangDetector` judges the signs of life, which arrive over pipes without loss.
`Supervision` crashes a hung process, and the world restarts it. The simulated supervisor has no
faults: it never crashes, as no run outlives its command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from driftline.coordinator.coordinator import MISSING_AFTER_S, NO_MORE_DECISIONS
from driftline.deploy.roles.master import Master
from driftline.deploy.runtime.supervision.restarts import HangDetector, RunningProcess
from driftline.engine.wire.kinds import AGENT, MASTER, NODE
from driftline.engine.wire.messages import Rescale, encode
from driftline.simulation.masters import Masters, master_of
from driftline.simulation.scenarios.disturbances import Hang, RescaleRequest
from driftline.simulation.world.disks import MasterDisk
from driftline.simulation.world.world import SimulatedHost, World

CHECK_EVERY_S = 0.25
"""Seconds between two checks for hung processes."""

HANG_RETRY_S = 0.02
"""Interval in seconds at which a hang is retried while its process is starting or absent."""


class Supervision:
    """Makes processes of nodes and of the master hang, and replaces hung ones."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hangs = HangDetector(MISSING_AFTER_S)

    def begin(self, hangs: Sequence[Hang]) -> None:
        """Schedule these hangs, and start to supervise masters and nodes."""
        for hang in hangs:
            self._world.timeline.at_time(hang.at_s, partial(self._hang, hang))
        self._check_processes()

    def _hang(self, hang: Hang) -> None:
        """Hang a process, but not before its first sign of life: until then it has no timeout."""
        host = self._world.hosts.get(hang.host)
        if host is not None and host.ended_role is not None:
            return
        if host is not None and host.process and self._hangs.has_heard(host.name, host.process):
            self._world.hang(host)
        else:
            self._world.timeline.after(HANG_RETRY_S, partial(self._hang, hang))

    def _check_processes(self) -> None:
        timeline = self._world.timeline
        timeline.after(CHECK_EVERY_S, self._check_processes)
        running = {}
        for host in self._world.hosts.values():
            if host.process and host.kind in (MASTER, NODE):
                running[host.name] = RunningProcess(host.process, 0)
                if host.paused_until < inf:
                    self._hangs.record_sign(host.name, host.process, timeline.now)
        for name in self._hangs.find_hung(timeline.now, running, lambda name: 0):
            self._world.crash(self._world.hosts[name], "after a silence")


RESCALE_EVERY_S = 0.02
"""Seconds between two checks of the desired number of nodes."""


class RescaleDriver:
    """Requests other numbers of nodes, and starts nodes. `add`: adds the host of a new node."""

    def __init__(
        self,
        world: World,
        masters: Masters,
        registry: MasterDisk,
        add: Callable[[int], SimulatedHost],
    ) -> None:
        self._world = world
        self._masters = masters
        self._registry = registry
        self._add = add
        self._wanted = 0
        """Desired number of nodes; 0: keep the current number."""

    def begin(self, requests: Sequence[RescaleRequest]) -> None:
        """Schedule these requests, and start to send them to the leading master."""
        for request in requests:
            event = partial(self._set_wanted, request.nodes)
            self._world.timeline.at_time(request.at_s, event)
        if requests:
            self._check_masters()

    def _set_wanted(self, nodes: int) -> None:
        self._wanted = nodes

    @property
    def layout(self) -> tuple[int, ...]:
        """The layout that was last written to the registry; () before the first write."""
        written = self._registry.written
        return () if written is None else written.layout

    def _check_masters(self) -> None:
        timeline = self._world.timeline
        timeline.after(RESCALE_EVERY_S, self._check_masters)
        for host in self._masters.hosts:
            master = master_of(host.role)
            if master is not None and timeline.now >= host.paused_until:
                self._apply_rescale(host, master)

    def _apply_rescale(self, host: SimulatedHost, master: Master) -> None:
        """Send a pending request to a leading master, and start the nodes that it needs."""
        coordinator = master.coordinator
        if coordinator.phase in NO_MORE_DECISIONS or not coordinator.leads:
            return
        if self._wanted and len(self.layout) == self._wanted:
            self._wanted = 0
        if self._wanted:
            master.receive(encode((AGENT, 0, 0), Rescale(self._wanted, 0, AGENT)))
            self._world.turn_soon(host)
        for name in (*coordinator.nodes, *coordinator.rescaling.next_nodes):
            node = self._world.hosts.get(name)
            if node is None:
                self._add(int(name.removeprefix("node-")))
            elif node.ended_role is not None:
                self._world.start(node)
