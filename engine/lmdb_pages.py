"""Checks the pages of an LMDB file: each is in use once, or free, and its numbers are possible.

LMDB trusts its file. A list of free pages that is damaged has LMDB overwrite pages that are in
use, and an impossible number ends the process within LMDB. So the pages are checked before an
environment is used. The values are not: for these there are checksums and counts (`lmdbs`).

Format: `mdb.c` of LMDB 0.9, section "Page structure". A file is a sequence of pages of one size;
the first two are the roots, of which the one with the later transaction counts. It has two trees,
that of the free pages and the main one, whose rows may be trees themselves. A page of a tree has a
header of 16 bytes, the offsets of its nodes (2 bytes each), and the nodes at its end.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import lmdb

Root = tuple[bytes, bytes, int, int]
"""The trees of free pages and of rows, the number of the last page, that of the transaction."""

_ROOT = struct.Struct("<40x48s48sQQ")

_TREE = struct.Struct("<6xH32xQ")
"""Depth, number of the first page."""

_HEADER = struct.Struct("<Q2xHHH")
"""Number of the page, its kind, where the offsets end, where the nodes begin."""

_LARGE = struct.Struct("<Q2xHI")
"""Number of a page whose value goes on in those behind it, its kind, number of all these pages."""

_NODE = struct.Struct("<IHH")
"""Size of the value, flags, size of the key; in a branch: number of the page below (6 bytes)."""

_PAGE = struct.Struct("<Q")

_NONE = 2**64 - 1
"""The first page of an empty tree."""

_BRANCH, _LEAF, _LARGE_VALUE = 1, 2, 4
"""Kinds of pages."""

_ELSEWHERE, _IS_TREE = 1, 2
"""Flags of nodes: the value is in pages of its own; the value is a tree."""


def check_pages(path: Path, page_size: int) -> None:
    """Raises CorruptedError unless each page of an LMDB file is either free or in use once.

    Precondition: nobody writes the file, and it is as long as its pages.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        free, main, last, _ = max(roots(data, page_size), key=lambda root: root[3])
        try:
            pages = _Pages(data, page_size, last)
            pages.check_free(free)
            pages.check(main)
        except (struct.error, IndexError, OverflowError):
            raise lmdb.CorruptedError("a page has impossible numbers") from None


def roots(data: bytes | mmap.mmap, page_size: int) -> list[Root]:
    """The two root pages; `data`: of the file, from its beginning on."""
    return [_ROOT.unpack_from(data, at) for at in (0, page_size)]


class _Pages:
    """The pages of a file, with notes of those that were met."""

    def __init__(self, data: mmap.mmap, size: int, last: int) -> None:
        self._data = data
        self._size = size
        self._met = bytearray(last + 1)
        self._met[:2] = b"\1\1"

    def check(self, tree: bytes) -> None:
        """Check a tree, and those in its rows."""
        for leaf in self._leaves(tree):
            for at in _nodes(leaf):
                if leaf[at + 4]:  # a quick look at the flags: few nodes have any
                    flags, value = _node(leaf, at)
                    if flags & _ELSEWHERE:
                        self._meet_large(value)
                    elif flags & _IS_TREE:
                        self.check(value)

    def check_free(self, tree: bytes) -> None:
        """Check the tree of the free pages: each value is a count, and so many page numbers."""
        for leaf in self._leaves(tree):
            for at in _nodes(leaf):
                flags, value = _node(leaf, at)
                data, at = (self._data, self._meet_large(value)) if flags else (value, 0)
                (count,) = _PAGE.unpack_from(data, at)
                for (page,) in _PAGE.iter_unpack(data[at + 8 : at + 8 + 8 * count]):
                    self._meet(page)

    def _leaves(self, tree: bytes) -> Iterator[bytes]:
        """The leaf pages of a tree, all of whose pages are met."""
        depth, first = _TREE.unpack(tree)
        level = [] if first == _NONE else [first]
        for _ in range(depth - 1):
            branches = [self._page(page, _BRANCH) for page in level]
            level = [_below(branch, at) for branch in branches for at in _nodes(branch)]
        for page in level:
            yield self._page(page, _LEAF)

    def _page(self, page: int, kind: int) -> bytes:
        self._meet(page)
        data = self._data[page * self._size : (page + 1) * self._size]
        if _HEADER.unpack_from(data)[:2] != (page, kind):
            raise lmdb.CorruptedError(f"page {page} is not what it should be")
        return data

    def _meet_large(self, value: bytes) -> int:
        """Meet the pages of a value that is elsewhere. Returns where in the file it begins."""
        (page,) = _PAGE.unpack(value)
        at: int = page * self._size
        number, kind, count = _LARGE.unpack_from(self._data, at)
        if (number, kind) != (page, _LARGE_VALUE):
            raise lmdb.CorruptedError(f"page {page} is not what it should be")
        self._meet(page, count)
        return at + _LARGE.size

    def _meet(self, page: int, count: int = 1) -> None:
        """Note that pages were met; none may be met twice."""
        if any(self._met[page : page + count]) or page + count > len(self._met):
            raise lmdb.CorruptedError(f"page {page} is in use twice, free and in use, or not there")
        self._met[page : page + count] = b"\1" * count


def _nodes(page: bytes) -> tuple[int, ...]:
    """Where the nodes of a page begin."""
    _, _, end, begin = _HEADER.unpack_from(page)
    offsets = struct.unpack_from(f"<{(end - _HEADER.size) // 2}H", page, _HEADER.size)
    if offsets and (min(offsets) < begin or begin < end):
        raise lmdb.CorruptedError("a node is outside of its page")
    return offsets


def _below(branch: bytes, at: int) -> int:
    """The number of the page below a node."""
    return int.from_bytes(branch[at : at + 6], "little")


def _node(leaf: bytes, at: int) -> tuple[int, bytes]:
    """Flags and value of a node; the value is the number of a page if it is elsewhere."""
    size, flags, key = _NODE.unpack_from(leaf, at)
    begin = at + _NODE.size + key
    return flags, leaf[begin : begin + (_PAGE.size if flags & _ELSEWHERE else size)]
