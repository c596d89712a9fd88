"""Numbers and texts in parts of a checkpoint, many in each; the last part of some is shorter.

>>> saved = [*of_numbers(array("q", range(3))), *of_texts(["a", "cat"])]
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

NUMBERS = 1 << 17
"""Numbers in a part."""

TEXTS = 1 << 13
"""Texts in a part."""

_GREATEST = np.iinfo(np.int64).max


def of_numbers(numbers: array[int]) -> Iterator[bytes]:
    """Numbers of 64 bits: in each part by how much they are above the least of them, in as many
    bytes as that takes."""
    for at in range(0, len(numbers) + 1, NUMBERS):
        some = np.array(numbers[at : at + NUMBERS], np.int64)
        least = some.min(initial=_GREATEST)
        above = some.view(np.uint64) - least.view(np.uint64)
        kind = np.min_scalar_type(above.max(initial=0))
        yield pack((int(least), above.astype(kind).tobytes(), kind.itemsize))


def of_texts(texts: Iterable[str]) -> Iterator[bytes]:
    """Texts."""
    found = list(texts)
    for at in range(0, len(found) + 1, TEXTS):
        yield pack(found[at : at + TEXTS])


def of_dictionary(dictionary: Mapping[str, int]) -> Iterator[bytes]:
    """A number for each of some texts, in their order."""
    yield from of_texts(dictionary)
    yield from of_numbers(array("q", dictionary.values()))


class Saved:
    """Reads the parts, in the order in which they were written. All raises SnapshotDamaged."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)

    def row(self) -> object:
        """A part with any value."""
        try:
            return unpack(next(self._parts))
        except (StopIteration, MalformedMessage):
            raise self.damaged() from None

    def numbers(self) -> array[int]:
        """What `of_numbers` was given."""
        found = array("q")
        while True:
            match self.row():
                case (int(least), bytes(data), 1 | 2 | 4 | 8 as size) if not len(data) % size:
                    above = np.frombuffer(data, f"u{size}").astype(np.uint64)
                case _:
                    raise self.damaged()
            found.frombytes((above + np.int64(least).view(np.uint64)).tobytes())
            if len(above) < NUMBERS:
                return found

    def texts(self) -> list[str]:
        """What `of_texts` was given."""
        found: list[str] = []
        while True:
            part = self.row()
            if not isinstance(part, tuple) or set(map(type, part)) - {str}:
                raise self.damaged()
            found += part
            if len(part) < TEXTS:
                return found

    def dictionary(self) -> dict[str, int]:
        """What `of_dictionary` was given."""
        texts, numbers = self.texts(), self.numbers()
        if len(texts) != len(numbers):
            raise self.damaged()
        return dict(zip(texts, numbers, strict=True))

    def number(self) -> int:
        """A part that is one number."""
        number = self.row()
        if type(number) is not int:
            raise self.damaged()
        return number

    @staticmethod
    def damaged() -> SnapshotDamaged:
        """What there is is not what was expected."""
        return SnapshotDamaged(
            "the checkpoint of the index has not the parts that were written; everything is made "
            "anew from the journal"
        )
