"""Stored forms of arguments, outputs and state values that no user function can change.

A function may change its argument, store a reference to it, or change an output after returning it.
So the engine stores a value that it needs again in a form to which no function has a reference:

- *arguments*: if an argument of a batch contains a dict, all arguments of the batch are stored as
  bytes and decoded for each application (`freeze_arguments`, `thaw_argument`); without a dict,
  arguments are immutable, as they were decoded from the wire format;
- *state values*: a mutable value is stored as bytes, and each `get` decodes a fresh copy (`freeze`,
  `thaw`), in which lists are lists and tuples are tuples;
- *outputs*: an output that is needed again, or that goes to two branches, is copied
  (`freeze_outputs`, `copy_outputs`).

    >>> stored = freeze({"n": [1, (2, 3)]})
    >>> thaw(stored)["n"].append(4), thaw(stored)
    (None, {'n': [1, (2, 3)]})
    >>> freeze((1, "a"))
    (1, 'a')

An immutable value costs a check. A mutable one costs an encoding, and a decoding per use.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import partial

import msgpack

from driftline.engine.errors import PayloadError
from driftline.engine.keygroups import LEVELS_MAX, ExactKey, exact_key
from driftline.engine.texts import reraise_interrupt, text_of
from driftline.engine.wire.codec import (
    ATOMS,
    PackerPool,
    all_have_types,
    canonical_bytes,
    is_a,
    levels_of,
    pack,
    pack_payload,
    unpack,
    why_unencodable,
)


class Frozen:
    """Encoded mutable value of a state. It occurs only in states and in the rows of snapshots."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"Frozen({thaw(self)!r})"


_PLAIN_TYPES = ATOMS | {tuple}
"""Types of immutable values that the wire format preserves."""

_DATA_TYPES = _PLAIN_TYPES | {list, dict}
"""Types of outputs that `marshal` copies; `deepcopy` copies others."""

_FROZEN, _TUPLE = -3, -2
"""Codes of msgpack extensions. Codes of users start at 0, and -1 is msgpack.Timestamp."""

TUPLE_DEPTH_MAX = 100
"""Maximum depth of nested tuples in a frozen value."""


class Wire(bytes):
    """Argument stored as bytes in the wire format."""

    __slots__ = ()


def is_plain(value: object) -> bool:
    """Return whether a value is immutable and has only types that the wire format preserves."""
    return type(value) in ATOMS or all_plain((value,))


def all_plain(values: Sequence[object]) -> bool:
    """Return whether `is_plain` is true of each value."""
    return all_have_types(_PLAIN_TYPES, values)


# Arguments ------------------------------------------------------------------------------------


def freeze_arguments(values: list[object]) -> list[object]:
    """Return the stored form of arguments: the same list if all are immutable, else all as `Wire`.

    Precondition: the arguments were decoded from the wire format.
    """
    try:
        hash((*values,))  # the only mutable type in the wire format is dict, which has no hash
    except TypeError:
        return [Wire(pack(value)) for value in values]
    return values


def thaw_argument(value: object) -> object:
    """Return an argument for one application, from its stored form."""
    return unpack(value) if type(value) is Wire else value


def canonical_argument(value: object) -> bytes:
    """Return, for an argument in its stored form, bytes that differ where arguments differ.

    See `canonical_bytes`.
    """
    return bytes(value) if isinstance(value, Wire) else canonical_bytes(value)


# Outputs --------------------------------------------------------------------------------------


class Copy(bytes):
    """Output encoded by `marshal`. These bytes never leave this process."""

    __slots__ = ()


def are_immutable(values: list[object], check_objects: bool = False) -> bool:
    """Return whether no function can change these outputs.

    `check_objects`: do not assume that an object with a hash is immutable. Set this if a user
    function receives the output next.
    """
    try:
        hash((*values,))
    except BaseException as error:  # nearly always a TypeError; a user's class may raise anything
        reraise_interrupt(error)
        return False
    return not check_objects or all_plain(values)


def freeze_outputs(values: list[object], check_objects: bool = False) -> list[object]:
    """Return the stored form of outputs: the same list if all are immutable.

    Otherwise the result is a new list, in which copies replace the mutable outputs. An output that
    cannot be copied stays. `check_objects`: see `are_immutable`.
    """
    return values if are_immutable(values, check_objects) else list(map(_copy, values))


def thaw_output(stored: object) -> object:
    """Return an output as the function returned it, from its stored form."""
    return marshal.loads(stored) if type(stored) is Copy else stored


def copy_outputs(values: list[object]) -> list[object]:
    """Copy mutable outputs for another branch, so that branches do not share mutable values."""
    stored = freeze_outputs(values, check_objects=True)
    return list(values) if stored is values else list(map(thaw_output, stored))


def copy_if_mutable(value: object) -> object:
    """Return an output itself if it is immutable, else a copy in its current form."""
    [stored] = freeze_outputs([value])
    return thaw_output(stored)


def holds(kind: type, values: Iterable[object]) -> bool:
    """Return whether one of the values, or an item at any level inside them, is of this type."""
    return any(is_a(value, kind) for level in levels_of(values, LEVELS_MAX) for value in level)


def _is_data(values: Sequence[object]) -> bool:
    """Return whether all values, at any level, have exactly the types that `marshal` preserves."""
    for level in levels_of(values, LEVELS_MAX):
        kinds = set(map(type, level))
        if kinds <= ATOMS:
            return True
        if not kinds <= _DATA_TYPES:
            return False
    return False


def _copy(value: object) -> object:
    if is_plain(value):
        return value
    try:
        if _is_data((value,)):
            return Copy(marshal.dumps(value))  # type: ignore[arg-type]
    except ValueError:  # nested too deeply
        pass
    try:
        return deepcopy(value)
    except BaseException as error:  # for example, a generator; sending it fails, too
        reraise_interrupt(error)
        return value


# States ---------------------------------------------------------------------------------------


def can_stay_unfrozen(slots: Sequence[object], values: Sequence[object]) -> bool:
    """Return whether states can store these slots and values without `freeze`.

    All must be immutable and fit into a row of a snapshot. Hot path.
    """
    if not all_have_types(_PLAIN_TYPES, values):
        return False
    try:
        _check_fits_row([*{*slots}, *values])  # the set is small: most slots are equal
    except PayloadError:
        return False
    return True


def slot_of(key: object) -> object:
    """Return the exact form of a map's key. Raises PayloadError if it cannot be stored."""
    slot = exact_key(key)
    if type(slot) is not ExactKey:  # an ExactKey is packed already
        pack_payload(slot)
    return slot


def freeze(value: object) -> object:
    """Return the form in which a state stores a value. Raises PayloadError if none exists."""
    try:
        _check_fits_row([value])
        return value if is_plain(value) else Frozen(_encode_value(value, 0))
    except BaseException as error:  # methods of a user's class may raise anything
        reraise_interrupt(error)
        raise PayloadError(
            why_unencodable(value) or f"it cannot be stored: {text_of(error)}"
        ) from None


def _check_fits_row(values: Sequence[object]) -> None:
    """Raise PayloadError if a value does not fit into a row of a snapshot."""
    pack_row([[[[values]]]])  # nested as deeply as in a row


def thaw(value: object) -> object:
    """Return a value for a function from its stored form: a fresh copy if it is mutable."""
    if not isinstance(value, Frozen):
        return value
    return msgpack.unpackb(value.data, use_list=True, strict_map_key=False, ext_hook=_decode_tuple)


def pack_row(row: object) -> bytes:
    """Encode a row of a snapshot, which may contain exact keys and frozen values.

    Raises PayloadError.

    Thread-safe: the loop encodes a snapshot while another thread merges earlier parts.
    """
    try:
        return _row_packers.pack(row)
    except (TypeError, ValueError, OverflowError) as error:
        raise PayloadError(f"a value of a state cannot be stored: {error}") from None


def decode_frozen(code: int, data: bytes) -> object:
    """Decode a frozen value in a row of a snapshot; for msgpack's `ext_hook`."""
    if code != _FROZEN:
        raise ValueError(f"unknown extension type {code}")
    return Frozen(data)


def _encodable_in_row(value: object) -> object:
    if isinstance(value, ExactKey):
        return value.value
    if isinstance(value, Frozen):
        return msgpack.ExtType._make((_FROZEN, value.data))
    raise TypeError(f"it is of type {type(value).__name__}")


_row_packers = PackerPool(default=_encodable_in_row)


def _encode_value(value: object, tuple_depth: int) -> bytes:
    if tuple_depth > TUPLE_DEPTH_MAX:
        raise ValueError(f"its tuples are nested more than {TUPLE_DEPTH_MAX} deep")
    # With strict_types, msgpack calls `default` for all but exact lists, dicts and atoms.
    data: bytes = msgpack.packb(
        value, strict_types=True, default=partial(_encodable_value, tuple_depth)
    )
    return data


def _encodable_value(tuple_depth: int, value: object) -> object:
    """Return what msgpack encodes in place of a tuple, or of an instance of a subclass."""
    if isinstance(value, tuple):
        return msgpack.ExtType._make((_TUPLE, _encode_value(list(value), tuple_depth + 1)))
    if isinstance(value, list):
        return list(value)
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(type(value).__name__)


def _decode_tuple(code: int, data: bytes) -> object:
    if code != _TUPLE:
        return msgpack.ExtType(code, data)
    return tuple(msgpack.unpackb(data, use_list=True, strict_map_key=False, ext_hook=_decode_tuple))
