"""The intake: takes records from producers and hands them to a front's source.

Takes and gives msgpack arrays, which `deploy.host.intake_socket` carries over ZeroMQ:

    producer                                            front
    [MAGIC, HELLO, producer, session]                   [MAGIC, SYNC, session, acknowledged]
    [MAGIC, RECORD, producer, session, number, record]  [MAGIC, ACK, session, acknowledged]
    [MAGIC, END, producer, session, last number]        [MAGIC, ENDED, session, acknowledged]

All records with numbers up to `acknowledged` are in the input log. SYNC also says that no later
record has been taken, and that the producer has to send the later ones again. It answers a HELLO,
and a record whose predecessor has not come (it was lost in a reconnect). `session` is a number that
a producer chooses at its start, larger than in its last start. Once the intake knows a session, it
answers messages of smaller ones with FENCED and the number that it knows: so messages that a dead
producer has left in the network do not mix with those of its successor.

Invariants: an acknowledged record is durable; a record is stored once, however often it comes.
While the front's source has no room, no record is taken, the sockets fill up, and producers wait.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from driftline.deploy.parties.receiver import WINDOW, WINDOW_BYTES, Receiver
from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.sources.logs.inputlog import PRODUCER_BYTES_MAX
from driftline.engine.sources.logs.received import Receipt, ReceivedSource
from driftline.engine.wire.codec import pack, unpack

log = logging.getLogger("driftline")

MAGIC = 0xD72

MESSAGE_BYTES_MAX = 1 << 26
"""The largest message that is taken from a producer."""


class Kind(IntEnum):
    """The kind of a message. Of two answers for a producer the larger one includes the other."""

    HELLO = 1
    RECORD = 2
    END = 3
    ACK = 4
    SYNC = 5
    ENDED = 6
    FENCED = 7


_FIELDS = {Kind.HELLO: 4, Kind.RECORD: 6, Kind.END: 5}


@dataclass(slots=True)
class _Client:
    """A producer, as of its last message."""

    session: int
    route: bytes
    answer: Kind = Kind.ACK
    """The kind of the next answer."""
    early: bool = False
    """Whether it has been told that records before its latest ones are missing."""


class Intake(Receiver):
    """Takes messages of producers for a source. Its driver sends `answers`, (route, answer)."""

    def __init__(
        self,
        source: ReceivedSource,
        *,
        name: str = "intake",
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        super().__init__(source, name=name, window=window, window_bytes=window_bytes)
        self.answers: list[tuple[bytes, bytes]] = []
        self._clients: dict[str, _Client] = {}
        self._owed: dict[str, None] = {}
        """The producers that wait for an answer."""

    # Called by the runtime.

    def turn(self) -> bool:
        more = super().turn()
        if self._owed:
            self._answer()
        return more

    def stored(self, producers: Sequence[str]) -> None:
        self._owed.update(dict.fromkeys(producers))

    # The protocol.

    def take(self, parts: list[bytes]) -> None:
        """Take one message of any sender: (route, data). A malformed one is counted and dropped."""
        try:
            if len(parts) != 2:
                raise MalformedMessage(f"{len(parts)} parts instead of 2")
            self._handle(parts[0], parts[1])
        except (MalformedMessage, PayloadError) as error:
            self.malformed += 1
            if self.malformed == 1:
                log.warning("%s dropped a malformed message: %s", self.name, error)

    def _handle(self, route: bytes, data: bytes) -> None:
        kind, producer, session, rest = decode_request(data)
        client = self._clients.get(producer)
        if client is None:
            client = self._clients[producer] = _Client(session, route)
        if session < client.session:
            self._send(route, Kind.FENCED, client.session, producer)
            return
        client.session, client.route = session, route
        if kind is Kind.RECORD:
            receipt = self.source.receive(producer, rest[0], rest[1])
            if receipt is Receipt.TAKEN or (receipt is Receipt.EARLY and client.early):
                client.early = receipt is Receipt.EARLY
                return
            client.early = receipt is Receipt.EARLY
            wanted = _ANSWERS[receipt]
        elif kind is Kind.END and rest[0] == self.source.accepted(producer):
            self.source.close()
            wanted = Kind.ENDED
        else:
            wanted = Kind.SYNC
        client.answer = max(client.answer, wanted)
        self._owed[producer] = None

    def _answer(self) -> None:
        """Answer the producers whose answer is true by now; the others wait on."""
        source = self.source
        for producer in list(self._owed):
            client = self._clients[producer]
            if client.answer is Kind.SYNC and source.closed:
                client.answer = Kind.ENDED
            if client.answer is Kind.ENDED and not source.ended:
                continue
            if client.answer is Kind.SYNC and (
                source.acknowledged(producer) < source.accepted(producer)
            ):
                continue
            del self._owed[producer]
            self._send(client.route, client.answer, client.session, producer)
            client.answer = Kind.ACK

    def _send(self, route: bytes, kind: Kind, session: int, producer: str) -> None:
        answer = pack((MAGIC, kind, session, self.source.acknowledged(producer)))
        self.answers.append((route, answer))


_ANSWERS = {
    Receipt.REPEATED: Kind.ACK,
    Receipt.EARLY: Kind.SYNC,
    Receipt.CLOSED: Kind.ENDED,
}


def decode_request(data: bytes) -> tuple[Kind, str, int, tuple[int, object]]:
    """(kind, producer, session, (number, record)). Raises MalformedMessage."""
    fields = unpack(data)
    if not isinstance(fields, tuple) or len(fields) < 4 or fields[0] != MAGIC:
        raise MalformedMessage("not a message of a producer")
    _, kind, producer, session, *rest = fields
    if _FIELDS.get(kind) != len(fields) or not isinstance(kind, int):
        raise MalformedMessage(f"a message of kind {kind!r} with {len(fields)} fields")
    if not isinstance(producer, str) or not 0 < len(producer.encode()) <= PRODUCER_BYTES_MAX:
        raise MalformedMessage(f"a producer's id is text of 1 to {PRODUCER_BYTES_MAX} bytes")
    number = rest[0] if rest else 0
    for integer in (session, number):
        if type(integer) is not int or not 0 <= integer < 1 << 63:
            raise MalformedMessage(f"{integer!r} is not a number")
    return Kind(kind), producer, session, (number, rest[-1] if rest else None)


def decode_answer(data: bytes) -> tuple[Kind, int, int]:
    """(kind, session, acknowledged). Raises MalformedMessage."""
    match unpack(data):
        case (magic, int(kind), int(session), int(acknowledged)) if (
            magic == MAGIC and Kind.ACK <= kind <= Kind.FENCED
        ):
            return Kind(kind), session, acknowledged
    raise MalformedMessage("not an answer of a front")
