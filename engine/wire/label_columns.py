"""The labels of a batch: a list, or a *run* of labels that differ in one number only.

The outputs of one element are a run, and so are the roots of one front. As nearly all batches are
one or the other, nearly everywhere a batch's labels are one column of numbers: on the wire, at the
operators, at the barrier, in a blob. Label by label they are looked at only when one comes late.

    >>> run = LabelColumn((7, 0), (2, 5))
    >>> list(run)
    [(7, 0, 2), (7, 0, 5)]
    >>> decode_rows(encode_labels(run)) == list(run)
    True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from operator import itemgetter

from driftline.engine.errors import MalformedMessage
from driftline.engine.labels import Label
from driftline.engine.wire.codec import PLAIN, Columns, decode_rows, encode_label_list

_time_of = itemgetter(0)


class LabelColumn:
    """Labels (*head, number, *tail). Never changes."""

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


def select(labels: Labels, chosen: Iterable[object]) -> Labels:
    """The labels for which `chosen` is true."""
    if isinstance(labels, LabelColumn):
        return LabelColumn(labels.head, list(compress(labels.numbers, chosen)), labels.tail)
    return list(compress(labels, chosen))


def divided(labels: Labels, count: int) -> tuple[Labels, Labels]:
    """The first `count` labels, and the others."""
    if isinstance(labels, LabelColumn):
        head, numbers, tail = labels.head, labels.numbers, labels.tail
        return LabelColumn(head, numbers[:count], tail), LabelColumn(head, numbers[count:], tail)
    return labels[:count], labels[count:]


def numbered(labels: Labels, number: int) -> Labels:
    """The labels of the children with this number."""
    if isinstance(labels, LabelColumn):
        return LabelColumn(labels.head, labels.numbers, (*labels.tail, number))
    return [(*label, number) for label in labels]


def times(labels: Labels) -> Sequence[int]:
    """The time of each label, or just one where all have the same."""
    if isinstance(labels, LabelColumn):
        return labels.head[:1] or labels.numbers
    return list(map(_time_of, labels))


def in_order(labels: Labels) -> bool:
    """Whether no label is smaller than the one before."""
    if isinstance(labels, LabelColumn):
        return list(labels.numbers) == sorted(labels.numbers)
    return labels == sorted(labels)


def encode_labels(labels: Labels) -> Columns:
    """Encode labels. Equal labels have equal bytes, run or not."""
    if not isinstance(labels, LabelColumn):
        return encode_label_list(labels)
    numbers = labels.numbers
    if len(numbers) < 2 or numbers[0] == numbers[-1]:
        return encode_label_list(list(labels))
    varies = len(labels.head)
    mask = (1 << varies + 1 + len(labels.tail)) - 1 & ~(1 << varies)
    return len(numbers), mask, (*labels.head, list(numbers), *labels.tail)


def decode_labels(encoded: Columns) -> Labels:
    """Decode `encode_labels`. Raises MalformedMessage."""
    count, mask, columns = encoded
    varying = [] if mask == PLAIN else [i for i, _ in enumerate(columns) if not mask >> i & 1]
    if len(varying) != 1:
        return decode_rows(encoded)  # type: ignore[return-value]
    (at,) = varying
    head, numbers, tail = columns[:at], columns[at], columns[at + 1 :]
    if not isinstance(numbers, tuple) or len(numbers) != count:
        raise MalformedMessage(f"{count} labels announced, other than that there")
    if not {*map(type, head), *map(type, numbers), *map(type, tail)} == {int}:
        raise MalformedMessage("labels of something else than integers")
    return LabelColumn(tuple(head), numbers, tuple(tail))  # type: ignore[arg-type]
