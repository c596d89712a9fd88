"""Packing of number lists into byte arrays: each list uses the narrowest sufficient width.

A packed list begins with one byte, the width of its values: 1, 2 or 4 bytes; 0 if all values are 0.
The values follow, little-endian. A single list can be read without a copy (`unpack_list`).

>>> data, offsets = pack_lists(np.array([3, 4, 900], np.uint32), np.array([2, 1]))
>>> data.tobytes().hex(" "), offsets
('01 03 04 02 84 03', array([0, 3, 6]))
>>> unpack_list(data, 3, 1)
(array([900], dtype=uint16), 6)

Functions receive several unpacked lists as two arrays: their concatenated values, and the length of
each list (`counts`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_WIDTHS = 1, 2, 4

_MAXIMA = np.array([0, 0xFF, 0xFFFF], np.uint32)
"""Largest values of the widths 0, 1 and 2."""

_BULK_MAX = 256
"""Lists with at most this many values are copied together; longer lists are copied one by one."""

Numbers = NDArray[np.uint32]
Indices = NDArray[np.intp]
Bytes = NDArray[np.uint8]
Narrow = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]
Ascending = Numbers | Indices


def list_offsets(counts: Indices | Narrow) -> Indices:
    """Return where each of several concatenated lists begins, and where the last one ends.

    >>> list_offsets(np.array([2, 0, 3]))
    array([0, 2, 2, 5])
    """
    offsets = np.zeros(len(counts) + 1, np.intp)
    counts.cumsum(out=offsets[1:])
    return offsets


def narrow_list_offsets(counts: Indices) -> NDArray[np.uint32] | Indices:
    """Return `list_offsets`, as 32-bit numbers if these suffice."""
    offsets = list_offsets(counts)
    return offsets if offsets[-1] >> 32 else offsets.astype(np.uint32)


def ranges(begins: Indices | Numbers, counts: Indices) -> Indices:
    """Return the concatenated numbers of several ranges.

    >>> ranges(np.array([7, 2]), np.array([2, 3]))
    array([7, 8, 2, 3, 4])
    """
    offsets = list_offsets(counts)
    return np.repeat(begins - offsets[:-1], counts) + np.arange(offsets[-1])


def intersect_indices(left: Ascending, right: Ascending) -> tuple[Indices, Indices]:
    """Return where two ascending lists have common numbers: indices in `left` and in `right`.

    >>> intersect_indices(np.array([2, 3, 7]), np.array([1, 3, 4, 7, 9]))
    (array([1, 2]), array([1, 3]))
    """
    if len(left) > len(right):
        right_rows, left_rows = intersect_indices(right, left)
        return left_rows, right_rows
    positions = np.searchsorted(right, left)
    # A number larger than all of `right` has an index beyond its end. Replace this index by any
    # valid one: no value of `right` equals the number.
    positions[positions == len(right)] = 0
    left_rows = np.flatnonzero(right[positions] == left) if len(right) else positions
    return left_rows, positions[left_rows]


def delta_encode(values: Numbers, counts: Indices) -> Numbers:
    """Return the gaps of strictly ascending lists: each value minus its predecessor, minus 1.

    The first value of a list is unchanged.
    """
    deltas = values.copy()
    deltas[1:] -= values[:-1]
    deltas[1:] -= np.uint32(1)
    first_rows = list_offsets(counts)[:-1][counts > 0]
    deltas[first_rows] = values[first_rows]
    return deltas


def delta_decode(deltas: Narrow, counts: Indices) -> Numbers:
    """Reverse `delta_encode`."""
    values = np.cumsum(deltas, dtype=np.uint32)  # all arithmetic here is modulo 2**32
    values += np.arange(len(values), dtype=np.uint32)
    if len(counts) > 1:
        is_filled = counts > 0
        first_rows = list_offsets(counts)[:-1][is_filled]
        values -= np.repeat(values[first_rows] - deltas[first_rows], counts[is_filled])
    return values


def pack_lists(values: Numbers, counts: Indices) -> tuple[Bytes, Indices]:
    """Pack lists. Return their bytes, and the byte offset of each list, followed by the end.

    `values`: the values of all lists, concatenated; `counts`: number of values of each list.
    """
    starts = list_offsets(counts)
    filled = np.flatnonzero(counts)
    widths = np.zeros(len(counts), np.intp)
    if len(filled):
        maxima = np.maximum.reduceat(values, starts[filled])
        widths[filled] = np.array([0, *_WIDTHS])[np.searchsorted(_MAXIMA, maxima)]
    byte_offsets = list_offsets(1 + counts * widths)
    data = np.empty(byte_offsets[-1], np.uint8)
    data[byte_offsets[:-1]] = widths
    for width, lists in _by_width(widths, counts):
        sizes = counts[lists]
        narrow = values[ranges(starts[lists], sizes)].astype(f"<u{width}").view(np.uint8)
        data[ranges(byte_offsets[lists] + 1, sizes * width)] = narrow
    for i in np.flatnonzero((counts > _BULK_MAX) & (widths > 0)).tolist():
        long = values[starts[i] : starts[i + 1]].astype(f"<u{widths[i]}")
        data[byte_offsets[i] + 1 : byte_offsets[i + 1]] = long.view(np.uint8)
    return data, byte_offsets


def unpack_lists(
    data: Bytes, begins: Indices | Numbers, counts: Indices
) -> tuple[Numbers, Indices]:
    """Unpack lists; return their concatenated values, and the byte offset of each list's end.

    `begins`: byte offset of each list; `counts`: number of values of each list.
    """
    starts = list_offsets(counts)
    widths = data[begins].astype(np.intp)
    values = np.zeros(starts[-1], np.uint32)
    for width, lists in _by_width(widths, counts):
        sizes = counts[lists]
        narrow = data[ranges(begins[lists] + 1, sizes * width)].view(f"<u{width}")
        values[ranges(starts[lists], sizes)] = narrow
    for i in np.flatnonzero((counts > _BULK_MAX) & (widths > 0)).tolist():
        values[starts[i] : starts[i + 1]], _ = unpack_list(data, int(begins[i]), int(counts[i]))
    return values, begins + 1 + counts * widths


def unpack_list(data: Bytes, begin: int, count: int) -> tuple[Narrow, int]:
    """Unpack one list; return its values and the byte offset of its end.

    The values are a view of `data`, unless all are 0.
    """
    width = int(data[begin])
    if not width:
        return np.zeros(count, np.uint8), begin + 1
    end = begin + 1 + count * width
    values: Narrow = data[begin + 1 : end].view(f"<u{width}")
    return values, end


def _by_width(widths: Indices, counts: Indices) -> Iterator[tuple[int, Indices]]:
    """Yield each nonzero width with the indices of its lists, except long lists."""
    for width in _WIDTHS:
        lists = np.flatnonzero((widths == width) & (counts <= _BULK_MAX))
        if len(lists):
            yield width, lists
