"""Random versions, and checks of a part against a simple computation from its versions."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise, product
from random import Random
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from driftline.index.documents.values import NO_DATE, Kind, Value, ValueKind
from driftline.index.documents.versions import DocumentVersion, words_of
from driftline.index.postings.memory_segment import MemorySegment
from driftline.index.postings.segment import DENSE_RATIO, SegmentPostings
from driftline.index.postings.segment_reader import Keywords, SegmentReader

TEXT_FIELDS = 2
VALUE_FIELDS: tuple[ValueKind, ...] = (Kind.KEYWORD, Kind.NUMBER, Kind.DATE)

_words = st.sampled_from(
    ["a", "ab", "abc", "b", "ba", "z", "ö", "日本", "😀", "x" * 255]
) | st.text(st.characters(codec="utf-8"), min_size=1, max_size=4)
_field = st.none() | st.lists(_words, max_size=12).map(words_of)
_values = st.tuples(
    st.none() | st.lists(_words, max_size=3).map(tuple),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
)
NOTHING: tuple[None, ...] = (None,) * len(VALUE_FIELDS)


class VersionRow(NamedTuple):
    """Version with the time of its label."""

    time: int
    version: DocumentVersion


_versions = st.builds(
    DocumentVersion,
    collection=st.just("documents"),
    id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=5),
    fields=st.tuples(_field, _field),
    values=_values,
    stored=st.binary(max_size=20),
)
rows = st.lists(st.builds(VersionRow, st.integers(-(2**63), 2**63 - 1), _versions), max_size=12)


def many_rows(number: int, seed: int) -> list[VersionRow]:
    """Draw versions with frequent and rare words, and long texts."""
    random = Random(seed)
    vocabulary = [f"word{i:x}" for i in range(500)]
    found = []
    for time in range(number):
        texts = [
            words_of(
                vocabulary[min(int(random.paretovariate(0.4)), 500) - 1]
                for _ in range(random.choice([0, 3, 40, 400]))
            )
            for _ in range(TEXT_FIELDS)
        ]
        keywords = tuple(random.choices(vocabulary, k=random.randrange(3)))
        version = DocumentVersion(
            "documents",
            f"id{random.randrange(number)}",
            tuple(texts),
            (keywords, random.random(), time),
            random.randbytes(random.randrange(5000)),
        )
        found.append(VersionRow(time, version))
    return found


def tail_of(first: int, some: list[VersionRow]) -> MemorySegment:
    """Return a tail with these versions."""
    tail = MemorySegment(first, TEXT_FIELDS, VALUE_FIELDS)
    for row in some:
        tail.add(*row)
    return tail


def postings_of(some: list[VersionRow], field: int) -> dict[str, list[tuple[int, tuple[int, ...]]]]:
    """Return word -> (ordinal, positions) of all versions that contain it."""
    found: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for ordinal, (_, version) in enumerate(some):
        words = version.fields[field]
        for word, positions in words.words if words else ():
            found.setdefault(word, []).append((ordinal, positions))
    return found


def check(part: SegmentReader, first: int, some: list[VersionRow]) -> None:
    """Check that a part has exactly these versions."""
    assert (part.first, part.count) == (first, len(some))
    fields = [field for row in some for field in row.version.fields if field is not None]
    assert part.postings_count == sum(len(field.words) for field in fields)
    assert (part.text_fields, tuple(part.value_fields)) == (TEXT_FIELDS, VALUE_FIELDS)
    assert part.times.tolist() == [row.time for row in some]
    assert [part.id(i) for i in range(len(some))] == [row.version.id for row in some]
    assert [part.stored(i) for i in range(len(some))] == [row.version.stored for row in some]
    for field in range(TEXT_FIELDS):
        check_field(part, field, some)
    for number in range(len(VALUE_FIELDS)):
        expected = [row.version.values[number] for row in some]
        if VALUE_FIELDS[number] is Kind.KEYWORD:
            # A part does not distinguish None and no keywords.
            expected = [value or () for value in expected]
        assert values_of(part, number) == expected


def check_field(part: SegmentReader, field: int, some: list[VersionRow]) -> None:
    """Check that a text field of a part has exactly these words."""
    fields = [row.version.fields[field] for row in some]
    assert part.lengths(field).tolist() == [words.length if words else 0 for words in fields]
    model = postings_of(some, field)
    words = sorted(model)
    assert list(part.words(field, "")) == words
    for start in [*words[::9], "b", "\U0010ffff"]:
        assert list(part.words(field, start)) == words[bisect_left(words, start) :]
        assert (part.postings(field, start + "!") is None) is (start + "!" not in model)
    for word, expected in model.items():
        postings = part.postings(field, word)
        assert postings is not None
        assert postings.count == len(expected)
        assert postings.ordinals.tolist() == [ordinal for ordinal, _ in expected]
        assert postings.frequencies.tolist() == [len(positions) for _, positions in expected]
        assert postings.ordinals.dtype == postings.frequencies.dtype == np.uint32
        for chosen in (range(len(expected)), range(1, len(expected), 97), range(0)):
            positions, begins = postings.positions(np.array(chosen, np.intp))
            assert len(begins) == len(chosen) + 1
            found = [tuple(positions[begin:end].tolist()) for begin, end in pairwise(begins)]
            assert found == [expected[row][1] for row in chosen]
        if isinstance(postings, SegmentPostings):
            check_dense_frequencies(postings, part.count)
    check_pairs(part, field, some)


def check_pairs(part: SegmentReader, field: int, some: list[VersionRow]) -> None:
    """Check that the pair index of a part has all pairs of successive common words."""
    expected: dict[tuple[str, str], dict[int, list[int]]] = {}
    for ordinal, (_, version) in enumerate(some):
        words = version.fields[field]
        at = {i: word for word, positions in words.words for i in positions} if words else {}
        for i, first in at.items():
            if (second := at.get(i + 1)) is not None:
                expected.setdefault((first, second), {}).setdefault(ordinal, []).append(i)
    common = [word for word in part.words(field, "") if part.has_pair(field, word, word)]
    for first, second in product(common, common):
        found: dict[int, list[int]] = {}
        if (postings := part.pair(field, first, second)) is not None:
            positions, begins = postings.positions(np.arange(postings.count))
            assert postings.frequencies.tolist() == np.diff(begins).tolist()
            for ordinal, (begin, end) in zip(postings.ordinals, pairwise(begins), strict=True):
                found[int(ordinal)] = positions[begin:end].tolist()
        assert found == {o: sorted(at) for o, at in expected.get((first, second), {}).items()}
    for first, second in expected:
        assert part.has_pair(field, first, second) == (first in common and second in common)


def check_dense_frequencies(postings: SegmentPostings, versions: int) -> None:
    """Check the dense frequencies, which exist only for words that many versions contain."""
    expected = [0] * versions
    for ordinal, frequency in zip(postings.ordinals, postings.frequencies, strict=True):
        expected[ordinal] = int(frequency)
    dense = postings.dense_frequencies
    assert (dense is None) == (postings.count * DENSE_RATIO < versions)
    assert dense is None or dense.tolist() == expected


def values_of(part: SegmentReader, number: int) -> list[Value | None]:
    """Return a column as a list of values of the versions."""
    column = part.values(number)
    if isinstance(column, Keywords):
        assert list(column.words) == sorted(set(column.words))
        texts = [column.words[i] for i in column.numbers.tolist()]
        return [tuple(texts[begin:end]) for begin, end in pairwise(column.offsets.tolist())]
    if column.dtype == np.float64:
        return [None if np.isnan(value) else value for value in column.tolist()]
    return [None if value == NO_DATE else value for value in column.tolist()]
