"""The ZeroMQ runtime: drives the roles of a process with real sockets, clock and disk.

A process has one single-threaded loop. A turn takes a bounded number of messages, lets each role
process them, and sends the role's messages. The loop sleeps while there is no message; it never
spins, and never waits for a disk: one background thread executes the durable jobs, in order.

Sockets: a PULL per role (`inbox`), and a PUSH per role and receiver; `transport` defines addresses
and keys. The sockets have no high-water mark, so a send never fails because a queue is full
(windows bound the amount in flight). If a reconnect loses messages, a gap in the sequence numbers
reveals the loss. Background threads *wake* the loop: they send an empty message to the PULL of a
role. So a node waits at one socket, and wakes sooner than if it polled several.

A process that does nothing else runs the loop with `run`. A process with other work calls `step`,
within `low_latency` if it is on the path of outputs. Within `low_latency`, which `run` enters,
garbage is collected when the loop is idle. Every process returns freed memory when idle (`memory`);
the processes of a service set their CPU affinity (`cpu_affinity`).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil, inf
from time import monotonic

import zmq

from driftline.deploy.runtime.loop.cpu_affinity import CpuAffinity
from driftline.deploy.runtime.loop.memory import GcScheduler, MallocTrimmer
from driftline.deploy.runtime.sockets.inbox import GuardedInbox, Inbox, inproc
from driftline.deploy.runtime.sockets.transport import (
    MESSAGE_BYTES_MAX,
    PART_BYTES,
    Transport,
    destroy_context,
)
from driftline.deploy.runtime.sockets.zap import Zap
from driftline.deploy.runtime.threads import Calls, HostedRole, JobExecutor, Worker
from driftline.engine.errors import MalformedMessage, NotPermitted, PayloadError
from driftline.engine.events import event_fields, log
from driftline.engine.meters import Stopwatch
from driftline.engine.wire.role import Role

LINGER_MS = 500
"""Longest time that the messages of a closed socket may delay the exit of the process."""

SWITCH_S = 0.0005
"""Time in seconds that a thread may hold the interpreter while another one waits for it."""

RECONNECT_MS = 10
"""Reconnect interval of an ipc socket, short because a new master waits for all members."""

REOPEN_AFTER_S = 1.0
"""Pause in seconds after `shut` before a new connection to the same address."""

UNUSED_S = 60.0
"""A connection unused for this long (seconds) is closed: its receiver may never return."""

_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)

_Send = Callable[[bytes | memoryview, int], object]


class Runtime:
    """Driver of the roles of a process.

    `execute_job`: executes the jobs of all roles that have no executor of their own.
    """

    def __init__(
        self,
        execute_job: JobExecutor | None = None,
        transport: Transport | None = None,
        affinity: CpuAffinity | None = None,
    ) -> None:
        self._execute_job = execute_job
        self._transport = transport or Transport()
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._slots: list[_RoleSlot] = []
        self._connections: dict[tuple[str, str], _OutgoingConnection] = {}
        """(role, receiver) -> the connection."""
        self._unused_check_at = 0.0
        """When to look for unused connections next (seconds, monotonic)."""
        self._hosted: dict[str, HostedRole] = {}
        """Role -> its thread, for roles that `host` added."""
        self._job_executors: dict[str, JobExecutor] = {}
        """Role -> function that executes its jobs instead of `execute_job`."""
        self._job_worker = Worker()
        self._calls = Calls()
        self._zap: Zap | None = None
        self._inboxes: list[Inbox] = []
        self._input_handlers: dict[object, Callable[[], None]] = {}
        """Socket or file descriptor -> call that handles its input."""
        self._fds: dict[object, int] = {}
        """Socket -> its file descriptor, cached because ZeroMQ returns it slowly."""
        self._collector: GcScheduler | None = None
        """None outside `low_latency`: the process then keeps Python's settings."""
        self._malloc_trimmer = MallocTrimmer()
        self._affinity = affinity or CpuAffinity()
        self.turns = 0
        self.is_waiting = False
        """Whether the loop is waiting for messages or taking them from a socket."""
        self.idle = Stopwatch()
        """Total time that the loop has waited for messages."""

    @property
    def roles(self) -> list[Role]:
        """All roles that this loop drives."""
        return [slot.role for slot in self._slots]

    def add(self, role: Role, address: str, execute_job: JobExecutor | None = None) -> str:
        """Add a role with an inbox. Return the address at which other roles reach it.

        Raises Unavailable if the address is taken, NotPermitted if the transport forbids it.
        `execute_job`: executes the role's jobs; None: the executor of the runtime does.
        """
        inbox = self._make_inbox(role, address)
        if execute_job is not None:
            self._job_executors[role.name] = execute_job
        if not self._inboxes:
            self._job_worker.wake_socket = self._make_wake_socket(role)
            self._calls.wake_socket = self._make_wake_socket(role)
        fields = event_fields("listening", name=role.name, address=inbox.address)
        log.debug("%s listens on %s", role.name, inbox.address, extra=fields)
        inbox.on_wait_end = partial(self.idle.update, False)
        self._inboxes.append(inbox)
        self._add_slot(_RoleSlot(role))
        self._poller.register(inbox.socket, zmq.POLLIN)
        self._input_handlers[inbox.socket] = inbox.take
        return inbox.address

    def _make_inbox(self, role: Role, address: str) -> Inbox:
        own, authorised = self._transport.own, self._transport.authorised
        arguments = self._context, role, address, self._transport, self._take_thread_results
        if own is None or authorised is None:
            return Inbox(*arguments)
        if self._zap is None:
            self._zap = Zap(self._context, authorised, role.name)
        return GuardedInbox(*arguments, self._zap)

    def add_with_input(
        self,
        role: Role,
        socket: zmq.Socket[bytes] | int,
        handle_input: Callable[[], None],
        *,
        has_room: Callable[[], bool] = lambda: True,
        has_work: Callable[[], bool] = lambda: False,
        execute_job: JobExecutor | None = None,
    ) -> None:
        """Add a role that receives input over its own socket or file descriptor, not an inbox.

        `handle_input` handles the input that has arrived. The loop calls it only while the role
        `has_room`, and does not wait while the role `has_work`. It calls the role's ticks and
        executes its jobs as usual; `execute_job`: as in `add`.
        """
        self._add_slot(_RoleSlot(role, socket, has_room, has_work))
        self._input_handlers[socket] = handle_input
        if execute_job is not None:
            self._job_executors[role.name] = execute_job

    def _add_slot(self, slot: _RoleSlot) -> None:
        slot.role.now = monotonic()  # messages may arrive before its first turn
        self._slots.append(slot)

    def watch_fd(self, fd: int, handle_input: Callable[[], None]) -> None:
        """Let a file descriptor wake the loop, too: call `handle_input` when it is readable."""
        self._poller.register(fd, zmq.POLLIN)
        self._input_handlers[fd] = handle_input

    def host(self, hosted: Role, partner: Role, at_end: Callable[[], None] = lambda: None) -> None:
        """Run a role, such as an embedded consumer, in its own thread; it talks to `partner` only.

        `at_end`: called by that thread when the runtime is closed.
        """
        self._hosted[hosted.name] = HostedRole(
            hosted, partner, self._make_wake_socket(partner), at_end
        )

    def run(self, until: Callable[[], bool]) -> None:
        """Loop until the condition holds."""
        with self.low_latency():
            more = False
            while not until():
                more = self.step(more)

    @contextmanager
    def low_latency(self) -> Iterator[None]:
        """Keep threads and the garbage collector from delaying turns for long within this context.

        Garbage is collected when the loop is idle. A waiting thread gets the interpreter after
        `SWITCH_S`: Python's default of 5 ms exceeds the latency of most outputs.
        """
        was_enabled, interval_s = gc.isenabled(), sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        self._collector = GcScheduler()
        try:
            yield
        finally:
            self._collector = None
            sys.setswitchinterval(interval_s)
            gc.unfreeze()
            if was_enabled:
                gc.enable()

    def step(self, more: bool = False, wait_s: float = 1.0) -> bool:
        """Run one turn; wait for input at most `wait_s`, and not at all if there is `more` to do.

        Return whether there is more to do.
        """
        for slot in self._slots:
            more |= slot.arm(self._poller)
        self.is_waiting = True
        if more:
            self._take(0)
        else:
            tick_at, now = self.tick_at, monotonic()
            if self._malloc_trimmer.is_due(now):
                self._do_idle_work(now)
            self.idle.update(True, now)
            self._take(ceil(max(0.0, min(tick_at - now, wait_s)) * 1000))
        self.is_waiting = False
        self.turns += 1
        more = sends = False
        now = monotonic()
        self.idle.update(False, now)
        if now >= self._job_worker.next_check_at:
            self._job_worker.warn_if_slow(now)
            self._affinity.adjust(now)
            for inbox in self._inboxes:
                inbox.check()
            if now >= self._unused_check_at:
                self._unused_check_at = now + UNUSED_S
                self._close_unused()
        for slot in self._slots:
            slot.role.now = now
            if now >= min(slot.tick_at, slot.role.tick_by):
                slot.role.tick_by = inf
                slot.tick_at = slot.role.tick(now)
            more |= slot.role.turn()
            sends |= slot.sends
            self.flush(slot.role)
        if self._collector is not None:
            self._collector.collect_if_urgent(now)
        if more and sends:
            os.sched_yield()  # let ZeroMQ's thread send, if it waits for this core
        return more

    @property
    def tick_at(self) -> float:
        """Time at which a turn is due even without a message (seconds, monotonic)."""
        return min((min(slot.tick_at, slot.role.tick_by) for slot in self._slots), default=inf)

    def fds_to_watch(self) -> set[int] | None:
        """Return the file descriptors that become readable when input arrives.

        Another loop waits for them in place of this one. None: input has already arrived, so a turn
        is due.
        """
        if self._has_input():
            return None
        return {
            each if isinstance(each, int) else self._fd_of(each) for each, _ in self._poller.sockets
        }

    def _has_input(self) -> bool:
        has_work = [slot.arm(self._poller) for slot in self._slots]
        return any(has_work) or bool(self._poller.poll(0))

    def _fd_of(self, socket: zmq.Socket[bytes]) -> int:
        fd = self._fds.get(socket)
        if fd is None:
            fd = self._fds[socket] = socket.fileno()
        return fd

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        """Let the loop call a function in its next turn. Thread-safe."""
        self._calls.add(call)

    def _do_idle_work(self, now: float) -> None:
        """Collect garbage and return memory to the system, if no message has arrived."""
        if not self._has_input():
            if self._collector is not None and self._collector.is_due(now):
                self._collector.collect_when_idle(now)
            self._malloc_trimmer.trim_when_idle(now)

    def flush(self, role: Role) -> None:
        """Start a role's jobs, and send its messages."""
        # Jobs first: a message wakes ZeroMQ's thread, which may occupy this core for a while.
        for job in role.jobs:
            execute_job = self._job_executors.get(role.name, self._execute_job)
            assert execute_job is not None, f"nothing executes {job!r}"
            self._job_worker.put(role, job, execute_job)
        role.jobs.clear()
        for to, data in role.outbox:
            if to in self._hosted:
                self._hosted[to].put(data)
            else:
                self._send(role, to, data)
        role.outbox.clear()

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Send all messages, finish all jobs, and release the sockets."""
        for slot in self._slots:
            self.flush(slot.role)
        self._job_worker.stop()
        for hosted in self._hosted.values():
            hosted.stop()
        if self._zap is not None:
            self._zap.close()
        destroy_context(self._context, linger_ms)
        for inbox in self._inboxes:
            inbox.close()

    def _send(self, role: Role, to: str, data: bytes) -> None:
        address = role.addresses.get(to)
        if address is None:
            # Unknown: treat the message as lost. Senders repeat control messages; a gap in numbered
            # messages starts a recovery.
            return
        connection = self._connections.get((role.name, to))
        if connection is None or connection.address != address or connection.send is None:
            connection = self._connection_to(role, to, address, connection)
            if connection.send is None:
                return  # already reported
        keyed = self._transport.own is not None
        if keyed and len(data) > MESSAGE_BYTES_MAX:
            raise PayloadError(
                f"a message from {role.name} to {to} has {len(data)} bytes; the limit between "
                f"hosts is {MESSAGE_BYTES_MAX}: change the function to emit smaller outputs"
            )
        connection.used = True
        try:
            if keyed and len(data) > PART_BYTES:
                _send_parts(connection.send, data)
            else:
                connection.send(data, _NOBLOCK)
        except zmq.Again:  # the receiver rejected our key, and ZeroMQ does not retry
            role.drop(NotPermitted(f"{to} at {address} rejected the key of this process"))
            connection.shut()

    def _connection_to(
        self, role: Role, to: str, address: str, previous: _OutgoingConnection | None
    ) -> _OutgoingConnection:
        """Return a new connection to a receiver, or `previous` during the pause after `shut`."""
        now = monotonic()
        if previous is not None:
            if previous.address == address and now < previous.shut_until:
                return previous
            previous.shut()
        connection = self._connections[role.name, to] = _OutgoingConnection(address)
        try:
            socket = self.connect(address, to)
        except (MalformedMessage, NotPermitted) as error:
            role.drop(error)
            connection.shut()
        else:
            # pyzmq's C implementation of `send`: the Python method around it would double the time.
            connection.socket, connection.send = socket, super(zmq.Socket, socket).send
        return connection

    def _close_unused(self) -> None:
        """Close connections unused since the last call, which ZeroMQ would reconnect forever."""
        for channel, connection in list(self._connections.items()):
            if not connection.used:
                connection.shut()
                del self._connections[channel]
            connection.used = False

    def connect(self, address: str, to: str = "") -> zmq.Socket[bytes]:
        """Return a socket that sends to role `to` at an address; only one thread may use it.

        Raises MalformedMessage for a text that is not an address, NotPermitted if the transport
        forbids this address for the role.
        """
        peer = self._transport.resolve_peer(address, to)
        socket: zmq.Socket[bytes] = self._context.socket(zmq.PUSH)
        socket.set_hwm(0)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._transport.configure_connecting(socket, peer)
        try:
            socket.connect(peer.endpoint)
        except zmq.ZMQError as error:
            socket.close(linger=0)
            raise MalformedMessage(f"{address!r} is not an address: {error.strerror}") from None
        return socket

    def _make_wake_socket(self, role: Role) -> zmq.Socket[bytes]:
        """Return a socket to the role's inbox with which a thread wakes the loop."""
        return self.connect(inproc(role))

    def _take_thread_results(self) -> None:
        """Process the results of jobs, calls, and messages that threads have left for the loop."""
        self._job_worker.deliver_results()
        self._calls.run_all()
        for hosted in self._hosted.values():
            hosted.deliver_answers()

    def _take(self, wait_ms: int) -> None:
        """Process the messages that have arrived; if none, wait for one for at most `wait_ms`."""
        if len(self._inboxes) == len(self._input_handlers) == 1:
            self._inboxes[0].take(wait_ms)
        else:
            ready = self._poller.poll(wait_ms)
            self.idle.update(False, monotonic())
            for socket, _ in ready:
                self._input_handlers[socket]()


def _send_parts(send: _Send, data: bytes) -> None:
    """Send a large message in parts that other processes accept."""
    view = memoryview(data)
    last = (len(data) - 1) // PART_BYTES * PART_BYTES
    for at in range(0, last, PART_BYTES):
        send(view[at : at + PART_BYTES], _MORE)
    send(view[last:], _NOBLOCK)


class _RoleSlot:
    """Role in a runtime, with its own socket or file descriptor, if it has no inbox. The socket
    wakes the loop only while the role has room for its input."""

    def __init__(
        self,
        role: Role,
        socket: zmq.Socket[bytes] | int | None = None,
        has_room: Callable[[], bool] = lambda: True,
        has_work: Callable[[], bool] = lambda: False,
    ) -> None:
        self.role = role
        self.tick_at = 0.0
        self._socket = socket
        self._has_room = has_room
        self._has_work = has_work
        self._armed = False

    @property
    def sends(self) -> bool:
        """Whether the role has messages for ZeroMQ to send, or a ZeroMQ socket of its own."""
        return bool(self.role.outbox) or isinstance(self._socket, zmq.Socket)

    def arm(self, poller: zmq.Poller) -> bool:
        """Poll the socket only while the role has room: otherwise the loop would spin.

        Return whether the role has work even without input.
        """
        if self._socket is None:
            return False
        if self._has_room() is not self._armed:
            self._armed = not self._armed
            if self._armed:
                poller.register(self._socket, zmq.POLLIN)
            else:
                poller.unregister(self._socket)
        return self._has_work()


class _OutgoingConnection:
    """Connection from a role to a receiver; it has no socket after `shut`."""

    __slots__ = ("address", "send", "shut_until", "socket", "used")

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket: zmq.Socket[bytes] | None = None
        self.send: _Send | None = None
        self.shut_until = 0.0
        self.used = True
        """Whether a message was sent since the last check for unused connections."""

    def shut(self) -> None:
        """Close the socket, and forbid a new connection for `REOPEN_AFTER_S`."""
        if self.socket is not None:
            self.socket.close(linger=0)
        self.socket = self.send = None
        self.shut_until = monotonic() + REOPEN_AFTER_S
