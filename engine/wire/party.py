"""The base of every role that sends and receives messages: numbered channels, an outbox, jobs.

Takes: from a driver (the ZeroMQ runtime or the simulation) bytes, the time, and results of jobs.
Gives: to the driver, messages in `outbox` and durable work in `jobs`. A party itself never touches
a socket, a clock, a thread or a disk.
Invariant of a channel: within one incarnation the messages of a sender are handled in the order
of their sequence numbers, each exactly once. A repeated message is ignored. A gap means that the
channel has lost a message: `channel_lost` is called, and no further message of this sender is
handled until the next incarnation.

A master leads in an *epoch*, which the registry has given to no other one. Its channels begin anew
with each epoch: numbers of a later epoch are larger, so what an earlier master still sends, and
what is still sent to it, is ignored like a repeated message. Control messages have the epoch in
place of a number: those of an earlier master are dropped, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from driftline.engine.errors import DriftlineError, MalformedMessage, Unavailable
from driftline.engine.events import about, log
from driftline.engine.wire.kinds import MASTER, Voice, check
from driftline.engine.wire.messages import Message, MessageHeader, decode, encode

EPOCH_BITS = 40
"""Bits of a message's number on a channel of the master; the bits above are the epoch."""

EPOCHS_MAX = 1 << 63 - EPOCH_BITS


@dataclass(frozen=True, slots=True)
class DurableJob:
    """Durable work that a driver does for a party; it does jobs in order and calls `done`."""

    what: ClassVar[str] = "carry out a job"
    """The work, for people; the sentence begins with "it cannot"."""


class Role:
    """Base of node, front, master and consumer server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.incarnation = 0
        self.epoch = 0
        """Of the newest master that this party knows of; of a master, its own."""
        self.outbox: list[tuple[str, bytes]] = []
        """(receiver, bytes of a message), to be sent in this order."""
        self.jobs: list[DurableJob] = []
        self.addresses: dict[str, str] = {}
        """Party of this incarnation -> its address, for the driver."""
        self.now = 0.0
        """The driver's time (seconds, monotonic), as of the last turn or tick."""
        self.tick_by = inf
        """When `tick` has to be called, if that is before the time that `tick` returned."""
        self.malformed = 0
        """How many malformed messages were dropped."""
        self.obstacles: dict[str, str] = {}
        """What fails outside the run and is tried again (a kind of job, or the consumer) -> a
        sentence with the place and the reason."""
        self._sent: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._broken: set[str] = set()

    # What a driver calls.

    def receive(self, data: bytes, voice: Voice | None = None) -> None:
        """Take the bytes of one message from the network. A malformed message is dropped.

        `voice`: the key by which it has come; None: between processes of one machine.
        """
        try:
            header, message = decode(data)
            if voice is not None:
                check(voice, header.sender, message)
            if self.admits(header) if message.control else self._is_next(header):
                self.handle(header.sender, message)
        except MalformedMessage as error:
            self.drop(error)

    def drop(self, error: DriftlineError) -> None:
        """Count a message that is malformed, or that must not leave; tell of the first ones."""
        self.malformed += 1
        if self.malformed == 1:
            told = about("malformed", reason=str(error), count=1)
            kind = "malformed " * isinstance(error, MalformedMessage)
            log.warning("%s dropped a %smessage: %s", self.name, kind, error, extra=told)
        elif self.malformed % 10 == 0 and len(str(self.malformed).rstrip("0")) == 1:
            told = about("malformed", reason=str(error), count=self.malformed)
            log.warning(
                "%s has dropped %d malformed messages; the last one: %s",
                *(self.name, self.malformed, error),
                extra=told,
            )

    def done(self, job: DurableJob, result: object) -> None:
        """A job was carried out; `result` is an exception if it failed."""

    def tick(self, now: float) -> float:
        """Learn the time (seconds, monotonic). Returns when `tick` has to be called again."""
        return now + 1.0

    def turn(self) -> bool:
        """Work off what has come. Returns whether work is left, even without new input."""
        return False

    def beat(self, now: float) -> list[tuple[str, bytes]]:
        """The (receiver, bytes) to send as a sign of life while a turn takes long."""
        return []

    @property
    def obstacle(self) -> str:
        """What this party waits for outside the run, a disk or a consumer; for people."""
        return "; ".join(self.obstacles.values())

    @property
    def stopped(self) -> bool:
        """Whether this party knows that the run is over, and only has to say goodbye."""
        return False

    @property
    def ended(self) -> bool:
        """Whether the process of this party may end."""
        return self.stopped

    # What a role provides and uses.

    def note(self, job: DurableJob, result: object) -> None:
        """Note whether a disk fails, or works again. For a job that will be tried again."""
        kind = type(job).__name__
        if isinstance(result, Unavailable):
            self.obstacles[kind] = f"{self.name} cannot {job.what}: {result}"
        else:
            self.obstacles.pop(kind, None)

    def handle(self, sender: str, message: Message) -> None:
        """Take one message: the next one of the sender in this incarnation, or a control one."""
        raise NotImplementedError

    def channel_lost(self, sender: str) -> None:
        """A message that the sender sent in this incarnation is lost."""
        raise NotImplementedError

    def admits(self, header: MessageHeader) -> bool:
        """Whether a control message is taken; one of a master only if no later one is known.

        Raises MalformedMessage for an epoch that no registry gives.
        """
        if header.sender != MASTER:
            return True
        if header.sequence > self.epoch:
            self.obey(header.sequence)
        return header.sequence == self.epoch

    def obey(self, epoch: int) -> None:
        """A later master leads: its channels begin anew."""
        if not self.epoch < epoch < EPOCHS_MAX:
            raise MalformedMessage(f"epoch {epoch} after {self.epoch}")
        self.epoch = epoch
        if self.name == MASTER:
            self._begin_channels()
        else:
            self._sent.pop(MASTER, None)
            self._seen.pop(MASTER, None)
            self._broken.discard(MASTER)

    def send(self, to: str, message: Message) -> None:
        """Put a message into the outbox. Raises PayloadError if it cannot be encoded."""
        if message.control:
            self.outbox.append((to, encode((self.name, self.incarnation, self.epoch), message)))
            return
        sequence = self._sent.get(to, self._number_before(to)) + 1
        self.outbox.append((to, encode((self.name, self.incarnation, sequence), message)))
        self._sent[to] = sequence  # after `encode`: what cannot be encoded must not leave a gap

    def _number_before(self, other: str) -> int:
        """The number before that of the first message on a channel."""
        return self.epoch << EPOCH_BITS if MASTER in (self.name, other) else 0

    def enter(self, incarnation: int) -> None:
        """Begin a later incarnation: all channels start anew."""
        assert incarnation > self.incarnation, "incarnations only grow"
        self.incarnation = incarnation
        self._begin_channels()

    def _begin_channels(self) -> None:
        self._sent.clear()
        self._seen.clear()
        self._broken.clear()

    def _is_next(self, header: MessageHeader) -> bool:
        if header.incarnation != self.incarnation or header.sender in self._broken:
            return False
        seen = self._seen.get(header.sender, self._number_before(header.sender))
        if header.sequence == seen + 1:
            self._seen[header.sender] = header.sequence
            return True
        if header.sequence > seen:
            self._broken.add(header.sender)
            self.channel_lost(header.sender)
        return False
