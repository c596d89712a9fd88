"""The agent of a simulated run: asks for another number of nodes, and starts processes of nodes.

It does what the command does on a real machine: it says again and again how many nodes there are to
be, until there are; and it starts each node that the master wants and that has no process. It has
no faults itself: those of the processes that it starts are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from driftline.coordinator.coordinator import DECIDED
from driftline.deploy.parties.master import Master
from driftline.deploy.simulation.masters import Masters, master_of
from driftline.deploy.simulation.scenarios.resized import Resized
from driftline.deploy.simulation.world.disks import MasterDisk
from driftline.deploy.simulation.world.world import Host, World
from driftline.engine.wire.kinds import AGENT
from driftline.engine.wire.messages import Resize, encode

LOOK_EVERY_S = 0.02


class Resizes:
    """Asks for each of the numbers of nodes, at its time. `add`: adds the host of a node."""

    def __init__(
        self, world: World, masters: Masters, registry: MasterDisk, add: Callable[[int], Host]
    ) -> None:
        self._world = world
        self._masters = masters
        self._registry = registry
        self._add = add
        self._wanted = 0
        """How many nodes there are to be; 0: as many as there are."""

    def begin(self, resized: Sequence[Resized]) -> None:
        """Ask for these, from now on."""
        for each in resized:
            self._world.timeline.at_time(each.at_s, partial(self._want, each.nodes))
        if resized:
            self._look()

    def _want(self, nodes: int) -> None:
        self._wanted = nodes

    @property
    def layout(self) -> tuple[int, ...]:
        """The layout that was written last; () before the first write."""
        written = self._registry.written
        return () if written is None else written.layout

    def _look(self) -> None:
        timeline = self._world.timeline
        timeline.after(LOOK_EVERY_S, self._look)
        for host in self._masters.hosts:
            master = master_of(host.party)
            if master is not None and timeline.now >= host.away_until:
                self._see_to(host, master)

    def _see_to(self, host: Host, master: Master) -> None:
        coordinator = master.coordinator
        if coordinator.phase in DECIDED or not coordinator.leads:
            return
        if self._wanted and len(self.layout) == self._wanted:
            self._wanted = 0
        if self._wanted:
            master.receive(encode((AGENT, 0, 0), Resize(self._wanted, 0, AGENT)))
            self._world.turn_soon(host)
        for name in (*coordinator.nodes, *coordinator.resizing.names):
            node = self._world.hosts.get(name)
            if node is None:
                self._add(int(name.removeprefix("node-")))
            elif node.ended is not None:
                self._world.start(node)
