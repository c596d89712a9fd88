"""The part that grows: it has what was added, and what was read of it before stays as it was."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given

from driftline.index.postings import tail as tails
from driftline.index.postings.parts import Keywords
from driftline.index.postings.tail import Tail
from tests.index.postings.model import (
    TEXT_FIELDS,
    VALUE_FIELDS,
    Row,
    check,
    many_rows,
    rows,
    tail_of,
    values_of,
)


@given(rows)
def test_a_tail_has_what_was_added_at_each_moment(some: list[Row]) -> None:
    tail = Tail(7, TEXT_FIELDS, VALUE_FIELDS)
    for number, row in enumerate(some):
        check(tail, 7, some[:number])
        tail.add(*row)
    check(tail, 7, some)


def test_a_tail_with_many_versions() -> None:
    some = many_rows(700, seed=1)
    check(tail_of(0, some), 0, some)


def reads(tail: Tail) -> Iterator[Callable[[], object]]:
    """What one can read of a tail now; each gives later what was read."""
    arrays = [tail.times, tail.deleted]
    for field in range(TEXT_FIELDS):
        arrays.append(tail.lengths(field))
        words = tail.words(field, "")
        next(words, None)
        after = list(tail.words(field, ""))[1:]
        yield lambda words=words, after=after: after.pop(0) == next(words) if after else True
        for word in list(tail.words(field, ""))[:9]:
            postings = tail.postings(field, word)
            assert postings is not None
            arrays += [postings.ordinals, postings.frequencies]
            yield lambda postings=postings: postings.ordinals.tolist()
            yield lambda postings=postings: postings.count
    for number in range(len(VALUE_FIELDS)):
        column = tail.values(number)
        if isinstance(column, Keywords):
            arrays += column[:2]
            yield lambda column=column: list(column.words)
        else:
            arrays.append(column)
    for array in arrays:
        yield lambda array=array: array.tobytes()


@pytest.mark.parametrize("recent", [0, 5, 1 << 10])
def test_what_was_read_does_not_change(recent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where arrays were moved because they were full."""
    monkeypatch.setattr(tails, "RECENT", recent)
    some = many_rows(150, seed=2)
    tail = Tail(0, TEXT_FIELDS, VALUE_FIELDS)
    before: list[tuple[Callable[[], object], object]] = []
    for number, row in enumerate(some):
        if number % 10 == 0:
            before += [(read, read()) for read in reads(tail)]
        tail.add(*row)
    assert all(read() == value for read, value in before)
    check(tail, 0, some)


def test_nobody_can_write_into_what_was_given_out() -> None:
    tail = tail_of(0, many_rows(3, seed=3))
    for array in (tail.times, tail.lengths(0), values_array(tail)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def values_array(tail: Tail):  # type: ignore[no-untyped-def]
    column = tail.values(1)
    assert not isinstance(column, Keywords)
    assert len(values_of(tail, 1)) == len(column)
    return column
