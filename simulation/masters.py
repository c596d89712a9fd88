"""The masters of a simulated run: one with a registry on its disk, or several with ZooKeeper.

Several masters queue (`Candidate`), each on a host of its own. Like the agents of a cluster,
`Masters` repeatedly sends the leader's address to the members, sometimes late. With ZooKeeper, a
master's process may also be cut off from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from driftline.coordinator.coordinator import MISSING_AFTER_S
from driftline.coordinator.leadership import leader_timeout_s
from driftline.coordinator.registry import ClusterState
from driftline.deploy.roles.candidate import Candidate
from driftline.deploy.roles.master import Master
from driftline.deploy.roles.member import Member
from driftline.deploy.runtime.supervision.restarts import RestartPolicy
from driftline.engine.wire.kinds import AGENT, MASTER
from driftline.engine.wire.messages import MasterAt, encode
from driftline.engine.wire.role import Role
from driftline.simulation.scenarios.scenario import MASTERS
from driftline.simulation.world.disks import MasterDisk
from driftline.simulation.world.world import SimulatedHost, World
from driftline.simulation.world.zookeeper import ZooKeeper, ZooKeeperStore

ANNOUNCE_EVERY_S = 0.2
"""Interval at which members receive the leader's address, in seconds."""

MakeMaster = Callable[[str, ClusterState | None], Master]
"""(name of the process, state of the registry) -> a new master, which starts with this state."""


class Masters:
    """The hosts of masters. `standby`: whether several masters queue in ZooKeeper."""

    def __init__(
        self, world: World, registry: MasterDisk, make: MakeMaster, *, standby: bool
    ) -> None:
        self._world = world
        self._registry = registry
        self._make = make
        cut_probability = 0.05 if standby else 0.0
        self._zookeeper = ZooKeeper(world.timeline, registry, cut_probability)
        self.standby = standby
        self.hosts: list[SimulatedHost] = []
        self._counted_takeovers: set[str] = set()
        """Processes whose takeover has been counted."""
        self._restart_policy = RestartPolicy()

    def begin(self, before_start: Callable[[], None]) -> None:
        """Start the masters; `before_start`: called before each start of a process."""
        if not self.standby:
            make = self._single_master_factory(before_start)
            self.hosts = [self._world.add(MASTER, make, self._registry, fixed={MASTER})]
            return
        for name in MASTERS:
            client = ZooKeeperStore(self._zookeeper)
            make = self._candidate_factory(name, client, before_start)
            self.hosts.append(self._world.add(name, make, client))
        self._zookeeper.begin()
        self._announce_leader()

    def _single_master_factory(
        self, before_start: Callable[[], None]
    ) -> Callable[[str], Sequence[Role]]:
        def make(process: str) -> Sequence[Role]:
            before_start()
            return [self._make(process, self._registry.read())]

        return make

    def _candidate_factory(
        self, name: str, client: ZooKeeperStore, before_start: Callable[[], None]
    ) -> Callable[[str], Sequence[Role]]:
        def make(process: str) -> Sequence[Role]:
            before_start()
            step_downs = self._restart_policy.count_futile_step_downs(name)
            timeout_s = leader_timeout_s(MISSING_AFTER_S, step_downs)
            candidate = Candidate(process, partial(self._make, process), timeout_s)
            client.process = process
            self._zookeeper.connect(process, candidate, lambda: self._is_reachable(name, process))
            return [candidate]

        return make

    def _is_reachable(self, name: str, process: str) -> bool:
        host = self._world.hosts[name]
        return host.process == process and self._world.timeline.now >= host.paused_until

    # Members.

    def _announce_leader(self) -> None:
        """Send the address of the first master in the queue to all members."""
        timeline = self._world.timeline
        timeline.after(ANNOUNCE_EVERY_S, self._announce_leader)
        if self._zookeeper.queue:
            for host in self._world.hosts.values():
                event = partial(self._send_leader, host, host.process, self._zookeeper.queue[0])
                timeline.after(timeline.rng.random() * ANNOUNCE_EVERY_S, event)

    def _send_leader(self, host: SimulatedHost, process: str, address: str) -> None:
        if host.process == process and self._world.timeline.now >= host.paused_until:
            for role in host.roles.values():
                if isinstance(role, Member):
                    role.receive(encode((AGENT, 0, 0), MasterAt(address)))

    # Exits and restarts.

    @property
    def has_ended(self) -> bool:
        """Whether a master has ended normally."""
        return any(host.ended_role is not None for host in self.hosts)

    @property
    def waits_for(self) -> str:
        """What the run waits for, as text for people."""
        masters = [master_of(host.role or host.ended_role) for host in self.hosts]
        leaders = [m for m in masters if m is not None and m.coordinator.leads]
        return leaders[-1].waits_for if leaders else "the master is down"

    def is_broken(self, host: SimulatedHost, role: Role) -> bool:
        """Return whether a process of a master must exit, so that a new one starts.

        Also counts takeovers and step-downs, for the report and the restart policy.
        """
        master = master_of(role)
        if master is not None and master.coordinator.taken_over:
            self._count_takeover(host.process)
        if isinstance(role, Candidate) and role.stepped_down:
            counted = self._world.timeline.counted
            counted["stepped down"] += 1
            self._restart_policy.record_progress(counted["delivered bundle"], 0)
            self._restart_policy.record_step_down(host.name)
        return isinstance(role, Candidate | Master) and role.broken

    def _count_takeover(self, process: str) -> None:
        if process not in self._counted_takeovers:
            self._counted_takeovers.add(process)
            self._world.timeline.counted["takeover"] += 1

    def restart_all(self) -> None:
        """Restart the masters for the next run."""
        for host in self.hosts:
            self._world.restart(host)

    def restart_ended(self) -> bool:
        """Restart the masters that have ended. Return whether there were any."""
        ended = [host for host in self.hosts if host.ended_role is not None]
        for host in ended:
            self._world.start(host)
        return bool(ended)


def master_of(role: Role | None) -> Master | None:
    """Return the role if it is a master; for a candidate that leads, its master; else None."""
    if isinstance(role, Candidate):
        return role.master
    return role if isinstance(role, Master) else None
