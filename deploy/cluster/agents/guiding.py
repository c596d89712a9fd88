"""Guiding: runs the guide of a flow on this host, who asks the queue of masters."""

from __future__ import annotations

from math import inf

from driftline.deploy.cluster.tree.tree import Tree
from driftline.deploy.host.loop.runtime import Runtime
from driftline.deploy.parties.guide import FindLeader, Guide
from driftline.engine.wire.party import Job

ASK_EVERY_S = 0.5
"""How often the master is looked for where nobody tells of changes."""


class Guiding:
    """The guide of a flow, in a runtime of this process. Raises Unavailable."""

    def __init__(self, tree: Tree, flow: str, runtime: Runtime, inbox: str) -> None:
        self.guide = Guide()
        self.address = runtime.add(self.guide, inbox, self._carry_out)
        self.masters = tree.masters(flow, lambda: runtime.soon(self.guide.noticed))
        self._ask_at = inf if tree.zookeeper else 0.0

    def look(self, now: float) -> None:
        """Look for the master again, if that is due."""
        if now >= self._ask_at:
            self._ask_at = now + ASK_EVERY_S
            self.guide.noticed()

    def close(self) -> None:
        """Ask no more."""
        self.masters.close()

    def _carry_out(self, job: Job) -> object:
        assert isinstance(job, FindLeader)
        return self.masters.leader()
