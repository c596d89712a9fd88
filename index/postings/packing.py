"""Lists of numbers, packed: blocks of 128 values with as many bits each as the largest one needs.

A packed list is the widths of its blocks, one byte each, and then the blocks. In a block of width w
each value has w bits, one value right behind the other, low bits first; the last block of a list
may be short, and ends with a whole byte. So the place of every bit follows from the widths, and any
number of lists is packed or unpacked by the same few calls of numpy, without a loop over lists.

>>> data = pack(np.array([3, 4, 9], np.uint32), ascending=True)
>>> data.hex(" ")  # the width, 3; then 3, 0 and 4: what is left out before each value
'03 03 01'
>>> unpack(data, 3, ascending=True)
array([3, 4, 9], dtype=uint32)

Several lists are an array of all their values, one list after the other, and one of the numbers of
values per list. Packed lists are in arrays of 64-bit words (little-endian), and begin anywhere in
them, at a byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 128
"""Values in a block."""

SLACK = 16
"""Bytes that there have to be behind packed lists, whatever is in them."""

_AT_ONCE = 1 << 14
"""About how many values are worked off together. Larger arrays would be memory that is asked of the
system each time, and not yet in the processor's cache: that takes five times as long."""

_MASKS = np.array([(1 << width) - 1 for width in range(33)], np.uint64)

Numbers = NDArray[np.uint32]
Places = NDArray[np.intp]
Ascending = Numbers | Places
Packed = NDArray[np.uint64]


def edges(counts: Places | Numbers | NDArray[np.uint8]) -> Places:
    """Where each of several lists begins if they are one after the other, and where the last ends.

    >>> edges(np.array([2, 0, 3]))
    array([0, 2, 2, 5])
    """
    found = np.zeros(len(counts) + 1, np.intp)
    counts.cumsum(out=found[1:])
    return found


def ranges(begins: Places, counts: Places) -> Places:
    """The numbers of several ranges, one range after the other.

    >>> ranges(np.array([7, 2]), np.array([2, 3]))
    array([7, 8, 2, 3, 4])
    """
    before = edges(counts)
    return np.repeat(begins - before[:-1], counts) + np.arange(before[-1])


def in_both(ours: Ascending, theirs: Ascending) -> tuple[Places, Places]:
    """Where the numbers that two ascending lists have in common are in each of them.

    >>> in_both(np.array([2, 3, 7]), np.array([1, 3, 4, 7, 9]))
    (array([1, 2]), array([1, 3]))
    """
    if len(ours) > len(theirs):
        there, here = in_both(theirs, ours)
        return here, there
    at = np.searchsorted(theirs, ours)
    at[at == len(theirs)] = 0
    rows = np.flatnonzero(theirs[at] == ours) if len(theirs) else at
    return rows, at[rows]


def gaps(values: Numbers, counts: Places) -> Numbers:
    """How many numbers each value of ascending lists leaves out behind the value before it.

    The first value of a list stays as it is.
    """
    found = values.copy()
    found[1:] -= values[:-1]
    found[1:] -= np.uint32(1)
    firsts = edges(counts)[:-1][counts > 0]
    found[firsts] = values[firsts]
    return found


def sums(left_out: Numbers, counts: Places) -> Numbers:
    """The ascending lists of which these are the `gaps`."""
    values = np.cumsum(left_out, dtype=np.uint32)  # modulo 2**32, as all that follows
    values += np.arange(len(values), dtype=np.uint32)
    if len(counts) > 1:
        filled = counts > 0
        firsts = edges(counts)[:-1][filled]
        values -= np.repeat(values[firsts] - left_out[firsts], counts[filled])
    return values


def pack(values: Numbers, *, ascending: bool) -> bytes:
    """Pack a list; `ascending`: each value is larger than the one before it."""
    counts = np.array([len(values)])
    data, _ = pack_lists(gaps(values, counts) if ascending else values, counts)
    return data.tobytes()


def unpack(data: bytes, count: int, *, ascending: bool) -> Numbers:
    """Unpack a list of `count` values."""
    padded = data + bytes(SLACK + -len(data) % 8)
    values, _ = unpack_list(np.frombuffer(padded, "<u8"), 0, count)
    return sums(values, np.array([count])) if ascending else values


class _Blocks(NamedTuple):
    """The blocks of several lists."""

    of: Places
    """Per list: how many."""
    edges: Places
    """Of the lists, in blocks."""
    counts: Places
    """Per block: how many values."""


def _blocks(counts: Places) -> _Blocks:
    of = (counts + (BLOCK - 1)) // BLOCK
    ends = edges(of)
    per_block = np.full(ends[-1], BLOCK)
    filled = of > 0
    per_block[ends[1:][filled] - 1] = (counts - BLOCK * (of - 1))[filled]
    return _Blocks(of, ends, per_block)


def _size(counts: Places, widths: Places) -> Places:
    """The bytes of blocks."""
    return (counts * widths + 7) >> 3


def block_maxima(values: Numbers, counts: Places) -> Numbers:
    """The largest value of each block."""
    begins = edges(_blocks(counts).counts)[:-1]
    return np.maximum.reduceat(values, begins) if len(begins) else values


def block_lasts(values: Numbers, counts: Places) -> Numbers:
    """The last value of each block."""
    return values[edges(_blocks(counts).counts)[1:] - 1]


def pack_lists(values: Numbers, counts: Places) -> tuple[NDArray[np.uint8], Places]:
    """Pack lists. Returns their bytes, and the `edges` of the lists in them."""
    blocks = _blocks(counts)
    first = edges(blocks.counts)
    maxima = np.maximum.reduceat(values, first[:-1]) if len(values) else values
    widths = np.frexp(maxima.astype(np.float64))[1].astype(np.intp)
    sizes = edges(_size(blocks.counts, widths))
    before = sizes[blocks.edges]
    starts = sizes[:-1] + np.repeat(blocks.edges[1:], blocks.of)
    size = int(sizes[-1] + blocks.edges[-1])
    words = np.zeros(size // 8 + 2, "<u8")
    for some in _portions(first):
        part = values[first[some.start] : first[some.stop]]
        _write(words, part, blocks.counts[some], starts[some], widths[some])
    data = words.view(np.uint8)[:size]
    data[np.arange(len(widths)) + np.repeat(before[:-1], blocks.of)] = widths
    return data, before + blocks.edges


def unpack_lists(data: Packed, begins: Places, counts: Places) -> tuple[Numbers, Places]:
    """Unpack lists that begin at these bytes of data. Returns their values, and where each ends."""
    blocks = _blocks(counts)
    number = len(blocks.counts)
    at = np.repeat(begins - blocks.edges[:-1], blocks.of) + np.arange(number)
    widths = data.view(np.uint8)[at].astype(np.intp)
    sizes = edges(_size(blocks.counts, widths))
    before = begins + blocks.of - sizes[blocks.edges[:-1]]
    starts = sizes[:-1] + np.repeat(before, blocks.of)
    return _read(data, blocks.counts, starts, widths), before + sizes[blocks.edges[1:]]


def unpack_list(data: Packed, begin: int, count: int) -> tuple[Numbers, int]:
    """Unpack one list. Returns its values, and where it ends."""
    if not 0 < count <= BLOCK:
        values, ends = unpack_lists(data, np.array([begin]), np.array([count]))
        return values, int(ends[0])
    width = int(data.view(np.uint8)[begin])  # one block, as nearly all words have: fewer calls
    bits = np.arange(8 * (begin + 1), 8 * (begin + 1) + count * width, width or 1)
    end = begin + 1 + (count * width + 7) // 8
    return (_bits(data, bits, _MASKS[width]) if width else np.zeros(count, np.uint32)), end


def unpack_at(data: Packed, begin: int, count: int, places: Places) -> Numbers:
    """The values at some places of a list. Unpacks only the blocks that have them."""
    if count <= BLOCK:
        values, _ = unpack_list(data, begin, count)
        return values.take(places)
    counts = _blocks(np.array([count])).counts
    widths = data.view(np.uint8)[begin : begin + len(counts)].astype(np.intp)
    starts = edges(_size(counts, widths))[:-1] + (begin + len(counts))
    needed = np.zeros(len(counts), np.bool_)
    needed[places // BLOCK] = True
    values = _read(data, counts[needed], starts[needed], widths[needed])
    skipped: Places = BLOCK * (~needed).cumsum()
    return values.take(places - skipped.take(places // BLOCK))


def _portions(first: Places) -> Iterator[slice]:
    """Slices of blocks, of about as many values each as are worked off together."""
    bounds = np.searchsorted(first, np.arange(0, first[-1], _AT_ONCE)).tolist()
    for begin, end in pairwise([*bounds, len(first) - 1]):
        yield slice(begin, end)


def _places(counts: Places, starts: Places, widths: Places) -> Places:
    """The first bit of each value of some blocks."""
    first = edges(counts)
    bits = np.repeat(8 * starts - first[:-1] * widths, counts)
    bits += np.arange(first[-1]) * np.repeat(widths, counts)
    return bits


def _write(words: Packed, values: Numbers, counts: Places, starts: Places, widths: Places) -> None:
    """Put the values of blocks into words that are still zero there."""
    bits = _places(counts, starts, widths)
    at, shift = bits >> 6, (bits & 63).view(np.uint64)
    low = values.astype(np.uint64)
    high = low >> np.uint64(1) >> (np.uint64(63) - shift)
    low <<= shift
    begins = np.flatnonzero(np.diff(at, prepend=-1))
    words[at[begins]] |= np.bitwise_or.reduceat(low, begins)
    over = np.flatnonzero(high)  # at most one value goes on in a word
    words[at[over] + 1] |= high[over]


def _read(data: Packed, counts: Places, starts: Places, widths: Places) -> Numbers:
    """The values of blocks that start at these bytes of data."""
    first = edges(counts)
    values = np.empty(first[-1], np.uint32)
    for some in _portions(first):
        values[first[some.start] : first[some.stop]] = _bits(
            data,
            _places(counts[some], starts[some], widths[some]),
            np.repeat(_MASKS[widths[some]], counts[some]),
        )
    return values


def _bits(data: Packed, bits: Places, masks: Packed | np.uint64) -> Numbers:
    """What is in data from these bits on, as far as the masks say."""
    index, shift = bits >> 6, (bits & 63).view(np.uint64)
    low = data.take(index)
    low >>= shift
    index += 1
    high = data.take(index)
    high <<= np.uint64(1)
    high <<= np.uint64(63) - shift
    low |= high
    low &= masks
    return low.astype(np.uint32)
