"""What every role that talks shares: numbered channels, an outbox, durable jobs.

A party never touches a socket, a clock, a thread or a disk. A driver (the ZeroMQ runtime or the
simulation) hands it bytes, the time and the results of its jobs, and carries out what it finds
in `outbox` and `jobs`.

Invariant of a channel: within one incarnation the messages of a sender are handled in the order
of their sequence numbers, each exactly once. A repeated one is ignored. A gap means that the
channel lost something: `channel_lost` is called, and nothing more of that sender is handled
until the next incarnation.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import inf

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.messages import Header, Message, decode, encode

log = logging.getLogger("driftline")


@dataclass(frozen=True, slots=True)
class Job:
    """Durable work that a driver does for a party, in order, and reports back by `done`."""


class Party:
    """Base of node, front, master and consumer server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.incarnation = 0
        self.outbox: list[tuple[str, bytes]] = []
        """(receiver, message), to be sent in this order."""
        self.jobs: list[Job] = []
        self.addresses: dict[str, str] = {}
        """Where the driver finds the parties of this incarnation."""
        self.now = 0.0
        """The driver's time (seconds, monotonic), as of the last turn or tick."""
        self.tick_by = inf
        """A time that `tick` is wanted at, if it is earlier than what `tick` returned."""
        self.malformed = 0
        self._sent: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._broken: set[str] = set()

    # What a driver calls.

    def receive(self, data: bytes) -> None:
        """Take one message from the network, whoever sent it."""
        try:
            header, message = decode(data)
            if message.control or self._is_next(header):
                self.handle(header.sender, message)
        except MalformedMessage as error:
            self.malformed += 1
            if self.malformed == 1:
                log.warning("%s dropped a malformed message: %s", self.name, error)

    def done(self, job: Job, result: object) -> None:
        """A job was carried out; `result` is an exception if it failed."""

    def tick(self, now: float) -> float:
        """Learn the time (seconds, monotonic). Returns when it wants to be told again."""
        return now + 1.0

    def turn(self) -> bool:
        """Work off what came. Returns whether there is more to do without any new input."""
        return False

    def beat(self, now: float) -> list[tuple[str, bytes]]:
        """What to send, (receiver, message), as a sign of life while a turn lasts."""
        return []

    @property
    def stopped(self) -> bool:
        """Whether it knows that the run is over, so that it is only about to say so."""
        return False

    @property
    def ended(self) -> bool:
        """Whether it has done its part, so that its process may end."""
        return self.stopped

    # What a role provides and uses.

    def handle(self, sender: str, message: Message) -> None:
        """Take one message that is new and of this incarnation (or a control message)."""
        raise NotImplementedError

    def channel_lost(self, sender: str) -> None:
        """Something that the sender sent in this incarnation will never arrive."""
        raise NotImplementedError

    def send(self, to: str, message: Message) -> None:
        """Put a message into the outbox. Raises PayloadError if it cannot be encoded."""
        sequence = 0 if message.control else self._sent.get(to, 0) + 1
        self.outbox.append((to, encode((self.name, self.incarnation, sequence), message)))
        if sequence:  # only now: what could not be encoded must not leave a gap
            self._sent[to] = sequence

    def enter(self, incarnation: int) -> None:
        """Begin an incarnation: all channels start anew."""
        assert incarnation > self.incarnation, "incarnations only grow"
        self.incarnation = incarnation
        self._sent.clear()
        self._seen.clear()
        self._broken.clear()

    def _is_next(self, header: Header) -> bool:
        if header.incarnation != self.incarnation or header.sender in self._broken:
            return False
        seen = self._seen.get(header.sender, 0)
        if header.sequence == seen + 1:
            self._seen[header.sender] = header.sequence
            return True
        if header.sequence > seen:
            self._broken.add(header.sender)
            self.channel_lost(header.sender)
        return False
