"""The supervision of a simulated run: what the command does about processes that hang.

The command's watch is a party on a host of its own, with faults like others; what it hears is
judged by `Silences`, as in reality. A process that is to be killed crashes, and is started again by
the world. The command stands still with its watch; it does not crash, as no run outlasts its
command.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf

from driftline.coordinator.coordinator import MISSING_AFTER_S
from driftline.deploy.parties.silences import Running, Silences
from driftline.deploy.parties.watch import Watch
from driftline.deploy.simulation.scenarios.hanging import Hang
from driftline.deploy.simulation.world.world import World
from driftline.engine.wire.kinds import MASTER, NODE

LOOK_EVERY_S = 0.25

AGAIN_S = 0.02
"""When to try again to let a process hang that is only starting, or is not there yet."""


class Supervision:
    """Lets processes hang, and replaces them: nodes, also of a next layout, and the master."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._silences = Silences(MISSING_AFTER_S)
        self._host = world.add("watch", _watch, fixed={"watch"}, lasts=True)

    def begin(self, hangs: Sequence[Hang]) -> None:
        """Let these processes hang, and look after all from now on."""
        for hang in hangs:
            self._world.timeline.at_time(hang.at_s, partial(self._hang, hang))
        self._look()

    def _hang(self, hang: Hang) -> None:
        """Only a process that was heard: its start may take long, and has no limit."""
        host, watch = self._world.hosts.get(hang.host), self._host.party
        if host is not None and host.ended is not None:
            return
        if (
            isinstance(watch, Watch)
            and host is not None
            and host.process
            and watch.heard_at(host.name, host.process) > -inf
        ):
            self._world.hang(host)
        else:
            self._world.timeline.after(AGAIN_S, partial(self._hang, hang))

    def _look(self) -> None:
        timeline, watch = self._world.timeline, self._host.party
        timeline.after(LOOK_EVERY_S, self._look)
        if not isinstance(watch, Watch) or timeline.now < self._host.away_until:
            return
        running = {
            host.name: Running(host.process, 0)
            for host in self._world.hosts.values()
            if host.process and host.kind in (MASTER, NODE)
        }
        for name in self._silences.look(timeline.now, running, watch, lambda name: 0):
            self._world.crash(self._world.hosts[name], "after a silence")


def _watch(process: str) -> Sequence[Watch]:
    watch = Watch()
    watch.address, watch.addresses["master"] = process, "master"
    return [watch]
