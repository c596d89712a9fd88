"""Kinds of messages: their declaration, and their wire format.

A message is a small dataclass; on the wire it is one msgpack array
``[MAGIC, sender, incarnation, sequence, kind, *fields]``. Decoding checks the kind, and the number
and types of the fields, and raises MalformedMessage for anything else, so roles receive only
well-formed messages. `engine.wire.messages` declares all messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import (
    ClassVar,
    NamedTuple,
    Protocol,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import Columns, pack, unpack

MAGIC = 0xD74
"""First value of each message; it changes with the format. Messages of producers have 0xD72."""

Batches = tuple[tuple[Columns, bytes, tuple[int, ...]], ...]
"""Batches of elements: labels, payloads, signs. Signs are empty where all are +1."""

MASTER, NODE, FRONT, CONSUMER = "master", "node", "front", "consumer"
WATCH, AGENT = "watch", "agent"
"""The roles. The name of a process is its role, or starts with it, as in `node-0`."""

M = TypeVar("M", bound="Message")


class Message:
    """Base of all messages."""

    __slots__ = ()
    kind: ClassVar[int]
    senders: ClassVar[frozenset[str]]
    """The roles that may send it."""
    control: ClassVar[bool]


Outgoing = list[tuple[str, Message]]
"""(receiver, message) pairs in sending order."""


class MessageHeader(NamedTuple):
    """The sender, its incarnation, and the message's number on the channel, from 1.

    A control message contains the epoch instead of the number.
    """

    sender: str
    incarnation: int
    sequence: int


_Check = Callable[[object], bool]
_KINDS: dict[int, tuple[type[Message], tuple[type, ...], list[tuple[int, _Check]]]] = {}
"""kind -> (class, types of the fields, (index, check) of each field that is a tuple)"""
_FIELDS: dict[type[Message], Callable[[Message], tuple[object, ...]]] = {}


@dataclass_transform(frozen_default=True)
def message(kind: int, *senders: str, control: bool = False) -> Callable[[type[M]], type[M]]:
    """Declare a class as the messages of a kind, sent by these roles."""
    assert senders, f"no role sends messages of kind {kind}"

    def register(cls: type[M]) -> type[M]:
        # Frozen for the type checker only: at run time it would make every message slower.
        made: type[M] = dataclasses.dataclass(slots=True, unsafe_hash=True)(cls)
        made.kind, made.senders, made.control = kind, frozenset(senders), control
        hints = get_type_hints(made)
        names = [field.name for field in dataclasses.fields(made)]  # type: ignore[arg-type]
        types = tuple(get_origin(hints[name]) or hints[name] for name in names)
        # The inside of batches is checked where they are decoded.
        nested = [i for i, n in enumerate(names) if types[i] is tuple and hints[n] != Batches]
        deep = [(i, _check(hints[names[i]])) for i in nested]
        _KINDS[kind] = made, types, deep
        _FIELDS[made] = _getter(names)
        return made

    return register


def _check(hint: object) -> _Check:
    """Return a predicate: whether a decoded value, and all values in it, have the type `hint`."""
    parts = get_args(hint)
    if get_origin(hint) is Sequence:  # its values may be of any type
        return lambda value: isinstance(value, tuple)
    if get_origin(hint) is not tuple:
        return lambda value: type(value) is hint
    if parts[-1] is not Ellipsis:
        assert not any(map(get_origin, parts)), f"{hint}: nested parts of several types"
        return lambda value: isinstance(value, tuple) and (*map(type, value),) == parts
    if get_origin(parts[0]) is None:
        return lambda value: isinstance(value, tuple) and {*map(type, value)} <= {parts[0]}
    each = _check(parts[0])
    return lambda value: isinstance(value, tuple) and all(map(each, value))


def _getter(names: list[str]) -> Callable[[Message], tuple[object, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)


def encode(header: tuple[str, int, int], message: Message) -> bytes:
    """Encode a message. Raises PayloadError if a payload in it cannot travel."""
    return pack((MAGIC, *header, message.kind, *_FIELDS[type(message)](message)))


def decode(data: bytes) -> tuple[MessageHeader, Message]:
    """Decode `encode`. Raises MalformedMessage for anything else."""
    parts = unpack(data)
    if not isinstance(parts, tuple) or len(parts) < 5 or parts[0] != MAGIC:
        raise MalformedMessage("not a Driftline message")
    _, sender, incarnation, sequence, kind, *fields = parts
    if type(sender) is not str or type(incarnation) is not int or type(sequence) is not int:
        raise MalformedMessage("header of wrong types")
    if type(kind) is not int or kind not in _KINDS:
        raise MalformedMessage(f"unknown kind of message {kind!r}")
    cls, types, deep = _KINDS[kind]
    if tuple(map(type, fields)) != types:
        given = ", ".join(type(value).__name__ for value in fields)
        raise MalformedMessage(f"{cls.__name__} with fields of types ({given})")
    for i, fits in deep:
        if not fits(fields[i]):
            raise MalformedMessage(f"{cls.__name__} with a tuple that does not fit as field {i}")
    # Hot path: `MessageHeader(...)` calls a function written in Python, and takes twice as long.
    return tuple.__new__(MessageHeader, (sender, incarnation, sequence)), cls(*fields)


class Voice(Protocol):
    """Key of a message's sender, and the names in which it may send."""

    @property
    def key(self) -> str:
        """The name of the key."""

    def may_send_as(self, name: str) -> bool:
        """Return whether the key may send messages in this name."""


def check_sender(voice: Voice, sender: str, message: Message) -> None:
    """Raise MalformedMessage if this key may not send this message in this name."""
    if not voice.may_send_as(sender):
        raise MalformedMessage(f"the key {voice.key} does not speak for {sender!r}")
    if sender.partition("-")[0] not in message.senders:
        raise MalformedMessage(f"{type(message).__name__} is not for {sender!r} to send")
