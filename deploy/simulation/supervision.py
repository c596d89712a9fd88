"""The supervision of a simulated run: what the command does about processes that hang.

The signs of life that processes give over their pipes are judged by `HangDetector`, as in reality.
A process that is to be killed crashes, and is started again by the world. Pipes lose nothing, and
the command does not crash, as no run outlasts its command.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf

from driftline.coordinator.coordinator import MISSING_AFTER_S
from driftline.deploy.host.children.hangs import HangDetector, Running
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
        self._hangs = HangDetector(MISSING_AFTER_S)

    def begin(self, hangs: Sequence[Hang]) -> None:
        """Let these processes hang, and look after all from now on."""
        for hang in hangs:
            self._world.timeline.at_time(hang.at_s, partial(self._hang, hang))
        self._look()

    def _hang(self, hang: Hang) -> None:
        """Only a process that was heard: its start may take long, and has no limit."""
        host = self._world.hosts.get(hang.host)
        if host is not None and host.ended is not None:
            return
        if host is not None and host.process and self._hangs.has_heard(host.name, host.process):
            self._world.hang(host)
        else:
            self._world.timeline.after(AGAIN_S, partial(self._hang, hang))

    def _look(self) -> None:
        timeline = self._world.timeline
        timeline.after(LOOK_EVERY_S, self._look)
        running = {}
        for host in self._world.hosts.values():
            if host.process and host.kind in (MASTER, NODE):
                running[host.name] = Running(host.process, 0)
                if host.away_until < inf:
                    self._hangs.heard(host.name, host.process, timeline.now)
        for name in self._hangs.look(timeline.now, running, lambda name: 0):
            self._world.crash(self._world.hosts[name], "after a silence")
