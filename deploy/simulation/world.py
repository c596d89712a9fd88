"""The simulated world: hosts with disks, channels with delays, faults, and a virtual clock.

Knows parties only by `engine.party`: it hands them bytes, the time and results of jobs, and carries
out what it finds in their outboxes, as the ZeroMQ runtime does.

A channel is FIFO, and other channels may overtake it. A crash loses the process with everything
volatile and a random tail of what it had sent; its disk stays, but a job that was being carried
out may be done, not done, or torn. A cut loses what is on a channel, and what comes while it
lasts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Protocol

from engine.errors import DriftlineError, Unavailable
from engine.party import Job, Party


class Disk(Protocol):
    """What survives a crash of a host."""

    def carry_out(self, job: Job) -> object:
        """Do a job. Raises what a real store raises."""

    def tear(self, job: Job, chance: Random) -> None:
        """Leave a job half done, as a crash in the middle of it would."""


@dataclass(slots=True)
class Faults:
    """Which faults may happen, as probabilities; and when they end."""

    until: float = 0.0
    """Virtual seconds after which nothing fails any more."""
    crash_at_message: float = 0.0
    crash_before_job: float = 0.0
    crash_in_job: float = 0.0
    crash_after_job: float = 0.0
    crash_before_send: float = 0.0
    job_fails: float = 0.0
    cut: float = 0.0
    """Per message: that its channel is cut."""
    delay_s: float = 0.002
    slow: float = 0.05
    """Per message: that it takes 20 times as long."""


@dataclass(slots=True)
class Host:
    """A place where a party runs, again and again."""

    name: str
    make: Callable[[str], Party]
    disk: Disk | None
    party: Party | None = None
    process: str = ""
    starts: int = 0
    turn_due: bool = False
    tick_due: float = -1.0
    busy_until: float = 0.0
    fixed: bool = False
    """Whether its address stays the same when it restarts (master, consumer)."""


@dataclass(slots=True)
class World:
    """Virtual time and everything in it."""

    chance: Random
    faults: Faults
    now: float = 0.0
    hosts: dict[str, Host] = field(default_factory=dict)
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    """What happened how often, for people and for tests of the simulation."""
    check: Callable[[Party], None] | None = None
    """Called after every turn of every party."""
    _order: int = 0
    _arrivals: dict[tuple[str, str], float] = field(default_factory=dict)
    _cut_until: dict[tuple[str, str], float] = field(default_factory=dict)
    _lost_after: dict[str, float] = field(default_factory=dict)

    def add(
        self, name: str, make: Callable[[str], Party], disk: Disk | None = None, *, fixed: bool
    ) -> Host:
        """Add a host and start it."""
        host = self.hosts[name] = Host(name, make, disk, fixed=fixed)
        self._start(host)
        return host

    def run(self, until: Callable[[], bool], limit: float) -> bool:
        """Let events happen until a condition holds. Returns False if the time limit came first."""
        while self.events:
            if until():
                return True
            self.now, _, event = heappop(self.events)
            if self.now > limit:
                return False
            event()
        return until()

    def at(self, delay: float, event: Callable[[], None]) -> None:
        """Let something happen later."""
        self._order += 1
        heappush(self.events, (self.now + delay, self._order, event))

    def happens(self, probability: float) -> bool:
        """Whether a fault happens now."""
        return (
            probability > 0 and self.now < self.faults.until and self.chance.random() < probability
        )

    def crash(self, host: Host, where: str) -> None:
        """Kill a host's process; it is started again later."""
        self.counted[f"crash {host.name.partition('-')[0]} {where}"] += 1
        # A tail of what it sent last never leaves its buffers.
        self._lost_after[host.process] = self.now + self.chance.random() * self.faults.delay_s
        host.party = None
        host.process = ""
        self.at(self.chance.expovariate(20.0), lambda: self._start(host))

    # Hosts.

    def _start(self, host: Host) -> None:
        host.starts += 1
        host.process = f"{host.name}#{host.starts}"
        host.turn_due = False
        host.tick_due = -1.0
        host.busy_until = 0.0
        host.party = host.make(host.process)
        self._tick(host, host.process)

    def _tick(self, host: Host, process: str) -> None:
        if host.process != process or host.party is None:
            return
        due = host.party.tick(self.now)
        delay = max(due - self.now, 0.001)
        host.tick_due = self.now + delay
        self.at(delay, lambda: self._tick(host, process))
        self._turn_soon(host)

    def _turn_soon(self, host: Host) -> None:
        if not host.turn_due:
            host.turn_due = True
            process = host.process
            self.at(self.chance.random() * 0.0005, lambda: self._turn(host, process))

    def _turn(self, host: Host, process: str) -> None:
        if host.process != process or host.party is None:
            return
        host.turn_due = False
        party = host.party
        if party.turn():
            self._turn_soon(host)
        if self.check is not None:
            self.check(party)
        if party.outbox and self.happens(self.faults.crash_before_send):
            self.crash(host, "before sending")
            return
        self._carry_off(host)

    def _carry_off(self, host: Host) -> None:
        party = host.party
        assert party is not None
        for to, data in party.outbox:
            self._send(host, to, party.addresses.get(to, ""), data)
        party.outbox.clear()
        for job in party.jobs:
            self._begin(host, job)
        party.jobs.clear()

    # Disk.

    def _begin(self, host: Host, job: Job) -> None:
        process = host.process
        took = self.chance.expovariate(1 / 0.004)
        host.busy_until = max(host.busy_until, self.now) + took
        self.at(host.busy_until - self.now, lambda: self._carry_out(host, process, job))

    def _carry_out(self, host: Host, process: str, job: Job) -> None:
        if host.process != process or host.party is None:
            return
        assert host.disk is not None
        kind = type(job).__name__
        if self.happens(self.faults.crash_before_job):
            self.crash(host, f"before {kind}")
            return
        if self.happens(self.faults.crash_in_job):
            host.disk.tear(job, self.chance)
            self.crash(host, f"in {kind}")
            return
        result: object
        try:
            if self.happens(self.faults.job_fails):
                self.counted[f"failed {kind}"] += 1
                raise Unavailable("the disk is full")
            result = host.disk.carry_out(job)
        except DriftlineError as error:
            result = error
        if self.happens(self.faults.crash_after_job):
            self.crash(host, f"after {kind}")
            return
        host.party.done(job, result)
        self._turn_soon(host)

    # Network.

    def _send(self, host: Host, to: str, address: str, data: bytes) -> None:
        target = self.hosts.get(to)
        if target is None or not (address or target.fixed):
            return
        channel = (host.process, to)
        if self.happens(self.faults.cut):
            self.counted["cut"] += 1
            self._cut_until[channel] = self.now + self.chance.expovariate(100.0)
        if self.now < self._cut_until.get(channel, 0.0):
            self.counted["lost message"] += 1
            return
        delay = self.chance.expovariate(1 / self.faults.delay_s)
        if self.chance.random() < self.faults.slow:
            delay *= 20
        when = max(self.now + delay, self._arrivals.get(channel, 0.0))
        self._arrivals[channel] = when
        sent, sender = self.now, host.process
        self.at(when - self.now, lambda: self._deliver(sender, sent, target, address, data))

    def _deliver(self, sender: str, sent: float, host: Host, address: str, data: bytes) -> None:
        lost_after = self._lost_after.get(sender)
        if lost_after is not None and self.now > lost_after:
            self.counted["lost message"] += 1
            return
        if host.party is None or not (host.fixed or address == host.process):
            return
        if self.happens(self.faults.crash_at_message):
            self.crash(host, "at a message")
            return
        host.party.receive(data)
        self._turn_soon(host)
