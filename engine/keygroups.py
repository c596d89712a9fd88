"""Key groups: the fixed hash buckets of the key space, and which node owns which.

A key's group depends on nothing but the key and the number of groups; node i of n owns a
contiguous range of groups. Everything that is stored is stored per group, so that a later run
may have another number of nodes. The hash is stable across processes, machines and versions,
which Python's `hash` is not.

Costs: the group of a text takes a tenth of a microsecond where many are asked for at once
(`Owners`). A dictionary of all keys would take less only as long as it is in the processor's
caches. Where keys come again and again, key by key, `GroupCache` remembers their groups.
"""

from collections.abc import Sequence
from zlib import crc32

from driftline.engine.errors import PayloadError
from driftline.engine.wire.codec import pack

GROUPS = 128
"""Number of key groups of a flow, unless it says otherwise."""

_SPREAD = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: consecutive times fall far apart


def group_of(key: object, groups: int = GROUPS) -> int:
    """Key group of a key. Raises PayloadError for a key that cannot travel."""
    return crc32(_bytes_of(key)) * groups >> 32


def _bytes_of(key: object) -> bytes:
    """What is hashed: the same for keys that are equal."""
    if isinstance(key, str):
        try:
            return str.encode(key)
        except UnicodeEncodeError as error:
            raise PayloadError(f"{key!a} cannot travel or be stored: {error}") from None
    return pack(canonical(key))


def canonical(key: object) -> object:
    """One of the keys that are equal: 1, 1.0 and True are one key of a dictionary, of one group.

    Raises PayloadError for NaN.
    """
    if isinstance(key, (tuple, list)):
        return tuple(map(canonical, key))
    if isinstance(key, float) and key != key:
        raise PayloadError(
            "NaN cannot travel or be stored as a key: it equals nothing, not even itself"
        )
    if isinstance(key, bool) or (
        isinstance(key, float) and -(2**63) <= key < 2**64 and key.is_integer()
    ):
        return int(key)
    return key


def root_group(time: int, front: int, groups: int = GROUPS) -> int:
    """Key group that a root is sent to before it has a key: even also for consecutive times."""
    return (((time + front) * _SPREAD & 0xFFFFFFFFFFFFFFFF) * groups) >> 64


def owner(group: int, nodes: int, groups: int = GROUPS) -> int:
    """Node that owns a group: `owned_by` of that node contains it."""
    return group * nodes // groups


def owned_by(node: int, nodes: int, groups: int = GROUPS) -> range:
    """The contiguous groups of a node."""
    first = -(-node * groups // nodes)
    last = -(-(node + 1) * groups // nodes)
    return range(first, last)


class GroupCache(dict[object, int]):
    """key -> group, computed once per key; `cache[key]` on the hot path is a plain dict hit."""

    def __init__(self, groups: int = GROUPS) -> None:
        super().__init__()
        self.groups = groups

    def __missing__(self, key: object) -> int:
        group = self[key] = group_of(key, self.groups)
        return group


class Owners:
    """Which node owns a key."""

    def __init__(self, nodes: int, groups: int = GROUPS) -> None:
        self.nodes = nodes
        self.groups = groups
        self._of_group = [owner(group, nodes, groups) for group in range(groups)]

    def of(self, keys: Sequence[object]) -> list[int]:
        """The owner of each key.

        Raises TypeError for what cannot be a key of a dictionary, PayloadError for what cannot
        travel.
        """
        try:
            hashed = list(map(crc32, map(str.encode, keys)))  # type: ignore[arg-type]
        except (TypeError, UnicodeEncodeError):  # not all of them are texts
            frozenset(keys)  # which raises where one is none for a dictionary
            hashed = [crc32(_bytes_of(key)) for key in keys]
        groups, of_group = self.groups, self._of_group
        return [of_group[hash * groups >> 32] for hash in hashed]
