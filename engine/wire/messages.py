"""The messages, and their form on the wire.

A message is a small dataclass; on the wire it is one msgpack array
``[MAGIC, sender, incarnation, sequence, kind, *fields]``. Decoding checks the kind, and the number
and types of the fields, so a role gets only well-formed messages; others raise MalformedMessage.

Messages of the running protocol are numbered per channel and belong to one incarnation.
*Control* messages (`control = True`) start and end incarnations, and go to and from consumers: they
are idempotent, name an incarnation themselves if they need one, and are never dropped as out of
order or as of an older incarnation.
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
"""The first value of each message, which changes with the format. 0xD72: messages of producers."""

Batches = tuple[tuple[Columns, bytes, tuple[int, ...]], ...]
"""Batches of elements: labels, payloads, signs. Signs are empty where all are +1."""

M = TypeVar("M", bound="Message")


class Message:
    """Base of all messages."""

    __slots__ = ()
    kind: ClassVar[int]
    control: ClassVar[bool]


class Header(NamedTuple):
    """The sender, its incarnation, and the message's number on the channel, from 1."""

    sender: str
    incarnation: int
    sequence: int


_Check = Callable[[object], bool]
_KINDS: dict[int, tuple[type[Message], tuple[type, ...], list[tuple[int, _Check]]]] = {}
"""kind -> (class, types of the fields, (index, check) of each field that is a tuple)"""
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
        # The inside of batches is checked where they are decoded.
        nested = [i for i, n in enumerate(names) if types[i] is tuple and hints[n] != Batches]
        deep = [(i, _check(hints[names[i]])) for i in nested]
        _KINDS[kind] = made, types, deep
        _FIELDS[made] = _getter(names)
        return made

    return register


def _check(hint: object) -> _Check:
    """A function that tells whether a decoded value, and all in it, has the type `hint`."""
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


def decode(data: bytes) -> tuple[Header, Message]:
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
    # `Header(...)` calls a function written in Python: twice the time, twice in each hop.
    return tuple.__new__(Header, (sender, incarnation, sequence)), cls(*fields)


# Elements -------------------------------------------------------------------------------------


@_message(1)
class Frame(Message):
    """Elements from one chain on one node (or from a front) to one port on one node.

    `time`: the tracking time, at most the smallest time in the frame. `id`: random, 63 bits; 0 in a
    frame of a front. `covers`: only in a frame of a front, (since, until): all roots of the front
    with times in [since, until) have been worked off once this frame and the ones before it have.
    `cells`, `covered`: the fields of an `Acknowledge` of the node, which saves a message.
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
    """Front to trackers: all my records with times in [since, until) have been sent.

    A frame makes the same promise by its `covers`; this message is for times without frames.
    `durable`: records below this time will not be lost.
    """

    front: int
    since: int
    until: int
    durable: int


@_message(11)
class Acknowledge(Message):
    """Node to trackers: what the node has worked off and sent; applied as a whole.

    `cells`: (stage, time, XOR of the ids of frames received and sent). `covered`: (front, since,
    until) of each front's frame worked off. `delivered`: the consumer has this node's outputs below
    this time.
    """

    cells: tuple[tuple[int, int, int], ...]
    covered: tuple[tuple[int, int, int], ...]
    delivered: int


@_message(13)
class Progress(Message):
    """Master to all: how far everything is processed and delivered.

    `processed`: roots below this time need no more work. `delivered`: the consumer has the outputs
    of roots below this time; no later snapshot has an earlier time.
    """

    processed: int
    delivered: int


@_message(14)
class AskPromise(Message):
    """To a front that alone holds the frontier back: promise up to `next` or more if you can."""

    next: int


# Snapshots ------------------------------------------------------------------------------------


@_message(20)
class Prepare(Message):
    """Coordinator to nodes: make the state as of `time` durable, as your part of a snapshot.

    `time`: the delivered frontier of the last `Progress`.
    """

    number: int
    time: int


@_message(21)
class BeginEpoch(Message):
    """Coordinator to fronts: send the marker of epoch `number`."""

    number: int


@_message(22)
class Prepared(Message):
    """Node or front to coordinator: my part of the snapshot is durable.

    `offset`: of a front, the time that it would go on from; of a node under strong productions, the
    number of its newest production.
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
    """Coordinator to nodes and fronts: the snapshot is committed.

    `before`: the committed snapshot before it, to which a recovery may still go back; 0: none.
    `trim`: of a front: no recovery needs its inputs below this time any more.
    """

    number: int
    before: int
    trim: int


# Incarnations (control) -----------------------------------------------------------------------


@_message(30, control=True)
class Hello(Message):
    """Node or front to master, repeatedly: this process takes part, and has got this far.

    `process`: a token, new with each start. `ready`: 1 once a node has loaded the snapshot and the
    consumer has answered.
    """

    address: str
    process: str
    incarnation: int
    ready: int


@_message(31, control=True)
class Recover(Message):
    """Coordinator to a node: begin `incarnation` with snapshot `number` (0: the empty one).

    `taken`: the incarnation in which the snapshot was taken. `time`: the time of the snapshot. A
    node under strong productions loads its newest part, which must have at least this number.
    `addresses`: (name, address) of all members.
    """

    incarnation: int
    number: int
    taken: int
    time: int
    addresses: tuple[tuple[str, str], ...]


@_message(44, control=True)
class Alive(Message):
    """Node or front to master: this process lives. `steps`: how many steps of work it has done.

    `busy`: 1 if it is in the middle of a step that takes long.
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
    """Coordinator to a front: begin `incarnation`, replay from `offset` on (-1: do not replay)."""

    incarnation: int
    offset: int
    addresses: tuple[tuple[str, str], ...]


@_message(35, control=True)
class Lost(Message):
    """Member to coordinator: a message of this incarnation is lost; recover."""

    incarnation: int
    reason: str


@_message(36, control=True)
class Failed(Message):
    """Member to coordinator, consumer to barrier: the flow cannot go on, a replay would not help.

    `error`: the name of a class of `engine.errors`; `text`: for people.
    """

    incarnation: int
    error: str
    text: str


@_message(37, control=True)
class Stop(Message):
    """Coordinator to a member: the run is over; the registry has its outcome.

    `run`: the run that is over; a process of another run ignores the message. `error`: empty if the
    run did what was asked.
    """

    run: str
    error: str
    text: str


@_message(32, control=True)
class Goodbye(Message):
    """Node or front to master, in place of `Hello`: this process knows that the run is over."""

    process: str


@_message(38, control=True)
class AskReport(Message):
    """Anybody to a node or the master: send a `Report` to `address`."""

    address: str


@_message(39, control=True)
class Report(Message):
    """Node or master to the one who asked: its figures, by name, and its state in words.

    `waits_for`: the same at length; empty if there is no more to say. `addresses`: where all
    members can be asked, if it is the master.
    """

    figures: tuple[tuple[str, int], ...]
    state: str
    waits_for: str
    addresses: tuple[tuple[str, str], ...]


# Consumers (control) --------------------------------------------------------------------------


@_message(40, control=True)
class Bundle(Message):
    """Barrier to consumer: outputs in label order; store all of them with `t_last`, or nothing.

    `blobs`: the outputs of one time each (see `engine.wire.bundles`). `checksum`: over all blobs
    released so far. `groups`: the first and the last key group of the barrier's node.
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
    """Barrier to consumer: which bundle of this barrier have you stored last?

    `number`: comes back in the answer, so the barrier recognises an answer that is out of date.
    """

    barrier: str
    incarnation: int
    groups: tuple[int, int]
    address: str
    number: int


@_message(43, control=True)
class LastBundle(Message):
    """Consumer to barrier: the last bundle; t_last -1 if there is none. `number`: as in the ask."""

    barrier: str
    incarnation: int
    number: int
    blobs: tuple[bytes, ...]
    t_last: int
    checksum: int
