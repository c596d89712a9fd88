"""Base of every role that sends and receives messages: numbered channels, an outbox, jobs.

Inputs: bytes, the time, and results of jobs, from a driver (the ZeroMQ runtime or the simulation).
Outputs, for the driver: messages in `outbox` and durable work in `jobs`. A role itself never
touches a socket, a clock, a thread or a disk.
Invariant of a channel: within one incarnation a role handles the messages of a sender in the order
of their sequence numbers, each exactly once. It ignores a repeated message. A gap means that the
channel has lost a message: the role calls `channel_lost`, and handles no further message of this
sender until the next incarnation.

Each master leads in its own *epoch*, a number that the registry assigns only once. The channels of
the master start over with each epoch, and a later epoch has larger sequence numbers. So a late
message from or to an earlier master is ignored like a repeated one. A control message contains the
epoch instead of a sequence number, and a role drops it if it comes from an earlier master.
"""

from __future__ import annotations

from math import inf
from typing import ClassVar

from msgspec import Struct

from driftline.engine.errors import DriftlineError, MalformedMessage, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.wire.kinds import MASTER, Voice, check_sender
from driftline.engine.wire.messages import Message, MessageHeader, decode, encode

EPOCH_BITS = 40
"""On a channel of the master, these low bits of a sequence number count messages. The bits above
are the epoch."""

EPOCHS_MAX = 1 << 63 - EPOCH_BITS
"""Larger than every epoch, so that a sequence number fits into 63 bits."""


class DurableJob(Struct, frozen=True):
    """Durable work that a driver does for a role; it does jobs in order and calls `on_job_done`."""

    what: ClassVar[str] = "carry out a job"
    """The work as a verb phrase, for error messages: it follows the word "cannot"."""


class Role:
    """Base of node, front, master and consumer server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.incarnation = 0
        self.epoch = 0
        """The newest epoch known to this role; a master's own epoch."""
        self.outbox: list[tuple[str, bytes]] = []
        """(receiver, bytes of a message), to be sent in this order."""
        self.jobs: list[DurableJob] = []
        self.addresses: dict[str, str] = {}
        """Name of another process -> its address, for the driver."""
        self.now = 0.0
        """The driver's time (seconds, monotonic), as of the last turn or tick."""
        self.tick_by = inf
        """The driver calls `tick` at this time, if it is before the one that `tick` returned."""
        self.malformed = 0
        """Number of dropped malformed messages."""
        self.obstacles: dict[str, str] = {}
        """What fails outside the run and is being retried (a kind of job, or the consumer) -> a
        sentence with the place and the reason."""
        self._sent: dict[str, int] = {}
        """Receiver -> sequence number of the last message sent to it."""
        self._last_numbers: dict[str, int] = {}
        """Sender -> sequence number of its last message that was handled."""
        self._broken: set[str] = set()
        """Senders whose channels have lost a message in this incarnation."""

    # Called by a driver.

    def receive(self, data: bytes, voice: Voice | None = None) -> None:
        """Process the bytes of one message from the network. A malformed message is dropped.

        `voice`: the sender's key; None between processes of one machine.
        """
        try:
            header, message = decode(data)
            if voice is not None:
                check_sender(voice, header.sender, message)
            accepts = self.admits if message.control else self._accept_in_sequence
            if accepts(header):
                self.handle(header.sender, message)
        except MalformedMessage as error:
            self.drop(error)

    def drop(self, error: DriftlineError) -> None:
        """Count a malformed or unsendable message; log numbers 1, 10, 20, ... 100, 200, ..."""
        self.malformed += 1
        if self.malformed == 1:
            fields = event_fields("malformed", reason=str(error), count=1)
            kind = "malformed " * isinstance(error, MalformedMessage)
            log.warning("%s dropped a %smessage: %s", self.name, kind, error, extra=fields)
        elif self.malformed % 10 == 0 and len(str(self.malformed).rstrip("0")) == 1:
            fields = event_fields("malformed", reason=str(error), count=self.malformed)
            log.warning(
                "%s has dropped %d malformed messages; the last one: %s",
                *(self.name, self.malformed, error),
                extra=fields,
            )

    def on_job_done(self, job: DurableJob, result: object) -> None:
        """Process the result of a job; `result` is an exception if it failed."""

    def tick(self, now: float) -> float:
        """Set the time (seconds, monotonic). Return when to call `tick` again."""
        return now + 1.0

    def turn(self) -> bool:
        """Process pending work. Return whether work is left, even without new input."""
        return False

    def make_heartbeats(self, now: float) -> list[tuple[str, bytes]]:
        """Return the (receiver, bytes) to send as heartbeats during a long turn."""
        return []

    @property
    def obstacle(self) -> str:
        """Human-readable failures outside the run (a disk, a consumer) that this role waits for."""
        return "; ".join(self.obstacles.values())

    @property
    def stopped(self) -> bool:
        """Whether this role knows that the run has ended, and only sends `Goodbye`."""
        return False

    @property
    def ended(self) -> bool:
        """Whether the process of this role may end."""
        return self.stopped

    # Used and overridden by roles.

    def update_obstacle(self, job: DurableJob, result: object) -> None:
        """Record from the result of a job whether its disk fails. A failed job will be retried."""
        kind = type(job).__name__
        if isinstance(result, Unavailable):
            self.obstacles[kind] = f"{self.name} cannot {job.what}: {result}"
        else:
            self.obstacles.pop(kind, None)

    def handle(self, sender: str, message: Message) -> None:
        """Process one message: the sender's next one in this incarnation, or a control message."""
        raise NotImplementedError

    def channel_lost(self, sender: str) -> None:
        """React to the loss of a message that the sender sent in this incarnation."""
        raise NotImplementedError

    def admits(self, header: MessageHeader) -> bool:
        """Return whether to handle a control message; a master's only if no later master is known.

        Raises MalformedMessage for an impossible epoch.
        """
        if header.sender != MASTER:
            return True
        if header.sequence > self.epoch:
            self.follow_master(header.sequence)
        return header.sequence == self.epoch

    def follow_master(self, epoch: int) -> None:
        """Follow a later master: its channels start over."""
        if not self.epoch < epoch < EPOCHS_MAX:
            raise MalformedMessage(f"epoch {epoch} after {self.epoch}")
        self.epoch = epoch
        if self.name == MASTER:
            self._begin_channels()
        else:
            self._sent.pop(MASTER, None)
            self._last_numbers.pop(MASTER, None)
            self._broken.discard(MASTER)

    def send(self, to: str, message: Message) -> None:
        """Append a message to the outbox. Raises PayloadError if it cannot be encoded."""
        if message.control:
            self.outbox.append((to, encode((self.name, self.incarnation, self.epoch), message)))
            return
        sequence = self._sent.get(to, self._number_before(to)) + 1
        self.outbox.append((to, encode((self.name, self.incarnation, sequence), message)))
        self._sent[to] = sequence  # after `encode`: a failure must not leave a gap

    def _number_before(self, other: str) -> int:
        """Return the sequence number that precedes the first one on a channel."""
        return self.epoch << EPOCH_BITS if MASTER in (self.name, other) else 0

    def enter_incarnation(self, incarnation: int) -> None:
        """Begin a later incarnation: all channels start over."""
        assert incarnation > self.incarnation, "incarnations only grow"
        self.incarnation = incarnation
        self._begin_channels()

    def _begin_channels(self) -> None:
        self._sent.clear()
        self._last_numbers.clear()
        self._broken.clear()

    def _accept_in_sequence(self, header: MessageHeader) -> bool:
        """Return whether to handle a numbered message: it is the next one of its sender.

        A gap in the numbers breaks the channel for this incarnation, and calls `channel_lost`.
        """
        if header.incarnation != self.incarnation or header.sender in self._broken:
            return False
        seen = self._last_numbers.get(header.sender, self._number_before(header.sender))
        if header.sequence == seen + 1:
            self._last_numbers[header.sender] = header.sequence
            return True
        if header.sequence > seen:
            self._broken.add(header.sender)
            self.channel_lost(header.sender)
        return False
