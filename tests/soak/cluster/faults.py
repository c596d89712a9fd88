"""Faults of a cluster: each begins, holds for a while, and is over; a seed draws them.

Agents of the host `b` are never killed, so that what they keep can be seen to grow. Its processes
are, and its links fail, as those of the others do.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from threading import Event

from tests.deploy.cluster.lab import Host, Lab, with_pid

KEPT = "b"

PAUSE_S = 8.0
"""The longest pause between two faults."""

SOME = 8
"""After so many faults the flow is left alone until it runs, and everything is counted."""

NODES = 2, 3, 4
"""The numbers of nodes that the flow is rescaled to."""


class Faults:
    """Does harm to a lab."""

    def __init__(self, lab: Lab, seed: int, flow: str, tell: Callable[[str], None]) -> None:
        self._lab = lab
        self._chance = random.Random(seed)
        self._flow = flow
        self._tell = tell
        self._time = Event()
        self._kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self._link_down),
            (4, self._deaf),
            (3, self._host_dead),
            (4, self._host_still),
            (8, self._process_killed),
            (4, self._process_still),
            (3, self._agent_killed),
            (3, self._zookeeper_leader_killed),
            (2, self._zookeeper_away),
            (2, self._zookeeper_far),
            (2, self._rescaled),
        ]

    def some(self) -> None:
        """Some faults, one after the other."""
        for _ in range(SOME):
            self._one()

    def _one(self) -> None:
        """One fault, from its beginning to its end, and a pause."""
        weights = [weight for weight, _ in self._kinds]
        [(_, do)] = self._chance.choices(self._kinds, weights)
        do()
        self._wait(self._chance.uniform(0, PAUSE_S))

    def _wait(self, seconds: float) -> None:
        self._time.wait(seconds)

    def _for(self, longest: float) -> float:
        """How long a fault holds: mostly short, at times long."""
        return self._chance.choice([0.3, 1.0, 2.5, 5.0, longest])

    def _host(self, *, killable: bool = False) -> Host:
        names = [name for name in self._lab.hosts if not (killable and name == KEPT)]
        return self._lab.hosts[self._chance.choice(names)]

    # The network.

    def _link_down(self) -> None:
        host, seconds = self._host(), self._for(20)
        self._tell(f"the link of {host.name} is down for {seconds} s")
        with host.cut_off():
            self._wait(seconds)

    def _deaf(self) -> None:
        host, other = self._chance.sample(list(self._lab.hosts.values()), 2)
        seconds = self._for(20)
        self._tell(f"what {host.name} sends to {other.name} is lost for {seconds} s")
        with host.deaf_to(other):
            self._wait(seconds)

    # Hosts and processes.

    def _host_dead(self) -> None:
        host, seconds = self._host(killable=True), self._for(60)
        self._tell(f"{host.name} is dead for {seconds} s")
        kinds = host.kill()
        self._wait(seconds)
        for kind in kinds:
            host.start(kind)

    def _host_still(self) -> None:
        host, seconds = self._host(), self._for(12)
        self._tell(f"{host.name} stands still for {seconds} s")
        host.signal(signal.SIGSTOP)
        self._wait(seconds)
        host.signal(signal.SIGCONT)

    def _members(self) -> list[int]:
        agents = {a.pid for h in self._lab.hosts.values() for a in h.agents.values()}
        return [p for h in self._lab.hosts.values() for p in sorted(h.pids()) if p not in agents]

    def _process_killed(self) -> None:
        pid = self._chance.choice(self._members())
        self._tell(f"kill -9 {pid}")
        with_pid(pid, signal.SIGKILL)

    def _process_still(self) -> None:
        pid, seconds = self._chance.choice(self._members()), self._for(20)
        self._tell(f"{pid} stands still for {seconds} s")
        with_pid(pid, signal.SIGSTOP)
        self._wait(seconds)
        with_pid(pid, signal.SIGCONT)

    def _agent_killed(self) -> None:
        host = self._host(killable=True)
        kind = self._chance.choice(sorted(host.agents))
        self._tell(f"kill -9 the agent of {host.name} for {kind} processes")
        host.agents[kind].kill()
        host.agents[kind].wait()
        self._wait(self._for(10))
        host.start(kind)

    # ZooKeeper.

    def _zookeeper_leader_killed(self) -> None:
        leader, seconds = self._lab.ensemble.leader(), self._for(10)
        self._tell(f"ZooKeeper's leader is killed, and comes after {seconds} s")
        leader.kill()
        self._wait(seconds)
        leader.start()

    def _zookeeper_away(self) -> None:
        seconds = self._for(30)
        self._tell(f"all ZooKeeper is gone for {seconds} s")
        for server in self._lab.ensemble.servers:
            server.kill()
        self._wait(seconds)
        for server in self._lab.ensemble.servers:
            server.start()
        self._lab.ensemble.wait_until_ready()

    def _zookeeper_far(self) -> None:
        """No server answers; connections stay."""
        seconds = self._for(15)
        self._tell(f"all ZooKeeper stands still for {seconds} s")
        for server in self._lab.ensemble.servers:
            with_pid(server.pid, signal.SIGSTOP)
        self._wait(seconds)
        for server in self._lab.ensemble.servers:
            with_pid(server.pid, signal.SIGCONT)
        self._lab.ensemble.wait_until_ready()

    # Changes.

    def _rescaled(self) -> None:
        nodes = self._chance.choice(NODES)
        self._tell(f"{nodes} nodes are wanted")
        self._lab.try_command("rescale", self._flow, nodes, "--wait", 0)
