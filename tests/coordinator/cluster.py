"""Test cluster without a network: a coordinator, its registry, and scripted members."""

from __future__ import annotations

from driftline.coordinator.coordinator import Coordinator, Phase
from driftline.coordinator.registry import ClusterState, WriteState, may_replace
from driftline.engine.errors import StateMismatch, Unavailable
from driftline.engine.policy import get_policy
from driftline.engine.wire.messages import Hello, Message, Prepared

INTERVAL = 2.0


class ScriptedCluster:
    """A coordinator, its registry, and nodes and fronts whose messages the test sends."""

    def __init__(
        self,
        nodes: int = 2,
        fronts: int = 1,
        mode: str = "exactly-once",
        state: ClusterState | None = None,
    ) -> None:
        self.written = state or ClusterState("me")
        self.coordinator = Coordinator(nodes, fronts, get_policy(mode), self.written, INTERVAL)
        self.nodes = [f"node-{i}" for i in range(nodes)]
        self.fronts = [f"front-{i}" for i in range(fronts)]
        self.processes = {name: f"{name}#1" for name in self.nodes + self.fronts}
        self.now = 0.0

    def phase(self) -> Phase:
        return self.coordinator.phase

    def hello(self, *names: str, ready: bool = False, incarnation: int | None = None) -> None:
        for name in names:
            known = self.coordinator.state.incarnation if incarnation is None else incarnation
            self.coordinator.on_hello(
                name, Hello(f"at {name}", self.processes[name], known, int(ready))
            )

    def write(self) -> list[ClusterState]:
        """Carry out the requested registry writes and return the written states."""
        jobs, self.coordinator.jobs = self.coordinator.jobs, []
        found = []
        for job in jobs:
            assert isinstance(job, WriteState)
            result: object = None
            if may_replace(job.state, self.written, again=job.again):
                self.written = job.state
                found.append(job.state)
            else:
                result = StateMismatch("another master has taken over")
            self.coordinator.on_job_done(job, result)
        return found

    def write_fails(self, *, done: bool = False) -> None:
        """Fail the requested write; if `done`, it took effect nevertheless."""
        [job], self.coordinator.jobs = self.coordinator.jobs, []
        assert isinstance(job, WriteState)
        if done:
            self.written = job.state
        self.coordinator.on_job_done(job, Unavailable("disk full"))

    def sent(self) -> list[tuple[str, Message]]:
        """Return the messages sent since the last call."""
        out, self.coordinator.out = self.coordinator.out, []
        return out

    def pass_time(self, seconds: float, silent: tuple[str, ...] = ()) -> None:
        """Let time pass; all members but the silent ones keep sending heartbeats."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 0.5)
            self.hello(*[name for name in self.processes if name not in silent])
            self.coordinator.tick(self.now)

    def load(self) -> None:
        """Proceed to the point at which nodes are sent the snapshot to load."""
        self.hello(*self.processes, incarnation=0)
        self.write()

    def run(self) -> ScriptedCluster:
        """Proceed until the cluster runs."""
        self.load()
        self.hello(*self.nodes, ready=True)
        assert self.phase() is Phase.RUNNING
        self.sent()
        return self

    def consider_snapshot(self, time: int) -> None:
        """Make a snapshot due, with everything below `time` delivered."""
        self.pass_time(INTERVAL + 0.1)
        self.coordinator.consider_snapshot(time)

    def prepared(self, number: int) -> None:
        """Report that all nodes have stored their parts of a snapshot."""
        for node in self.nodes:
            self.coordinator.on_prepared(node, Prepared(number, 0))

    def snapshot(self, number: int, time: int) -> None:
        """Take a snapshot, from the request to the commit."""
        self.consider_snapshot(time)
        self.prepared(number)
        self.write()
        self.sent()


def restart(cluster: ScriptedCluster, name: str) -> None:
    cluster.processes[name] += "'"
    cluster.hello(name, incarnation=0)
