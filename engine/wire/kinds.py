"""Kinds of messages: their declaration, and their wire format.

A message is a msgspec struct; on the wire it is one msgpack array
``[MAGIC, sender, incarnation, sequence, [kind, *fields]]``. Decoding checks the kind, and the
number and types of all values in the fields. It raises MalformedMessage if they do not fit a
message class. So roles receive only well-formed messages. `engine.wire.messages` declares all
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, Union

import msgspec

from driftline.engine.errors import MalformedMessage, PayloadError
from driftline.engine.wire.label_columns import EncodedLabels

MAGIC = 0xD75
"""First value of each message, specific to this version of the format. Messages of producers begin
with 0xD72 (`deploy.roles.intake`)."""

Batches = tuple[tuple[EncodedLabels, bytes, tuple[int, ...]], ...]
"""Batches of elements: labels, payloads, signs. Signs are empty where all are +1."""

MASTER, NODE, FRONT, CONSUMER = "master", "node", "front", "consumer"
POLLER, AGENT = "poller", "agent"
"""The roles. The name of a process is its role, or starts with it, as in `node-0`. A status poller
is not a member of the run: for a command or an agent, it polls reports and sends requests."""

M = TypeVar("M", bound="Message")


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of all messages. The tag of a class is its kind; `sent_by` declares its senders."""

    senders: ClassVar[frozenset[str]] = frozenset()
    """The roles that may send messages of the class."""
    control: ClassVar[bool] = False
    """Whether the class is a `ControlMessage`."""


class ControlMessage(Message, frozen=True):
    """Base of the control messages (see `engine.wire.messages`)."""

    control: ClassVar[bool] = True


def sent_by(*roles: str) -> Callable[[type[M]], type[M]]:
    """Declare that these roles send the messages of a class."""

    def declare(cls: type[M]) -> type[M]:
        cls.senders = frozenset(roles)
        return cls

    return declare


Outgoing = list[tuple[str, Message]]
"""(receiver, message) pairs in sending order."""


class MessageHeader(NamedTuple):
    """The sender, its incarnation, and the message's number on the channel (`engine.wire.role`).

    In a control message, `sequence` is the newest epoch that the sender knows.
    """

    sender: str
    incarnation: int
    sequence: int


_encoder = msgspec.msgpack.Encoder()


@cache
def _decoder() -> msgspec.msgpack.Decoder[tuple[int, str, int, int, Message]]:
    kinds: Any = Union[tuple(_declared(Message))]  # noqa: UP007  # a tuple of types
    envelope: Any = tuple[Literal[MAGIC], str, int, int, kinds]  # type: ignore[valid-type]
    return msgspec.msgpack.Decoder(envelope)


def _declared(base: type[Message]) -> Iterator[type[Message]]:
    """Yield the subclasses with senders; the others are only bases."""
    for cls in base.__subclasses__():
        if cls.senders:
            yield cls
        yield from _declared(cls)


def encode(header: tuple[str, int, int], message: Message) -> bytes:
    """Encode a message. Raises PayloadError if a value in it cannot be encoded."""
    try:
        return _encoder.encode((MAGIC, *header, message))
    except (TypeError, ValueError, OverflowError) as error:
        raise PayloadError(f"{type(message).__name__} cannot be encoded: {error}") from None


def decode(data: bytes) -> tuple[MessageHeader, Message]:
    """Decode the result of `encode`. Raises MalformedMessage for anything else."""
    try:
        _, sender, incarnation, sequence, message = _decoder().decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"not a Driftline message: {error}") from None
    # Hot path: `MessageHeader(...)` takes twice as long, as its `__new__` is Python code.
    return tuple.__new__(MessageHeader, (sender, incarnation, sequence)), message


class SenderKey(Protocol):
    """Key of a message's sender, and the process names for which it is valid."""

    @property
    def key(self) -> str:
        """The name of the key."""

    def may_send_as(self, name: str) -> bool:
        """Return whether the key is valid for messages of the process with this name."""


def check_sender(sender_key: SenderKey, sender: str, message: Message) -> None:
    """Raise MalformedMessage if a sender with this key and this name may not send this message."""
    if not sender_key.may_send_as(sender):
        raise MalformedMessage(f"the key {sender_key.key} does not speak for {sender!r}")
    if sender.partition("-")[0] not in message.senders:
        raise MalformedMessage(f"{sender!r} may not send a {type(message).__name__}")
