"""The ZeroMQ runtime: drives the parties of a process with real sockets, clock and disk.

One single-threaded loop per process. A turn takes a bounded number of messages, lets the party work
on them, and sends its messages. The loop sleeps while there is no message; it never spins, and
never waits for a disk: one background thread carries out the durable jobs, in order.

Sockets: a PULL for each party, and a PUSH for each receiver. There is no high-water mark, so no
message is dropped at one (windows bound how much is under way); the numbers of a channel show what
a reconnect loses. The background threads send to the same PULL: so a node waits at one socket,
which wakes up sooner than a poller over several.

A process of its own runs its loop with `run`, which collects garbage at leisure (`collector`).
Every process gives freed memory back at leisure (`freed`).
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import ceil, inf
from time import monotonic

import zmq

from driftline.deploy.host import forks
from driftline.deploy.host.collector import Collector
from driftline.deploy.host.freed import Freed
from driftline.deploy.host.seat import Seat
from driftline.engine.errors import DriftlineError, Unavailable
from driftline.engine.events import Trouble, about, log
from driftline.engine.stopwatch import Stopwatch
from driftline.engine.wire.party import Job, Party

DRAIN = 64
"""Messages that a turn takes at most."""

SLOW_S, LOOK_EVERY_S = 10.0, 1.0
"""How long a job may take before that is told, in seconds; how often it is looked at."""

SLOW = "slow disk"
"""The key of a job that takes long among the obstacles of its party."""

LINGER_MS = 500
"""How long the messages of a closed socket may keep the process, at most."""

RECONNECT_MS = 10
"""How often a socket tries to connect again: a new master waits for all members to be there."""

SWITCH_S = 0.0005
"""How long the background thread may keep the interpreter while the loop wants it."""

_EVENTS = int(zmq.EVENTS)
"""A plain integer: pyzmq's enumeration costs more than the call that takes it."""

_NOBLOCK = int(zmq.NOBLOCK)

CarryOut = Callable[[Job], object]
_Send = Callable[[bytes, int], object]


class Runtime:
    """Drives the parties of a process until it is told to stop."""

    def __init__(self, carry_out: CarryOut | None = None) -> None:
        self._carry_out = carry_out
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._seats: list[Seat] = []
        self._outs: dict[tuple[str, str], tuple[str, zmq.Socket[bytes], _Send]] = {}
        self._local: dict[str, LocalParty] = {}
        self._stores: dict[str, CarryOut] = {}
        self._disk = _Worker()
        self._process = os.getpid()
        self._inboxes: list[tuple[zmq.Socket[bytes], Party]] = []
        self._drains: dict[object, Callable[[], None]] = {}
        """Socket -> takes the messages that have come there."""
        self._collector: Collector | None = None
        """None in a process of the user, which has its own settings."""
        self._freed = Freed()
        self.turns = 0
        self.waits = False
        """Whether the loop waits for messages, or takes them from a socket."""
        self.idle = Stopwatch()
        """For how long the loop has waited."""

    @property
    def parties(self) -> list[Party]:
        """All parties that this loop drives."""
        return [seat.party for seat in self._seats]

    def add(self, party: Party, address: str, carry_out: CarryOut | None = None) -> str:
        """Give a party an inbox. Returns its address; raises Unavailable if it is taken.

        `carry_out`: the party's own store, if it has one.
        """
        inbox = self._context.socket(zmq.PULL)
        inbox.set_hwm(0)
        try:
            inbox.bind(address)
        except zmq.ZMQError as error:
            inbox.close(linger=0)
            raise Unavailable(
                f"{party.name} cannot listen on {address}: {error.strerror}; "
                "is it in use by another run?"
            ) from None
        if carry_out is not None:
            self._stores[party.name] = carry_out
        bound = inbox.getsockopt_string(zmq.LAST_ENDPOINT)
        inbox.bind(_inproc(party))
        if not self._inboxes:
            self._disk.ring = self.connect(_inproc(party))
        told = about("listening", name=party.name, address=bound)
        log.debug("%s listens on %s", party.name, bound, extra=told)
        self._inboxes.append((inbox, party))
        self._seats.append(Seat(party))
        self._poller.register(inbox, zmq.POLLIN)
        self._drains[inbox] = partial(self._take_from, inbox, party)
        return bound

    def watch(
        self,
        party: Party,
        socket: zmq.Socket[bytes] | int,
        drain: Callable[[], None],
        room: Callable[[], bool],
        carry_out: CarryOut | None = None,
    ) -> None:
        """Add a party with a socket or a file of its own, over which it talks to clients.

        `drain` takes the messages that have come; it is called only while there is `room`. The
        party's ticks and jobs are as usual; `carry_out`: its own store, if it has one.
        """
        self._seats.append(Seat(party, socket, room))
        self._drains[socket] = drain
        if carry_out is not None:
            self._stores[party.name] = carry_out

    def listen(self, file: int, drain: Callable[[], None]) -> None:
        """Let a file wake the loop, too: `drain` is called when there is something to read."""
        self._poller.register(file, zmq.POLLIN)
        self._drains[file] = drain

    def host(self, other: Party, partner: Party) -> None:
        """Run a party in a thread of its own, for its one partner: an embedded consumer."""
        self._local[other.name] = LocalParty(other, self.connect(_inproc(partner)))

    def run(self, until: Callable[[], bool]) -> None:
        """Loop until the condition holds."""
        sys.setswitchinterval(SWITCH_S)
        self._collector = Collector()
        more = False
        while not until():
            more = self.step(more)

    def step(self, more: bool = False, wait_s: float = 1.0) -> bool:
        """One turn; waits for input at most `wait_s`, and not at all if there is `more` to do.

        Returns whether there is more to do.
        """
        for seat in self._seats:
            seat.arm(self._poller)
        self.waits = True
        if more:
            self._take(0)
        else:
            tick_at = min(min(seat.tick_at, seat.party.tick_by) for seat in self._seats)
            now = monotonic()
            if self._freed.is_due(now):
                self._rest(now)
            self.idle.look(True, now)
            self._take(ceil(max(0.0, min(tick_at - now, wait_s)) * 1000))
        self.waits = False
        self.turns += 1
        more = False
        now = monotonic()
        self.idle.look(False, now)
        if now >= self._disk.look_at:
            self._disk.look(now)
        for seat in self._seats:
            seat.party.now = now
            if now >= min(seat.tick_at, seat.party.tick_by):
                seat.party.tick_by = inf
                seat.tick_at = seat.party.tick(now)
            more |= seat.party.turn()
            if os.getpid() != self._process:  # a copy, of which nothing may leave
                forks.leave()
            self.flush(seat.party)
        if self._collector is not None:
            self._collector.work(now)
        if more:
            os.sched_yield()  # let ZeroMQ's thread send, if it waits for this core
        return more

    def _rest(self, now: float) -> None:
        """Collect garbage and give memory back, if no message has come."""
        if not self._poller.poll(0):
            if self._collector is not None and self._collector.is_due(now):
                self._collector.rest(now)
            self._freed.rest(now)

    def flush(self, party: Party) -> None:
        """Send the messages of a party, and begin its jobs."""
        for to, data in party.outbox:
            if to in self._local:
                self._local[to].put(data)
            else:
                self._send(party, to, data)
        party.outbox.clear()
        for job in party.jobs:
            carry_out = self._stores.get(party.name, self._carry_out)
            assert carry_out is not None, f"nobody to carry out {job!r}"
            self._disk.put(party, job, carry_out)
        party.jobs.clear()

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Send all messages, finish all jobs, release the sockets."""
        for seat in self._seats:
            self.flush(seat.party)
        self._disk.stop()
        for local in self._local.values():
            local.stop()
        self._context.destroy(linger=linger_ms)

    def _send(self, party: Party, to: str, data: bytes) -> None:
        address = party.addresses.get(to)
        if address is None:
            return  # the receiver has not said Hello yet; it will ask for what it needs
        known = self._outs.get((party.name, to))
        if known is None or known[0] != address:
            if known is not None:
                known[1].close(linger=0)
            socket = self.connect(address)
            # `send` of pyzmq's part in C: the Python method around it would take as long again.
            known = self._outs[party.name, to] = address, socket, super(zmq.Socket, socket).send
        known[2](data, _NOBLOCK)

    def connect(self, address: str) -> zmq.Socket[bytes]:
        """A socket that sends to an address; only one thread may use it."""
        socket: zmq.Socket[bytes] = self._context.socket(zmq.PUSH)
        socket.set_hwm(0)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.connect(address)
        return socket

    def _take(self, wait_ms: int) -> None:
        """Take the messages that have come; if there is none, wait for one."""
        if len(self._inboxes) == len(self._drains) == 1:
            self._take_from(*self._inboxes[0], wait_ms)
        else:
            ready = self._poller.poll(wait_ms)
            self.idle.look(False, monotonic())
            for socket, _ in ready:
                self._drains[socket]()

    def _take_from(self, inbox: zmq.Socket[bytes], party: Party, wait_ms: int = 0) -> None:
        """Hand a party the messages in its inbox, at most `DRAIN`."""
        look = inbox.get
        if wait_ms and not look(_EVENTS):
            inbox.set(zmq.RCVTIMEO, wait_ms)
            try:
                data = inbox.recv()
            except zmq.Again:
                return
            party.now = monotonic()
            self.idle.look(False, party.now)
            self._hand(party, data)
        for _ in range(DRAIN):
            # Cheaper than `zmq.Again`, which would be raised once in every turn.
            if not look(_EVENTS):
                return
            self._hand(party, inbox.recv(zmq.NOBLOCK))

    def _hand(self, party: Party, data: bytes) -> None:
        if data:
            party.receive(data)
        else:
            self._disk.report()
            for local in self._local.values():
                local.check()


def _inproc(party: Party) -> str:
    """The address of a party's inbox for threads of this process."""
    return f"inproc://inbox-of-{party.name}"


class _Worker:
    """A thread that carries out jobs in order, and wakes the loop with an empty message."""

    ring: zmq.Socket[bytes]
    """Sends the empty messages."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Party, Job, CarryOut] | None] = queue.SimpleQueue()
        self._results: deque[tuple[Party, Job, object]] = deque()
        self._thread: threading.Thread | None = None
        self._trouble: dict[tuple[str, str], Trouble] = {}
        """(party, kind of job) -> its failures."""
        self._begun: tuple[float, Party, Job] | None = None
        """The job under way, and when it was begun."""
        self._tell_after = SLOW_S
        self.look_at = 0.0
        """When `look` is to be called."""

    def put(self, party: Party, job: Job, work: CarryOut) -> None:
        """Add a job of a party. `work` carries it out."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, daemon=True)
            self._thread.start()
        self._tasks.put((party, job, work))

    def look(self, now: float) -> None:
        """Tell of a job that takes long: a disk that is frozen gives no error."""
        self.look_at = now + LOOK_EVERY_S
        begun = self._begun
        if begun is None or now - begun[0] < SLOW_S:
            return
        since, party, job = begun
        took = now - since
        text = f"{party.name} has waited for its disk for {took:.0f} s, to {job.what}"
        party.obstacles[SLOW] = text
        if took >= self._tell_after:
            self._tell_after = 2 * took
            told = about("job-slow", name=party.name, job=type(job).__name__, seconds=took)
            log.warning("%s: is it frozen, or overloaded?", text, extra=told)

    def report(self) -> None:
        """Tell parties the results of their jobs. Raises ThreadDied."""
        while self._results:
            party, job, result = self._results.popleft()
            if isinstance(result, ThreadDied):
                raise result
            if party.obstacles.pop(SLOW, None) is not None:
                self._tell_after = SLOW_S
                told = about("job-slow-over", name=party.name, job=type(job).__name__)
                log.warning("%s can %s again", party.name, job.what, extra=told)
            self._tell(party, job, result)
            party.done(job, result)

    def _tell(self, party: Party, job: Job, result: object) -> None:
        """Tell when jobs of a kind begin to fail, while they do, and when they do no more."""
        name, kind = party.name, type(job).__name__
        if isinstance(result, Unavailable):
            trouble = self._trouble.setdefault((name, kind), Trouble("job-failed"))
            text = f"{name} cannot {job.what}: {result}; trying again"
            trouble.failed(monotonic(), text, name=name, job=kind)
        elif (name, kind) in self._trouble:
            trouble = self._trouble.pop((name, kind))
            trouble.over(monotonic(), f"{name} can {job.what} again", name=name, job=kind)

    def stop(self) -> None:
        """Finish all jobs."""
        self._tasks.put(None)
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _loop(self) -> None:
        while (task := self._tasks.get()) is not None:
            party, job, work = task
            self._begun = monotonic(), party, job
            try:
                result: object = work(job)
            except DriftlineError as error:
                result = error
            except BaseException as error:
                result = ThreadDied.of(error, f"{type(job).__name__} of {party.name}")
            self._begun = None
            self._results.append((party, job, result))
            self.ring.send(b"")
            if isinstance(result, ThreadDied):
                return


class ThreadDied(Exception):
    """An exception that is not ours ended a thread: its process ends, too, with this text."""

    @staticmethod
    def of(error: BaseException, during: str) -> ThreadDied:
        """The exception that the loop raises for any exception of a thread, also a SystemExit."""
        died = ThreadDied(f"the thread for {during} died: {type(error).__name__}: {error}")
        died.__cause__ = error
        return died


class LocalParty:
    """A party in a thread of its own, which talks to one partner."""

    def __init__(self, party: Party, partner: zmq.Socket[bytes]) -> None:
        self._party = party
        self._partner = partner
        self._tasks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._died: ThreadDied | None = None
        self._tick_at = 0.0
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        """Send it a message."""
        self._tasks.put(data)

    def check(self) -> None:
        """Raises ThreadDied if it cannot go on."""
        if self._died is not None:
            raise self._died

    def stop(self) -> None:
        """Let it work off all messages, and end."""
        self._tasks.put(None)
        self._thread.join(timeout=10)

    def _next(self) -> bytes | None:
        """The next message, None at the end. Until it comes the party has its ticks."""
        while True:
            now = monotonic()
            if now >= self._tick_at:
                self._party.now = now
                self._tick_at = self._party.tick(now)
            with suppress(queue.Empty):
                return self._tasks.get(timeout=max(0.0, self._tick_at - now))

    def _loop(self) -> None:
        party = self._party
        try:
            while (data := self._next()) is not None:
                party.now = monotonic()
                party.receive(data)
                for _, answer in party.outbox:
                    self._partner.send(answer)
                party.outbox.clear()
        except BaseException as error:
            self._died = ThreadDied.of(error, party.name)
            self._partner.send(b"")
