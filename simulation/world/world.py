"""The simulated world: hosts with disks, a network, faults, and a virtual clock.

The world uses roles only through `engine.wire.role`: like the ZeroMQ runtime, it hands them bytes,
the time and the results of jobs, sends their messages and executes their jobs. A process runs one
role or several (a front and its intake, a node and its consumer), which crash and pause together.

A crash loses the process with its memory. The disk of its host remains; a job in progress may or
may not be done. A job may also fail, or be done but reported as failed. A pause stops a process
like SIGSTOP: afterwards it continues with the messages that have arrived meanwhile. A hang is a
pause that lasts until the process is killed.

A turn may take time. Until the turn ends, the process handles no message, and sends none except
those of `Role.make_heartbeats`. A process that raises a `DriftlineError` ends the run, as in
reality; after `Unavailable` the process is restarted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf

from msgspec import Struct, field

from driftline.engine.errors import DriftlineError, Unavailable
from driftline.engine.wire.role import IOJob, Role
from driftline.simulation.world.disks import Disk
from driftline.simulation.world.network import Network, describe_message
from driftline.simulation.world.timeline import PAUSES_S, Crashed, Timeline

BEAT_S = 0.2
"""Seconds between two calls of `Role.make_heartbeats` during a long turn."""

RESTART_RATE = 20.0
"""Restarts per second: a process that died restarts after 50 ms on average."""

OVERDUE_TICKS_MAX = 20
"""Limit of ticks in a row that are due at once: with more, a real process would busy-wait."""


class SimulatedHost(Struct):
    """Machine for one process, which is restarted whenever it dies."""

    name: str
    make: Callable[[str], Sequence[Role]]
    disk: Disk | None
    fixed: frozenset[str]
    """Names of roles whose address is the same after a restart (master, consumer, intake)."""
    never_crashes: bool = False
    """Whether the host's process never crashes."""
    roles: dict[str, Role] = field(default_factory=dict)
    """Roles of the running process, empty if none runs; the end of the first role ends it."""
    ended_role: Role | None = None
    """The first role, after its process has ended normally."""
    process: str = ""
    """Name of the running process; "" if none runs."""
    starts: int = 0
    """Number in the name of the newest process; `World.end` also increases it."""
    turn_due: bool = False
    """Whether a turn of the process is scheduled."""
    tick_at: float = inf
    """When the next tick of the process is scheduled."""
    overdue_ticks: int = 0
    """Number of ticks in a row after which the next one was already due."""
    disk_free_at: float = 0.0
    """When the disk has executed all jobs so far."""
    paused_until: float = 0.0
    """End of the process's pause or long turn; until then it handles no message."""

    @property
    def role(self) -> Role | None:
        """The first role of the running process; None if no process runs."""
        return next(iter(self.roles.values()), None)

    @property
    def kind(self) -> str:
        """The host's name without its number."""
        return self.name.partition("-")[0]


class World(Struct):
    """Hosts, and the events of their processes, disks and messages."""

    timeline: Timeline
    network: Network
    check: Callable[[SimulatedHost, Role], None]
    """Called for each role of a process after each turn, once its messages are sent."""
    on_exit: Callable[[SimulatedHost], None]
    """Called when a process has ended normally."""
    hosts: dict[str, SimulatedHost] = field(default_factory=dict)
    fatal_error: DriftlineError | None = None
    """Error by which a process has ended the run."""
    _host_of_role: dict[str, SimulatedHost] = field(default_factory=dict)
    """Name of a role -> its host."""
    _turn_s: float = 0.0
    """Duration of the current turn so far, in virtual seconds."""

    def add(
        self,
        name: str,
        make: Callable[[str], Sequence[Role]],
        disk: Disk | None = None,
        *,
        fixed: Iterable[str] = (),
        never_crashes: bool = False,
    ) -> SimulatedHost:
        """Add a host and start its process; `make`: process name -> the roles of the process.

        `fixed`, `never_crashes`: see `SimulatedHost`.
        """
        host = self.hosts[name] = SimulatedHost(name, make, disk, frozenset(fixed), never_crashes)
        self.start(host)
        return host

    @property
    def clock(self) -> float:
        """Current time in virtual seconds, also in the middle of a long turn."""
        return self.timeline.now + self._turn_s

    def extend_turn(self, seconds: float) -> None:
        """Make the current turn longer."""
        self._turn_s += seconds

    def crash(self, host: SimulatedHost, where: str) -> None:
        """Kill a host's process, and schedule its restart. `where`: the place, for the trace.

        If the host `never_crashes`, its process survives, and only the interrupted action is lost.
        """
        if host.never_crashes:
            return
        self.timeline.counted[f"crash {host.kind} {where}"] += 1
        self.timeline.add_trace(f"{host.process} crashes {where}")
        restart_delay_s = self.timeline.rng.expovariate(RESTART_RATE)
        self.network.handle_crash(host.process, restart_delay_s)
        host.roles.clear()
        host.process = ""
        self.timeline.after(restart_delay_s, partial(self._start_again, host, host.starts))

    def hang(self, host: SimulatedHost) -> None:
        """Stop a host's process, also in the middle of a turn, until it is killed."""
        host.paused_until = inf
        self.timeline.counted[f"hang {host.kind}"] += 1
        self.timeline.add_trace(f"{host.process} hangs")

    def turn_soon(self, host: SimulatedHost) -> None:
        """Schedule a turn of a process, unless one is scheduled."""
        if not host.turn_due:
            host.turn_due = True
            process = host.process
            self.timeline.after(
                self.timeline.rng.random() * 0.0005, lambda: self._turn(host, process)
            )

    # Processes.

    def start(self, host: SimulatedHost) -> None:
        """Start the process of a host. Precondition: none runs."""
        assert not host.roles
        host.starts += 1
        host.ended_role = None
        host.process = f"{host.name}#{host.starts}"
        host.turn_due = False
        host.disk_free_at = 0.0
        host.paused_until = 0.0
        if self._safely(host, "at its start", lambda: self._make(host)):
            self._schedule_tick(host, self.timeline.now)

    def _start_again(self, host: SimulatedHost, starts: int) -> None:
        if host.starts == starts:  # not started or ended meanwhile
            self.start(host)

    def end(self, host: SimulatedHost) -> None:
        """End the process of a host, if one runs, without a restart."""
        host.roles.clear()
        host.process, host.starts = "", host.starts + 1

    def restart(self, host: SimulatedHost) -> None:
        """End the process of a host, if one runs, and start a new one."""
        host.roles.clear()
        self.start(host)

    def _make(self, host: SimulatedHost) -> None:
        for role in host.make(host.process):
            host.roles[role.name] = role
            self._host_of_role.setdefault(role.name, host)

    def _safely(self, host: SimulatedHost, when: str, action: Callable[[], None]) -> bool:
        """Call `action` in a process, and handle its errors. Return whether the process lives."""
        try:
            action()
        except Crashed as crashed:
            self.crash(host, str(crashed))
        except Unavailable as error:
            self.timeline.add_trace(f"{host.process} ends {when}: {error}")
            self.crash(host, when)
        except DriftlineError as error:
            self.timeline.add_trace(f"{host.process} ends the run: {type(error).__name__}: {error}")
            self.fatal_error = error
            self.timeline.is_over = True
            host.roles.clear()
        return bool(host.roles)

    def _postpone_if_paused(self, host: SimulatedHost, event: Callable[[], None]) -> bool:
        """Reschedule the event if the process is paused or in a long turn. Return whether it is."""
        if self.timeline.now >= host.paused_until:
            return False
        self.timeline.at_time(host.paused_until, event)
        return True

    def _schedule_tick(self, host: SimulatedHost, time: float) -> None:
        """Schedule the next tick; it replaces a tick that is already scheduled."""
        host.tick_at = time
        if time < inf:
            self.timeline.at_time(time, partial(self._tick, host, host.process, time))

    def _tick(self, host: SimulatedHost, process: str, time: float) -> None:
        if host.process != process or host.tick_at != time or not host.roles:
            return
        if self._postpone_if_paused(host, lambda: self._tick(host, process, time)):
            return
        now = self.timeline.now
        due = inf
        for role in host.roles.values():
            role.now = now
            role.tick_by = inf
            due = min(due, role.tick(now))
        host.overdue_ticks = host.overdue_ticks + 1 if due <= now else 0
        assert host.overdue_ticks < OVERDUE_TICKS_MAX, (
            f"{host.name} asks for a tick without a pause"
        )
        self._schedule_tick(host, max(due, now + 0.001))
        self.turn_soon(host)

    def _turn(self, host: SimulatedHost, process: str) -> None:
        if host.process != process or not host.roles:
            return
        if self._postpone_if_paused(host, lambda: self._turn(host, process)):
            return
        host.turn_due = False
        self._turn_s = 0.0
        if not self._safely(host, "in a turn", lambda: self._turn_all(host)):
            return
        turn_s, self._turn_s = self._turn_s, 0.0
        if not turn_s:
            self._end_turn(host, process)
            return
        self.timeline.counted[f"slow turn of {host.kind}"] += 1
        end = host.paused_until = self.timeline.now + turn_s
        self.timeline.add_trace(f"{process} is in a turn until {end:.6f}")
        self.timeline.at_time(end, lambda: self._end_turn(host, process))
        self.timeline.after(BEAT_S, lambda: self._send_heartbeats(host, process, end))

    def _turn_all(self, host: SimulatedHost) -> None:
        for role in host.roles.values():
            role.now = self.timeline.now
            if role.turn():
                self.turn_soon(host)

    def _send_heartbeats(self, host: SimulatedHost, process: str, end: float) -> None:
        if host.process != process or not self.timeline.now < end == host.paused_until:
            return
        for role in host.roles.values():
            for to, data in role.make_heartbeats(self.clock):
                self._send(host, role, to, data)
        self.timeline.after(BEAT_S, lambda: self._send_heartbeats(host, process, end))

    def _end_turn(self, host: SimulatedHost, process: str) -> None:
        if host.process != process or not host.roles or host.paused_until == inf:
            return
        has_messages = any(role.outbox for role in host.roles.values())
        if has_messages and self.timeline.happens(self.timeline.faults.crash_before_send):
            self.crash(host, "before sending")
            return
        for role in host.roles.values():
            for to, data in role.outbox:
                if role.stopped and self._dies_at_end(host):
                    return
                self._send(host, role, to, data)
            role.outbox.clear()
            for job in role.jobs:
                self._begin_job(host, role, job)
            role.jobs.clear()
        if self._safely(host, "after a turn", lambda: self._check_all(host)):
            due = min(role.tick_by for role in host.roles.values())
            if due < host.tick_at:
                self._schedule_tick(host, max(due, self.timeline.now))
            self._end_if_done(host)

    def _end_if_done(self, host: SimulatedHost) -> None:
        role = host.role
        if role is not None and role.ended:
            self.timeline.add_trace(f"{host.process} ends")
            host.ended_role, host.process = role, ""
            host.roles.clear()
            self.on_exit(host)

    def _dies_at_end(self, host: SimulatedHost) -> bool:
        """Draw whether a process dies at a message of the shutdown; if so, crash it."""
        probability = self.timeline.faults.crash_at_end
        if probability == 0 or self.timeline.rng.random() >= probability:
            return False
        self.crash(host, "during the shutdown")
        return True

    def _check_all(self, host: SimulatedHost) -> None:
        for role in host.roles.values():
            self.check(host, role)

    # Disk.

    def _begin_job(self, host: SimulatedHost, role: Role, job: IOJob) -> None:
        process = host.process
        timeline = self.timeline
        duration_s = timeline.rng.expovariate(1 / timeline.faults.job_s)
        host.disk_free_at = max(host.disk_free_at, timeline.now) + duration_s
        event = partial(self._execute_job, host, process, role, job)
        timeline.at_time(host.disk_free_at, event)

    def _execute_job(self, host: SimulatedHost, process: str, role: Role, job: IOJob) -> None:
        """Execute a job; it is atomic, because it is one transaction of a store."""
        if host.process != process or not host.roles:
            return
        event = partial(self._execute_job, host, process, role, job)
        if self._postpone_if_paused(host, event):
            return
        assert host.disk is not None
        timeline, faults, kind = self.timeline, self.timeline.faults, type(job).__name__
        if timeline.happens(faults.crash_before_job):
            self.crash(host, f"before {kind}")
            return
        result: object
        try:
            if timeline.draw_fault(faults.job_fails, f"failed {kind}"):
                raise Unavailable("the disk is full")
            result = host.disk.execute_job(job)
            if timeline.draw_fault(
                faults.done_but_failed, f"failure reported although done: {kind}"
            ):
                raise Unavailable("it is unknown whether the job was done")
        except DriftlineError as error:
            result = error
        if timeline.happens(faults.crash_after_job):
            self.crash(host, f"after {kind}")
            return
        if timeline.trace is not None:
            timeline.add_trace(f"{process} has done {job}, result {result}")
        if self._safely(host, f"because of a failed {kind}", lambda: role.on_job_done(job, result)):
            self.turn_soon(host)

    # Messages.

    def _send(self, host: SimulatedHost, role: Role, to: str, data: bytes) -> None:
        neighbour = host.roles.get(to)
        if neighbour is not None:  # a role of the same process, so the message cannot be lost
            self.timeline.after(0.0, partial(self._deliver, host, neighbour, host.process, data))
            return
        address = role.addresses.get(to, "")
        # Several hosts may have a role of this name: the address then names the process.
        target = (
            self.hosts.get(address.partition("#")[0])
            if "#" in address
            else self._host_of_role.get(to)
        )
        if target is None or self.network.is_lost(host.name, target.name):
            return
        if address or to in target.fixed:
            arrive = partial(self._arrive, host.process, target, to, address, data)
            self.network.send(host.process, to, arrive)

    def _arrive(self, sender: str, host: SimulatedHost, to: str, address: str, data: bytes) -> None:
        role = host.roles.get(to)
        if role is None or not (to in host.fixed or address == host.process):
            return
        if self._postpone_if_paused(host, partial(self._arrive, sender, host, to, address, data)):
            return
        timeline = self.timeline
        if timeline.draw_fault(timeline.faults.pause, f"pause {host.kind}"):
            host.paused_until = timeline.now + timeline.rng.choice(PAUSES_S)
            timeline.add_trace(f"{host.process} is paused until {host.paused_until:.6f}")
        if timeline.happens(timeline.faults.crash_at_message):
            self.crash(host, "at a message")
            return
        if role.stopped and self._dies_at_end(host):
            return
        self._deliver(host, role, sender, data)

    def _deliver(self, host: SimulatedHost, role: Role, sender: str, data: bytes) -> None:
        if role not in host.roles.values():
            return
        if self.timeline.trace is not None:
            self.timeline.add_trace(f"{sender} -> {host.process}: {describe_message(data)}")
        if self._safely(host, "at a message", lambda: role.receive(data)):
            self.turn_soon(host)
