"""Key groups: the fixed hash buckets of the key space, and the node that owns each.

A key's group depends only on the key and on the number of groups; node i of n owns a contiguous
range of groups. State is stored per group, so a later run may have another number of nodes. The
hash is stable across processes, machines and versions; Python's `hash` is not.

Cost: a tenth of a microsecond for the group of a text, if many are computed at once (`Owners`). A
dictionary of all keys would be faster only while it is in the processor's caches. `GroupCache`
remembers groups, for code that sees the same keys repeatedly, one by one.
"""

from collections.abc import Iterable, Sequence
from zlib import crc32

from driftline.engine.errors import PayloadError
from driftline.engine.wire.codec import pack

GROUPS = 128
"""Default of a flow's number of key groups."""

_SPREAD = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: puts consecutive times into distant groups


def group_of(key: object, groups: int = GROUPS) -> int:
    """The key group of a key, in [0, groups). Raises PayloadError for a key that cannot travel."""
    return crc32(_bytes_of(key)) * groups >> 32


def _bytes_of(key: object) -> bytes:
    """The bytes to hash, which are the same for equal keys."""
    if isinstance(key, str):
        try:
            return str.encode(key)
        except UnicodeEncodeError as error:
            raise PayloadError(f"{key!a} cannot travel or be stored: {error}") from None
    return pack(canonical(key))


def canonical(key: object) -> object:
    """The same key for all equal keys: 1, 1.0 and True are equal, so all of them become 1.

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
    """The key group of a root, which has no key yet. Spreads consecutive times over all groups."""
    return (((time + front) * _SPREAD & 0xFFFFFFFFFFFFFFFF) * groups) >> 64


Layout = tuple[int, ...]
"""The nodes that run at a time, by their numbers. The place of a node in it says which groups it
owns. A number belongs to one layout only: so all that a node ever stores is of the same groups."""


def names_of(layout: Iterable[int]) -> list[str]:
    """The names of the nodes of a layout, in its order."""
    return [f"node-{number}" for number in layout]


def owner(group: int, nodes: int, groups: int = GROUPS) -> int:
    """The place of the node that owns a group; inverse of `owned_by`."""
    return group * nodes // groups


def owned_by(node: int, nodes: int, groups: int = GROUPS) -> range:
    """The contiguous range of groups that the node at this place owns."""
    first = -(-node * groups // nodes)
    last = -(-(node + 1) * groups // nodes)
    return range(first, last)


class GroupCache(dict[object, int]):
    """Key -> group, computed at the first `cache[key]`; after that, a plain look-up in a dict."""

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
        self._of_group = [owner(group, nodes, groups) for group in range(groups)]

    def of(self, keys: Sequence[object]) -> list[int]:
        """The place of the node that owns each key.

        Raises TypeError for a key that has no hash, PayloadError for a key that cannot travel.
        """
        try:
            hashed = list(map(crc32, map(str.encode, keys)))  # type: ignore[arg-type]
        except (TypeError, UnicodeEncodeError):  # not all keys are valid texts
            frozenset(keys)  # raises TypeError for a key without a hash
            hashed = [crc32(_bytes_of(key)) for key in keys]
        groups, of_group = self.groups, self._of_group
        return [of_group[hash * groups >> 32] for hash in hashed]
