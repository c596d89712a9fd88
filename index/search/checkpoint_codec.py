"""Encoding of long lists of numbers and texts as checkpoint parts.

A part with fewer entries than the maximum, possibly none, ends a list.

>>> saved = [*encode_numbers(array("q", range(3))), *encode_texts(["a", "cat"])]
>>> rest = Saved(saved)
>>> rest.numbers(), rest.texts()
(array('q', [0, 1, 2]), ['a', 'cat'])
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from driftline.engine.errors import MalformedMessage, SnapshotDamaged
from driftline.engine.wire.codec import pack, unpack

NUMBERS_PER_PART = 1 << 17
"""Maximum numbers per part."""

TEXTS_PER_PART = 1 << 13
"""Maximum texts per part."""

_GREATEST = np.iinfo(np.int64).max


def encode_numbers(numbers: array[int]) -> Iterator[bytes]:
    """Encode 64-bit numbers.

    Each part stores its minimum, and the difference of each number from the minimum in the smallest
    sufficient integer width.
    """
    for at in range(0, len(numbers) + 1, NUMBERS_PER_PART):
        some = np.array(numbers[at : at + NUMBERS_PER_PART], np.int64)
        least = some.min(initial=_GREATEST)
        above = some.view(np.uint64) - least.view(np.uint64)
        kind = np.min_scalar_type(above.max(initial=0))
        yield pack((int(least), above.astype(kind).tobytes(), kind.itemsize))


def encode_texts(texts: Iterable[str]) -> Iterator[bytes]:
    """Encode texts."""
    found = list(texts)
    for at in range(0, len(found) + 1, TEXTS_PER_PART):
        yield pack(found[at : at + TEXTS_PER_PART])


def encode_dictionary(dictionary: Mapping[str, int]) -> Iterator[bytes]:
    """Encode a mapping from texts to numbers, in its order."""
    yield from encode_texts(dictionary)
    yield from encode_numbers(array("q", dictionary.values()))


class Saved:
    """Decoder of checkpoint parts, in the order written. All methods raise SnapshotDamaged."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)

    def row(self) -> object:
        """Return the value of the next part."""
        try:
            return unpack(next(self._parts))
        except (StopIteration, MalformedMessage):
            raise self.damaged() from None

    def numbers(self) -> array[int]:
        """Decode what `encode_numbers` encoded."""
        found = array("q")
        while True:
            match self.row():
                case (int(least), bytes(data), 1 | 2 | 4 | 8 as size) if not len(data) % size:
                    above = np.frombuffer(data, f"u{size}").astype(np.uint64)
                case _:
                    raise self.damaged()
            found.frombytes((above + np.int64(least).view(np.uint64)).tobytes())
            if len(above) < NUMBERS_PER_PART:
                return found

    def texts(self) -> list[str]:
        """Decode what `encode_texts` encoded."""
        found: list[str] = []
        while True:
            part = self.row()
            if not isinstance(part, tuple) or set(map(type, part)) - {str}:
                raise self.damaged()
            found += part
            if len(part) < TEXTS_PER_PART:
                return found

    def dictionary(self) -> dict[str, int]:
        """Decode what `encode_dictionary` encoded."""
        texts, numbers = self.texts(), self.numbers()
        if len(texts) != len(numbers):
            raise self.damaged()
        return dict(zip(texts, numbers, strict=True))

    def number(self) -> int:
        """Return the next part, which holds one number."""
        number = self.row()
        if type(number) is not int:
            raise self.damaged()
        return number

    @staticmethod
    def damaged() -> SnapshotDamaged:
        """Return the error for a part that is missing or has unexpected content."""
        return SnapshotDamaged(
            "the checkpoint of the index has not the parts that were written; everything is made "
            "anew from the journal"
        )
