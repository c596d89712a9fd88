"""Base of every role that sends and receives messages: numbered channels, an outbox, jobs.

Inputs: bytes, the time, and results of jobs, from a driver (the ZeroMQ runtime or the simulation).
Outputs, for the driver: messages in `outbox`, and in `jobs` work on a disk or in ZooKeeper. A role
itself never touches a socket, a clock, a thread or a disk.

Invariant of a channel: within one incarnation a role handles the numbered messages of a sender in
the order of their sequence numbers, each exactly once. A role ignores a repeated message. A gap
means that a message was lost: the role calls `channel_lost`, and handles no further numbered
message of this sender until the next incarnation.

Each master leads in its own *epoch*, a number that the registry assigns only once. All channels
from and to the master start over with each epoch, with larger sequence numbers than before. So a
role ignores a delayed message from or to an earlier master like a repeated one. A control message
contains the epoch instead of a sequence number. A role drops control messages of earlier masters.
"""

from __future__ import annotations

from math import inf
from typing import ClassVar

from msgspec import Struct

from driftline.engine.errors import DriftlineError, MalformedMessage, Unavailable
from driftline.engine.events import event_fields, log
from driftline.engine.wire.kinds import MASTER, SenderKey, check_sender
from driftline.engine.wire.messages import Message, MessageHeader, decode, encode

COUNT_BITS = 40
"""On a channel from or to the master, this many low bits of a sequence number count messages. The
higher bits are the epoch."""

EPOCHS_MAX = 1 << 63 - COUNT_BITS
"""Epochs must be smaller than this, so that a sequence number fits into 63 bits."""


class IOJob(Struct, frozen=True):
    """Work of a role on a disk or in ZooKeeper, which may block.

    The driver does the jobs of a role in order, and calls `Role.on_job_done`.
    """

    what: ClassVar[str] = "carry out a job"
    """The work as a verb phrase that follows "cannot" in error messages."""


class Role:
    """Base of all roles: node, front, master, consumer server, status poller, ..."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.incarnation = 0
        self.epoch = 0
        """The newest epoch known to this role; a master's own epoch."""
        self.outbox: list[tuple[str, bytes]] = []
        """(receiver, bytes of a message) pairs, which the driver sends in this order."""
        self.jobs: list[IOJob] = []
        self.addresses: dict[str, str] = {}
        """Name of another process -> its address, for the driver."""
        self.now = 0.0
        """Time in seconds, monotonic. The driver sets it before each turn and tick."""
        self.tick_by = inf
        """The driver calls `tick` at this time, or earlier at the time that `tick` returned."""
        self.malformed = 0
        """Number of messages that `drop` counted: malformed ones, and ones that cannot be sent."""
        self.obstacles: dict[str, str] = {}
        """What blocks this role -> a sentence with the place and the reason. A key is the class
        name of a failed job that will be retried, or another name such as "consumer"."""
        self._sent: dict[str, int] = {}
        """Receiver -> sequence number of the last message sent to it."""
        self._last_numbers: dict[str, int] = {}
        """Sender -> sequence number of its last message that was handled."""
        self._broken: set[str] = set()
        """Senders on whose channels a message was lost in this incarnation."""

    # Called by a driver.

    def receive(self, data: bytes, sender_key: SenderKey | None = None) -> None:
        """Process the bytes of one message from the network; drop a malformed message.

        `sender_key`: the sender's key; None between processes of one machine.
        """
        try:
            header, message = decode(data)
            if sender_key is not None:
                check_sender(sender_key, header.sender, message)
            accepts = self.admits if message.control else self._accept_in_sequence
            if accepts(header):
                self.handle(header.sender, message)
        except MalformedMessage as error:
            self.drop(error)

    def drop(self, error: DriftlineError) -> None:
        """Count a malformed or unsendable message. Log numbers 1, 10, 20, ... 100, 200, ..."""
        self.malformed += 1
        if self.malformed == 1:
            fields = event_fields("malformed", reason=str(error), count=1)
            kind = "malformed " * isinstance(error, MalformedMessage)
            log.warning("%s dropped a %smessage: %s", self.name, kind, error, extra=fields)
        elif self.malformed % 10 == 0 and len(str(self.malformed).rstrip("0")) == 1:
            fields = event_fields("malformed", reason=str(error), count=self.malformed)
            log.warning(
                "%s has dropped %d messages; the last one: %s",
                *(self.name, self.malformed, error),
                extra=fields,
            )

    def on_job_done(self, job: IOJob, result: object) -> None:
        """Process the result of a job; `result` is an exception if it failed."""

    def tick(self, now: float) -> float:
        """Do periodic work that is due at time `now`. Return when to call `tick` again."""
        return now + 1.0

    def turn(self) -> bool:
        """Process pending work for a while. Return whether work is left that needs no new input."""
        return False

    def make_heartbeats(self, now: float) -> list[tuple[str, bytes]]:
        """Return the (receiver, bytes) to send as heartbeats during a long turn."""
        return []

    @property
    def obstacle(self) -> str:
        """Human-readable text of all `obstacles`; "" if there are none."""
        return "; ".join(self.obstacles.values())

    @property
    def stopped(self) -> bool:
        """Whether this role knows the outcome of the run, and does no more work for it."""
        return False

    @property
    def ended(self) -> bool:
        """Whether the process of this role may exit."""
        return self.stopped

    # Used and overridden by roles.

    def update_obstacle(self, job: IOJob, result: object) -> None:
        """Set the obstacle for this class of job if `result` is Unavailable; otherwise clear it.

        The caller retries the failed job.
        """
        kind = type(job).__name__
        if isinstance(result, Unavailable):
            self.obstacles[kind] = f"{self.name} cannot {job.what}: {result}"
        else:
            self.obstacles.pop(kind, None)

    def handle(self, sender: str, message: Message) -> None:
        """Process a control message, or the sender's next numbered message in this incarnation."""
        raise NotImplementedError

    def channel_lost(self, sender: str) -> None:
        """Handle the loss of a message of this sender in the current incarnation."""
        raise NotImplementedError

    def admits(self, header: MessageHeader) -> bool:
        """Return whether to handle a control message: False if its sender is an earlier master.

        If its sender is a later master, follow that master first. Raises MalformedMessage for an
        impossible epoch.
        """
        if header.sender != MASTER:
            return True
        if header.sequence > self.epoch:
            self.follow_master(header.sequence)
        return header.sequence == self.epoch

    def follow_master(self, epoch: int) -> None:
        """Enter a later epoch: the channels from and to the master start over.

        A member then follows the new master; the master itself begins its own epoch. Raises
        MalformedMessage for an impossible epoch.
        """
        if not self.epoch < epoch < EPOCHS_MAX:
            raise MalformedMessage(
                f"impossible epoch {epoch}: it must be above {self.epoch} and below {EPOCHS_MAX}"
            )
        self.epoch = epoch
        if self.name == MASTER:
            self._begin_channels()
        else:
            self._sent.pop(MASTER, None)
            self._last_numbers.pop(MASTER, None)
            self._broken.discard(MASTER)

    def send(self, receiver: str, message: Message) -> None:
        """Append a message for a receiver to the outbox.

        Raises PayloadError if it cannot be encoded.
        """
        if message.control:
            self.outbox.append(
                (receiver, encode((self.name, self.incarnation, self.epoch), message))
            )
            return
        sequence = self._sent.get(receiver, self._initial_number(receiver)) + 1
        self.outbox.append((receiver, encode((self.name, self.incarnation, sequence), message)))
        self._sent[receiver] = sequence  # after `encode`: a failure must not leave a gap

    def _initial_number(self, other: str) -> int:
        """Return the number from which the channel with another process counts."""
        return self.epoch << COUNT_BITS if MASTER in (self.name, other) else 0

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

        If there is a gap in the numbers, mark the channel as broken and call `channel_lost`.
        """
        if header.incarnation != self.incarnation or header.sender in self._broken:
            return False
        last_number = self._last_numbers.get(header.sender, self._initial_number(header.sender))
        if header.sequence == last_number + 1:
            self._last_numbers[header.sender] = header.sequence
            return True
        if header.sequence > last_number:
            self._broken.add(header.sender)
            self.channel_lost(header.sender)
        return False
