"""Keys: their equality, their hash buckets (*key groups*), and the node that owns each group.

Keys are the same if and only if their wire form is the same: 5, 5.0 and True are three keys, 0.0
and -0.0 are two. Python considers some of these equal. So the engine replaces a key that may equal
a different key in Python by an `ExactKey`. A text, an int, bytes, None and a tuple of these stay
unchanged:

    >>> exact_keys(["a", 5, (1, None)])
    ['a', 5, (1, None)]
    >>> len({*exact_keys([5, 5.0, 1, True, 1.0, 0.0, -0.0, (5,), (5.0,)])})
    9
    >>> plain_key(exact_key(5.0))
    5.0

A key is made exact where an operator computes it (`engine.operators.keyed`), where a row of a
snapshot is read (`engine.snapshots.merging`), and in each call of a `MapState`. `Context.key`,
failures and rows (`engine.state.values.pack_row`) contain the plain key.

A key's group depends only on the key and on the number of groups; node i of n owns a contiguous
range of groups. State is stored per group, so a later run may have another number of nodes. The
hash is stable across processes, machines and versions; Python's `hash` is not.

Cost: 0.1 us for the group of a text, if many are computed at once (`Owners`). A dictionary of all
keys would be faster only while it fits into the processor's caches. `GroupCache` caches groups, for
code that sees the same keys repeatedly, one by one.
"""

from collections.abc import Iterable, Sequence
from math import isnan
from operator import eq
from typing import Final
from zlib import crc32

import msgpack

from driftline.engine.errors import PayloadError
from driftline.engine.wire.codec import (
    ATOMS,
    all_have_types,
    is_a,
    levels_of,
    pack,
    unpack,
    why_unencodable,
)

GROUPS = 128
"""Default of a flow's number of key groups."""

GROUPS_MAX = 1 << 15
"""Largest number of key groups: a store writes the number of a group in two bytes."""

_SPREAD = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: puts consecutive times into distant groups


EXACT: Final[frozenset[type]] = frozenset((str, int, bytes, type(None)))
"""Types of keys for which Python's equality is exact."""

_EXACT_AT_ALL_LEVELS = EXACT | {tuple}

KEY_HELP = "a key is None, bool, int, float, str, bytes or a tuple of these; use tuple(...)"


class ExactKey:
    """Key that equals only keys with the same wire form.

    `value`: the plain key, as it arrived; `packed`: its wire form.
    """

    __slots__ = ("packed", "value")

    def __init__(self, value: object, packed: bytes) -> None:
        self.value = value
        self.packed = packed

    def __eq__(self, other: object) -> bool:
        return type(other) is ExactKey and self.packed == other.packed

    def __hash__(self) -> int:
        return hash(self.packed)

    def __repr__(self) -> str:
        return repr(self.value)


def exact_key(key: object) -> object:
    """Return the exact form of a key, which does not equal the exact form of any other key.

    Raises PayloadError for a value that is not a key.
    """
    if _is_exact(key):
        return key
    packed = pack_key(key)
    value = key if _has_only_atoms(key) else unpack(packed)
    return value if _is_exact(value) else ExactKey(value, packed)


def exact_keys(keys: list[object]) -> list[object]:
    """Apply `exact_key` to each key; return the same list if that changes none."""
    return keys if all_have_types(_EXACT_AT_ALL_LEVELS, keys) else list(map(exact_key, keys))


def plain_key(key: object) -> object:
    """Return the plain key, as it arrived, from its exact form."""
    return key.value if type(key) is ExactKey else key


def _is_exact(key: object) -> bool:
    if type(key) is tuple:
        if ATOMS.issuperset(map(type, key)):  # nearly every tuple
            return EXACT.issuperset(map(type, key))
        return all_have_types(_EXACT_AT_ALL_LEVELS, key)
    return type(key) in EXACT or type(key) is ExactKey


def _has_only_atoms(key: object) -> bool:
    """Return whether a key is an atom of the wire format, or a tuple of atoms."""
    return type(key) in ATOMS or (type(key) is tuple and ATOMS.issuperset(map(type, key)))


def pack_key(key: object) -> bytes:
    """Return the wire form of a key. Raises PayloadError for a value that is not a key.

    `pack` itself may call this: for a MapState in an output, it packs the keys.
    """
    if type(key) is ExactKey:
        return key.packed
    if _has_only_atoms(key):
        if not _equals_itself(key):
            raise PayloadError(_NAN)
        return pack(key)
    for level in levels_of((key,), LEVELS_MAX):
        for value in level:
            type_ = type(value)
            if not issubclass(type_, _KEY_TYPES) or issubclass(type_, msgpack.ExtType):
                raise PayloadError(f"a value of type {type_.__name__} is not a key: {KEY_HELP}")
            if is_a(value, float) and isnan(value):
                raise PayloadError(_NAN)
    try:
        return pack([[[[[key]]]]])[5:]  # 5 spare levels, as a row nests its key deeper
    except PayloadError as error:
        raise PayloadError(why_unencodable(key) or str(error)) from None


def _equals_itself(key: object) -> bool:
    """Return whether an atom, or each atom of a tuple, equals itself, as all but NaN do."""
    return all(map(eq, key, key)) if isinstance(key, tuple) else key == key


_NAN = "NaN is not a key: it equals nothing, not even itself"

_KEY_TYPES = (*ATOMS, tuple)

LEVELS_MAX = 1100
"""Checks of nested values stop at this level. msgpack rejects values with as many levels."""


def group_of(key: object, groups: int = GROUPS) -> int:
    """Return the group of a key, in [0, groups).

    Raises PayloadError for a value that is not a key.
    """
    return crc32(_bytes_to_hash(key)) * groups >> 32


def _bytes_to_hash(key: object) -> bytes:
    """Return the bytes whose hash determines a key's group: UTF-8 of a text, else its wire form."""
    if not is_a(key, str):
        return pack_key(key)
    try:
        return str.encode(key)
    except UnicodeEncodeError as error:
        raise PayloadError(f"{key!a} cannot be sent or stored: {error}") from None


def root_group(time: int, front: int, groups: int = GROUPS) -> int:
    """Return the group of a root, which has no key yet. Spreads consecutive times evenly."""
    return (((time + front) * _SPREAD & 0xFFFFFFFFFFFFFFFF) * groups) >> 64


Layout = tuple[int, ...]
"""The numbers of the nodes that share the key groups, in order. A node's *place*, its index in the
layout, determines which groups it owns. A number belongs to one layout only, so everything that a
node ever stores belongs to the same groups."""


def node_names(layout: Iterable[int]) -> list[str]:
    """Return the names of the nodes of a layout, in its order."""
    return [f"node-{number}" for number in layout]


def owner(group: int, nodes: int, groups: int = GROUPS) -> int:
    """Return the place of the node that owns a group; inverse of `owned_groups`."""
    return group * nodes // groups


def owned_groups(node: int, nodes: int, groups: int = GROUPS) -> range:
    """Return the contiguous range of groups of a node. `node`: its place in the layout."""
    start = -(-node * groups // nodes)
    stop = -(-(node + 1) * groups // nodes)
    return range(start, stop)


class GroupCache(dict[object, int]):
    """Exact key -> group, computed on first access and then looked up in a dict."""

    def __init__(self, groups: int = GROUPS) -> None:
        super().__init__()
        self.groups = groups

    def __missing__(self, key: object) -> int:
        group = self[key] = group_of(key, self.groups)
        return group


class Owners:
    """The owners of keys, as places in a layout of `nodes` nodes."""

    def __init__(self, nodes: int, groups: int = GROUPS) -> None:
        self.nodes = nodes
        self.groups = groups
        self._owner_of_group = [owner(group, nodes, groups) for group in range(groups)]

    def owners_of(self, keys: Sequence[object]) -> list[int]:
        """Return the place of the node that owns each key.

        Raises PayloadError for a value that is not a key.
        """
        try:
            hashes = list(map(crc32, map(str.encode, keys)))  # type: ignore[arg-type]
        except (TypeError, UnicodeEncodeError):  # not all keys are valid texts
            hashes = [crc32(_bytes_to_hash(key)) for key in keys]
        groups, owner_of_group = self.groups, self._owner_of_group
        return [owner_of_group[each_hash * groups >> 32] for each_hash in hashes]
