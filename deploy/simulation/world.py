"""The simulated world: hosts with disks, channels with delays, faults, and a virtual clock.

Knows parties only by `engine.party`: it hands them bytes, the time and results of jobs, and carries
out what it finds in their outboxes, as the ZeroMQ runtime does.

A channel is FIFO, and other channels may overtake it. A crash loses the process with everything
volatile and a random tail of what it had sent; its disk stays, but a job that was being carried
out may be done, not done, or torn. A cut loses what is sent on a channel, or by a host, while it
lasts. A pause stops a host as SIGSTOP does: it notices nothing, and goes on with what has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from math import inf
from random import Random

from deploy.simulation.disks import Disk
from deploy.simulation.faults import PAUSES_S, Crashed, Faults
from engine.errors import DriftlineError, MalformedMessage, Unavailable
from engine.messages import decode
from engine.party import Job, Party


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
    paused_until: float = 0.0
    ended: Party | None = None
    """The one that has done its part, once its process has ended in good order."""
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
    tick_s: float = 0.02
    """How often parties are told the time, at least: it may be sooner than they ask."""
    trace: Callable[[str], None] | None = None
    """Told every message that is delivered, every job and every fault."""
    _order: int = 0
    _arrivals: dict[tuple[str, str], float] = field(default_factory=dict)
    _cut_until: dict[tuple[str, str], float] = field(default_factory=dict)
    """Per channel (process, receiver); with no receiver, all channels of a process."""
    _lost_after: dict[str, float] = field(default_factory=dict)
    _lingering: dict[str, float] = field(default_factory=dict)

    def add(
        self, name: str, make: Callable[[str], Party], disk: Disk | None = None, *, fixed: bool
    ) -> Host:
        """Add a host and start it."""
        host = self.hosts[name] = Host(name, make, disk, fixed=fixed)
        self.start(host)
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
        self._at_time(self.now + delay, event)

    def _at_time(self, when: float, event: Callable[[], None]) -> None:
        self._order += 1
        heappush(self.events, (when, self._order, event))

    def happens(self, probability: float) -> bool:
        """Whether a fault happens now."""
        return (
            probability > 0 and self.now < self.faults.until and self.chance.random() < probability
        )

    def fault(self, probability: float, what: str) -> bool:
        """Whether a fault happens now; if so, it is counted and told."""
        if not self.happens(probability):
            return False
        self.counted[what] += 1
        self.tell(what)
        return True

    def failpoint(self, probability: float, where: str) -> None:
        """A place inside a party where its process may die. Raises Crashed."""
        if self.happens(probability):
            raise Crashed(where)

    def tell(self, what: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace(f"{self.now:11.6f}  {what}")

    def wake(self, name: str) -> None:
        """Something has come to a host by another way than a message."""
        host = self.hosts[name]
        if host.party is not None:
            self._turn_soon(host)

    def crash(self, host: Host, where: str) -> None:
        """Kill a host's process; it is started again later."""
        self.counted[f"crash {host.name.partition('-')[0]} {where}"] += 1
        self.tell(f"{host.process} crashes {where}")
        back_after = self.chance.expovariate(20.0)
        if self.fault(self.faults.linger, "lingering messages"):
            self._lingering[host.process] = back_after + self.chance.expovariate(50.0)
        else:  # a tail of what it sent last never leaves its buffers
            self._lost_after[host.process] = self.now + self.chance.random() * self.faults.delay_s
        host.party = None
        host.process = ""
        self.at(back_after, lambda: self.start(host))

    # Hosts.

    def start(self, host: Host) -> None:
        """Start a process that is not there."""
        assert host.party is None
        host.starts += 1
        host.ended = None
        host.process = f"{host.name}#{host.starts}"
        host.turn_due = False
        host.tick_due = -1.0
        host.busy_until = 0.0
        host.paused_until = 0.0
        host.party = host.make(host.process)
        self._tick(host, host.process)

    def _rests(self, host: Host, event: Callable[[], None]) -> bool:
        """Whether a host is paused; then the event happens when it goes on."""
        if self.now >= host.paused_until:
            return False
        self._at_time(host.paused_until, event)
        return True

    def _tick(self, host: Host, process: str) -> None:
        if host.process != process or host.party is None:
            return
        if self._rests(host, lambda: self._tick(host, process)):
            return
        host.party.now = self.now
        due = host.party.tick(self.now)
        delay = max(min(due - self.now, self.tick_s), 0.001)
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
        if self._rests(host, lambda: self._turn(host, process)):
            return
        host.turn_due = False
        party = host.party
        party.now = self.now
        if party.turn():
            self._turn_soon(host)
        if self.check is not None:
            self.check(party)
        if party.outbox and self.happens(self.faults.crash_before_send):
            self.crash(host, "before sending")
            return
        self._carry_off(host)
        if party.ended and host.party is party:
            self._end(host, party)

    def _end(self, host: Host, party: Party) -> None:
        self.tell(f"{host.process} ends")
        host.ended, host.party, host.process = party, None, ""

    def _dies_at_end(self, host: Host) -> bool:
        probability = self.faults.crash_at_end
        if probability == 0 or self.chance.random() >= probability:
            return False
        self.crash(host, "at the end")
        return True

    def _carry_off(self, host: Host) -> None:
        party = host.party
        assert party is not None
        stopped = party.stopped
        for to, data in party.outbox:
            if stopped and self._dies_at_end(host):
                return
            self._send(host, to, party.addresses.get(to, ""), data)
        party.outbox.clear()
        for job in party.jobs:
            self._begin(host, job)
        party.jobs.clear()

    # Disk.

    def _begin(self, host: Host, job: Job) -> None:
        process = host.process
        took = self.chance.expovariate(1 / self.faults.job_s)
        host.busy_until = max(host.busy_until, self.now) + took
        self._at_time(host.busy_until, lambda: self._carry_out(host, process, job))

    def _carry_out(self, host: Host, process: str, job: Job) -> None:
        if host.process != process or host.party is None:
            return
        if self._rests(host, lambda: self._carry_out(host, process, job)):
            return
        assert host.disk is not None
        kind = type(job).__name__
        if self.happens(self.faults.crash_before_job):
            self.crash(host, f"before {kind}")
            return
        if self.happens(self.faults.crash_in_job):
            if host.disk.tear(job, self.chance):
                self.counted[f"torn {kind}"] += 1
            self.crash(host, f"in {kind}")
            return
        result: object
        try:
            if self.fault(self.faults.job_fails, f"failed {kind}"):
                raise Unavailable("the disk is full")
            result = host.disk.carry_out(job)
        except DriftlineError as error:
            result = error
        if self.happens(self.faults.crash_after_job):
            self.crash(host, f"after {kind}")
            return
        if self.trace is not None:
            self.tell(f"{process} did {job}, result {result}")
        host.party.done(job, result)
        self._turn_soon(host)

    # Network.

    def _send(self, host: Host, to: str, address: str, data: bytes) -> None:
        target = self.hosts.get(to)
        if target is None or not (address or target.fixed):
            return
        channel = (host.process, to)
        everything = (host.process, "")
        if self.fault(self.faults.cut, "cut"):
            which = channel if self.chance.random() < 0.5 else everything
            self._cut_until[which] = self.now + self.chance.expovariate(100.0)
        if self.now < max(self._cut_until.get(c, 0.0) for c in (channel, everything)):
            self.counted["lost message"] += 1
            return
        delay = self.chance.expovariate(1 / self.faults.delay_s)
        if self.chance.random() < self.faults.slow:
            delay *= 20
        when = max(self.now + delay, self._arrivals.get(channel, 0.0))
        self._arrivals[channel] = when
        arrive = partial(self._deliver, host.process, target, address, data)
        self._at_time(when, arrive)  # exactly then, so that a channel keeps its order
        if self.fault(self.faults.repeat, "repeated message"):
            self._at_time(when, arrive)  # exactly then, so that a channel keeps its order

    def _deliver(
        self, sender: str, host: Host, address: str, data: bytes, lingered: bool = False
    ) -> None:
        if self.now > self._lost_after.get(sender, inf):
            self.counted["lost message"] += 1
            return
        if sender in self._lingering and not lingered:
            again = partial(self._deliver, sender, host, address, data, lingered=True)
            self.at(self._lingering[sender], again)
            return
        if host.party is None or not (host.fixed or address == host.process):
            return
        if self._rests(host, partial(self._deliver, sender, host, address, data, lingered)):
            return
        if self.fault(self.faults.pause, f"pause {host.name.partition('-')[0]}"):
            host.paused_until = self.now + self.chance.choice(PAUSES_S)
            self.tell(f"{host.process} stands still until {host.paused_until:.6f}")
        if self.happens(self.faults.crash_at_message):
            self.crash(host, "at a message")
            return
        if host.party.stopped and self._dies_at_end(host):
            return
        if self.trace is not None:
            self.tell(f"{sender} -> {host.process}: {_shown(data)}")
        try:
            host.party.receive(data)
        except Crashed as where:
            self.crash(host, str(where))
        else:
            self._turn_soon(host)


def _shown(data: bytes) -> str:
    try:
        header, message = decode(data)
    except MalformedMessage as error:
        return str(error)
    return f"[{header.incarnation}.{header.sequence}] {message}"
