"""Values that user functions cannot spoil: what is kept of an argument, an output, a state.

A function may change its argument, keep it, or keep on changing what it has given away. So whatever
is needed a second time is kept in a form that no function holds a reference to:

- an *argument* that holds a dict is kept as its bytes, and decoded again for each application
  (`stored`, `fresh`); everything else that comes out of the wire format is immutable;
- a *state value* that is not immutable is kept as its bytes from the moment it is put, and each
  `get` gives a fresh one (`frozen`, `thawed`). Lists stay lists there, and tuples tuples;
- an *output* is copied where it may be needed again, or two branches get it (`kept_outputs`,
  `copies`).

    >>> kept = frozen({"n": [1, (2, 3)]})
    >>> thawed(kept)["n"].append(4), thawed(kept)
    (None, {'n': [1, (2, 3)]})
    >>> frozen((1, "a"))
    (1, 'a')

Cost: of immutable values a check; of others an encoding when they are put, a decoding each time.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import partial
from itertools import chain

import msgpack

from driftline.engine.errors import PayloadError
from driftline.engine.keygroups import canonical
from driftline.engine.wire.codec import exact, pack, unpack, why_not

ATOMS = frozenset((type(None), bool, int, float, str, bytes))
"""The immutable types that the wire format has; tuples of them are immutable, too."""

_SLOTS: frozenset[type] = frozenset((type(None), int, str, bytes, tuple))
"""Types of keys of a map that equal no key of another type but such as are not kept."""


class Frozen:
    """A state value as its bytes. Only rows of states hold it (`pack_row`, `keep_frozen`)."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"Frozen({thawed(self)!r})"


_PLAIN = ATOMS | {tuple}
_DATA = _PLAIN | {list, dict}

_FROZEN, _TUPLE = 1, 2

TUPLES_MAX = 100
"""Levels of tuples in a value that is frozen."""


class Wire(bytes):
    """An argument as its bytes."""

    __slots__ = ()


def is_plain(value: object) -> bool:
    """Whether a value is immutable, and of exactly the types that the wire format gives back."""
    return type(value) in ATOMS or all_plain((value,))


def all_plain(values: Sequence[object]) -> bool:
    """Whether all values are plain."""
    return _all_of(_PLAIN, values)


def _all_of(kinds: frozenset[type], values: Sequence[object]) -> bool:
    """Whether all values, and all in tuples among them, level by level, are of these types."""
    while True:
        found = {*map(type, values)}
        if not found <= kinds:
            return False
        if tuple not in found:
            return True
        values = [*chain.from_iterable(_tuples(found, values))]


def _tuples(kinds: set[type], values: Sequence[object]) -> Iterable[Iterable[object]]:
    """Those of the values that are tuples."""
    if len(kinds) == 1:
        return values  # type: ignore[return-value]
    return [value for value in values if isinstance(value, tuple)]


# Arguments ------------------------------------------------------------------------------------


def stored(values: list[object]) -> list[object]:
    """Arguments that came out of the wire format, as they are kept: the same list if no function
    can change them."""
    try:
        hash((*values,))  # a dict, the only type there that can be changed, has no hash
    except TypeError:
        return [Wire(pack(value)) for value in values]
    return values


def fresh(value: object) -> object:
    """An argument that was kept, as it arrived."""
    return unpack(value) if type(value) is Wire else value


def exactly(value: object) -> bytes:
    """What to compare kept arguments by."""
    return bytes(value) if isinstance(value, Wire) else exact(value)


# Outputs --------------------------------------------------------------------------------------


class Copy(bytes):
    """An output as bytes that never leave this process."""

    __slots__ = ()


def kept_outputs(values: list[object], also_objects: bool = False) -> list[object]:
    """Outputs as they are kept beside what is sent on: the same list if nothing can change them.

    `also_objects`: whether a function comes next that could change an object that has a hash.
    """
    try:
        hash((*values,))
        if not also_objects or all_plain(values):
            return values
    except TypeError:
        pass
    return list(map(_copy, values))


def output(kept: object) -> object:
    """An output that was kept, as it was made."""
    return marshal.loads(kept) if type(kept) is Copy else kept


def copies(values: list[object]) -> list[object]:
    """Outputs for one more branch, which cannot change those of the others."""
    kept = kept_outputs(values, also_objects=True)
    return list(values) if kept is values else list(map(output, kept))


def as_it_is(value: object) -> object:
    """An output that nothing changes any more: itself, or a copy if it can be changed."""
    [kept] = kept_outputs([value])
    return output(kept)


def holds(kind: type, values: Iterable[object]) -> bool:
    """Whether something of a type is among values, or in those that are sequences and dicts."""
    return any(
        isinstance(value, kind)
        or (isinstance(value, (tuple, list)) and holds(kind, value))
        or (isinstance(value, dict) and holds(kind, value.values()))
        for value in values
    )


def _is_data(values: Sequence[object]) -> bool:
    """Whether all of it is of exactly the types that `marshal` gives back as they were."""
    while True:
        kinds = set(map(type, values))
        if kinds <= ATOMS:
            return True
        if not kinds <= _DATA:
            return False
        found: list[object] = []
        for value in values:
            if isinstance(value, dict):
                found += value
                found += value.values()
            elif isinstance(value, (tuple, list)):
                found += value
        values = found


def _copy(value: object) -> object:
    if is_plain(value):
        return value
    try:
        if _is_data((value,)):
            return Copy(marshal.dumps(value))  # type: ignore[arg-type]
    except ValueError:  # nested too deep
        pass
    try:
        return deepcopy(value)
    except Exception:  # as a generator, which cannot travel either
        return value


# States ---------------------------------------------------------------------------------------


def may_be_kept(slots: Sequence[object], values: Sequence[object]) -> bool:
    """Whether states can keep these slots and values as they are: they are plain, snapshots can
    store them, and no slot is NaN. On the hot path."""
    if not (_all_of(_SLOTS, slots) and _all_of(_PLAIN, values)):
        return False
    try:
        _as_in_a_row([*{*slots}, *values])  # nearly always there are few slots
    except PayloadError:
        return False
    return True


def slot_of(key: object) -> object:
    """A key of a map as it is kept: of 1, 1.0 and True, which are one key, the int.

    So it is the same key after an undo, whichever of them was used. Raises PayloadError, TypeError.
    """
    hash(key)
    return canonical(unpack(pack(key)))


def frozen(value: object) -> object:
    """A value as a state keeps it. Raises PayloadError for one that cannot be stored."""
    try:
        _as_in_a_row([value])
        return value if is_plain(value) else Frozen(_encoded(value, 0))
    except (PayloadError, TypeError, ValueError, OverflowError) as error:
        raise PayloadError(why_not(value) or f"it cannot be stored: {error}") from None


def _as_in_a_row(values: Sequence[object]) -> None:
    """Raises PayloadError for a value that does not fit into the row of a snapshot."""
    pack([[[[values]]]])  # as deep as it will stand there


def thawed(value: object) -> object:
    """What `frozen` was given: a fresh one each time if it can be changed."""
    if not isinstance(value, Frozen):
        return value
    return msgpack.unpackb(value.data, use_list=True, strict_map_key=False, ext_hook=_decoded)


def pack_row(row: object) -> bytes:
    """Encode what holds values as states keep them. Raises PayloadError."""
    try:
        data: bytes = _row_packer.pack(row)
    except (TypeError, ValueError, OverflowError) as error:
        _row_packer.reset()
        raise PayloadError(f"a value of a state cannot be stored: {error}") from None
    return data


def keep_frozen(code: int, data: bytes) -> object:
    """How rows of snapshots are decoded: what is frozen stays so until a function wants it."""
    if code != _FROZEN:
        raise ValueError(f"extension type {code}")
    return Frozen(data)


def _as_extension(value: object) -> object:
    if isinstance(value, Frozen):
        return msgpack.ExtType(_FROZEN, value.data)
    raise TypeError(f"it is of type {type(value).__name__}")


_row_packer = msgpack.Packer(autoreset=True, use_bin_type=True, default=_as_extension)


def _encoded(value: object, tuples: int) -> bytes:
    if tuples > TUPLES_MAX:
        raise ValueError(f"it has tuples nested more than {TUPLES_MAX} deep")
    # With strict types the packer asks about everything but exact lists, dicts and atoms.
    data: bytes = msgpack.packb(value, strict_types=True, default=partial(_as_base, tuples))
    return data


def _as_base(tuples: int, value: object) -> object:
    """What to write for a tuple, and for an instance of a subclass: what the wire gives back."""
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, _encoded(list(value), tuples + 1))
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


def _decoded(code: int, data: bytes) -> object:
    if code != _TUPLE:
        raise ValueError(f"extension type {code}")
    return tuple(msgpack.unpackb(data, use_list=True, strict_map_key=False, ext_hook=_decoded))
