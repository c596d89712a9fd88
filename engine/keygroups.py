"""Key groups: the fixed hash buckets of the key space, and which node owns which.

A key's group depends on nothing but the key and the number of groups; node i of n owns a
contiguous range of groups. Everything that is stored is stored per group, so that a later run
may have another number of nodes. The hash is stable across processes, machines and versions,
which Python's `hash` is not.

Costs: a first look-up of a key hashes it (half a microsecond); `GroupCache` and `OwnerCache`
make every later one a dictionary hit.
"""

from zlib import crc32

from engine.codec import pack

GROUPS = 128
"""Number of key groups of a flow, unless it says otherwise."""

_SPREAD = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: consecutive times fall far apart
_SPREAD_32 = _SPREAD >> 32 | 1


def group_of(key: object, groups: int = GROUPS) -> int:
    """Key group of a key. Raises PayloadError for a key that cannot travel."""
    hashed = crc32(pack(key if type(key) is str else _canonical(key)))
    return (hashed * _SPREAD_32 & 0xFFFFFFFF) * groups >> 32


def _canonical(key: object) -> object:
    """One of the keys that are equal: 1, 1.0 and True are one key of a dictionary, of one group."""
    if isinstance(key, (tuple, list)):
        return tuple(map(_canonical, key))
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


class OwnerCache(dict[object, int]):
    """key -> owning node; forgets everything when it holds `limit` keys."""

    def __init__(self, nodes: int, groups: int = GROUPS, limit: int = 2_000_000) -> None:
        super().__init__()
        self.nodes = nodes
        self.groups = groups
        self.limit = limit
        self._owners = [owner(group, nodes, groups) for group in range(groups)]

    def __missing__(self, key: object) -> int:
        if len(self) >= self.limit:
            self.clear()
        node = self[key] = self._owners[group_of(key, self.groups)]
        return node
