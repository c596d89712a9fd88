"""Faults of a cluster: a seed draws them, and each lasts for a while.

Agents of the host `b` are never killed, so growth of their resources is visible. Its processes are
killed and its links fail as those of other hosts.
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
"""After this many faults the soak waits until the flow runs, and then counts everything."""

NODES = 2, 3, 4
"""Numbers of nodes to which the flow is rescaled."""


class FaultInjector:
    """Fault injector for a lab."""

    def __init__(self, lab: Lab, seed: int, flow: str, tell: Callable[[str], None]) -> None:
        self._lab = lab
        self._chance = random.Random(seed)
        self._flow = flow
        self._tell = tell
        self._time = Event()
        self._kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self._link_down),
            (4, self._drop_one_way),
            (3, self._kill_host),
            (4, self._suspend_host),
            (8, self._kill_process),
            (4, self._suspend_process),
            (3, self._kill_agent),
            (3, self._kill_zookeeper_leader),
            (2, self._kill_zookeeper),
            (2, self._suspend_zookeeper),
            (2, self._rescale),
        ]

    def inject_several(self) -> None:
        """Inject several faults, one after the other."""
        for _ in range(SOME):
            self._inject_one()

    def _inject_one(self) -> None:
        """Inject one fault, wait until it is over, and pause."""
        weights = [weight for weight, _ in self._kinds]
        [(_, do)] = self._chance.choices(self._kinds, weights)
        do()
        self._wait(self._chance.uniform(0, PAUSE_S))

    def _wait(self, seconds: float) -> None:
        self._time.wait(seconds)

    def _duration_s(self, longest: float) -> float:
        """Return the duration of a fault: mostly short, sometimes long."""
        return self._chance.choice([0.3, 1.0, 2.5, 5.0, longest])

    def _host(self, *, killable: bool = False) -> Host:
        names = [name for name in self._lab.hosts if not (killable and name == KEPT)]
        return self._lab.hosts[self._chance.choice(names)]

    # The network.

    def _link_down(self) -> None:
        host, seconds = self._host(), self._duration_s(20)
        self._tell(f"the link of {host.name} is down for {seconds} s")
        with host.cut_off():
            self._wait(seconds)

    def _drop_one_way(self) -> None:
        host, other = self._chance.sample(list(self._lab.hosts.values()), 2)
        seconds = self._duration_s(20)
        self._tell(f"what {host.name} sends to {other.name} is lost for {seconds} s")
        with host.deaf_to(other):
            self._wait(seconds)

    # Hosts and processes.

    def _kill_host(self) -> None:
        host, seconds = self._host(killable=True), self._duration_s(60)
        self._tell(f"{host.name} is dead for {seconds} s")
        kinds = host.kill()
        self._wait(seconds)
        for kind in kinds:
            host.start(kind)

    def _suspend_host(self) -> None:
        host, seconds = self._host(), self._duration_s(12)
        self._tell(f"{host.name} stands still for {seconds} s")
        host.signal(signal.SIGSTOP)
        self._wait(seconds)
        host.signal(signal.SIGCONT)

    def _members(self) -> list[int]:
        agents = {a.pid for h in self._lab.hosts.values() for a in h.agents.values()}
        return [p for h in self._lab.hosts.values() for p in sorted(h.pids()) if p not in agents]

    def _kill_process(self) -> None:
        pid = self._chance.choice(self._members())
        self._tell(f"kill -9 {pid}")
        with_pid(pid, signal.SIGKILL)

    def _suspend_process(self) -> None:
        pid, seconds = self._chance.choice(self._members()), self._duration_s(20)
        self._tell(f"{pid} stands still for {seconds} s")
        with_pid(pid, signal.SIGSTOP)
        self._wait(seconds)
        with_pid(pid, signal.SIGCONT)

    def _kill_agent(self) -> None:
        host = self._host(killable=True)
        kind = self._chance.choice(sorted(host.agents))
        self._tell(f"kill -9 the agent of {host.name} for {kind} processes")
        host.agents[kind].kill()
        host.agents[kind].wait()
        self._wait(self._duration_s(10))
        host.start(kind)

    # ZooKeeper.

    def _kill_zookeeper_leader(self) -> None:
        leader, seconds = self._lab.ensemble.leader(), self._duration_s(10)
        self._tell(f"ZooKeeper's leader is killed, and comes after {seconds} s")
        leader.kill()
        self._wait(seconds)
        leader.start()

    def _kill_zookeeper(self) -> None:
        seconds = self._duration_s(30)
        self._tell(f"all ZooKeeper is gone for {seconds} s")
        for server in self._lab.ensemble.servers:
            server.kill()
        self._wait(seconds)
        for server in self._lab.ensemble.servers:
            server.start()
        self._lab.ensemble.wait_until_ready()

    def _suspend_zookeeper(self) -> None:
        """Suspend all servers: none answers, but connections stay open."""
        seconds = self._duration_s(15)
        self._tell(f"all ZooKeeper stands still for {seconds} s")
        for server in self._lab.ensemble.servers:
            with_pid(server.pid, signal.SIGSTOP)
        self._wait(seconds)
        for server in self._lab.ensemble.servers:
            with_pid(server.pid, signal.SIGCONT)
        self._lab.ensemble.wait_until_ready()

    # Changes.

    def _rescale(self) -> None:
        nodes = self._chance.choice(NODES)
        self._tell(f"{nodes} nodes are wanted")
        self._lab.try_command("rescale", self._flow, nodes, "--wait", 0)
