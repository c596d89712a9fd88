"""Packing of number lists into byte arrays: each list uses the narrowest sufficient width.

A packed list is one byte, the width of its values (1, 2 or 4 bytes; 0: all are 0), then the values,
little-endian. A list is therefore read in place, without a loop and without unpacking.

>>> data, places = pack_lists(np.array([3, 4, 900], np.uint32), np.array([2, 1]))
>>> data.tobytes().hex(" "), places
('01 03 04 02 84 03', array([0, 3, 6]))
>>> unpack_list(data, 3, 1)
(array([900], dtype=uint16), 6)

Several lists are represented by an array of their concatenated values and an array of their
lengths.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_WIDTHS = 1, 2, 4

_MAXIMA = np.array([0, 0xFF, 0xFFFF], np.uint32)
"""Largest values of the widths 0, 1 and 2."""

_LONG = 256
"""Lists with more values are copied one by one; shorter ones all together."""

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
    found = np.zeros(len(counts) + 1, np.intp)
    counts.cumsum(out=found[1:])
    return found


def narrow_list_offsets(counts: Indices) -> NDArray[np.uint32] | Indices:
    """Return `list_offsets`, as 32-bit numbers if these suffice."""
    found = list_offsets(counts)
    return found if found[-1] >> 32 else found.astype(np.uint32)


def ranges(begins: Indices | Numbers, counts: Indices) -> Indices:
    """Return the concatenated numbers of several ranges.

    >>> ranges(np.array([7, 2]), np.array([2, 3]))
    array([7, 8, 2, 3, 4])
    """
    before = list_offsets(counts)
    return np.repeat(begins - before[:-1], counts) + np.arange(before[-1])


def intersect_indices(ours: Ascending, theirs: Ascending) -> tuple[Indices, Indices]:
    """Return the indices, in each of two ascending lists, of their common numbers.

    >>> intersect_indices(np.array([2, 3, 7]), np.array([1, 3, 4, 7, 9]))
    (array([1, 2]), array([1, 3]))
    """
    if len(ours) > len(theirs):
        there, here = intersect_indices(theirs, ours)
        return here, there
    at = np.searchsorted(theirs, ours)
    at[at == len(theirs)] = 0
    rows = np.flatnonzero(theirs[at] == ours) if len(theirs) else at
    return rows, at[rows]


def delta_encode(values: Numbers, counts: Indices) -> Numbers:
    """Return how many numbers each value of ascending lists skips after the previous value.

    The first value of a list is unchanged.
    """
    found = values.copy()
    found[1:] -= values[:-1]
    found[1:] -= np.uint32(1)
    firsts = list_offsets(counts)[:-1][counts > 0]
    found[firsts] = values[firsts]
    return found


def delta_decode(deltas: Narrow, counts: Indices) -> Numbers:
    """Return the ascending lists with these `delta_encode`."""
    values = np.cumsum(deltas, dtype=np.uint32)  # modulo 2**32, like everything below
    values += np.arange(len(values), dtype=np.uint32)
    if len(counts) > 1:
        filled = counts > 0
        firsts = list_offsets(counts)[:-1][filled]
        values -= np.repeat(values[firsts] - deltas[firsts], counts[filled])
    return values


def pack_lists(values: Numbers, counts: Indices) -> tuple[Bytes, Indices]:
    """Pack lists. Return their bytes, and the `list_offsets` of the lists in them."""
    first = list_offsets(counts)
    filled = np.flatnonzero(counts)
    widths = np.zeros(len(counts), np.intp)
    if len(filled):
        maxima = np.maximum.reduceat(values, first[filled])
        widths[filled] = np.array([0, *_WIDTHS])[np.searchsorted(_MAXIMA, maxima)]
    places = list_offsets(1 + counts * widths)
    data = np.empty(places[-1], np.uint8)
    data[places[:-1]] = widths
    for width, lists in _by_width(widths, counts):
        size = counts[lists]
        narrow = values[ranges(first[lists], size)].astype(f"<u{width}").view(np.uint8)
        data[ranges(places[lists] + 1, size * width)] = narrow
    for i in np.flatnonzero((counts > _LONG) & (widths > 0)).tolist():
        long = values[first[i] : first[i + 1]].astype(f"<u{widths[i]}")
        data[places[i] + 1 : places[i + 1]] = long.view(np.uint8)
    return data, places


def unpack_lists(
    data: Bytes, begins: Indices | Numbers, counts: Indices
) -> tuple[Numbers, Indices]:
    """Unpack lists that begin at these bytes of data. Return their values, and where each ends."""
    first = list_offsets(counts)
    widths = data[begins].astype(np.intp)
    values = np.zeros(first[-1], np.uint32)
    for width, lists in _by_width(widths, counts):
        size = counts[lists]
        narrow = data[ranges(begins[lists] + 1, size * width)].view(f"<u{width}")
        values[ranges(first[lists], size)] = narrow
    for i in np.flatnonzero((counts > _LONG) & (widths > 0)).tolist():
        values[first[i] : first[i + 1]], _ = unpack_list(data, int(begins[i]), int(counts[i]))
    return values, begins + 1 + counts * widths


def unpack_list(data: Bytes, begin: int, count: int) -> tuple[Narrow, int]:
    """Unpack one list, as a view of the data if possible; also return its end."""
    width = int(data[begin])
    if not width:
        return np.zeros(count, np.uint8), begin + 1
    end = begin + 1 + count * width
    values: Narrow = data[begin + 1 : end].view(f"<u{width}")
    return values, end


def _by_width(widths: Indices, counts: Indices) -> Iterator[tuple[int, Indices]]:
    """Yield the lists of each width, except long ones."""
    for width in _WIDTHS:
        lists = np.flatnonzero((widths == width) & (counts <= _LONG))
        if len(lists):
            yield width, lists
