"""The messages, and how they look on the wire.

A message is a small dataclass; on the wire it is one msgpack array
``[MAGIC, sender, incarnation, sequence, kind, *fields]``. Decoding checks kind, number and types
of the fields, so that what a role gets is well-formed; whatever is not raises MalformedMessage.

Messages of the running protocol are numbered per channel and belong to one incarnation.
*Control* messages (`control = True`) start and end incarnations and talk to consumers: they are
idempotent, carry what they need themselves, and are neither numbered nor dropped by incarnation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import (
    ClassVar,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from driftline.engine.errors import MalformedMessage
from driftline.engine.wire.codec import Columns, pack, unpack

MAGIC = 0xD73
"""Says also which format of messages it is; 0xD72 are those of producers."""

Batches = tuple[tuple[Columns, bytes, tuple[int, ...]], ...]
"""Batches of elements: labels, payloads, and signs, none where all are +1."""

M = TypeVar("M", bound="Message")


class Message:
    """Base of all messages."""

    __slots__ = ()
    kind: ClassVar[int]
    control: ClassVar[bool]


class Header(NamedTuple):
    """Who sent a message in which incarnation, and its number on the channel, from 1."""

    sender: str
    incarnation: int
    sequence: int


_Check = Callable[[object], bool]
_KINDS: dict[int, tuple[type[Message], tuple[type, ...], list[tuple[int, _Check]]]] = {}
"""kind -> (class, types of the fields, checks of those fields that are tuples of something)"""
_FIELDS: dict[type[Message], Callable[[Message], tuple[object, ...]]] = {}


@dataclass_transform(frozen_default=True)
def _message(kind: int, *, control: bool = False) -> Callable[[type[M]], type[M]]:
    def register(cls: type[M]) -> type[M]:
        # Frozen for the type checker only: at run time it would make every message slower.
        made: type[M] = dataclasses.dataclass(slots=True, unsafe_hash=True)(cls)
        made.kind, made.control = kind, control
        hints = get_type_hints(made)
        names = [field.name for field in dataclasses.fields(made)]  # type: ignore[arg-type]
        types = tuple(get_origin(hints[name]) or hints[name] for name in names)
        # Whoever takes batches has to look into them anyway.
        nested = [i for i, n in enumerate(names) if types[i] is tuple and hints[n] != Batches]
        deep = [(i, _check(hints[names[i]])) for i in nested]
        _KINDS[kind] = made, types, deep
        _FIELDS[made] = _getter(names)
        return made

    return register


def _check(hint: object) -> _Check:
    """Tells whether a decoded value is of a type, through and through."""
    parts = get_args(hint)
    if get_origin(hint) is Sequence:  # of anything
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
    """The bytes of a message. Raises PayloadError if a payload in it cannot travel."""
    return pack((MAGIC, *header, message.kind, *_FIELDS[type(message)](message)))


def decode(data: bytes) -> tuple[Header, Message]:
    """What `encode` made. Raises MalformedMessage for anything else."""
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
        found = ", ".join(type(value).__name__ for value in fields)
        raise MalformedMessage(f"{cls.__name__} with fields of types ({found})")
    for i, fits in deep:
        if not fits(fields[i]):
            raise MalformedMessage(f"{cls.__name__} with a tuple that does not fit as field {i}")
    # Half the price of `Header(...)`, a function in Python, twice in each hop.
    return tuple.__new__(Header, (sender, incarnation, sequence)), cls(*fields)


# Elements -------------------------------------------------------------------------------------


@_message(1)
class Frame(Message):
    """Elements from one chain on one node (or from a front) to one port on one node.

    `time`, the tracking time, is never above a time in the frame; `id` is random, 63 bits.
    `covers` is empty but for frames of fronts, which have no id: (since, until) says that once the
    frame has been worked off all roots of the front with times in [since, until) have been,
    provided that those before have. `cells` and `covered` are those of the `Acknowledge` that would
    follow a node's frame, if there is one: so it costs no message of its own.
    """

    feeder: int
    port: int
    time: int
    id: int
    batches: Batches
    covers: tuple[int, ...] = ()
    cells: tuple[tuple[int, int, int], ...] = ()
    covered: tuple[tuple[int, int, int], ...] = ()


@_message(2)
class Marker(Message):
    """The end of an epoch on the channel from a feeder's chain on the sender to a port."""

    feeder: int
    port: int
    epoch: int


# Progress -------------------------------------------------------------------------------------


@_message(10)
class Promise(Message):
    """Front to trackers: "I have nothing with times in [since, until) but what I have sent".

    What is below `durable` will not be forgotten. Frames make the same promise themselves, by what
    they cover; this one is for times without any.
    """

    front: int
    since: int
    until: int
    durable: int


@_message(11)
class Acknowledge(Message):
    """Node to trackers: xor of ids received and sent, per (stage, time), applied as a whole.

    `covered`: (front, since, until) of the fronts' frames worked off. `delivered`: the consumer has
    this node's outputs below that time.
    """

    cells: tuple[tuple[int, int, int], ...]
    covered: tuple[tuple[int, int, int], ...]
    delivered: int


@_message(13)
class Progress(Message):
    """Master to all: roots below `processed` need no more work; below `delivered`, are out.

    No later snapshot is as of an earlier time than `delivered`.
    """

    processed: int
    delivered: int


@_message(14)
class AskPromise(Message):
    """To a front that alone holds the frontier back: promise at least `next` if you can."""

    next: int


# Snapshots ------------------------------------------------------------------------------------


@_message(20)
class Prepare(Message):
    """Coordinator to nodes: make the state as of `time` (the last frontier sent) durable."""

    number: int
    time: int


@_message(21)
class BeginEpoch(Message):
    """Coordinator to fronts: send the marker of epoch `number`."""

    number: int


@_message(22)
class Prepared(Message):
    """Node or front to coordinator: my part of the snapshot is durable.

    `offset`: where a front would go on from; the newest production of a node that makes them.
    """

    number: int
    offset: int


@_message(23)
class PrepareFailed(Message):
    """Node to coordinator: the snapshot could not be written; try a later one."""

    number: int
    reason: str


@_message(24)
class Committed(Message):
    """Coordinator to nodes and fronts: the snapshot is valid; inputs below `trim` not needed.

    `before`: the valid snapshot before it, which may still be gone back to; 0: none.
    """

    number: int
    before: int
    trim: int


# Incarnations (control) -----------------------------------------------------------------------


@_message(30, control=True)
class Hello(Message):
    """Node or front to master, again and again: I am here, and this is where I stand.

    `process` is new with each start. `ready` is 1 once it is loaded and the consumer has answered.
    """

    address: str
    process: str
    incarnation: int
    ready: int


@_message(31, control=True)
class Recover(Message):
    """Coordinator to a node: load snapshot `number` (0: empty) of incarnation `taken`, of `time`.

    A node under strong productions loads its newest part, which has at least this number.
    """

    incarnation: int
    number: int
    taken: int
    time: int
    addresses: tuple[tuple[str, str], ...]


@_message(44, control=True)
class Alive(Message):
    """Node or front to master: this process lives, and has done so many steps of its work.

    `busy` is 1 if it is in the middle of one that takes long.
    """

    process: str
    steps: int
    busy: int


@_message(33, control=True)
class Unloadable(Message):
    """Node to coordinator: snapshot `number` is damaged here; use an older one."""

    incarnation: int
    number: int
    reason: str


@_message(34, control=True)
class Start(Message):
    """Coordinator to a front: replay from `offset` on (-1: go on where you are)."""

    incarnation: int
    offset: int
    addresses: tuple[tuple[str, str], ...]


@_message(35, control=True)
class Lost(Message):
    """To the coordinator: something of this incarnation is lost; recover."""

    incarnation: int
    reason: str


@_message(36, control=True)
class Failed(Message):
    """To the coordinator: the flow cannot go on, and a replay would not help."""

    incarnation: int
    error: str
    text: str


@_message(37, control=True)
class Stop(Message):
    """Coordinator to a member: the run is over; `error` is empty when it did what was asked.

    It is said only once the registry has it. `run`: the one that is over; no other is meant.
    """

    run: str
    error: str
    text: str


@_message(32, control=True)
class Goodbye(Message):
    """Node or front to master, once it knows that the run is over, in place of `Hello`."""

    process: str


@_message(38, control=True)
class AskReport(Message):
    """Anybody to a node: how are you doing?"""

    address: str


@_message(39, control=True)
class Report(Message):
    """Node to whoever asked: its figures, by name."""

    figures: tuple[tuple[str, int], ...]


# Consumers (control) --------------------------------------------------------------------------


@_message(40, control=True)
class Bundle(Message):
    """Barrier to consumer: outputs in label order, to be stored together with `t_last`, or not.

    `barrier` is who sends it, `groups` the first and last key group that it speaks for. `blobs`
    hold the outputs of one time each (`items_of` gives them); `checksum` runs over all blobs
    released so far. A consumer need not look at `incarnation`.
    """

    barrier: str
    incarnation: int
    groups: tuple[int, int]
    blobs: tuple[bytes, ...]
    t_last: int
    checksum: int


@_message(41, control=True)
class BundleStored(Message):
    """Consumer to barrier: the bundle that ended with `t_last` is durable."""

    barrier: str
    incarnation: int
    t_last: int


@_message(42, control=True)
class FetchLast(Message):
    """Barrier to consumer: which is the last bundle that you have of mine?

    `number` comes back with the answer, and tells whether it is out of date by then.
    """

    barrier: str
    incarnation: int
    groups: tuple[int, int]
    address: str
    number: int


@_message(43, control=True)
class LastBundle(Message):
    """Consumer to barrier: the last bundle; t_last -1 when there is none. `number`: as asked."""

    barrier: str
    incarnation: int
    number: int
    blobs: tuple[bytes, ...]
    t_last: int
    checksum: int


def checked_columns(value: tuple[object, ...]) -> Columns:
    """Check the shape of a batch of columns. Raises MalformedMessage."""
    if len(value) == 3:
        count, mask, cols = value
        if type(count) is int and type(mask) is int and isinstance(cols, (tuple, list)):
            return count, mask, cols
    raise MalformedMessage("not a batch of columns")
