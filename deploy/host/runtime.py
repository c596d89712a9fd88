"""The ZeroMQ runtime: drives the parties of a process with real sockets, clock and disk.

One single-threaded loop per process. A turn: take what has come (bounded), let the party work it
off, send what it wants sent. The loop sleeps when there is nothing; it never spins and never waits
for a disk: durable work is done by one background thread, in order.

Sockets: a PULL for each party, and a PUSH for each that is sent to. Neither drops anything at a
high-water mark (there is none; windows bound what is under way); what a reconnect loses is noticed
by the numbers of the channel. The threads of the process send there, too: so a node waits at one
socket, which is sooner awake than a poller is.

The cyclic garbage collector is off: reference counting frees all that the data path makes, and a
collection would stop the loop for long.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from math import ceil, inf
from time import monotonic

import zmq

from driftline.engine.errors import DriftlineError, Unavailable
from driftline.engine.wire.party import Job, Party

log = logging.getLogger("driftline")

DRAIN = 64
"""Messages that a turn takes at most."""

SWITCH_S = 0.0005
"""How long the background thread may keep the interpreter while the loop wants it."""

_EVENTS = int(zmq.EVENTS)
"""A plain number: an enumeration of pyzmq costs more than what is done with it."""

_NOBLOCK = int(zmq.NOBLOCK)

CarryOut = Callable[[Job], object]
_Send = Callable[[bytes, int], object]


class Runtime:
    """Drives the parties of a process until it is told to stop."""

    def __init__(self, carry_out: CarryOut | None = None) -> None:
        self._carry_out = carry_out
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._seats: list[_Seat] = []
        self._outs: dict[tuple[str, str], tuple[str, zmq.Socket[bytes], _Send]] = {}
        self._local: dict[str, LocalParty] = {}
        self._stores: dict[str, CarryOut] = {}
        self._disk = _Worker()
        self._inboxes: list[tuple[zmq.Socket[bytes], Party]] = []
        self._drains: dict[object, Callable[[], None]] = {}
        """What to do when there is something to be had from a socket."""
        self.turns = 0
        self.waits = False
        """Whether it waits for something to come, or takes it."""

    def add(self, party: Party, address: str) -> str:
        """Give a party an inbox. Returns its address; raises Unavailable if it is taken."""
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
        bound = inbox.getsockopt_string(zmq.LAST_ENDPOINT)
        inbox.bind(_inproc(party))
        if not self._inboxes:
            self._disk.ring = self.connect(_inproc(party))
        self._inboxes.append((inbox, party))
        self._seats.append(_Seat(party))
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
        """Give a party a socket that it has made itself, to talk to others than parties, or a file.

        `drain` takes what has come; it is not called while there is no `room` for more. The party's
        jobs and ticks are as any other's; it may have a store of its own.
        """
        self._seats.append(_Seat(party, socket, room))
        self._drains[socket] = drain
        if carry_out is not None:
            self._stores[party.name] = carry_out

    def host(self, other: Party, partner: Party) -> None:
        """Let a party live in a thread of its own beside its only partner: an embedded consumer."""
        self._local[other.name] = LocalParty(other, self.connect(_inproc(partner)))

    def run(self, until: Callable[[], bool]) -> None:
        """Loop until the condition holds. A copy of the process that a user function has forked,
        and that comes back, ends here: it has no sockets and no threads."""
        quiet_collector()
        more, process = False, os.getpid()
        while not until():
            more = self.step(more)
            if os.getpid() != process:
                os._exit(0)

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
            self._take(ceil(max(0.0, min(tick_at - monotonic(), wait_s)) * 1000))
        self.waits = False
        self.turns += 1
        more = False
        now = monotonic()
        for seat in self._seats:
            seat.party.now = now
            if now >= min(seat.tick_at, seat.party.tick_by):
                seat.party.tick_by = inf
                seat.tick_at = seat.party.tick(now)
            more |= seat.party.turn()
            self.flush(seat.party)
        if more:
            os.sched_yield()  # let ZeroMQ's thread send, if it waits for this core
        return more

    def flush(self, party: Party) -> None:
        """Send what a party wants sent, begin the jobs that it wants done."""
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

    def close(self, linger_ms: int = 500) -> None:
        """Send what is still to be sent, finish jobs, release the sockets."""
        for seat in self._seats:
            self.flush(seat.party)
        self._disk.stop()
        for local in self._local.values():
            local.stop()
        self._context.destroy(linger=linger_ms)

    def _send(self, party: Party, to: str, data: bytes) -> None:
        address = party.addresses.get(to)
        if address is None:
            return  # nobody there yet: whoever needs it will ask
        known = self._outs.get((party.name, to))
        if known is None or known[0] != address:
            if known is not None:
                known[1].close(linger=0)
            socket = self.connect(address)
            # The send of pyzmq's C part: what is around it takes as long again.
            known = self._outs[party.name, to] = address, socket, super(zmq.Socket, socket).send
        known[2](data, _NOBLOCK)

    def connect(self, address: str) -> zmq.Socket[bytes]:
        """A socket that sends to an address; for one thread."""
        socket: zmq.Socket[bytes] = self._context.socket(zmq.PUSH)
        socket.set_hwm(0)
        socket.connect(address)
        return socket

    def _take(self, wait_ms: int) -> None:
        """Take what has come; if that is nothing, wait for it."""
        if len(self._inboxes) == len(self._drains) == 1:
            self._take_from(*self._inboxes[0], wait_ms)
        else:
            for socket, _ in self._poller.poll(wait_ms):
                self._drains[socket]()

    def _take_from(self, inbox: zmq.Socket[bytes], party: Party, wait_ms: int = 0) -> None:
        """Hand a party what has come for it."""
        look = inbox.get
        if wait_ms and not look(_EVENTS):
            inbox.set(zmq.RCVTIMEO, wait_ms)
            try:
                data = inbox.recv()
            except zmq.Again:
                return
            self._hand(party, data)
        for _ in range(DRAIN):
            # Cheaper than to run into `zmq.Again`, which would come in the middle of every hop.
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


def quiet_collector() -> None:
    """Keep the cyclic garbage collector, and other threads, out of a loop's way."""
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(SWITCH_S)


def _inproc(party: Party) -> str:
    """Where threads of this process reach a party's inbox."""
    return f"inproc://inbox-of-{party.name}"


class _Seat:
    """A party in a runtime; and a socket that the loop wakes for only while there is room."""

    def __init__(
        self,
        party: Party,
        socket: zmq.Socket[bytes] | int | None = None,
        room: Callable[[], bool] = lambda: True,
    ) -> None:
        self.party = party
        self.tick_at = 0.0
        self._socket = socket
        self._room = room
        self._armed = False

    def arm(self, poller: zmq.Poller) -> None:
        """Wake the loop for the socket, or not: what is not taken would wake it for ever."""
        if self._socket is not None and self._room() is not self._armed:
            self._armed = not self._armed
            if self._armed:
                poller.register(self._socket, zmq.POLLIN)
            else:
                poller.unregister(self._socket)


class _Worker:
    """A thread that does things in order, and wakes the loop with an empty message each time."""

    ring: zmq.Socket[bytes]
    """Where the empty messages go."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Party, Job, CarryOut] | None] = queue.SimpleQueue()
        self._results: deque[tuple[Party, Job, object]] = deque()
        self._thread: threading.Thread | None = None

    def put(self, party: Party, job: Job, work: CarryOut) -> None:
        """Have a job of a party done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, daemon=True)
            self._thread.start()
        self._tasks.put((party, job, work))

    def report(self) -> None:
        """Tell parties what has been done. Raises ThreadDied."""
        while self._results:
            party, job, result = self._results.popleft()
            if isinstance(result, ThreadDied):
                raise result
            party.done(job, result)

    def stop(self) -> None:
        """Finish what was begun."""
        self._tasks.put(None)
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _loop(self) -> None:
        while (task := self._tasks.get()) is not None:
            party, job, work = task
            try:
                result: object = work(job)
            except DriftlineError as error:
                result = error
            except BaseException as error:
                result = ThreadDied.of(error, f"{type(job).__name__} of {party.name}")
            self._results.append((party, job, result))
            self.ring.send(b"")
            if isinstance(result, ThreadDied):
                return


class ThreadDied(Exception):
    """A thread met what is no error of ours: its process cannot go on, and ends with the text."""

    @staticmethod
    def of(error: BaseException, during: str) -> ThreadDied:
        """What the loop raises instead, whatever it was: even an exit of one thread only."""
        died = ThreadDied(f"the thread for {during} died: {type(error).__name__}: {error}")
        died.__cause__ = error
        return died


class LocalParty:
    """A party in a thread of its own, with one other to talk to."""

    def __init__(self, party: Party, partner: zmq.Socket[bytes]) -> None:
        self._party = party
        self._partner = partner
        self._tasks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._died: ThreadDied | None = None
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
        """Let it finish what it has got."""
        self._tasks.put(None)
        self._thread.join(timeout=10)

    def _loop(self) -> None:
        party = self._party
        try:
            while (data := self._tasks.get()) is not None:
                party.receive(data)
                for _, answer in party.outbox:
                    self._partner.send(answer)
                party.outbox.clear()
        except BaseException as error:
            self._died = ThreadDied.of(error, party.name)
            self._partner.send(b"")
