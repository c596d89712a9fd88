"""Approximate aggregates of a window, in bounded space: `ApproximateCountDistinct`, `Quantile`.

An accumulator is a byte string that depends only on the elements counted, not on their order. All
arithmetic is on integers, or rounded by IEEE 754 (no logarithm or power, which differ between C
libraries), so the results are the same on every machine.

    >>> latency = Quantile(0.5, "ms")
    >>> accumulator = latency.zero()
    >>> for record in {"ms": 20}, {"ms": 30}, {"ms": 70}:
    ...     accumulator = latency.add(accumulator, record)
    >>> latency.result(accumulator)
    29.92
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from hashlib import blake2b
from itertools import accumulate
from math import ceil, copysign, frexp, isfinite, ldexp
from struct import Struct
from typing import Any

from driftline.engine.errors import FlowError
from driftline.engine.operators.aggregates import Field, FieldAggregate
from driftline.engine.wire.codec import canonical_bytes

_HASH_BYTES = 8

_LN_2 = 0.6931471805599453


class ApproximateCountDistinct(FieldAggregate):
    """Approximate number of different values of a field; 1, 1.0 and True are different.

    HyperLogLog with the estimator of Ertl (New cardinality estimation algorithms for HyperLogLog
    sketches, 2017). The library datasketches does not fit: its results depend on the order of the
    elements.

    The count is exact until the hashes of the values take as many bytes as the sketch: with the
    default error, up to 2047 values.

    Args:
        field: Name or position of the value, or a function of the element; None: the element.
        error: Relative standard error of larger counts, from 0.005 to 0.25. The default needs 16
            KiB per window with many values; half the error needs four times as much.

    Raises:
        FlowError: An argument is invalid.
    """

    # The accumulator: the sorted hashes of the values; once these would take `registers` bytes, one
    # byte per register.

    def __init__(self, field: Field | None = None, *, error: float = 0.01) -> None:
        super().__init__(field)
        _check(self, "error", error, 0.005, 0.25)
        self.registers = 16
        while error * error * self.registers < 1.04 * 1.04:
            self.registers *= 2
        self.rest_bits = 8 * _HASH_BYTES - (self.registers.bit_length() - 1)

    @property
    def accumulator_type(self) -> str:
        return f"{super().accumulator_type}({self.registers} registers)"

    def zero(self) -> bytes:
        return b""

    def add(self, accumulator: bytes, element: Any) -> bytes:
        value = canonical_bytes(self.get(element))
        return self._add_hash(accumulator, blake2b(value, digest_size=_HASH_BYTES).digest())

    def merge(self, one: bytes, other: bytes) -> bytes:
        if len(one) == len(other) == self.registers:
            return bytes(map(max, one, other))
        longer, shorter = (one, other) if len(one) > len(other) else (other, one)
        for hashed in _hashes(shorter):
            longer = self._add_hash(longer, hashed)
        return longer

    def result(self, accumulator: bytes) -> int:
        if len(accumulator) < self.registers:
            return len(accumulator) // _HASH_BYTES
        counts = [accumulator.count(rank) for rank in range(self.rest_bits + 2)]
        total = 0.0  # the sum of count / 2**rank
        for count in counts[:0:-1]:
            total = (total + count) / 2
        x = sigma = counts[0] / self.registers  # the share of registers without a value
        previous, power = -1.0, 1
        while sigma != previous:
            x, previous = x * x, sigma
            sigma += x * power
            power *= 2
        total += self.registers * sigma
        return round(self.registers * self.registers / (2 * _LN_2 * total))

    def _add_hash(self, accumulator: bytes, hashed: bytes) -> bytes:
        """Return the accumulator with the hash of a value."""
        if len(accumulator) == self.registers:
            index, rank = self._register(hashed)
            if accumulator[index] >= rank:
                return accumulator
            return b"".join((accumulator[:index], bytes((rank,)), accumulator[index + 1 :]))
        at = _position(accumulator, hashed, _HASH_BYTES)
        if accumulator[at : at + _HASH_BYTES] == hashed:
            return accumulator
        accumulator = b"".join((accumulator[:at], hashed, accumulator[at:]))
        return accumulator if len(accumulator) < self.registers else self._sketch(accumulator)

    def _sketch(self, accumulator: bytes) -> bytes:
        """Return the registers for an accumulator of hashes."""
        registers = bytearray(self.registers)
        for hashed in _hashes(accumulator):
            index, rank = self._register(hashed)
            registers[index] = max(registers[index], rank)
        return bytes(registers)

    def _register(self, hashed: bytes) -> tuple[int, int]:
        """Return the register of a hash, and its rank.

        The rank is 1 + the number of leading zeros of the other bits.
        """
        index, rest = divmod(int.from_bytes(hashed, "big"), 1 << self.rest_bits)
        return index, self.rest_bits + 1 - rest.bit_length()


def _hashes(accumulator: bytes) -> Iterable[bytes]:
    for at in range(0, len(accumulator), _HASH_BYTES):
        yield accumulator[at : at + _HASH_BYTES]


_ENTRY = Struct(">IQ")
"""Number of a bucket (positive, see `_ZERO`), and number of its values."""

_KEY_BYTES = 4

_ZERO = 1 << 31
"""Number of the bucket of zeros. Buckets of negative values have smaller numbers."""

_EXPONENT_BIAS = 1100
"""Added to the exponents of floats (see `frexp`), so that all become positive."""


class Quantile(FieldAggregate):
    """Approximate quantile of a field, as a float.

    Of n values in ascending order, it is the one at position quantile * (n - 1), counted from 0 and
    rounded down.

    DDSketch (Masson, Rim, Lee, 2019): counts of values in buckets whose width is relative to the
    values. Between two powers of two, all buckets have the same width. A library would be a
    dependency without a gain: ddsketch takes longer per element, and the results of its logarithms
    differ between machines.

    Args:
        quantile: From 0 to 1; 0.5 is the median.
        field: Name or position of the value, or a function of the element; None: the element.
        error: Largest relative error of the result, from 0.0001 to 0.5. The sketch needs 12 bytes
            for each bucket that has values; the default has 50 buckets for values from x to 2x.

    Raises:
        FlowError: An argument is invalid.
    """

    # The accumulator: an entry for each bucket with values, sorted.

    def __init__(self, quantile: float, field: Field | None = None, *, error: float = 0.01) -> None:
        super().__init__(field)
        _check(self, "quantile", quantile, 0, 1)
        _check(self, "error", error, 0.0001, 0.5)
        self.quantile = quantile
        self.buckets = ceil(0.5 / error)
        """Number of buckets between two powers of two."""

    @property
    def accumulator_type(self) -> str:
        return f"{super().accumulator_type}({self.buckets} buckets)"

    def zero(self) -> bytes:
        return b""

    def add(self, accumulator: bytes, element: Any) -> bytes:
        bucket = self._bucket(self.get(element))
        at = end = _position(accumulator, bucket.to_bytes(_KEY_BYTES, "big"), _ENTRY.size)
        count = 0
        if at < len(accumulator):
            bucket_there, count_there = _ENTRY.unpack_from(accumulator, at)
            if bucket_there == bucket:
                count, end = count_there, at + _ENTRY.size
        return b"".join((accumulator[:at], _ENTRY.pack(bucket, count + 1), accumulator[end:]))

    def merge(self, one: bytes, other: bytes) -> bytes:
        counts = dict(_ENTRY.iter_unpack(one))
        for bucket, count in _ENTRY.iter_unpack(other):
            counts[bucket] = counts.get(bucket, 0) + count
        return b"".join([_ENTRY.pack(bucket, counts[bucket]) for bucket in sorted(counts)])

    def result(self, accumulator: bytes) -> float:
        buckets, counts = zip(*_ENTRY.iter_unpack(accumulator), strict=True)
        cumulative = [*accumulate(counts)]
        return self._value(buckets[bisect_right(cumulative, self.quantile * (cumulative[-1] - 1))])

    def _bucket(self, value: Any) -> int:
        """Return the number of the bucket of a value. Raises TypeError or ValueError for a value
        that is not a finite number."""
        if not isinstance(value, int | float):
            raise TypeError(f"Quantile of {value!r:.100}, which is not a number")
        if not isfinite(value):
            raise ValueError(f"Quantile of {value!r}, which is not finite")
        if not value:
            return _ZERO
        fraction, exponent = frexp(abs(value))  # the fraction is at least 0.5, and less than 1
        within = int(fraction * (2 * self.buckets)) - self.buckets
        number = (exponent + _EXPONENT_BIAS) * self.buckets + within
        return _ZERO + number if value > 0 else _ZERO - number

    def _value(self, bucket: int) -> float:
        """Return the middle of a bucket."""
        if bucket == _ZERO:
            return 0.0
        exponent, within = divmod(abs(bucket - _ZERO), self.buckets)
        middle = (2 * (self.buckets + within) + 1) / (4 * self.buckets)
        return copysign(ldexp(middle, exponent - _EXPONENT_BIAS), bucket - _ZERO)


def _position(entries: bytes, key: bytes, size: int) -> int:
    """Return the offset of the first entry whose key is `key` or larger.

    Entries of `size` bytes are sorted, and each begins with its key.
    """
    key_bytes = len(key)
    indexes = range(len(entries) // size)
    return size * bisect_left(
        indexes, key, key=lambda number: entries[number * size : number * size + key_bytes]
    )


def _check(aggregate: object, name: str, value: Any, minimum: float, maximum: float) -> None:
    """Raise FlowError if an argument is not a number in its range."""
    if type(value) not in (int, float) or not minimum <= value <= maximum:
        raise FlowError(
            f"{type(aggregate).__name__}: {name} is {value!r}; give a number from {minimum} to "
            f"{maximum}"
        )
