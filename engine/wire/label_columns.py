"""Labels of a batch: a list of labels, or one column of numbers.

The labels of one element's outputs differ in a single number, and so do the labels of one front's
roots. Nearly all batches are of these two kinds. So their labels are one column of numbers
everywhere: on the wire, at operators, at the barrier, in a blob. Labels become tuples only where an
operator needs them one by one, for example for out-of-order elements.

    >>> column = LabelColumn((7, 0), (2, 5))
    >>> list(column)
    [(7, 0, 2), (7, 0, 5)]
    >>> encode_labels(column)
    (2, 3, (7, 0, (2, 5)))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from operator import itemgetter

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import Label
from driftline.engine.wire.codec import (
    PLAIN,
    checked_columns,
    decode_rows,
    encode_rows,
)

EncodedLabels = tuple[int, int, tuple[int | tuple[int, ...], ...]]
"""Encoded labels: `engine.wire.codec.Columns` of integers."""

_time_of = itemgetter(0)


class LabelColumn:
    """Immutable column of labels: (*head, number, *tail) for each of `numbers`."""

    __slots__ = ("head", "numbers", "tail")

    def __init__(self, head: Label, numbers: Sequence[int], tail: Label = ()) -> None:
        self.head = head
        self.numbers = numbers
        self.tail = tail

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Label]:
        return zip(*map(repeat, self.head), self.numbers, *map(repeat, self.tail))  # noqa: B905

    def __getitem__(self, index: int) -> Label:
        return (*self.head, self.numbers[index], *self.tail)


Labels = LabelColumn | list[Label]


def select(labels: Labels, is_selected: Iterable[object]) -> Labels:
    """Return the labels at the positions where `is_selected` has a true value."""
    if isinstance(labels, LabelColumn):
        return LabelColumn(labels.head, list(compress(labels.numbers, is_selected)), labels.tail)
    return list(compress(labels, is_selected))


def divided(labels: Labels, count: int) -> tuple[Labels, Labels]:
    """Return the first `count` labels, and the rest."""
    if isinstance(labels, LabelColumn):
        head, numbers, tail = labels.head, labels.numbers, labels.tail
        return LabelColumn(head, numbers[:count], tail), LabelColumn(head, numbers[count:], tail)
    return labels[:count], labels[count:]


def child_labels(labels: Labels, number: int) -> Labels:
    """Return, for each label, the label of its child with this number."""
    if isinstance(labels, LabelColumn):
        return LabelColumn(labels.head, labels.numbers, (*labels.tail, number))
    return [(*label, number) for label in labels]


def times(labels: Labels) -> Sequence[int]:
    """Return the time of each label, or one time if all labels of a column have the same time."""
    if isinstance(labels, LabelColumn):
        return labels.head[:1] or labels.numbers
    return list(map(_time_of, labels))


def is_sorted(labels: Labels) -> bool:
    """Return whether no label is smaller than the previous one."""
    if isinstance(labels, LabelColumn):
        return list(labels.numbers) == sorted(labels.numbers)
    return labels == sorted(labels)


def encode_labels(labels: Labels) -> EncodedLabels:
    """Encode labels. A column and the list of its labels give equal bytes."""
    if not isinstance(labels, LabelColumn):
        return _encode_list(labels)
    numbers = labels.numbers
    if len(numbers) < 2 or numbers[0] == numbers[-1]:
        return _encode_list(list(labels))
    varying_index = len(labels.head)
    mask = (1 << varying_index + 1 + len(labels.tail)) - 1 & ~(1 << varying_index)
    return len(numbers), mask, (*labels.head, tuple(numbers), *labels.tail)


def _encode_list(labels: list[Label]) -> EncodedLabels:
    # The result may contain lists instead of tuples; msgpack encodes both to the same bytes.
    return encode_rows(labels, of_integers=True)  # type: ignore[return-value]


def decode_labels(encoded: object) -> Labels:
    """Decode the result of `encode_labels`. Raises MalformedMessage for anything else.

    This checks all numbers of a `LabelColumn`, but not the items of a list.
    """
    count, mask, columns = checked_columns(encoded)
    varying = [] if mask == PLAIN else [i for i, _ in enumerate(columns) if not mask >> i & 1]
    if len(varying) != 1:
        return decode_rows(encoded)  # type: ignore[return-value]
    (varying_index,) = varying
    head, numbers, tail = (
        columns[:varying_index],
        columns[varying_index],
        columns[varying_index + 1 :],
    )
    if not isinstance(numbers, tuple) or len(numbers) != count:
        raise MalformedMessage(f"a batch of {count} labels contains a different number of labels")
    if not {*map(type, head), *map(type, numbers), *map(type, tail)} == {int}:
        raise MalformedMessage("labels that are not made of integers")
    return LabelColumn(tuple(head), numbers, tuple(tail))  # type: ignore[arg-type]
