"""Encoding of long lists of numbers and texts as checkpoint parts.

A list is one or more parts; the last one has fewer entries than the maximum, possibly none.

>>> parts = [*encode_numbers(array("q", range(3))), *encode_texts(["a", "cat"])]
>>> reader = CheckpointReader(parts)
>>> reader.numbers(), reader.texts()
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

_INT64_MAX = np.iinfo(np.int64).max


def encode_numbers(numbers: array[int]) -> Iterator[bytes]:
    """Encode 64-bit numbers.

    Each part stores its minimum, and the difference of each number from the minimum in the smallest
    sufficient integer width.
    """
    for at in range(0, len(numbers) + 1, NUMBERS_PER_PART):
        chunk = np.array(numbers[at : at + NUMBERS_PER_PART], np.int64)
        minimum = chunk.min(initial=_INT64_MAX)
        differences = chunk.view(np.uint64) - minimum.view(np.uint64)
        dtype = np.min_scalar_type(differences.max(initial=0))
        yield pack((int(minimum), differences.astype(dtype).tobytes(), dtype.itemsize))


def encode_texts(texts: Iterable[str]) -> Iterator[bytes]:
    """Encode texts."""
    all_texts = list(texts)
    for at in range(0, len(all_texts) + 1, TEXTS_PER_PART):
        yield pack(all_texts[at : at + TEXTS_PER_PART])


def encode_dictionary(dictionary: Mapping[str, int]) -> Iterator[bytes]:
    """Encode a mapping from texts to numbers; keep the order of its entries."""
    yield from encode_texts(dictionary)
    yield from encode_numbers(array("q", dictionary.values()))


class CheckpointReader:
    """Decoder of checkpoint parts, which must be read in the order of their encoding.

    All reads raise SnapshotDamaged.
    """

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
        numbers = array("q")
        while True:
            match self.row():
                case (int(minimum), bytes(data), 1 | 2 | 4 | 8 as size) if not len(data) % size:
                    differences = np.frombuffer(data, f"u{size}").astype(np.uint64)
                case _:
                    raise self.damaged()
            numbers.frombytes((differences + np.int64(minimum).view(np.uint64)).tobytes())
            if len(differences) < NUMBERS_PER_PART:
                return numbers

    def texts(self) -> list[str]:
        """Decode what `encode_texts` encoded."""
        texts: list[str] = []
        while True:
            part = self.row()
            if not isinstance(part, tuple) or set(map(type, part)) - {str}:
                raise self.damaged()
            texts += part
            if len(part) < TEXTS_PER_PART:
                return texts

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
            "a part of the index checkpoint is missing or damaged; the index is rebuilt from the "
            "journal"
        )
