"""The health of a process, and whether it is ready.

*Healthy*: the loop has turned a moment ago; or it is busy with one turn, and the heartbeat, which
is a thread beside it, says that the process lives. *Ready*: a node runs, with its state and the
answer of its consumer; the master has all nodes at work, or stands by; fronts have begun to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

from driftline.coordinator.coordinator import Phase
from driftline.deploy.host.loop.heartbeat import Heartbeat
from driftline.deploy.host.loop.runtime import Runtime
from driftline.deploy.node.node import Node
from driftline.deploy.parties.candidate import Candidate
from driftline.deploy.parties.front import Front
from driftline.deploy.parties.master import Master

TURNS_WITHIN_S = 10.0
"""A loop turns at least once a second; one that has not turned for so long hangs, or is starved."""

Ready = Callable[[], str]
"""Gives why a process is not ready; "" if it is."""


class Condition(Protocol):
    """How a process is; any thread may ask."""

    def why_not_healthy(self, now: float) -> str:
        """Why it is not healthy; "" if it is. `now`: seconds, monotonic."""

    def why_not_ready(self) -> str:
        """Why it is not ready; "" if it is."""


class Health:
    """The health of one process that has a loop."""

    def __init__(self, runtime: Runtime, ready: Ready, heartbeat: Heartbeat | None = None) -> None:
        self._runtime = runtime
        self._heartbeat = heartbeat
        self._began = monotonic()
        self.why_not_ready = ready

    def why_not_healthy(self, now: float) -> str:
        """Why the process is not healthy; "" if it is. `now`: seconds, monotonic."""
        turned = max((party.now for party in self._runtime.parties), default=0.0)
        beaten = self._heartbeat.beaten_at if self._heartbeat is not None else 0.0
        silent = now - max(turned, beaten, self._began)
        if silent <= TURNS_WITHIN_S:
            return ""
        return f"the loop of this process has not turned for {silent:.0f} s"


def node_ready(node: Node) -> Ready:
    """Whether a node runs."""
    return lambda: "" if node.running else f"{node.name}: {node.state}"


def master_ready(master: Master) -> Ready:
    """Whether all nodes are at work."""

    def why_not() -> str:
        phase = master.coordinator.phase
        return "" if phase is Phase.RUNNING else phase.value

    return why_not


def candidate_ready(candidate: Candidate) -> Ready:
    """Whether a master that leads is ready, or one that stands by could take over."""

    def why_not() -> str:
        leadership, master = candidate.leadership, candidate.master
        if leadership.lost:
            return "its session with ZooKeeper is over"
        if master is not None:
            return master_ready(master)()
        if leadership.before is None:
            return "it has no place in the queue of masters yet"
        return "it is the first, and reads the registry" if leadership.first else ""

    return why_not


def fronts_ready(fronts: Sequence[Front]) -> Ready:
    """Whether all fronts have begun to read."""

    def why_not() -> str:
        waiting = [front.name for front in fronts if not front.begun]
        return f"not begun: {', '.join(waiting)}" if waiting else ""

    return why_not
